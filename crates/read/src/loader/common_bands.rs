//! Checks whether images of several datasets can be in one batch, and how they get the same bands
//! and type.

use std::collections::BTreeMap;

use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands, SpectralResponse};
use hsipack_format::{Command, CubeShape, DType, Opt, remedy};

use super::band_fit::{BandFit, CommonBands, Response};
use super::member::{Member, stacks_of};
use crate::dataset::{FloatType, Integers};
use crate::{Error, Result};

/// Checks that images of all datasets can be in one batch, and decides how they get the same bands
/// and type.
///
/// # Errors
/// If windows have different sizes, masks differ, or bands differ and nothing says how to bring
/// them together; if a dataset has no wavelengths and is to be resampled.
pub(super) fn fit_members(members: Vec<Member>) -> Result<Vec<Member>> {
    let first = &members[0];
    let common = first.options.common_bands.clone();
    check_windows(first, first)?;
    for member in &members[1..] {
        check_windows(first, member)?;
        check_masks(first, member)?;
    }
    if common.is_none() {
        members[1..].iter().try_for_each(|member| check_bands(first, member))?;
    }
    let dtype = common_type(&members, common.as_ref())?;
    let bands = match &common {
        Some(CommonBands { wavelengths: Some(wavelengths), .. }) => wavelengths.len(),
        _ => members.iter().map(bands_of).max().unwrap_or(0),
    };
    let fitted = members.into_iter().map(|member| {
        let responses = match &common {
            Some(CommonBands { wavelengths: Some(wavelengths), fwhm }) => {
                responses(&member, wavelengths, fwhm.as_deref())?
            }
            _ => BTreeMap::new(),
        };
        let fit = BandFit { bands, dtype, responses };
        let is_needed = fit.resamples() || bands_of(&member) != bands || type_of(&member)? != dtype;
        member.fitted(is_needed.then_some(fit))
    });
    fitted.collect()
}

/// Number of bands that are read from a dataset.
fn bands_of(member: &Member) -> usize {
    let shape = member.plan.shapes().first();
    member.options.bands.as_ref().map_or(shape.map_or(0, |shape| shape.bands), Vec::len)
}

/// Type of the images of a dataset, as they are read. It is the same in all its stacks.
fn type_of(member: &Member) -> Result<DType> {
    let sample = member.plan.samples()[0].sample;
    Ok(member.dataset.image(member.dataset.stack_of(sample)?).dtype())
}

/// The stacks of a dataset that are read.
fn stacks_read(member: &Member) -> Result<Vec<usize>> {
    let samples: Vec<usize> = member.plan.samples().iter().map(|sample| sample.sample).collect();
    stacks_of(&member.dataset, &samples)
}

/// Refuses windows of different sizes, within a dataset or between it and the `first` one.
fn check_windows(first: &Member, member: &Member) -> Result<()> {
    let refuse = |shape: CubeShape, other: CubeShape, of: String| {
        let shown = |shape: CubeShape| format!("{}x{}x{}", shape.rows, shape.columns, shape.bands);
        let (shape, other) = (shown(shape), shown(other));
        Err(Error::conflict(format!("a batch cannot have windows of {shape} and of {other}: {of}"))
            .with_remedy(remedy![
                "read windows of one size with ",
                Opt::Crop,
                "; if cubes of one dataset have different bands, give each kind as a dataset of its own"
            ]))
    };
    let shapes = member.plan.shapes();
    if let [shape, other, ..] = shapes {
        return refuse(*shape, *other, member.dataset.path().display().to_string());
    }
    let (shape, other) = (first.plan.shapes()[0], shapes[0]);
    if (shape.rows, shape.columns) != (other.rows, other.columns) {
        let [path, other_path] = [first, member].map(|member| member.dataset.path().display());
        return refuse(shape, other, format!("{path} and {other_path}"));
    }
    Ok(())
}

/// Refuses masks whose types or layers differ.
fn check_masks(first: &Member, other: &Member) -> Result<()> {
    for name in &first.masks {
        let kind = |member: &Member| -> Result<(Option<DType>, Vec<String>)> {
            let stack = stacks_read(member)?[0];
            let mask = member.dataset.stacks()[stack].mask(name);
            let dtype = mask.map(|mask| mask.meta().dtype);
            Ok((dtype, member.dataset.mask_layers(stack, name)))
        };
        let (ours, theirs) = (kind(first)?, kind(other)?);
        if ours != theirs {
            let (path, other_path) =
                (first.dataset.path().display(), other.dataset.path().display());
            let name_of = |dtype: Option<DType>| dtype.map_or("nothing", DType::name);
            return Err(Error::conflict(format!(
                "a batch cannot have both masks {name:?}, {} with layers {:?} and {} with layers {:?}: {path} and {other_path}",
                name_of(ours.0),
                ours.1,
                name_of(theirs.0),
                theirs.1,
            ))
            .with_remedy("pack the masks in the same way, or read without this mask"));
        }
    }
    Ok(())
}

/// Refuses different bands, if nothing says how to bring them together.
fn check_bands(first: &Member, other: &Member) -> Result<()> {
    let (ours, theirs) = (bands_of(first), bands_of(other));
    let what = if ours != theirs {
        format!("datasets of {ours} and {theirs} bands")
    } else if are_apart(first, other)? {
        format!("datasets of {ours} bands with different wavelengths")
    } else {
        return Ok(());
    };
    let (path, other_path) = (first.dataset.path().display(), other.dataset.path().display());
    Err(Error::conflict(format!("{what} cannot be in one batch: {path} and {other_path}"))
        .with_remedy(
            "give hsipack.mix bands=hsipack.augment.Resample(wavelengths) or bands=hsipack.Pad(), or batches=\"one\"",
        ))
}

/// Whether wavelengths are known and differ.
fn are_apart(first: &Member, other: &Member) -> Result<bool> {
    /// In nm; products round wavelengths differently.
    const TOLERANCE: f64 = 0.01;
    let waves = |member: &Member| -> Result<Vec<Vec<f64>>> {
        let of_stack =
            |stack: usize| chosen(member, member.dataset.wavelengths(stack)?.iter().copied());
        Ok(stacks_read(member)?.into_iter().filter_map(of_stack).collect())
    };
    let (ours, theirs) = (waves(first)?, waves(other)?);
    let differ = |a: &[f64], b: &[f64]| a.iter().zip(b).any(|(a, b)| (a - b).abs() > TOLERANCE);
    Ok(ours.iter().any(|a| theirs.iter().any(|b| differ(a, b))))
}

/// The values of the bands that are read; `None` if there are not so many.
fn chosen<T: Copy>(member: &Member, all: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let all: Vec<T> = all.collect();
    match &member.options.bands {
        Some(bands) => bands.iter().map(|band| all.get(*band).copied()).collect(),
        None => Some(all),
    }
}

/// The type of images in batches: that of all datasets, or the widest of their floats.
fn common_type(members: &[Member], common: Option<&CommonBands>) -> Result<DType> {
    let types = members.iter().map(type_of).collect::<Result<Vec<_>>>()?;
    let whole = types.iter().position(|dtype| !dtype.is_float());
    if let Some(member) = whole
        && (common.is_some() || types.iter().any(|dtype| *dtype != types[0]))
    {
        return Err(Error::unsupported(format!(
            "integers of type {} cannot be brought to the bands and the type of other datasets",
            types[member]
        ))
        .at(members[member].dataset.path())
        .with_remedy("read physical values: ds.select(physical=True)"));
    }
    let widest = types.iter().copied().max_by_key(|dtype| dtype.size()).unwrap_or(DType::F32);
    let is_resampled = common.is_some_and(|common| common.wavelengths.is_some());
    Ok(match members[0].options.integers {
        _ if !is_resampled => widest,
        // The type of the sums is that of the images that are asked for.
        Integers::Physical(FloatType::F16) | Integers::Numbers(FloatType::F16) => DType::F16,
        _ => DType::F32,
    })
}

/// The response of each stack to the bands of batches.
fn responses(
    member: &Member,
    wavelengths: &[f64],
    fwhm: Option<&[f64]>,
) -> Result<BTreeMap<usize, Response>> {
    let target = SensorBands { wavelengths, fwhm, valid: None };
    let response = |stack: usize| Ok((stack, response(member, stack, target)?));
    stacks_read(member)?.into_iter().map(response).collect()
}

fn response(member: &Member, stack: usize, target: SensorBands<'_>) -> Result<Response> {
    let Member { dataset, .. } = member;
    let stored = &dataset.stacks()[stack];
    let centers = dataset.wavelengths(stack).and_then(|all| chosen(member, all.iter().copied()));
    let Some(wavelengths) = centers else {
        return Err(Error::conflict(format!(
            "stack {} has no wavelengths, so it cannot be resampled",
            stored.name
        ))
        .at(dataset.path())
        .with_remedy(remedy![
            "pack its cubes with wavelengths (",
            Command::Convert.with(Opt::BandCenters),
            "), or give hsipack.mix bands=hsipack.Pad()"
        ]));
    };
    let fwhm = stored.fwhm.as_ref().and_then(|all| chosen(member, all.iter().copied()));
    let valid = dataset.good_bands(stack).and_then(|all| chosen(member, all.into_iter()));
    let source =
        SensorBands { wavelengths: &wavelengths, fwhm: fwhm.as_deref(), valid: valid.as_deref() };
    let response = SpectralResponse::new(source, target, MIN_COVERAGE)
        .map_err(|error| error.at(dataset.path()))?;
    Ok(Response::new(&response))
}
