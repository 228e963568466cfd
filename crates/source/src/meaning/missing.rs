//! The numbers that mark missing values, under all names in use, and unsigned numbers in signed
//! types.

use hsipack_format::{DType, text};

use crate::container::{Attributes, Value, plain};

/// Names of attributes in [`plain`] spelling, the most reliable first. CF has the first two, whose
/// numbers may differ: xarray takes both as missing.
pub(crate) const NAMES: [&str; 12] = [
    "fillvalue",
    "missingvalue",
    "dataignorevalue",
    "nodatavalue",
    "nodata",
    "ignorevalue",
    "filvalue",
    "missing",
    "nodataval",
    "nullvalue",
    "missingdata",
    "fill",
];
/// More marks than this are not looked for.
const MAX_MARKS: usize = 16;

/// The numbers that mark missing values according to an array's attributes, the most reliable
/// first. NaN is always missing, so it is not among them.
pub(super) fn marks(attributes: &dyn Attributes, notes: &mut Vec<String>) -> Vec<f64> {
    let mut marks = Vec::new();
    let stored = attributes.names();
    for name in
        NAMES.iter().flat_map(|spelling| stored.iter().filter(|name| plain(name) == *spelling))
    {
        match attributes.value(name).map(|value| (value.numbers(), value)) {
            Some((Some((numbers, _)), _)) => {
                for number in numbers.into_iter().filter(|number| !number.is_nan()) {
                    if !marks.contains(&number) && marks.len() < MAX_MARKS {
                        marks.push(number);
                    }
                }
            }
            Some((None, value)) => notes.push(not_a_number(name, &value)),
            None => {}
        }
    }
    if marks.len() > 1 {
        let all: Vec<String> = marks.iter().map(f64::to_string).collect();
        notes.push(format!("several numbers mark missing values: {}", all.join(", ")));
    }
    marks
}

/// A note about an attribute that should hold a number.
pub(super) fn not_a_number(name: &str, value: &Value) -> String {
    let shown: String = value.text().unwrap_or_default().chars().take(40).collect();
    format!("the attribute {name} is '{}', not a number; it is not used", text::printable(&shown))
}

/// The type in which the numbers are meant, if the attribute `_Unsigned` says that they are not of
/// the type that is stored. NetCDF's classic types have no unsigned numbers.
pub(super) fn meant_type(attributes: &dyn Attributes, stored: DType) -> DType {
    let Some(value) = attributes.value("_Unsigned") else { return stored };
    let unsigned = match value.text() {
        Some(text) => text.eq_ignore_ascii_case("true"),
        None => value == Value::Numbers(vec![1.0]),
    };
    const PAIRS: [(DType, DType); 4] = [
        (DType::I8, DType::U8),
        (DType::I16, DType::U16),
        (DType::I32, DType::U32),
        (DType::I64, DType::U64),
    ];
    let paired = PAIRS.iter().find_map(|(signed, other)| match unsigned {
        true => (*signed == stored).then_some(*other),
        false => (*other == stored).then_some(*signed),
    });
    paired.unwrap_or(stored)
}

/// A mark of numbers stored as `stored` and meant as `meant`: −1 of 16 bits is 65535.
pub(super) fn mark_as(mark: f64, stored: DType, meant: DType) -> f64 {
    let span = 2f64.powi(8 * i32::try_from(stored.size()).unwrap_or(8));
    let half = span / 2.0;
    match () {
        () if stored == meant || mark.fract() != 0.0 => mark,
        () if is_signed(meant) && (half..span).contains(&mark) => mark - span,
        () if !is_signed(meant) && (-half..0.0).contains(&mark) => mark + span,
        () => mark,
    }
}

fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::container::JsonAttributes;

    fn attributes(json: serde_json::Value) -> JsonAttributes {
        JsonAttributes(json.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn all_numbers_that_mark_missing_values_are_found() {
        let of = |json| marks(&attributes(json), &mut Vec::new());
        assert_eq!(of(json!({"missing_value": -1, "_FillValue": -9999})), [-9999.0, -1.0]);
        assert_eq!(
            of(json!({"Data Ignore Value": "-9999", "missing_value": [0, -9999]})),
            [0.0, -9999.0]
        );
        assert_eq!(of(json!({"_FillValue": "NaN"})), [0.0; 0]);
        let mut notes = Vec::new();
        assert_eq!(marks(&attributes(json!({"NoData": "none"})), &mut notes), [0.0; 0]);
        assert!(notes[0].contains("'none'"), "{notes:?}");
    }

    #[test]
    fn unsigned_numbers_are_recognised_with_their_marks() {
        let meant = |json, dtype| meant_type(&attributes(json), dtype);
        assert_eq!(meant(json!({"_Unsigned": "true"}), DType::I16), DType::U16);
        assert_eq!(meant(json!({"_Unsigned": "True"}), DType::I8), DType::U8);
        assert_eq!(meant(json!({"_Unsigned": "false"}), DType::U8), DType::I8);
        assert_eq!(meant(json!({"_Unsigned": "true"}), DType::F32), DType::F32);
        assert_eq!(meant(json!({}), DType::I16), DType::I16);
        assert_eq!(mark_as(-1.0, DType::I16, DType::U16), 65535.0);
        assert_eq!(mark_as(65535.0, DType::I16, DType::U16), 65535.0);
        assert_eq!(mark_as(255.0, DType::U8, DType::I8), -1.0);
        assert_eq!(mark_as(-1.0, DType::I16, DType::I16), -1.0);
    }
}
