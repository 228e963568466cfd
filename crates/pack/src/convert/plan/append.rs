//! Continues an existing dataset (`--append`).

use std::collections::BTreeMap;

use hsipack_format::metadata::MaskMeaning;
use hsipack_format::remedy::Value;
use hsipack_format::{Codec, DType, Error, Grid, Opt, Result, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, Stack};

use super::differences::recipe_of;
use super::integers::types_of;
use super::{PlannedMask, PlannedStack, bits};
use crate::convert::companions::PlannedCompanion;
use crate::convert::masks::MaskGroup;
use crate::convert::options::{
    BandGroup, KeepBits, LayoutOptions, PackedType, Scale, ValueOptions,
};
use crate::precision;
use crate::validate::recipe::Recipe;

/// A planned stack that continues `stack` of the dataset, with the same grid, scale and bands.
///
/// # Errors
/// If another layout is requested than the stack has, or the layout is not hsipack's.
pub(super) fn continued(
    fresh: PlannedStack,
    stack: &Stack,
    values: &ValueOptions,
    layout: &LayoutOptions,
) -> Result<PlannedStack> {
    let notes = stack.image.meta().band_notes();
    let codec = |array: &ChunkArray| {
        let codecs = array.meta().codecs;
        codecs
            .compression
            .filter(|_| codecs.checksum && array.meta().chunk_shape.is_some())
            .ok_or_else(|| {
                Error::unsupported(
                    "chunks are not sharded, compressed with blosc and checked with crc32c",
                )
                .with_remedy("pack a new dataset; only hsipack's own layout can be appended to")
            })
    };
    let masks = stack.masks.iter().map(|mask| {
        let MaskMeaning { layers, class_names, class_colors, origin } = mask.meta().mask_meaning();
        Ok(PlannedMask {
            name: mask.name().to_owned(),
            dtype: mask.meta().dtype,
            grid: *mask.grid(),
            codec: codec(mask)?,
            layers,
            class_names,
            class_colors,
            origin,
        })
    });
    let companions = stack.companions.iter().map(|companion| {
        let meaning = companion.meta().companion_meaning();
        Ok(PlannedCompanion {
            name: companion.name().to_owned(),
            dtype: companion.meta().dtype,
            grid: *companion.grid(),
            codec: codec(companion)?,
            meaning: meaning.ok_or_else(|| Error::bug("a companion without a role"))?,
        })
    });
    let image_codec = codec(&stack.image)?;
    check_layout(&fresh, stack, image_codec, values, layout)?;
    Ok(PlannedStack {
        grid: *stack.image.grid(),
        codec: image_codec,
        existing: stack.image.len(),
        scale: stack.image.scale_factor(),
        offset: stack.image.add_offset(),
        missing: stack.image.meta().missing(),
        unit: stack.image.meta().unit(),
        wavelength: stack.wavelength.clone(),
        fwhm: stack.fwhm.clone(),
        good_bands: notes.good_bands,
        band_names: notes.band_names,
        masks: masks.collect::<Result<_>>()?,
        companions: companions.collect::<Result<_>>()?,
        ..fresh
    })
}

/// Refuses options that ask for another layout than `stack` has, for the `fresh` stack that they
/// would make. Options with their default value ask for nothing, and sizes of blocks and shards are
/// only aims.
fn check_layout(
    fresh: &PlannedStack,
    stack: &Stack,
    codec: Codec,
    values: &ValueOptions,
    layout: &LayoutOptions,
) -> Result<()> {
    let dtype = stack.image.meta().dtype;
    if values.dtype != PackedType::Auto && values.dtype() != dtype {
        return Err(Error::conflict(format!(
            "the dataset's cubes of {} are {dtype}, but {} is requested",
            fresh.name,
            values.dtype()
        ))
        .with_remedy(remedy![
            "append cubes of this shape with ",
            Opt::Dtype.to(dtype.to_string())
        ]));
    }
    let defaults = LayoutOptions::default();
    let [requested, packed] = [&fresh.grid, stack.image.grid()];
    let tile = |grid: &Grid| Value::from([grid.tile().rows as u64, grid.tile().columns as u64]);
    let bands = |grid: &Grid| Value::from(grid.band_group() as u64);
    let has_bands = matches!(layout.band_group, Some(BandGroup::Bands(_)));
    let has_scale = matches!(values.scale, Scale::Factor(_));
    let level = |level: u8| Value::from(u64::from(level));
    for (is_given, option, requested, packed) in [
        (layout.chunk.is_some(), Opt::Chunk, tile(requested), tile(packed)),
        (has_bands, Opt::BandGroup, bands(requested), bands(packed)),
        (
            layout.codec != defaults.codec,
            Opt::Codec,
            layout.codec.name().into(),
            codec.compressor.name().into(),
        ),
        (layout.level != defaults.level, Opt::Level, level(layout.level), level(codec.level)),
        (
            layout.filter != defaults.filter,
            Opt::Filter,
            layout.filter.name().into(),
            codec.shuffle.name().into(),
        ),
        (has_scale, Opt::Scale, fresh.scale.into(), stack.image.scale_factor().into()),
    ] {
        if is_given && requested != packed {
            let (requested, packed) = (option.to(requested), option.to(packed));
            return Err(Error::conflict(format!(
                "the dataset's cubes of {} are packed with {packed}, but {requested} is given",
                fresh.name
            ))
            .with_remedy(remedy!["append with ", packed, ", or without this option"]));
        }
    }
    Ok(())
}

/// Masks of `base` that were added after packing, by their names. New cubes have no files for them.
pub(super) fn made_masks(base: Option<&Dataset>) -> BTreeMap<String, MaskMeaning> {
    let stacks = base.into_iter().flat_map(Dataset::stacks);
    let masks = stacks.flat_map(|stack| &stack.masks);
    let masks = masks.map(|mask| (mask.name().to_owned(), mask.meta().mask_meaning()));
    masks.filter(|(_, meaning)| meaning.origin.is_some()).collect()
}

/// The masks of new cubes, sorted by name: those that have files, and those that were added to the
/// dataset after packing, which have no patterns.
///
/// # Errors
/// If files are given for a mask that was added after packing.
pub(super) fn with_made(
    mut groups: Vec<MaskGroup>,
    added_masks: &BTreeMap<String, MaskMeaning>,
) -> Result<Vec<MaskGroup>> {
    if let Some(group) = groups.iter().find(|group| added_masks.contains_key(&group.name)) {
        return Err(Error::conflict(format!(
            "mask {} was added to the dataset after packing, so files for new cubes cannot be given",
            group.name
        ))
        .with_remedy(remedy!["leave it out of ", Opt::Mask, "; the mask is 0 in new cubes"]));
    }
    groups.extend(added_masks.keys().map(|name| MaskGroup {
        name: name.clone(),
        patterns: Vec::new(),
        classes: Vec::new(),
        class_names: Vec::new(),
        colors: Vec::new(),
        resample: None,
        all_touched: false,
    }));
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(groups)
}

/// Refuses to append if options that decide the layout, or the meaning of values, differ from those
/// of the existing dataset.
///
/// # Errors
/// If the dataset was packed with another dtype, normalisation or choice of `--raw-values`, keeps
/// another number of mantissa bits, or its values have an `add_offset`, which packing never writes.
pub fn check_append(values: &ValueOptions, base: &Dataset) -> Result<()> {
    let is_shifted_float =
        |stack: &&Stack| stack.image.add_offset() != 0.0 && stack.image.meta().dtype.is_float();
    if let Some(stack) = base.stacks().iter().find(is_shifted_float) {
        return Err(Error::unsupported(format!(
            "values of the dataset have an add_offset ({}), but values of new cubes would have none",
            stack.image.add_offset()
        ))
        .at(stack.image.folder())
        .with_remedy("pack the new cubes as a separate dataset"));
    }
    let types: Vec<DType> = types_of(base.stacks()).into_iter().map(|(dtype, _)| dtype).collect();
    if values.dtype != PackedType::Auto && !types.contains(&values.dtype()) && !types.is_empty() {
        let names: Vec<String> = types.iter().map(DType::to_string).collect();
        return Err(Error::conflict(format!(
            "the dataset holds {}, but {} is requested",
            names.join(", "),
            values.dtype()
        ))
        .at(base.path())
        .with_remedy(remedy![
            "append with ",
            Opt::Dtype.to(match types[..] {
                [dtype] => dtype.to_string(),
                _ => "auto".to_owned(),
            })
        ]));
    }
    check_meaning(values, base)?;
    check_keep_bits(values, base)
}

/// Refuses cubes whose values would mean something else than those of the dataset.
fn check_meaning(ours: &ValueOptions, base: &Dataset) -> Result<()> {
    let Some(Recipe { values: theirs, .. }) = recipe_of(base) else { return Ok(()) };
    if theirs.normalize != ours.normalize {
        return Err(Error::conflict(format!(
            "spectra of the dataset were packed with normalisation {}, but those of the new cubes with {}",
            theirs.normalize, ours.normalize
        ))
        .at(base.path())
        .with_remedy(remedy!["append with ", Opt::Normalize.to(theirs.normalize.name())]));
    }
    if theirs.raw_values != ours.raw_values {
        let (theirs, ours) = match theirs.raw_values {
            true => ("stored numbers", "physical values"),
            false => ("physical values", "stored numbers"),
        };
        return Err(Error::conflict(format!(
            "the dataset holds {theirs}, but the new cubes would be packed as {ours}"
        ))
        .at(base.path())
        .with_remedy(match ours {
            "physical values" => remedy!["append with ", Opt::RawValues],
            _ => remedy!["leave out ", Opt::RawValues],
        }));
    }
    Ok(())
}

fn check_keep_bits(values: &ValueOptions, base: &Dataset) -> Result<()> {
    let all = precision::mantissa_bits(values.dtype());
    let theirs = bits::kept(base).unwrap_or(all);
    let requested = match values.keep_bits {
        KeepBits::Auto => return Ok(()),
        KeepBits::All => all,
        KeepBits::Bits(bits) => bits,
    };
    if requested == theirs {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "the dataset keeps {theirs} of {all} mantissa bits, but {requested} are requested"
    ))
    .at(base.path())
    .with_remedy(remedy![
        "append with ",
        Opt::KeepBits.to(u64::from(theirs)),
        " or ",
        Opt::KeepBits.to("auto")
    ]))
}
