//! The values of an attribute as classes: whole numbers are class ids, texts are names of classes.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::{Error, ErrorKind, Result, text};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// There is none.
    Null,
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
}

/// The longest name of a class, in bytes.
pub(super) const MAX_NAME: usize = 1000;

/// The id of each feature; `None` for features without a value.
pub(super) struct Classes {
    /// Ids, in the order of the features.
    pub ids: Vec<Option<u16>>,
    /// Names of the classes by their ids, if values are names. Class 0 is what no feature covers.
    pub names: Option<Vec<String>>,
}

/// The classes of features with these values.
///
/// # Errors
/// If a value cannot be the id or name of a class.
pub(super) fn classes(values: &[Value], attribute: &str) -> Result<Classes> {
    let number = |value: &Value| match value {
        Value::Null => None,
        Value::Number(number) => Some(*number),
        // Programs also write ids as text.
        Value::Text(text) => Some(text.trim().parse::<u16>().map_or(f64::NAN, f64::from)),
    };
    let are_numbers = values.iter().all(|value| match value {
        Value::Text(text) => text.trim().parse::<u16>().is_ok(),
        _ => true,
    });
    // Without any value it is not known whether classes have names, and no name contradicts those of other files.
    let is_empty = values.iter().all(|value| *value == Value::Null);
    if are_numbers && !is_empty {
        let id = |(feature, value): (usize, &Value)| match number(value) {
            None => Ok(None),
            Some(id) if id.fract() == 0.0 && (0.0..=65535.0).contains(&id) => Ok(Some(id as u16)),
            Some(id) => Err(Error::new(
                ErrorKind::Overflow,
                format!("feature {feature}: {attribute} is {id}, which is not a class id"),
            )
            .with_remedy(
                "class ids are whole numbers from 0 to 65535; give an attribute of ids or names",
            )),
        };
        let ids = values.iter().enumerate().map(id).collect::<Result<_>>()?;
        return Ok(Classes { ids, names: None });
    }
    by_name(values, attribute)
}

/// The classes of features with these values, which are names.
///
/// # Errors
/// If a value cannot be the name of a class.
pub(super) fn by_name(values: &[Value], attribute: &str) -> Result<Classes> {
    let name = |value: &Value| match value {
        Value::Null => None,
        Value::Number(number) => Some(number.to_string()),
        Value::Text(text) => Some(text.trim().to_owned()).filter(|name| !name.is_empty()),
    };
    let names: Vec<Option<String>> = values.iter().map(name).collect();
    for (feature, name) in names.iter().enumerate() {
        if name.as_ref().is_some_and(|name| name.len() > MAX_NAME) {
            return Err(Error::malformed(format!(
                "feature {feature}: {attribute} is longer than {MAX_NAME} bytes, which is no name of a class"
            ))
            .with_remedy("give another attribute"));
        }
    }
    let all: BTreeSet<&String> = names.iter().flatten().collect();
    if all.len() > usize::from(u16::MAX) {
        return Err(Error::unsupported(format!("{attribute} has {} different names", all.len()))
            .with_remedy("a mask has up to 65535 classes; give an attribute that names classes"));
    }
    let by_name: BTreeMap<&String, u16> = all.iter().copied().zip(1..).collect();
    let ids = names.iter().map(|name| name.as_ref().map(|name| by_name[name])).collect();
    let all =
        std::iter::once(String::new()).chain(all.iter().map(|name| text::printable(name).into()));
    let all = all.collect();
    Ok(Classes { ids, names: Some(all) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ids_and_texts_are_names() {
        let text = |text: &str| Value::Text(text.to_owned());
        let of = |values: &[Value]| classes(values, "kind").map(|all| (all.ids, all.names));
        let numbers = [Value::Number(7.0), Value::Null, text(" 3 ")];
        assert_eq!(of(&numbers).unwrap(), (vec![Some(7), None, Some(3)], None));
        let (ids, names) = of(&[text("roof"), text("grass"), Value::Null, text("roof")]).unwrap();
        assert_eq!(ids, [Some(2), Some(1), None, Some(2)]);
        assert_eq!(names.unwrap(), ["", "grass", "roof"]);
        assert_eq!(of(&[Value::Null]).unwrap(), (vec![None], Some(vec![String::new()])));
        for wrong in [-1.0, 0.5, 65536.0, f64::NAN, f64::INFINITY] {
            let error = of(&[Value::Number(1.0), Value::Number(wrong)]).unwrap_err();
            assert!(error.to_string().contains("feature 1: kind is"), "{error}");
        }
        assert!(of(&[text(&"x".repeat(MAX_NAME + 1))]).is_err());
    }
}
