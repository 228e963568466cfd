//! One type for each column of a dataset, also for values that are added later: conditions and
//! classes take the number 1 and the text `1` for different values.

use std::collections::BTreeMap;

use hsipack_format::{Result, Sample};
use hsipack_store::Dataset;
use serde_json::{Map, Value};

use crate::preview::sampling::spread;
use crate::table::{self, Json};

/// The most samples whose values are read to find the types of columns.
const SAMPLES: usize = 1000;

/// Types of the columns of a dataset, and added values that have another type.
#[derive(Debug, Default)]
pub(crate) struct ColumnTypes {
    types: BTreeMap<String, Type>,
    /// For each column, the number of values of another type, and the first of them.
    others: BTreeMap<String, (usize, Value)>,
}

/// The type of all values of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Numbers,
    Texts,
    /// Values of several types, or of another one.
    Others,
}

impl Type {
    fn of(value: &Value) -> Self {
        match value {
            Value::Number(_) => Self::Numbers,
            Value::String(_) => Self::Texts,
            _ => Self::Others,
        }
    }
}

impl ColumnTypes {
    /// The types of the columns of a dataset. Values that are not `kept` do not count.
    ///
    /// # Errors
    /// If a sample cannot be read.
    pub fn of(dataset: &Dataset, kept: impl Fn(usize, &str) -> bool) -> Result<Self> {
        let mut all = Self::default();
        for id in spread(dataset.samples().len(), SAMPLES) {
            let Sample { label, columns, .. } = dataset.samples().get(id)?;
            let label = label.map(|label| ("label".to_owned(), label));
            for (column, value) in columns.into_iter().chain(label) {
                if !value.is_null() && kept(id, &column) {
                    let of_value = Type::of(&value);
                    let of_column = all.types.entry(column).or_insert(of_value);
                    if *of_column != of_value {
                        *of_column = Type::Others;
                    }
                }
            }
        }
        Ok(all)
    }

    /// Adds the types of columns that have none yet.
    pub fn extend(&mut self, other: Self) {
        for (column, of_column) in other.types {
            self.types.entry(column).or_insert(of_column);
        }
    }

    /// Gives added values the types of their columns, if that changes no meaning, and counts
    /// those that keep another type.
    pub fn fit(&mut self, columns: &mut Map<String, Value>) {
        columns.iter_mut().for_each(|(column, value)| self.fit_value(column, value));
    }

    /// As [`fit`](Self::fit), of one value.
    pub fn fit_value(&mut self, column: &str, value: &mut Value) {
        let converted = match (self.types.get(column), &*value) {
            (None | Some(Type::Others), _) | (_, Value::Null) => return,
            (Some(of_column), value) if *of_column == Type::of(value) => return,
            (Some(Type::Numbers), Value::String(text)) => table::number_of(text),
            (Some(Type::Texts), Value::Number(number)) => {
                Json::Number(number.clone()).text().map(|text| Json::Text(text.into()))
            }
            _ => None,
        };
        match converted {
            Some(converted) => *value = Value::from(&converted),
            None => {
                let first = || (0, value.clone());
                self.others.entry(column.to_owned()).or_insert_with(first).0 += 1;
            }
        }
    }

    /// Notes about the values that have another type than the column in `owner`. They are then
    /// forgotten.
    pub fn notes(&mut self, owner: &str) -> Vec<String> {
        let others = std::mem::take(&mut self.others).into_iter();
        let note = |(column, (count, first)): (String, (usize, Value))| {
            let kind = match self.types.get(&column) {
                Some(Type::Numbers) => "numbers",
                _ => "texts",
            };
            let (values, are) = if count == 1 { ("value", "is") } else { ("values", "are") };
            format!(
                "the column {column:?} has {kind} in {owner}, but {count} new {values} {are} not, such as {first}; a number and a text are never equal, in conditions and as classes"
            )
        };
        others.map(note).collect()
    }
}
