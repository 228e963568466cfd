//! What an ENVI header says about bands and classes. Contradictory entries are dropped, with a
//! note.

use super::fields::{Fields, number, shorten, tokens};
use crate::wavelengths::{Unit, guess, known_unit, scaled};

/// The list under `key`, one number per band. Any other list is dropped, with a note.
fn numbers(fields: &Fields, key: &str, bands: usize, notes: &mut Vec<String>) -> Option<Vec<f64>> {
    let tokens: Vec<&str> = tokens(fields.get(key)?).collect();
    if tokens.is_empty() {
        return None;
    }
    if tokens.len() != bands {
        notes.push(format!(
            "`{key}` has {} values for {bands} bands, so it is not used",
            tokens.len()
        ));
        return None;
    }
    let values: Option<Vec<f64>> =
        tokens.iter().map(|token| number(token).filter(|value| value.is_finite())).collect();
    if values.is_none() {
        notes.push(format!("`{key}` holds values that are not numbers, so it is not used"));
    }
    values
}

pub(super) type SpectralAxis = (Option<Vec<f64>>, Option<Vec<f64>>);

/// Wavelengths and fwhm in nm.
pub(super) fn spectral_axis(
    fields: &Fields,
    bands: usize,
    notes: &mut Vec<String>,
) -> SpectralAxis {
    let wavelength = numbers(fields, "wavelength", bands, notes);
    let fwhm = numbers(fields, "fwhm", bands, notes);
    if wavelength.is_none() && fwhm.is_none() {
        return (None, None);
    }
    let Some(factor) = unit_factor(fields, wavelength.as_deref(), notes) else {
        return (None, None);
    };
    let convert = |values: Vec<f64>| scaled(&values, factor);
    let usable = |values: &Vec<f64>| {
        values.iter().all(|value| *value >= 0.0 && (*value * factor).is_finite())
    };
    let unusable = |values: &Option<Vec<f64>>| values.as_ref().is_some_and(|v| !usable(v));
    if unusable(&wavelength) || unusable(&fwhm) {
        notes.push("negative or infinite wavelengths or fwhm are not used".to_owned());
    }
    let wavelength: Option<Vec<f64>> = wavelength.filter(usable).map(convert);
    note_unlikely(wavelength.as_deref(), notes);
    (wavelength, fwhm.filter(usable).map(convert))
}

/// Adds a note if wavelengths are implausible. Headers that say nanometres but list micrometres, or
/// the other way round, are common.
fn note_unlikely(wavelength: Option<&[f64]>, notes: &mut Vec<String>) {
    let Some(wavelength) = wavelength else { return };
    let largest = wavelength.iter().copied().fold(0.0, f64::max);
    if !(100.0..=100_000.0).contains(&largest) {
        notes
            .push(format!("wavelengths up to {largest} nm are unlikely; check `wavelength units`"));
    }
}

/// How many nm one unit of the header's wavelengths has. The unit is guessed if the header does not
/// state it.
fn unit_factor(
    fields: &Fields,
    wavelength: Option<&[f64]>,
    notes: &mut Vec<String>,
) -> Option<f64> {
    let unit = fields.word("wavelength units").unwrap_or("unknown");
    if let Some(Unit::Length(factor)) = known_unit(unit) {
        return Some(factor);
    }
    if !matches!(unit.to_lowercase().as_str(), "unknown" | "none") {
        notes.push(format!(
            "wavelength units are '{}', not a length; wavelengths and fwhm are not used",
            shorten(unit)
        ));
        return None;
    }
    let Some(wavelength) = wavelength else {
        notes.push("`fwhm` is not used: neither its unit nor wavelengths are known".to_owned());
        return None;
    };
    let (factor, name) = guess(wavelength);
    notes.push(format!("the header gives no wavelength unit; assumed to be {name}"));
    Some(factor)
}

pub(super) fn good_bands(
    fields: &Fields,
    bands: usize,
    notes: &mut Vec<String>,
) -> Option<Vec<bool>> {
    let values = numbers(fields, "bbl", bands, notes)?;
    if values.iter().any(|value| *value != 0.0 && *value != 1.0) {
        notes.push(
            "`bbl` holds values other than 0 (bad) and 1 (good), so it is not used".to_owned(),
        );
        return None;
    }
    Some(values.into_iter().map(|value| value == 1.0).collect())
}

/// The list of `count` names under `key`. A longer or shorter list is dropped, with a note.
pub(super) fn names(
    fields: &Fields,
    key: &str,
    of: &str,
    count: usize,
    notes: &mut Vec<String>,
) -> Option<Vec<String>> {
    let names = split_names(fields.get(key)?);
    if names.len() != count {
        let found = names.len();
        notes.push(format!("`{key}` has {found} names for {count} {of}, so it is not used"));
        return None;
    }
    Some(names)
}

fn split_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> =
        text.split(',').map(|name| name.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    if names.last().is_some_and(String::is_empty) {
        names.pop(); // after a trailing comma
    }
    names
}

pub(super) fn class_names(fields: &Fields, notes: &mut Vec<String>) -> Option<Vec<String>> {
    let count = fields.whole("classes").ok().flatten().and_then(|n| usize::try_from(n).ok());
    match count {
        Some(count) => names(fields, "class names", "classes", count, notes),
        None => fields.get("class names").map(split_names),
    }
}
