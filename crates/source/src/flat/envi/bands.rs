//! Bands and classes in an ENVI header. Contradictory entries are dropped, with a
//! note.

use hsipack_format::Color;

use super::fields::{Fields, shorten};
use crate::spectrum::spectrum_text::{
    self, NumberList, Quantity, counts, number_list, wavelengths_in_names,
};
use crate::spectrum::wavelengths::{Unit, guess, known_unit, scaled, width_factor};

/// A list of one number per band, and the unit that it or its key states.
struct BandList<'a> {
    key: &'a str,
    values: Vec<f64>,
    unit: Option<String>,
}

/// The list for `quantity`, under any key with this meaning; ENVI's own key comes first. Lists that
/// do not have one number per band are dropped, with a note.
fn list_of<'a>(
    fields: &'a Fields,
    quantity: Quantity,
    bands: usize,
    notes: &mut Vec<String>,
) -> Option<BandList<'a>> {
    let preferred = match quantity {
        Quantity::Wavelength => "wavelength",
        Quantity::Fwhm => "fwhm",
        Quantity::GoodBands => "bbl",
    };
    let meaning = |key: &str| spectrum_text::key(key).filter(|key| key.quantity == quantity);
    let keys = fields.all().filter_map(|(key, text)| {
        let unit = meaning(key).filter(|key| !key.is_unit)?.unit;
        Some((key, text, unit))
    });
    let mut keys: Vec<_> = keys.collect();
    keys.sort_by_key(|(key, ..)| *key != preferred);
    keys.into_iter().find_map(|(key, text, unit)| {
        let NumberList { values, unit: inline } = numbers(key, text, bands, notes)?;
        if quantity == Quantity::Wavelength && counts(&values) {
            let key = shorten(key);
            notes.push(format!("`{key}` numbers the bands; it does not give wavelengths"));
            return None;
        }
        Some(BandList { key, values, unit: inline.or(unit) })
    })
}

/// The list in `text`, one number per band. Any other list is dropped, with a note.
fn numbers(key: &str, text: &str, bands: usize, notes: &mut Vec<String>) -> Option<NumberList> {
    let list = number_list(text);
    let count = list.as_ref().map_or_else(|count| *count, |list| list.values.len());
    if count == 0 {
        return None;
    }
    let key = shorten(key);
    if count != bands {
        notes.push(format!("`{key}` has {count} values for {bands} bands, so it is not used"));
        return None;
    }
    if list.is_err() {
        notes.push(format!("`{key}` holds values that are not numbers, so it is not used"));
    }
    list.ok()
}

pub(super) type SpectralAxis = (Option<Vec<f64>>, Option<Vec<f64>>);

/// Wavelengths and fwhm in nm. If no list has the wavelengths, they are taken from the names of the
/// bands.
pub(super) fn spectral_axis(
    fields: &Fields,
    bands: usize,
    names: Option<&[String]>,
    notes: &mut Vec<String>,
) -> SpectralAxis {
    let wavelength = list_of(fields, Quantity::Wavelength, bands, notes);
    let fwhm = list_of(fields, Quantity::Fwhm, bands, notes);
    let (mut nm, fwhm) = match (&wavelength, &fwhm) {
        (None, None) => (None, None),
        _ => in_nm(fields, wavelength, fwhm, notes),
    };
    if nm.is_none() {
        nm = names.and_then(wavelengths_in_names);
        notes.extend(nm.as_ref().map(|_| "the wavelengths are taken from `band names`".to_owned()));
    }
    (nm, fwhm)
}

fn in_nm(
    fields: &Fields,
    wavelength: Option<BandList<'_>>,
    fwhm: Option<BandList<'_>>,
    notes: &mut Vec<String>,
) -> SpectralAxis {
    let stated = wavelength.as_ref().and_then(|list| list.unit.clone());
    let values = wavelength.as_ref().map(|list| list.values.as_slice());
    let fwhm_text = fwhm
        .as_ref()
        .and_then(|list| list.unit.clone())
        .or_else(|| unit_of(fields, Quantity::Fwhm));
    let fwhm_unit = fwhm_text.as_deref().and_then(known_unit);
    let factor = match fwhm_unit {
        Some(Unit::Length(length)) if wavelength.is_none() => Some(length),
        _ => unit_factor(fields, stated, values, notes),
    };
    let Some(factor) = factor else { return (None, None) };
    let fwhm_factor = match fwhm_unit {
        Some(Unit::Length(length)) => length,
        _ => factor,
    };
    let usable = |values: &[f64], factor: f64| {
        values.iter().all(|value| *value >= 0.0 && (*value * factor).is_finite())
    };
    let mut convert = |list: Option<BandList<'_>>, factor: f64| {
        let values = list?.values;
        if usable(&values, factor) {
            return Some(scaled(&values, factor));
        }
        let note = "negative or infinite wavelengths or fwhm are not used".to_owned();
        if !notes.contains(&note) {
            notes.push(note);
        }
        None
    };
    let wavelength = convert(wavelength, factor);
    let fwhm_factor = match (&wavelength, &fwhm, fwhm_unit) {
        (Some(nm), Some(widths), None) => width_factor(&widths.values, nm, factor),
        _ => Some(fwhm_factor),
    };
    let fwhm = fwhm_factor.and_then(|factor| convert(fwhm, factor));
    match fwhm_factor {
        None => notes.push(
            "`fwhm` cannot be the widths of these wavelengths in any unit, so it is not used"
                .to_owned(),
        ),
        Some(other) if other != factor && fwhm_unit.is_none() => {
            notes.push("`fwhm` is assumed to be in another unit than the wavelengths".to_owned())
        }
        Some(_) => {}
    }
    note_unlikely(wavelength.as_deref(), notes);
    (wavelength, fwhm)
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

/// The unit that a key of its own states for `quantity`.
fn unit_of(fields: &Fields, quantity: Quantity) -> Option<String> {
    let is_unit = |key: &str| {
        spectrum_text::key(key).is_some_and(|key| key.is_unit && key.quantity == quantity)
    };
    let common = fields.word("wavelength units").filter(|_| quantity == Quantity::Wavelength);
    let key = fields.all().map(|(key, _)| key).find(|key| is_unit(key));
    common.or_else(|| fields.word(key?)).map(|unit| unit.trim_matches(['"', '\'', ' ']).to_owned())
}

/// How many nm one unit of the header's wavelengths has. The unit is guessed if the header does not
/// state it.
fn unit_factor(
    fields: &Fields,
    stated: Option<String>,
    wavelength: Option<&[f64]>,
    notes: &mut Vec<String>,
) -> Option<f64> {
    let unit = stated.or_else(|| unit_of(fields, Quantity::Wavelength));
    let unit = unit.as_deref().unwrap_or("unknown");
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
    let BandList { key, values, .. } = list_of(fields, Quantity::GoodBands, bands, notes)?;
    if values.iter().any(|value| *value != 0.0 && *value != 1.0) {
        notes.push(format!(
            "`{}` holds values other than 0 (bad) and 1 (good), so it is not used",
            shorten(key)
        ));
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

/// The colours of classes: three numbers from 0 to 255 for each. None if a number is something
/// else.
pub(super) fn class_colors(fields: &Fields) -> Vec<Option<Color>> {
    let Some(text) = fields.get("class lookup") else { return Vec::new() };
    let numbers = text.split(',').map(str::trim).filter(|number| !number.is_empty());
    let numbers: Option<Vec<u8>> = numbers.map(|number| number.parse().ok()).collect();
    let numbers = numbers.unwrap_or_default();
    let (colors, others) = numbers.as_chunks::<3>();
    if others.is_empty() { colors.iter().copied().map(Some).collect() } else { Vec::new() }
}

pub(super) fn class_names(fields: &Fields, notes: &mut Vec<String>) -> Option<Vec<String>> {
    let count = fields.whole("classes").ok().flatten().and_then(|n| usize::try_from(n).ok());
    match count {
        Some(count) => names(fields, "class names", "classes", count, notes),
        None => fields.get("class names").map(split_names),
    }
}
