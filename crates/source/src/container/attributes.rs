//! Attributes of arrays and groups: numbers or texts under a name.

use serde_json::{Map, Value as Json};

/// The most numbers and texts that are read from one attribute or list. No sensor has as many
/// bands.
const MAX_LIST: usize = 1 << 20;

/// A small value: the content of an attribute, or of an array beside a cube.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Numbers.
    Numbers(Vec<f64>),
    /// Integers, some of which have more digits than `f64` holds.
    Integers(Vec<i128>),
    /// Texts.
    Texts(Vec<String>),
}

impl Value {
    /// The numbers, also if they are written as text, with the unit written behind them.
    pub fn numbers(&self) -> Option<(Vec<f64>, Option<String>)> {
        match self {
            Value::Numbers(numbers) => Some((numbers.clone(), None)),
            Value::Integers(whole) => {
                Some((whole.iter().map(|value| *value as f64).collect(), None))
            }
            Value::Texts(texts) => numbers_in(texts),
        }
    }

    /// The first text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Numbers(_) | Value::Integers(_) => None,
            Value::Texts(texts) => texts.first().map(String::as_str),
        }
    }
}

/// The attributes of one object.
pub(crate) trait Attributes {
    /// The names of all attributes.
    fn names(&self) -> Vec<String>;

    /// The value of the attribute of exactly this name.
    fn value(&self, name: &str) -> Option<Value>;
}

impl dyn Attributes + '_ {
    /// The stored name of the first of `names` that exists; `names` are in [`plain`] spelling.
    pub fn find(&self, names: &[&str]) -> Option<String> {
        let stored = self.names();
        names.iter().find_map(|name| stored.iter().find(|other| plain(other) == *name)).cloned()
    }

    /// The first number of the attribute of exactly this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.value(name)?.numbers()?.0.first().copied()
    }

    /// The text of the attribute of exactly this name.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name)?.text().map(str::to_owned)
    }
}

/// The name in plain spelling: only letters and digits, in lower case. `Data_Ignore_Value` and
/// `data ignore value` are the same.
pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The attributes of an object that has none.
pub(crate) struct NoAttributes;

impl Attributes for NoAttributes {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn value(&self, _name: &str) -> Option<Value> {
        None
    }
}

/// Attributes in JSON.
pub(crate) struct JsonAttributes(pub Map<String, Json>);

impl Attributes for JsonAttributes {
    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn value(&self, name: &str) -> Option<Value> {
        let number = |json: &Json| match json {
            Json::Bool(flag) => Some(f64::from(u8::from(*flag))),
            other => other.as_f64(),
        };
        let text = |json: &Json| json.as_str().map(str::to_owned);
        match self.0.get(name)? {
            Json::Array(list) if list.len() <= MAX_LIST => {
                let numbers = list.iter().map(number).collect::<Option<_>>().map(Value::Numbers);
                numbers
                    .or_else(|| Some(Value::Texts(list.iter().map(text).collect::<Option<_>>()?)))
            }
            scalar => number(scalar)
                .map(|number| Value::Numbers(vec![number]))
                .or_else(|| Some(Value::Texts(vec![text(scalar)?]))),
        }
    }
}

/// The numbers of a list that is written as text, and the unit behind them: `[400, 500]`,
/// `450.2 nm, 500.1 nm`, `450,2; 500,1`. `None` if there is anything else, or if units differ.
fn numbers_in(texts: &[String]) -> Option<(Vec<f64>, Option<String>)> {
    let decimal_comma = texts.iter().any(|text| text.contains(';') && text.contains(','));
    let (mut numbers, mut unit) = (Vec::new(), None::<String>);
    for text in texts {
        let pieces = text.split(|c: char| {
            c.is_whitespace()
                || matches!(c, ';' | '[' | ']' | '{' | '}' | '(' | ')' | '\'' | '"')
                || c == ',' && !decimal_comma
        });
        for word in pieces.filter(|piece| !piece.is_empty()) {
            let word = word.replace(',', ".");
            if let Ok(number) = word.parse() {
                numbers.push(number);
                continue;
            }
            // A unit, by itself or directly behind a number.
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
            let suffix = &word[digits.len()..];
            if !digits.is_empty() {
                numbers.push(digits.parse().ok()?);
            }
            if numbers.is_empty() || unit.as_deref().is_some_and(|unit| unit != suffix) {
                return None;
            }
            unit = Some(suffix.to_owned());
        }
        if numbers.len() > MAX_LIST {
            return None;
        }
    }
    (!numbers.is_empty()).then_some((numbers, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Option<(Vec<f64>, Option<String>)> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Value::Texts(texts).numbers()
    }

    #[test]
    fn numbers_are_read_from_texts() {
        let both = |unit: Option<&str>| Some((vec![450.2, 500.1], unit.map(str::to_owned)));
        for texts in
            [&["450.2, 500.1"][..], &["450.2", "500.1"], &["[450.2 500.1]"], &["{450,2; 500,1}"]]
        {
            assert_eq!(read(texts), both(None), "{texts:?}");
        }
        for texts in [&["450.2 nm", "500.1 nm"][..], &["450.2nm, 500.1nm"], &["450.2, 500.1 nm"]] {
            assert_eq!(read(texts), both(Some("nm")), "{texts:?}");
        }
        assert_eq!(read(&["1e-4"]), Some((vec![1e-4], None)));
        for texts in [&["reflectance"][..], &["Band 1"], &["450 nm", "0.5 um"], &[""], &[]] {
            assert_eq!(read(texts), None, "{texts:?}");
        }
    }

    #[test]
    fn json_holds_numbers_or_texts() {
        let json = serde_json::json!({"a": 1, "b": [1, 2], "c": "x", "d": ["x", "y"], "e": {}, "f": [1, "x"]});
        let attributes = JsonAttributes(json.as_object().unwrap().clone());
        assert_eq!(attributes.value("a"), Some(Value::Numbers(vec![1.0])));
        assert_eq!(attributes.value("b"), Some(Value::Numbers(vec![1.0, 2.0])));
        assert_eq!(attributes.value("c"), Some(Value::Texts(vec!["x".into()])));
        assert_eq!(attributes.value("d"), Some(Value::Texts(vec!["x".into(), "y".into()])));
        assert_eq!((attributes.value("e"), attributes.value("f")), (None, None));
    }
}
