//! Wavelengths and their units: converts them to nm, for all formats.

/// Converts `values` to nm, or says in a sentence why they cannot be used. If the unit is missing
/// or says nothing, it is [guessed](guess).
pub(crate) fn to_nm(values: &[f64], unit: Option<&str>) -> Result<Vec<f64>, String> {
    if values.iter().any(|value| !value.is_finite() || *value < 0.0) {
        return Err(
            "the wavelengths contain values that cannot be wavelengths, so they are left out"
                .to_owned(),
        );
    }
    let factor = match unit.and_then(known_unit) {
        Some(Unit::Length(nm)) => nm,
        Some(Unit::Other) => {
            let unit = unit.unwrap_or_default().trim();
            return Err(format!(
                "the wavelengths are in '{unit}', which is not a unit of length, so they are left out"
            ));
        }
        None => guess(values).0,
    };
    let nm = scaled(values, factor);
    match nm.contains(&f64::INFINITY) {
        true => {
            Err("the wavelengths contain values that cannot be wavelengths, so they are left out"
                .to_owned())
        }
        false => Ok(nm),
    }
}

/// Guesses the unit of a list without one. Returns how many nm it has, and its name. No sensor sees
/// below 100 nm or beyond 100 µm, so values below 100 are micrometres, or metres if they are too
/// small even for that.
pub fn guess(values: &[f64]) -> (f64, &'static str) {
    let largest = values.iter().copied().fold(0.0, f64::max);
    match largest {
        _ if largest > 0.0 && largest < 1e-3 => (1e9, "metres"),
        _ if largest < 100.0 => (1e3, "micrometres"),
        _ => (1.0, "nanometres"),
    }
}

/// How many nm the unit of widths without a unit has: `preferred`, the factor of their wavelengths,
/// if widths of that size are possible, otherwise that of nm or µm. `None` if they are possible in
/// no unit.
pub(crate) fn width_factor(widths: &[f64], nm: &[f64], preferred: f64) -> Option<f64> {
    /// Widths as fractions of their wavelengths: from monochromators to broad filters.
    const POSSIBLE: std::ops::RangeInclusive<f64> = 1e-4..=1.0;
    let both = widths.iter().zip(nm).filter(|(width, nm)| **width > 0.0 && **nm > 0.0);
    let mut fractions: Vec<f64> = both.map(|(width, nm)| width / nm).collect();
    fractions.sort_by(f64::total_cmp);
    let Some(median) = fractions.get(fractions.len() / 2) else { return Some(preferred) };
    [preferred, 1.0, 1e3].into_iter().find(|factor| POSSIBLE.contains(&(median * factor)))
}

/// Converts `fwhm` to nm: with its own unit if it has one, otherwise with the unit of its
/// wavelengths, or the one that makes them possible widths. `wavelength` gives these as stored and
/// in nm, which shows their unit.
pub(crate) fn fwhm_to_nm(
    fwhm: &[f64],
    unit: Option<&str>,
    wavelength: Option<(&[f64], &[f64])>,
) -> Result<Vec<f64>, String> {
    if unit.and_then(known_unit).is_none()
        && let Some((stored, all)) = wavelength
        && let Some((stored, nm)) = stored.iter().zip(all).find(|(stored, _)| **stored > 0.0)
    {
        let factor = 10f64.powi((nm / stored).log10().round() as i32);
        let Some(factor) = width_factor(fwhm, all, factor) else {
            return Err("the fwhm cannot be the widths of these wavelengths in any unit, so they are left out"
                .to_owned());
        };
        let nm = scaled(fwhm, factor);
        return match nm.iter().all(|value| value.is_finite() && *value >= 0.0) {
            true => Ok(nm),
            false => {
                Err("the fwhm list contains values that cannot be widths, so it is left out"
                    .to_owned())
            }
        };
    }
    to_nm(fwhm, unit).map_err(|why| why.replace("wavelengths", "fwhm"))
}

/// `values * factor`. Divides if the factor is a negative power of ten, because 0.1 is not exact.
pub(crate) fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
    let scale = |value: &f64| if factor < 1.0 { value / (1.0 / factor) } else { value * factor };
    values.iter().map(scale).collect()
}

/// The unit of a list of wavelengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unit {
    /// A length: how many nm it has.
    Length(f64),
    /// Known to be something else: wave numbers, frequencies, indices.
    Other,
}

/// The meaning of `unit`; `None` if it says nothing (`Unknown`, empty, an unknown word).
pub(crate) fn known_unit(unit: &str) -> Option<Unit> {
    let unit = unit.trim().to_lowercase();
    // `Nanometers (nm)`.
    let unit = match unit.strip_suffix(')').and_then(|unit| unit.split_once('(')) {
        Some((word, short))
            if known_unit(word).is_some() && known_unit(word) == known_unit(short) =>
        {
            word.trim().to_owned()
        }
        _ => unit,
    };
    Some(Unit::Length(match unit.as_str() {
        "nm" | "nanometer" | "nanometers" | "nanometre" | "nanometres" => 1.0,
        // Micro sign and Greek mu.
        "um" | "\u{b5}m" | "\u{3bc}m" | "micron" | "microns" | "micrometer" | "micrometers"
        | "micrometre" | "micrometres" => 1e3,
        "mm" | "millimeter" | "millimeters" | "millimetre" | "millimetres" => 1e6,
        "cm" | "centimeter" | "centimeters" | "centimetre" | "centimetres" => 1e7,
        "m" | "meter" | "meters" | "metre" | "metres" => 1e9,
        "a" | "å" | "angstrom" | "angstroms" | "ångström" => 0.1,
        "ev" | "index" => return Some(Unit::Other),
        // cm-1, 1/cm, GHz.
        other if ["cm", "wavenumber", "hz"].iter().any(|word| other.contains(word)) => {
            return Some(Unit::Other);
        }
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_brought_to_nanometres() {
        assert_eq!(to_nm(&[400.0, 2500.0], None).unwrap(), [400.0, 2500.0]);
        assert_eq!(to_nm(&[0.5, 2.5], None).unwrap(), [500.0, 2500.0]);
        assert_eq!(to_nm(&[0.5, 2.5], Some("Unknown")).unwrap(), [500.0, 2500.0]);
        assert_eq!(to_nm(&[0.5, 2.5], Some("Micrometers")).unwrap(), [500.0, 2500.0]);
        assert_eq!(to_nm(&[5e-7], Some("m")).unwrap(), [5e-7 * 1e9]);
        assert_eq!(to_nm(&[5e-7], Some("unknown")).unwrap(), [5e-7 * 1e9]);
        assert_eq!(to_nm(&[0.5], Some("µm")).unwrap(), [500.0]);
        assert_eq!(to_nm(&[5000.0], Some("Angstroms")).unwrap(), [500.0]);
        assert!(to_nm(&[5000.0], Some("cm-1")).unwrap_err().contains("cm-1"));
        assert!(to_nm(&[f64::NAN], None).is_err());
        assert!(to_nm(&[-3.0], None).is_err());
        assert!(to_nm(&[1e300], Some("m")).is_err(), "infinite in nm");
    }

    #[test]
    fn fwhm_without_a_unit_follows_its_wavelengths() {
        let stored = [0.4, 0.5];
        let nm = [400.0, 500.0];
        assert_eq!(fwhm_to_nm(&[0.005], None, Some((&stored, &nm))).unwrap(), [5.0]);
        assert_eq!(fwhm_to_nm(&[5.0], None, Some((&nm, &nm))).unwrap(), [5.0]);
        assert_eq!(fwhm_to_nm(&[0.005], Some("um"), Some((&nm, &nm))).unwrap(), [5.0]);
        assert_eq!(fwhm_to_nm(&[0.005], None, Some((&nm, &nm))).unwrap(), [5.0], "in µm");
        assert_eq!(fwhm_to_nm(&[5.0], None, Some((&stored, &nm))).unwrap(), [5.0], "in nm");
        assert!(fwhm_to_nm(&[1e9], None, Some((&nm, &nm))).unwrap_err().contains("any unit"));
        for bad in [f64::NAN, -1.0, 1e307] {
            assert!(fwhm_to_nm(&[bad], None, Some((&stored, &nm))).is_err(), "{bad}");
        }
    }
}
