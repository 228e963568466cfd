//! Units of values, as files state them.

use crate::spectrum::wavelengths::{Unit, known_unit};

/// No unit has more characters.
const LONGEST: usize = 100;

/// Words for no unit, or for one that nobody knows.
const NO_UNIT: [&str; 7] = ["none", "unknown", "undefined", "null", "n/a", "na", "-"];

/// The unit of values that a file states with `text`. With wavelengths, a length such as `nm` is
/// theirs.
pub(crate) fn value_unit(text: &str, has_wavelengths: bool) -> Option<String> {
    let unit = text.trim_matches(|c: char| c.is_whitespace() || "\0\"'{}".contains(c));
    let is_word = !unit.is_empty()
        && unit.chars().count() <= LONGEST
        && !unit.contains(char::is_control)
        && !NO_UNIT.contains(&&*unit.to_lowercase());
    let is_of_wavelengths =
        || has_wavelengths && matches!(known_unit(unit), Some(Unit::Length(nm)) if nm <= 1000.0);
    (is_word && !is_of_wavelengths()).then(|| unit.to_owned())
}

/// The unit at the end of the title of an axis, in brackets: `Radiance (W/(m2 sr um))`.
pub(crate) fn unit_in_title(title: &str) -> Option<&str> {
    let title = title.trim();
    let start = title.find(['(', '['])?;
    title[start + 1..].strip_suffix([')', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_kept_as_files_state_them() {
        for (text, unit) in [
            ("ppm m", Some("ppm m")),
            (" {ppm·m}\0", Some("ppm·m")),
            ("'W/(m2 sr um)'", Some("W/(m2 sr um)")),
            ("1", Some("1")),
            ("nm", Some("nm")),
            ("", None),
            ("Unknown", None),
            ("N/A", None),
            ("a\nb", None),
            (&"m".repeat(LONGEST + 1), None),
        ] {
            assert_eq!(value_unit(text, false).as_deref(), unit, "{text:?}");
        }
    }

    #[test]
    fn lengths_beside_wavelengths_are_those_of_the_wavelengths() {
        for text in ["nm", "Micrometers", "µm"] {
            assert_eq!(value_unit(text, true), None, "{text}");
        }
        for text in ["m", "K", "uW nm-1 cm-2 sr-1"] {
            assert_eq!(value_unit(text, true).as_deref(), Some(text));
        }
    }

    #[test]
    fn titles_end_with_units_in_brackets() {
        assert_eq!(unit_in_title("Radiance (W/(m2 sr um)) "), Some("W/(m2 sr um)"));
        assert_eq!(unit_in_title("Methane [ppm m]"), Some("ppm m"));
        for title in ["Reflectance", "(first) value", "Value (", ""] {
            assert_eq!(unit_in_title(title), None, "{title}");
        }
    }
}
