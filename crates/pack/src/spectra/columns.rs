//! Columns of a data frame that describe samples. Each column has one type.

use serde_json::Value;

/// A column of a table: its name, and an optional value for every row.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The name.
    pub name: String,
    /// The values.
    pub values: Values,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// True or false.
    Flag(Vec<Option<bool>>),
    /// Texts.
    Text(Vec<Option<String>>),
}

impl Values {
    /// Converts JSON values to the narrowest type that can hold all of them; to text if they have
    /// several types.
    pub(super) fn of_json(values: Vec<Value>) -> Self {
        let non_null = || values.iter().filter(|value| !value.is_null());
        if non_null().next().is_some() {
            if non_null().all(Value::is_boolean) {
                return Self::Flag(values.iter().map(Value::as_bool).collect());
            }
            if non_null().all(Value::is_i64) {
                return Self::Whole(values.iter().map(Value::as_i64).collect());
            }
            if non_null().all(Value::is_number) {
                return Self::Number(values.iter().map(Value::as_f64).collect());
            }
        }
        let text = |value: Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        Self::Text(values.into_iter().map(text).collect())
    }

    /// The value of a row as text; `None` if it is missing.
    pub(super) fn text(&self, row: usize) -> Option<String> {
        match self {
            Self::Whole(values) => values[row].map(|value| value.to_string()),
            Self::Number(values) => values[row].map(|value| value.to_string()),
            Self::Flag(values) => values[row].map(|value| value.to_string()),
            Self::Text(values) => values[row].clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_has_the_narrowest_type_of_its_values() {
        let of = |values: Value| Values::of_json(values.as_array().unwrap().clone());
        assert_eq!(of(json!([1, null, -2])), Values::Whole(vec![Some(1), None, Some(-2)]));
        assert_eq!(of(json!([1, 2.5])), Values::Number(vec![Some(1.0), Some(2.5)]));
        assert_eq!(of(json!([true, null])), Values::Flag(vec![Some(true), None]));
        assert_eq!(of(json!([1, "a"])), Values::Text(vec![Some("1".into()), Some("a".into())]));
        assert_eq!(of(json!([null])), Values::Text(vec![None]));
        assert_eq!(of(json!([u64::MAX])), Values::Number(vec![Some(u64::MAX as f64)]));
    }
}
