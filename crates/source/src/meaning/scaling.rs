//! From stored numbers to physical values: scale factors and offsets under all names in use.
//!
//! | attribute | meaning |
//! |---|---|
//! | exactly `scale_factor`, `add_offset` (CF) | multiplies, adds |
//! | `Scale_Factor`, `Scale Factor`, `SCALE_FACTOR`, `Reflectance_Scale_Factor` … | from 10 on divides (NEON, ASD, Headwall); below 1 multiplies (HDF-EOS) |
//! | any of these on a group, or a number beside the array | only named in a note |

use crate::Scaling;
use crate::container::{Attributes, Container, Value, parent, plain};

use super::missing::not_a_number;

/// Names of scale factors in [`plain`] spelling.
pub(crate) const SCALES: [&str; 9] = [
    "scalefactor",
    "reflectancescalefactor",
    "radiancescalefactor",
    "datascalefactor",
    "scalingfactor",
    "reflectancescalingfactor",
    "reflectancescale",
    "scale",
    "quantificationvalue",
];
/// Names of offsets in [`plain`] spelling.
const OFFSETS: [&str; 2] = ["addoffset", "reflectanceaddoffset"];

/// The first usable number among the attributes called one of `names`, and its stored name.
fn number(
    attributes: &dyn Attributes,
    names: &[&str],
    usable: impl Fn(f64) -> bool,
    notes: &mut Vec<String>,
) -> Option<(String, f64)> {
    let mut stored = attributes.names();
    // CF's own spelling comes first.
    stored.sort_by_key(|name| name != "scale_factor" && name != "add_offset");
    for spelling in names {
        for name in stored.iter().filter(|name| plain(name) == *spelling) {
            let Some(value) = attributes.value(name) else { continue };
            match value.numbers().as_ref().map(|(numbers, _)| &numbers[..]) {
                Some([number]) if usable(*number) => return Some((name.clone(), *number)),
                Some([number]) => {
                    notes.push(format!("{name} is {number}; the stored numbers are kept"));
                }
                Some(many) => notes.push(format!(
                    "{name} has {} values, not one; the stored numbers are kept",
                    many.len()
                )),
                None => notes.push(not_a_number(name, &value)),
            }
        }
    }
    None
}

/// The scaling that an array's attributes state. Numbers under names other than CF's are explained
/// in a note.
pub(super) fn of(attributes: &dyn Attributes, notes: &mut Vec<String>) -> Scaling {
    let scale = number(attributes, &SCALES, |scale| scale.is_finite() && scale != 0.0, notes);
    let offset = number(attributes, &OFFSETS, f64::is_finite, notes);
    let add = offset.as_ref().map_or(0.0, |(_, add)| *add);
    if let Some((name, add)) = offset.filter(|(name, _)| name != "add_offset") {
        notes.push(format!("the attribute {name}, {add}, is added to the numbers"));
    }
    let Some((name, factor)) = scale else { return Scaling { add, ..Scaling::NONE } };
    if name == "scale_factor" {
        return Scaling { multiply: factor, divide: 1.0, add };
    }
    match factor {
        1.0 => Scaling { add, ..Scaling::NONE },
        divide if divide >= 10.0 => {
            notes.push(format!("numbers are divided by the attribute {name}, {divide}"));
            Scaling { multiply: 1.0, divide, add }
        }
        multiply if multiply > 0.0 && multiply < 1.0 => {
            notes.push(format!("numbers are multiplied by the attribute {name}, {multiply}"));
            Scaling { multiply, divide: 1.0, add }
        }
        other => {
            notes.push(format!(
                "the attribute {name}, {other}, may multiply or divide; it is not applied"
            ));
            Scaling { add, ..Scaling::NONE }
        }
    }
}

/// A note about a scale factor that does not belong to the array itself: an attribute of a group
/// around it, or a number beside it.
pub(super) fn suggestion(container: &dyn Container, path: &str) -> Option<String> {
    let is_scale = |name: &str| SCALES[..SCALES.len() - 2].contains(&&*plain(name));
    let single = |value: &Value| match value.numbers()?.0[..] {
        [number] if number != 1.0 => Some(number),
        _ => None,
    };
    let mut group = path;
    while !group.is_empty() {
        group = parent(group);
        let attributes = container.attributes(group);
        let mut names = attributes.names();
        names.retain(|name| is_scale(name));
        let of_attribute =
            names.iter().find_map(|name| Some((name.clone(), single(&attributes.value(name)?)?)));
        let found = of_attribute.or_else(|| {
            let beside = container.arrays_in(group, &is_scale);
            let mut scalars = beside.iter().filter(|entry| {
                entry.path != path && entry.lengths.iter().all(|length| *length == 1)
            });
            scalars.find_map(|entry| {
                let value = container.values(&entry.path).ok()??;
                Some((entry.name().to_owned(), single(&value)?))
            })
        });
        if let Some((name, number)) = found {
            return Some(format!(
                "{name}, {number}, does not belong to the array itself, so it is not applied"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::container::{InMemory, JsonAttributes};

    fn scaling(json: serde_json::Value) -> (Scaling, Vec<String>) {
        let mut notes = Vec::new();
        let attributes = JsonAttributes(json.as_object().cloned().unwrap_or_default());
        (of(&attributes, &mut notes), notes)
    }

    #[test]
    fn exact_cf_names_multiply_and_others_divide_or_multiply() {
        let cf = |multiply, add| Scaling { multiply, divide: 1.0, add };
        assert_eq!(scaling(json!({"scale_factor": 10000})), (cf(10000.0, 0.0), vec![]));
        assert_eq!(
            scaling(json!({"scale_factor": "0.5", "add_offset": "3"})),
            (cf(0.5, 3.0), vec![])
        );
        assert_eq!(scaling(json!({"add_offset": [3]})), (cf(1.0, 3.0), vec![]));
        for name in ["Scale_Factor", "SCALE_FACTOR", "scale factor", "Reflectance_Scale_Factor"] {
            let (divided, notes) = scaling(json!({name: 10000}));
            assert_eq!((divided.divide, notes.len()), (10000.0, 1), "{name}");
            assert_eq!(scaling(json!({name: 0.25})).0, cf(0.25, 0.0), "{name}");
            let (kept, notes) = scaling(json!({name: 3}));
            assert!(kept.is_none() && notes[0].contains(name), "{notes:?}");
        }
        // CF comes first.
        assert_eq!(scaling(json!({"Scale_Factor": 100, "scale_factor": 0.5})).0, cf(0.5, 0.0));
    }

    #[test]
    fn factors_without_a_meaning_are_named() {
        for value in [json!(0), json!("ten"), json!([1, 2]), json!("NaN")] {
            let (kept, notes) = scaling(json!({"scale_factor": value}));
            assert!(kept.is_none() && notes[0].contains("scale_factor"), "{notes:?}");
        }
    }

    #[test]
    fn factors_that_belong_to_no_array_only_suggest() {
        let tree = InMemory::default().with_list("/scale_factor", &[10000.0]);
        assert!(suggestion(&tree, "/scan/cube").unwrap().contains("scale_factor, 10000"));
        let tree = InMemory::default().with_attributes("", json!({"Scale Factor": 10000}));
        assert!(suggestion(&tree, "/scan/cube").unwrap().contains("Scale Factor, 10000"));
        assert_eq!(suggestion(&InMemory::default().with_list("/scale", &[1e4]), "/cube"), None);
    }
}
