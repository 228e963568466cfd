//! Whether stacks of the same shape fit together, and what they become.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::{Codec, CubeShape, Error, Geo, Grid, Opt, Result, Tile, mask, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, Stack};

use super::MergeOptions;
use crate::convert::plan::{MAX_SPLITS, PlannedMask, PlannedStack, difference_notes, recipe_of};
use crate::convert::stats::StackStats;
use crate::convert::{
    KeepBits, PackedType, PlannedCompanion, ValueOptions, classes, masks, shared_geo,
};
use crate::validate::recipe::Recipe;

/// A stack of the merged dataset.
pub(super) struct MergedStack {
    /// Its layout and meaning.
    pub planned: PlannedStack,
    /// Type and mantissa bits of its values.
    pub values: ValueOptions,
    /// Statistics of its values.
    pub stats: StackStats,
    /// The georeferencing that all of its samples share.
    pub geo: Option<Geo>,
    /// Numbers of the datasets that have it.
    pub parts: Vec<usize>,
}

impl MergedStack {
    /// Number of its cubes.
    pub fn len(&self, datasets: &[Dataset]) -> usize {
        self.stacks(datasets).map(|stack| stack.image.len()).sum()
    }

    /// The stacks that it consists of.
    pub fn stacks<'a>(&'a self, datasets: &'a [Dataset]) -> impl Iterator<Item = &'a Stack> {
        let name = &self.planned.name;
        self.parts.iter().filter_map(|part| datasets[*part].stack(name))
    }
}

/// The names of all masks.
pub(super) fn mask_names(datasets: &[Dataset]) -> BTreeSet<String> {
    let stacks = datasets.iter().flat_map(Dataset::stacks);
    stacks.flat_map(|stack| &stack.masks).map(|mask| mask.name().to_owned()).collect()
}

/// The stacks of the merged dataset, in the order of their names.
///
/// # Errors
/// If stacks of the same shape, or masks of the same name, do not fit together.
pub(super) fn merged(
    datasets: &[Dataset],
    options: &MergeOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<MergedStack>> {
    check_meaning(datasets, notes)?;
    let mut parts: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, dataset) in datasets.iter().enumerate() {
        for stack in dataset.stacks() {
            parts.entry(&stack.name).or_default().push(number);
        }
    }
    let (masks, companions) = (Masks::of(datasets, options)?, Companions::of(datasets)?);
    parts
        .into_iter()
        .map(|(name, parts)| {
            let sources = parts
                .iter()
                .filter_map(|part| Some((&datasets[*part], datasets[*part].stack(name)?)));
            let sources: Vec<(&Dataset, &Stack)> = sources.collect();
            let (planned, values) = planned(&sources, &masks, &companions, options, notes)?;
            let (stats, geo) = (stats(&sources, options, notes)?, geo(&sources)?);
            Ok(MergedStack { planned, values, stats, geo, parts })
        })
        .collect()
}

/// Refuses datasets whose values mean different things, and notes other differences of options.
fn check_meaning(datasets: &[Dataset], notes: &mut Vec<String>) -> Result<()> {
    let recipes = datasets.iter().filter_map(|dataset| Some((dataset, recipe_of(dataset)?)));
    let recipes: Vec<(&Dataset, Recipe)> = recipes.collect();
    let Some(((first, of_first), others)) = recipes.split_first() else { return Ok(()) };
    let mut stacks = datasets.iter().flat_map(Dataset::stacks);
    let has_wavelengths = stacks.all(|stack| stack.wavelength.is_some());
    for (dataset, recipe) in others {
        let [words, of] = [("the cubes of", dataset), ("those of", first)]
            .map(|(words, dataset)| format!("{words} {}", dataset.path().display()));
        notes.extend(difference_notes([recipe, of_first], [&words, &of], has_wavelengths));
        let (ours, theirs) = (&of_first.values, &recipe.values);
        let what = if theirs.normalize != ours.normalize {
            format!("normalisation {}, but those of {{}} with {}", theirs.normalize, ours.normalize)
        } else if theirs.raw_values != ours.raw_values {
            let word = |raw| if raw { "stored numbers" } else { "physical values" };
            format!("{}, but those of {{}} as {}", word(theirs.raw_values), word(ours.raw_values))
        } else {
            continue;
        };
        let what = what.replace("{}", &first.path().display().to_string());
        return Err(Error::conflict(format!("its values were packed with {what}"))
            .at(dataset.path())
            .with_remedy("pack one of them again with the options of the other"));
    }
    Ok(())
}

fn differs(what: &str, first: &Stack, other: &Stack, values: [String; 2]) -> Error {
    let [ours, theirs] = values;
    Error::conflict(format!(
        "{what} of {} is {theirs}, but {ours} in {}",
        other.name,
        first.image.folder().display()
    ))
    .at(other.image.folder())
    .with_remedy("pack one of the datasets again with the options of the other")
}

/// The layout and meaning of a merged stack.
fn planned(
    sources: &[(&Dataset, &Stack)],
    masks: &Masks,
    companions: &Companions,
    options: &MergeOptions,
    notes: &mut Vec<String>,
) -> Result<(PlannedStack, ValueOptions)> {
    let first = sources[0].1;
    let image = &first.image;
    // The first stack that knows the wavelengths gives them.
    let mut with_wavelengths: Option<(&Stack, &Vec<f64>)> = None;
    let band_notes = image.meta().band_notes();
    let mut keep_bits = band_notes.keep_bits;
    for (_, stack) in sources {
        let other = &stack.image;
        for ((what, ours), (_, theirs)) in layout(image).into_iter().zip(layout(other)) {
            if ours != theirs {
                return Err(differs(what, first, stack, [ours, theirs]));
            }
        }
        codec(other)?;
        if image.add_offset() != 0.0 && image.meta().dtype.is_float() {
            return Err(Error::unsupported("values with an add_offset cannot be merged")
                .at(other.folder())
                .with_remedy("pack the cubes again"));
        }
        if let Some(theirs) = &stack.wavelength {
            match with_wavelengths {
                Some(ours) => {
                    check_wavelengths(ours, (stack, theirs), options.wavelength_tolerance)?;
                }
                None => with_wavelengths = Some((stack, theirs)),
            }
        }
        let theirs = other.meta().band_notes();
        if theirs.good_bands != band_notes.good_bands {
            notes.push(format!(
                "{}: its bad-band list differs from that of {}, which is kept",
                other.folder().display(),
                image.folder().display()
            ));
        }
        keep_bits = keep_bits.filter(|bits| theirs.keep_bits == Some(*bits));
    }
    notes.extend(differences(sources, with_wavelengths.map(|(stack, _)| stack)));
    let per_shard = sources.iter().map(|(_, stack)| stack.image.grid().samples_per_shard());
    let grid = Grid::new(image.shape(), image.grid().tile(), per_shard.max().unwrap_or(1))?;
    let grid = grid.in_band_groups(image.grid().band_group())?;
    let planned = PlannedStack {
        name: first.name.clone(),
        grid,
        codec: codec(image)?,
        samples: Vec::new(),
        existing: 0,
        scale: image.scale_factor(),
        offset: image.add_offset(),
        missing: image.meta().missing(),
        unit: image.meta().unit().filter(|unit| {
            sources.iter().all(|(_, stack)| stack.image.meta().unit().as_ref() == Some(unit))
        }),
        wavelength: with_wavelengths.map(|(_, nm)| nm.clone()),
        fwhm: with_wavelengths.and_then(|(stack, _)| stack.fwhm.clone()),
        good_bands: band_notes.good_bands,
        band_names: band_notes.band_names,
        masks: masks.planned(sources, &grid)?,
        companions: companions.planned(sources, &grid)?,
    };
    let values = ValueOptions {
        dtype: packed_type(image)?,
        keep_bits: keep_bits.map_or(KeepBits::All, KeepBits::Bits),
        ..ValueOptions::default()
    };
    Ok((planned, values))
}

/// Notes about parts of a stack whose units, wavelengths or fwhm differ; the bands of all are those
/// of `kept`.
fn differences(sources: &[(&Dataset, &Stack)], kept: Option<&Stack>) -> Vec<String> {
    let folder = |stack: &Stack| stack.image.folder().display().to_string();
    let mut notes = Vec::new();
    let unit = |stack: &Stack| stack.image.meta().unit();
    let with_unit = sources.iter().find_map(|(_, stack)| Some((*stack, unit(stack)?)));
    for (_, stack) in sources {
        if let (Some((first, ours)), Some(theirs)) = (&with_unit, unit(stack))
            && *ours != theirs
        {
            notes.push(format!(
                "{}: its values are in {theirs}, but those of {} are in {ours}",
                folder(stack),
                folder(first)
            ));
        }
        let Some(kept) = kept else { continue };
        if stack.wavelength.is_none() {
            notes.push(format!(
                "{}: it gives no wavelengths; those of {} are used",
                folder(stack),
                folder(kept)
            ));
        } else if stack.fwhm.is_some() && stack.fwhm != kept.fwhm {
            notes.push(format!(
                "{}: its fwhm differ from those of {}, which are kept",
                folder(stack),
                folder(kept)
            ));
        }
    }
    notes
}

/// Properties that must be equal in all parts of a stack.
fn layout(image: &ChunkArray) -> [(&'static str, String); 7] {
    let (tile, group) = (image.grid().tile(), image.grid().band_group());
    [
        ("the type", image.meta().dtype.to_string()),
        ("the scale factor", image.scale_factor().to_string()),
        ("the offset", image.add_offset().to_string()),
        ("the fill value", fill_value(image)),
        ("the chunk shape", format!("{}x{}", tile.rows, tile.columns)),
        ("the number of bands of a chunk", group.to_string()),
        ("the compression", compression(image)),
    ]
}

fn fill_value(image: &ChunkArray) -> String {
    image.meta().missing().map_or("none".to_owned(), |missing| missing.to_string())
}

/// The type of the values of an image.
///
/// # Errors
/// If values are never packed so.
fn packed_type(image: &ChunkArray) -> Result<PackedType> {
    let dtype = image.meta().dtype;
    PackedType::of(dtype).ok_or_else(|| {
        Error::unsupported(format!("the image array has the type {dtype}")).at(image.folder())
    })
}

/// The parts of the compression that must be equal, because other readers take them from the
/// metadata of the array. They take the level and the block size from each chunk.
fn compression(array: &ChunkArray) -> String {
    let codec = array.meta().codecs.compression;
    codec.map_or("none".to_owned(), |codec| {
        let Codec { compressor, shuffle, typesize, .. } = codec;
        format!("{compressor} (shuffle {shuffle}, {typesize}-byte elements)")
    })
}

fn codec(array: &ChunkArray) -> Result<Codec> {
    let codecs = array.meta().codecs;
    let is_ours = codecs.checksum && array.meta().chunk_shape.is_some();
    codecs.compression.filter(|_| is_ours).ok_or_else(|| {
        Error::unsupported("chunks are not sharded, compressed with blosc and checked with crc32c")
            .at(array.folder())
            .with_remedy("only datasets that hsipack wrote can be merged")
    })
}

fn check_wavelengths(
    (first, ours): (&Stack, &Vec<f64>),
    (stack, theirs): (&Stack, &Vec<f64>),
    tolerance: f64,
) -> Result<()> {
    let far = |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() > tolerance;
    match ours.iter().zip(theirs).position(far) {
        None => Ok(()),
        Some(band) => Err(Error::conflict(format!(
            "band {band} is at {} nm, but at {} nm in {}",
            theirs[band],
            ours[band],
            first.image.folder().display()
        ))
        .at(stack.image.folder())
        .with_remedy(remedy![
            "read the datasets together without merging them, or pass a larger ",
            Opt::WavelengthTolerance
        ])),
    }
}

/// Statistics of all samples. A split gets none if some of its samples have none.
fn stats(
    sources: &[(&Dataset, &Stack)],
    options: &MergeOptions,
    notes: &mut Vec<String>,
) -> Result<StackStats> {
    let splits_are_datasets = options.column.as_deref() == Some("split");
    let mut all: Option<StackStats> = None;
    let mut unknown = BTreeSet::new();
    for (dataset, stack) in sources {
        let of = StackStats::of(stack.image.meta());
        let mut stats = of.map_err(|error| error.at(stack.image.folder()))?;
        if splits_are_datasets {
            stats.splits = BTreeMap::from([(super::title(dataset.path()), stats.all.clone())]);
        } else {
            let number = dataset.stacks().iter().position(|other| other.name == stack.name);
            let ids = number.into_iter().flat_map(|stack| dataset.samples().ids_in(stack));
            let splits = ids.filter_map(|id| dataset.samples().splits().get(id));
            unknown.extend(splits.filter(|split| !stats.splits.contains_key(*split)).cloned());
        }
        match &mut all {
            Some(all) => all.merge(&stats),
            None => all = Some(stats),
        }
    }
    let mut all = all.ok_or_else(|| Error::bug("a stack without parts"))?;
    all.splits.retain(|split, _| !unknown.contains(split));
    if all.splits.len() > MAX_SPLITS {
        all.splits.clear();
        unknown.clear();
        notes.push(format!(
            "{}: there are more than {MAX_SPLITS} splits, so no statistics of splits are recorded",
            sources[0].1.name
        ));
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().take(5).map(String::as_str).collect();
        notes.push(format!(
            "{}: no statistics are recorded of the splits {}{}, because a merged dataset has none of them",
            sources[0].1.name,
            names.join(", "),
            if unknown.len() > names.len() { ", …" } else { "" }
        ));
    }
    Ok(all)
}

/// The georeferencing that all parts share.
fn geo(sources: &[(&Dataset, &Stack)]) -> Result<Option<Geo>> {
    let mut all = sources.iter().map(|(dataset, stack)| shared_geo::recorded(dataset, stack));
    let first = all.next().transpose()?.flatten();
    let same = all.map(|geo| Ok(geo? == first)).collect::<Result<Vec<bool>>>()?;
    Ok(first.filter(|_| same.iter().all(|is_same| *is_same)))
}

/// The masks of all stacks.
struct Masks {
    all: Vec<PlannedMask>,
}

impl Masks {
    /// The masks of all datasets. Their layout is that of no stack yet.
    fn of(datasets: &[Dataset], options: &MergeOptions) -> Result<Self> {
        let mut all: BTreeMap<String, PlannedMask> = BTreeMap::new();
        let stacks = datasets.iter().flat_map(Dataset::stacks);
        for mask in stacks.flat_map(|stack| &stack.masks) {
            let meaning = mask.meta().mask_meaning();
            let next = PlannedMask {
                name: mask.name().to_owned(),
                dtype: mask.meta().dtype,
                grid: *mask.grid(),
                codec: codec(mask)?,
                layers: meaning.layers,
                class_names: meaning.class_names,
                class_colors: meaning.class_colors,
                origin: meaning.origin,
            };
            let Some(mask_of_all) = all.get_mut(mask.name()) else {
                all.insert(mask.name().to_owned(), next);
                continue;
            };
            if mask_of_all.layers != next.layers {
                return Err(Error::conflict(format!(
                    "mask {} has the layers {:?} here, but {:?} in another stack or dataset",
                    next.name, next.layers, mask_of_all.layers
                ))
                .at(mask.folder())
                .with_remedy("pack one of the datasets again with the layers of the other"));
            }
            let names =
                classes::together(&next.name, mask_of_all.class_names.take(), next.class_names);
            mask_of_all.class_names = names.map_err(|error| error.at(mask.folder()))?;
            classes::colors_together(&mut mask_of_all.class_colors, &next.class_colors);
            mask_of_all.origin = mask_of_all.origin.take().or(next.origin);
            mask_of_all.dtype = mask::wider(mask_of_all.dtype, next.dtype);
        }
        let mut all: Vec<PlannedMask> = all.into_values().collect();
        for mask in &mut all {
            mask.dtype = mask::wider(mask.dtype, mask::dtype_for(options.mask_fill.into()));
        }
        Ok(Self { all })
    }

    /// The masks of a stack whose images have the grid `image`.
    fn planned(&self, sources: &[(&Dataset, &Stack)], image: &Grid) -> Result<Vec<PlannedMask>> {
        let flat = CubeShape { bands: 1, ..image.shape() };
        let masks = self.all.iter().map(|mask| {
            let stored = sources.iter().find_map(|(_, stack)| stack.mask(&mask.name));
            let tile = stored.map_or_else(|| masks::tile(flat), |array| array.grid().tile());
            let grid = Grid::new(flat, tile, image.samples_per_shard())?;
            let codec = stored.map(codec).transpose()?.unwrap_or(mask.codec);
            Ok(PlannedMask { grid, codec, ..mask.clone() })
        });
        masks.collect()
    }
}

/// The companions of all stacks.
struct Companions {
    all: Vec<PlannedCompanion>,
}

impl Companions {
    /// The companions of all datasets. Their layout is that of no stack yet.
    fn of(datasets: &[Dataset]) -> Result<Self> {
        let mut all: BTreeMap<String, PlannedCompanion> = BTreeMap::new();
        let stacks = || datasets.iter().flat_map(Dataset::stacks);
        for array in stacks().flat_map(|stack| &stack.companions) {
            let meaning = array.meta().companion_meaning();
            let companion = PlannedCompanion {
                name: array.name().to_owned(),
                dtype: array.meta().dtype,
                grid: *array.grid(),
                codec: codec(array)?,
                meaning: meaning.ok_or_else(|| Error::bug("a companion without a role"))?,
            };
            let first = all.entry(companion.name.clone()).or_insert_with(|| companion.clone());
            let is_mask = stacks().any(|stack| stack.mask(array.name()).is_some());
            let (ours, bands) = (first.grid.shape().bands, companion.grid.shape().bands);
            let role = companion.meaning.role;
            let what = match () {
                () if is_mask => "is a mask in another dataset".to_owned(),
                () if first.meaning.role != role => {
                    format!("is a {} in another stack or dataset", first.meaning.role.words())
                }
                () if ours != bands => {
                    let name = role.bands();
                    format!("has {bands} {name}s here, but {ours} in another stack or dataset")
                }
                () if first.dtype != companion.dtype => {
                    format!(
                        "is {} here, but {} in another stack or dataset",
                        companion.dtype, first.dtype
                    )
                }
                () if first.meaning.ratio != companion.meaning.ratio => format!(
                    "has {} times the rows and columns of its cubes here, but {} times in another stack or dataset",
                    companion.meaning.ratio, first.meaning.ratio
                ),
                () if first.meaning != companion.meaning => {
                    let name = role.bands();
                    format!("has another unit or other {name}s than in another stack or dataset")
                }
                () => continue,
            };
            return Err(Error::conflict(format!("{} {} {what}", role.words(), companion.name))
                .at(array.folder())
                .with_remedy("pack one of the datasets again"));
        }
        let mut all: Vec<PlannedCompanion> = all.into_values().collect();
        all.sort_by_key(|companion| companion.meaning.role);
        Ok(Self { all })
    }

    /// The companions of a stack whose images have the grid `image`.
    fn planned(
        &self,
        sources: &[(&Dataset, &Stack)],
        image: &Grid,
    ) -> Result<Vec<PlannedCompanion>> {
        let companions = self.all.iter().map(|companion| {
            let (name, ratio) = (&companion.name, companion.meaning.ratio);
            let length = |length: usize| {
                ratio.length(length).ok_or_else(|| {
                    Error::conflict(format!(
                        "further image {name} has {ratio} times the rows and columns of its cubes, which is not whole for cubes of {}",
                        image.shape()
                    ))
                    .with_remedy("merge datasets whose cubes have the same shape")
                })
            };
            let shape = CubeShape {
                rows: length(image.shape().rows)?,
                columns: length(image.shape().columns)?,
                bands: companion.grid.shape().bands,
            };
            let all = sources.iter().filter_map(|(_, stack)| stack.companion(name));
            let Some(first) = all.clone().next() else {
                // No part of the stack has it, so all its values are missing.
                let tile = Tile::slab(shape, companion.dtype.size(), TARGET_CHUNK);
                let grid = Grid::new(shape, tile, image.samples_per_shard())?;
                return Ok(PlannedCompanion { grid, ..companion.clone() });
            };
            let chunk = |array: &ChunkArray| (array.grid().tile(), array.grid().band_group());
            for other in all {
                if chunk(other) != chunk(first) || compression(other) != compression(first) {
                    return Err(Error::conflict(format!(
                        "{} {name} has other chunks, or is compressed in another way, than in {}",
                        companion.meaning.role.words(),
                        first.folder().display()
                    ))
                    .at(other.folder())
                    .with_remedy("pack one of the datasets again with the options of the other"));
                }
            }
            let (tile, group) = chunk(first);
            let grid = Grid::new(shape, tile, image.samples_per_shard())?.in_band_groups(group)?;
            Ok(PlannedCompanion { grid, codec: codec(first)?, ..companion.clone() })
        });
        companions.collect()
    }
}
