//! Lists beside a cube in a container (`.npz`, `.mat`) that describe its bands:
//! wavelengths, widths and bad bands, known by their names.

use hsipack_format::Result;

use super::CubeInfo;
use super::variables::last_component;
use super::wavelengths::{Unit, guess, known_unit, scaled};

/// What a list says about the bands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Wavelength,
    Fwhm,
    GoodBands,
}

/// Names of lists that describe bands, the most reliable first.
const BAND_LISTS: [(&str, Says); 22] = [
    ("wavelengths_nm", Says::Wavelength),
    ("wavelength_nm", Says::Wavelength),
    ("wavelengths_um", Says::Wavelength),
    ("wavelength_um", Says::Wavelength),
    ("wavelengths", Says::Wavelength),
    ("wavelength", Says::Wavelength),
    ("wvls", Says::Wavelength),
    ("wvl", Says::Wavelength),
    ("wl", Says::Wavelength),
    ("lambdas", Says::Wavelength),
    ("lambda", Says::Wavelength),
    ("band_centers", Says::Wavelength),
    ("centers", Says::Wavelength),
    ("bands", Says::Wavelength),
    ("fwhm_nm", Says::Fwhm),
    ("fwhm_um", Says::Fwhm),
    ("fwhms", Says::Fwhm),
    ("fwhm", Says::Fwhm),
    ("bbl", Says::GoodBands),
    ("good_wavelengths", Says::GoodBands),
    ("good_bands", Says::GoodBands),
    ("goodbands", Says::GoodBands),
];

const MOST_LISTS: usize = 32;
/// No sensor has more bands than this. Longer lists are not read.
const MOST_BANDS: usize = 1 << 20;

fn rank(name: &str) -> Option<usize> {
    BAND_LISTS.iter().position(|(known, _)| last_component(name).eq_ignore_ascii_case(known))
}

/// Fills in what the lists beside a cube say about its bands.
///
/// `vectors` holds the name and length of every vector beside the cube. `read` returns the values
/// of the vector at an index. Lists that do not fit are skipped, with a note.
///
/// # Errors
/// If `read` fails.
pub(super) fn describe(
    info: &mut CubeInfo,
    vectors: &[(String, usize)],
    read: impl Fn(usize) -> Result<Vec<f64>>,
) -> Result<()> {
    let mut unit = None;
    // Wavelengths come first because they determine the unit of the widths.
    for says in [Says::Wavelength, Says::Fwhm, Says::GoodBands] {
        let mut known: Vec<(usize, usize)> = (0..vectors.len())
            .filter_map(|index| Some((rank(&vectors[index].0)?, index)))
            .filter(|(rank, _)| BAND_LISTS[*rank].1 == says)
            .collect();
        known.sort_unstable();
        // No file has this many lists of one kind, and reading one from a compressed struct takes
        // long.
        known.truncate(MOST_LISTS);
        for (_, index) in known {
            let (name, length) = &vectors[index];
            if *length != info.shape.bands || *length > MOST_BANDS {
                // A single number, such as `bands = 32`, is not a list.
                if *length != 1 {
                    info.notes.push(format!(
                        "'{name}' has {length} values for {} bands, so it was left out",
                        info.shape.bands
                    ));
                }
                continue;
            }
            let values = read(index)?;
            let taken = match says {
                Says::Wavelength => take_wavelengths(info, name, &values, &mut unit),
                Says::Fwhm => take_fwhm(info, name, &values, unit),
                Says::GoodBands => take_good_bands(info, name, &values),
            };
            if taken {
                break;
            }
        }
    }
    Ok(())
}

/// The factor to nm, if the name of a list states its unit.
fn stated_unit(name: &str) -> Option<f64> {
    let name = last_component(name).to_ascii_lowercase();
    match known_unit(name.rsplit_once('_')?.1) {
        Some(Unit::Length(factor)) => Some(factor),
        _ => None,
    }
}

fn take_wavelengths(
    info: &mut CubeInfo,
    name: &str,
    values: &[f64],
    unit: &mut Option<f64>,
) -> bool {
    if numbered(values) {
        info.notes.push(format!("'{name}' numbers the bands; it does not give wavelengths"));
        return false;
    }
    if !values.iter().all(|value| value.is_finite() && *value > 0.0) {
        info.notes
            .push(format!("'{name}' holds values that are not wavelengths, so it was left out"));
        return false;
    }
    let factor = stated_unit(name).unwrap_or_else(|| {
        let (factor, unit) = guess(values);
        if factor != 1.0 {
            info.notes.push(format!("'{name}' was assumed to be in {unit}"));
        }
        factor
    });
    let nm = scaled(values, factor);
    if nm.contains(&f64::INFINITY) {
        info.notes
            .push(format!("'{name}' holds values that are not wavelengths, so it was left out"));
        return false;
    }
    *unit = Some(factor);
    info.wavelength = Some(nm);
    true
}

/// Whether values are band numbers: 0, 1, 2, … or 1, 2, 3, …
fn numbered(values: &[f64]) -> bool {
    values.len() > 1
        && values[0] <= 1.0
        && values.iter().enumerate().all(|(index, value)| *value == values[0] + index as f64)
}

fn take_fwhm(info: &mut CubeInfo, name: &str, values: &[f64], unit: Option<f64>) -> bool {
    let Some(factor) = stated_unit(name).or(unit) else {
        info.notes.push(format!(
            "the unit of '{name}' is unknown without wavelengths, so it was left out"
        ));
        return false;
    };
    let nm = scaled(values, factor);
    if !nm.iter().all(|value| value.is_finite() && *value >= 0.0) {
        info.notes.push(format!("'{name}' holds values that are not widths, so it was left out"));
        return false;
    }
    info.fwhm = Some(nm);
    true
}

fn take_good_bands(info: &mut CubeInfo, name: &str, values: &[f64]) -> bool {
    if !values.iter().all(|value| *value == 0.0 || *value == 1.0) {
        info.notes.push(format!("'{name}' holds values other than 0 and 1, so it was left out"));
        return false;
    }
    info.good_bands = Some(values.iter().map(|value| *value == 1.0).collect());
    true
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};

    use super::*;

    #[test]
    fn lists_are_infinite_in_no_unit_and_read_only_so_often() {
        let take = |name: &str, value: f64| {
            let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 2), DType::U8, "a");
            let read = std::cell::Cell::new(0);
            describe(&mut info, &vec![(name.to_owned(), 2); 100], |_| {
                read.set(read.get() + 1);
                Ok(vec![value, 2.0 * value])
            })
            .unwrap();
            (info, read.get())
        };
        let (info, read) = take("wavelength_um", 1e307);
        assert_eq!((info.wavelength, read), (None, MOST_LISTS));
        let (info, read) = take("fwhm_um", 1e307);
        assert_eq!((info.fwhm, read), (None, MOST_LISTS));
        let (info, read) = take("fwhm_um", 1.0);
        assert_eq!((info.fwhm, read), (Some(vec![1000.0, 2000.0]), 1));
    }

    fn described(lists: &[(&str, &[f64])]) -> CubeInfo {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 3), DType::U8, "x");
        let vectors: Vec<(String, usize)> =
            lists.iter().map(|(name, values)| ((*name).to_owned(), values.len())).collect();
        describe(&mut info, &vectors, |index| Ok(lists[index].1.to_vec())).unwrap();
        info
    }

    #[test]
    fn wavelengths_become_nanometres() {
        let nm = Some(vec![400.0, 500.0, 2500.0]);
        assert_eq!(described(&[("Wavelengths", &[400.0, 500.0, 2500.0])]).wavelength, nm);
        let um = described(&[("s.wvl", &[0.4, 0.5, 2.5]), ("fwhm", &[0.005, 0.005, 0.01])]);
        assert_eq!(um.wavelength, nm);
        assert_eq!(um.fwhm, Some(vec![5.0, 5.0, 10.0]));
        assert_eq!(um.notes.len(), 1);
        assert_eq!(
            described(&[("wavelength_um", &[0.5, 120.0, 130.0])]).wavelength,
            Some(vec![500.0, 120_000.0, 130_000.0])
        );
    }

    #[test]
    fn lists_that_are_no_wavelengths_are_left_out() {
        for values in [&[1.0, 2.0, 3.0][..], &[0.0, 1.0, 2.0], &[1.0, f64::NAN, 3.0], &[5.0, 6.0]] {
            let info = described(&[("bands", values)]);
            assert_eq!(info.wavelength, None, "{values:?}");
        }
        let info = described(&[("wavelength", &[400.0, 500.0])]);
        assert_eq!(info.notes, ["'wavelength' has 2 values for 3 bands, so it was left out"]);
        // A number of bands beside the list is not a list.
        let info = described(&[("bands", &[3.0]), ("wl", &[400.0, 500.0, 600.0])]);
        assert!(info.wavelength.is_some() && info.notes.is_empty());
    }

    #[test]
    fn bad_bands_are_zeros_and_ones() {
        assert_eq!(
            described(&[("bbl", &[1.0, 0.0, 1.0])]).good_bands,
            Some(vec![true, false, true])
        );
        assert_eq!(described(&[("bbl", &[1.0, 2.0, 1.0])]).good_bands, None);
    }
}
