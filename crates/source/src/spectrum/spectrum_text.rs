//! Spectra in texts: keys such as `Wavelength_Units`, lists such as `[450.2 nm; 500,1 nm]`, and
//! names of bands such as `Band 3 (0.4502 Micrometers)`.
//!
//! Headers and tags in text form use these for ENVI, TIFF and GDAL's side files.

use std::sync::LazyLock;

use regex::Regex;

pub(crate) use crate::meaning::spectrum::Kind as Quantity;
use crate::meaning::spectrum::{rank, without_unit};
use crate::spectrum::wavelengths::{Unit, known_unit, scaled, to_nm};

/// The meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// The property that the key is about.
    pub quantity: Quantity,
    /// Whether the value is the unit of the property.
    pub is_unit: bool,
    /// The unit in the key itself, as in `wavelength_nm` or `Wavelength (um)`.
    pub unit: Option<String>,
}

/// Names that arrays in containers need more evidence for, but keys of bands do not.
const CENTERS: [&str; 4] = ["center", "centers", "centre", "centres"];

/// Meaning of a key such as `wavelength`, `Wavelength_Units` or `band centers (um)`. The names are
/// those of arrays in containers.
pub(crate) fn key(text: &str) -> Option<Key> {
    let small = text.to_lowercase();
    let words = small.split(|letter: char| !letter.is_alphanumeric());
    let words: Vec<&str> =
        words.filter(|word| !["", "of", "the", "in", "list", "values"].contains(word)).collect();
    let is_unit_word = |word: &&str| ["unit", "units", "uom"].contains(word);
    let is_unit = words.iter().any(is_unit_word);
    let compact: String = words.into_iter().filter(|word| !is_unit_word(word)).collect();
    let quantity = |name: &str| {
        let kinds = [Quantity::GoodBands, Quantity::Fwhm, Quantity::Wavelength];
        let kind = kinds.into_iter().find(|kind| rank(name, *kind).is_some_and(|rank| rank < 2));
        let is_center = || CENTERS.contains(&&*without_unit(name).0);
        kind.or_else(|| is_center().then_some(Quantity::Wavelength))
    };
    if let Some(stem) = ["units", "unit"].into_iter().find_map(|end| compact.strip_suffix(end)) {
        return Some(Key { quantity: quantity(stem)?, is_unit: true, unit: None });
    }
    let unit = without_unit(&compact).1.map(str::to_owned);
    Some(Key { quantity: quantity(&compact)?, is_unit, unit })
}

/// A list of numbers in a text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NumberList {
    /// The numbers.
    pub values: Vec<f64>,
    /// The unit after the numbers, if they have one.
    pub unit: Option<String>,
}

/// Parses `{450.2, 500.1}`, `[450.2 500.1]`, `450.2 nm, 500.1 nm` or `450,2; 500,1`.
///
/// # Errors
/// The number of items, if one of them is not a number, or they have different units.
pub(crate) fn number_list(text: &str) -> Result<NumberList, usize> {
    let text =
        text.trim_matches(|letter: char| "{}[]()".contains(letter) || letter.is_whitespace());
    if text.contains(';') {
        let items = text.split(';').map(str::trim).filter(|item| !item.is_empty());
        let items: Vec<String> = items.map(|item| item.replace(',', ".")).collect();
        let words = items.iter().flat_map(|item| item.split_whitespace());
        if let Ok(list) = of_words(words) {
            return Ok(list);
        }
    }
    of_words(text.split(|letter: char| ",;".contains(letter) || letter.is_whitespace()))
}

/// Numbers and their units, one word after the other.
fn of_words<'a>(words: impl Iterator<Item = &'a str>) -> Result<NumberList, usize> {
    let (mut values, mut units, mut count, mut failed) = (Vec::new(), Vec::new(), 0, false);
    for word in words.map(|word| word.trim_matches(['"', '\''])).filter(|word| !word.is_empty()) {
        if let Some(value) = number(word) {
            values.push(value);
            count += 1;
        } else if known_unit(word).is_some() && !values.is_empty() {
            units.push(word);
        } else {
            let end = word.find(|letter: char| letter.is_alphabetic() && !"eEdD".contains(letter));
            let (start, unit) = word.split_at(end.unwrap_or(word.len()));
            match number(start).filter(|_| known_unit(unit).is_some()) {
                Some(value) => {
                    values.push(value);
                    units.push(unit);
                }
                None => failed = true,
            }
            count += 1;
        }
    }
    let alike = units.windows(2).all(|pair| known_unit(pair[0]) == known_unit(pair[1]));
    if failed || !alike || values.iter().any(|value| !value.is_finite()) {
        return Err(count);
    }
    Ok(NumberList { values, unit: units.first().map(|unit| (*unit).to_owned()) })
}

/// Parses a number, also as IDL and Fortran write it (`1.5d+02`).
pub(crate) fn number(text: &str) -> Option<f64> {
    let text = text.trim().trim_matches(['"', '\'']);
    text.parse().ok().or_else(|| text.replace(['d', 'D'], "e").parse().ok())
}

/// Longer texts are no names of bands, and searching them takes long.
const LONGEST_NAME: usize = 1024;

/// Wavelengths in nm, if every name contains one. They must rise or fall strictly.
///
/// A number with a unit is a wavelength. A number without a unit is one only if it cannot be the
/// number of a band.
#[doc(hidden)]
pub fn wavelengths_in_names(names: &[String]) -> Option<Vec<f64>> {
    if names.len() < 2 || names.iter().any(|name| name.len() > LONGEST_NAME) {
        return None;
    }
    let all = |of: fn(&str) -> Option<f64>| {
        let values: Option<Vec<f64>> = names.iter().map(|name| of(name)).collect();
        values.filter(|values| is_monotonic(values))
    };
    if let Some(nm) = all(nm_in_name) {
        return Some(nm);
    }
    if names.iter().any(|name| nm_in_name(name).is_some()) {
        return None;
    }
    let after_word = |values: &Vec<f64>| is_sensed(values);
    if let Some(values) = all(number_after_wavelength).filter(after_word) {
        return to_nm(&values, None).ok();
    }
    let values = all(last_number)?;
    let fractions =
        names.iter().all(|name| last_number_text(name).is_some_and(|text| text.contains('.')));
    let counts = values.windows(2).all(|pair| (pair[1] - pair[0]).abs() == 1.0);
    let is_alone = names.iter().all(|name| stands_for_wavelength(name));
    let sensible = is_sensed(&values) && !counts && (fractions || is_alone);
    sensible.then(|| to_nm(&values, None).ok())?
}

/// Whether values count the bands: 0, 1, 2, … or 1, 2, 3, …
pub(crate) fn counts(values: &[f64]) -> bool {
    let is_next = |(index, value): (usize, &f64)| *value == values[0] + index as f64;
    values.len() > 1 && [0.0, 1.0].contains(&values[0]) && values.iter().enumerate().all(is_next)
}

fn is_monotonic(values: &[f64]) -> bool {
    let rising = values.windows(2).all(|pair| pair[0] < pair[1]);
    let falling = values.windows(2).all(|pair| pair[0] > pair[1]);
    rising || falling
}

/// Whether all values lie in the range that sensors see, in nm or in µm.
pub(crate) fn is_sensed(values: &[f64]) -> bool {
    let within = |low: f64, high: f64| values.iter().all(|value| (low..=high).contains(value));
    within(200.0, 20_000.0) || within(0.2, 20.0)
}

/// The wavelength in a name in which a number has a unit of length. Of a range, its middle.
fn nm_in_name(name: &str) -> Option<f64> {
    static WITH_UNIT: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?ix)
            (?: ([0-9]+(?:\.[0-9]+)?) \s* (?:nm|um|µm|μm)? \s* (?:-|–|to) \s* )?
            ([0-9]+(?:\.[0-9]+|,(?:[0-9]{1,2}|[0-9]{4,}))? (?:e[+-]?[0-9]+)?) \s* _?
            (nm|nanomet(?:er|re)s?|um|µm|μm|microns?|micromet(?:er|re)s?|angstroms?) (?:[^a-z]|$)",
        )
        .expect("a regular expression")
    });
    static WIDTH_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)(fwhm|width|±|\+/-|\+-)[\s:=(]*$").expect("a regular expression")
    });
    let found = WITH_UNIT.captures_iter(name).find(|found| {
        let start = found.get(0).map_or(0, |all| all.start());
        !WIDTH_BEFORE.is_match(&name[..start])
    })?;
    let Some(Unit::Length(factor)) = known_unit(&found[3]) else { return None };
    let high = number(&found[2].replace(',', "."))?;
    let low = found.get(1).and_then(|low| number(low.as_str()));
    // `Band 1-450 nm` is not a range.
    let value = match low.filter(|low| *low < high && *low * 2.0 >= high) {
        Some(low) => f64::midpoint(low, high),
        None => high,
    };
    let nm = scaled(&[value], factor)[0];
    (nm > 0.0 && nm.is_finite()).then_some(nm)
}

/// The number directly after a word for wavelengths: `wl450`, `lambda = 450.2`.
fn number_after_wavelength(name: &str) -> Option<f64> {
    static AFTER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r"(?i)(?:^|[^a-z])(?:wl|wvl|wave|wavelength|lambda|λ)[\s_:=(\-]*([0-9]+(?:\.[0-9]+)?)",
        )
        .expect("a regular expression")
    });
    number(&AFTER.captures(name)?[1])
}

/// The number at the end of a name, before a bracket at most.
fn last_number_text(name: &str) -> Option<&str> {
    static LAST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"([0-9]+(?:\.[0-9]+)?)\s*[)\]]?\s*$").expect("a regular expression")
    });
    Some(LAST.captures(name)?.get(1)?.as_str())
}

fn last_number(name: &str) -> Option<f64> {
    number(last_number_text(name)?)
}

/// Whether a whole number at the end of a name can be a wavelength: it stands alone, in brackets
/// after the number of the band, or after a letter for reflectance.
fn stands_for_wavelength(name: &str) -> bool {
    static ALONE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)^\s*(?:(?:x|r|rho|refl|reflectance|rrs)[\s_.\-]*)?[0-9]+(?:\.[0-9]+)?\s*$|[0-9].*[(\[]\s*[0-9]+(?:\.[0-9]+)?\s*[)\]]\s*$")
            .expect("a regular expression")
    });
    ALONE.is_match(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_known_in_every_spelling() {
        for (text, quantity, is_unit, unit) in [
            ("wavelength", Quantity::Wavelength, false, None),
            ("Wavelengths", Quantity::Wavelength, false, None),
            ("wavelength_nm", Quantity::Wavelength, false, Some("nm")),
            ("Wavelength (um)", Quantity::Wavelength, false, Some("um")),
            ("wavelength in micrometers", Quantity::Wavelength, false, Some("micrometers")),
            ("CENTRAL_WAVELENGTH_UM", Quantity::Wavelength, false, Some("um")),
            ("band centers", Quantity::Wavelength, false, None),
            ("Wavelength_Units", Quantity::Wavelength, true, None),
            ("wavelengths unit", Quantity::Wavelength, true, None),
            ("units of wavelengths", Quantity::Wavelength, true, None),
            ("WavelengthUnits", Quantity::Wavelength, true, None),
            ("FWHM", Quantity::Fwhm, false, None),
            ("fwhm units", Quantity::Fwhm, true, None),
            ("full width at half maximum", Quantity::Fwhm, false, None),
            ("bbl", Quantity::GoodBands, false, None),
        ] {
            let unit = unit.map(str::to_owned);
            assert_eq!(key(text), Some(Key { quantity, is_unit, unit }), "{text}");
        }
        for text in [
            "bands",
            "band names",
            "units",
            "",
            "samples",
            "wavelet",
            "nm",
            "wavelength range",
            "wavelength min",
        ] {
            assert_eq!(key(text), None, "{text}");
        }
    }

    #[test]
    fn lists_are_read_with_brackets_units_and_decimal_commas() {
        let list = |values: &[f64], unit: Option<&str>| {
            Ok(NumberList { values: values.to_vec(), unit: unit.map(str::to_owned) })
        };
        for (text, want) in [
            ("450.2, 500.1", list(&[450.2, 500.1], None)),
            ("{450.2,500.1,}", list(&[450.2, 500.1], None)),
            ("[450.2 500.1]", list(&[450.2, 500.1], None)),
            ("450.2 nm, 500.1 nm", list(&[450.2, 500.1], Some("nm"))),
            ("450.2nm 500.1nm", list(&[450.2, 500.1], Some("nm"))),
            ("0.4502, 0.5001 um", list(&[0.4502, 0.5001], Some("um"))),
            ("450,2; 500,1", list(&[450.2, 500.1], None)),
            ("450.2; 500.1", list(&[450.2, 500.1], None)),
            ("4.502e+02 5.001d2", list(&[450.2, 500.1], None)),
            ("\"450.2\", '500.1'", list(&[450.2, 500.1], None)),
            ("", list(&[], None)),
            ("450.2 nm, 0.5001 um", Err(2)),
            ("450.2, x", Err(2)),
            ("450.2, nan", Err(2)),
        ] {
            assert_eq!(number_list(text), want, "{text}");
        }
    }

    #[test]
    fn only_names_that_can_only_be_wavelengths_give_wavelengths() {
        let found = |names: &[&str]| {
            wavelengths_in_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        for names in [
            &["450.2 nm", "500.1 nm"][..],
            &["450.2nm", "500.1nm"],
            &["450.2 nm", "0.5001 um"],
            &["Band 1 (0.4502 Micrometers)", "Band 2 (0.5001 Micrometers)"],
            &["Band 1: 450.2 Nanometers", "Band 2: 500.1 Nanometers"],
            &["450.2 nm (blue)", "500.1 nm (green)"],
            &["450.2 nm, FWHM 5 nm", "500.1 nm, FWHM 6 nm"],
            &["FWHM 5 nm at 450.2 nm", "FWHM 6 nm at 500.1 nm"],
            &["R_450.2nm", "R_500.1nm"],
            &["400.4-500 nm", "450.2 - 550 nm"],
            &["Resize (Band 1:scan.dat) (450.2)", "Resize (Band 2:scan.dat) (500.1)"],
            &["wl450.2", "wl500.1"],
            &["450.2", "500.1"],
        ] {
            let nm = found(names).unwrap_or_else(|| panic!("{names:?}"));
            assert!(
                (nm[0] - 450.2).abs() < 1e-9 && (nm[1] - 500.1).abs() < 1e-9,
                "{names:?} {nm:?}"
            );
        }
        for names in [
            &["b (540)", "c (580)"][..],
            &["Band 1", "Band 2"],
            &["Band 400", "Band 401"],
            &["Band 400", "Band 410"],
            &["400", "401"],
            &["R400", "R401"],
            &["x 540.8", "y 530.1", "z 560.0"],
            &["450 nm", "no number"],
            &["450 nm", "500"],
            &["PCA 1.5", "PCA 2.5"],
            &["450 nm"],
        ] {
            assert_eq!(found(names), None, "{names:?}");
        }
        assert_eq!(found(&["Band 1 (540)", "Band 2 (580)"]), Some(vec![540.0, 580.0]));
        assert_eq!(found(&["450", "455", "460"]), Some(vec![450.0, 455.0, 460.0]));
        assert_eq!(found(&["wl450", "wl451"]), Some(vec![450.0, 451.0]));
        assert_eq!(found(&["Band 1-450 nm", "Band 2-500 nm"]), Some(vec![450.0, 500.0]));
    }

    proptest! {
        #[test]
        fn arbitrary_texts_never_panic(text in ".*") {
            let _ = (key(&text), number_list(&text), wavelengths_in_names(&[text.clone(), text.clone()]));
        }
    }
}
