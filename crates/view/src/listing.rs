//! Which samples are listed, and in which order.

use std::cmp::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::samples::{Condition, Keys};
use hsipack_format::{Error, Result, Samples};
use serde_json::Value;

use crate::query::Query;
use crate::subject::{Subject, What};

/// The last list. It is kept because a user who scrolls requests its next part.
#[derive(Debug, Default)]
pub struct Listing(Mutex<Option<(String, Arc<Vec<usize>>)>>);

impl Listing {
    /// The ids of the cubes that `query` chooses, in its order.
    ///
    /// # Errors
    /// If the condition is wrong, or the line of a sample cannot be read.
    pub fn of(&self, subject: &Subject, query: &Query) -> Result<Arc<Vec<usize>>> {
        let names = ["split", "group", "label", "where", "sort", "descending"];
        let key = format!("{:?}", names.map(|name| query.get(name)));
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last_key, ids)) = &*last
            && *last_key == key
        {
            return Ok(Arc::clone(ids));
        }
        let mut ids = match subject.samples() {
            Some(samples) => chosen(samples, query)?,
            None => (0..subject.len()).collect(),
        };
        sort(subject, &mut ids, query.get("sort").unwrap_or("id"))?;
        if query.get("descending").is_some_and(|text| text == "1") {
            ids.reverse();
        }
        let ids = Arc::new(ids);
        *last = Some((key, Arc::clone(&ids)));
        Ok(ids)
    }
}

fn chosen(samples: &Samples, query: &Query) -> Result<Vec<usize>> {
    let mut ids: Vec<usize> = (0..samples.len()).collect();
    if let Some(split) = query.get("split") {
        keep(&mut ids, samples.splits(), |name| name == split, split.is_empty());
    }
    if let Some(group) = query.get("group") {
        keep(&mut ids, samples.groups(), |name| name == group, group.is_empty());
    }
    if let Some(text) = query.get("label") {
        let label: Option<Value> = serde_json::from_str(text).ok();
        keep(&mut ids, samples.labels(), |value| label.as_ref() == Some(value), text.is_empty());
    }
    match query.get("where") {
        Some(text) if !text.trim().is_empty() => samples.fulfilling(ids, &Condition::parse(text)?),
        _ => Ok(ids),
    }
}

/// Keeps the samples whose key fulfils `is_wanted`; with `none`, the samples without a key.
fn keep<K>(ids: &mut Vec<usize>, keys: &Keys<K>, is_wanted: impl Fn(&K) -> bool, none: bool) {
    let number = keys.different().iter().position(is_wanted);
    let number = number.and_then(|number| u32::try_from(number).ok());
    ids.retain(|id| match keys.number(*id) {
        None => none,
        key => !none && key == number,
    });
}

/// Sorts by a column. Samples with equal values stay in the order of their ids; samples without a
/// value come last.
fn sort(subject: &Subject, ids: &mut [usize], column: &str) -> Result<()> {
    let samples = match subject.what() {
        What::Dataset(dataset) => dataset.samples(),
        What::Cubes(cubes) => {
            if column == "name" {
                ids.sort_by_cached_key(|id| cubes.inputs[*id].default_name());
            }
            return Ok(());
        }
    };
    match column {
        "id" => {}
        "name" => ids.sort_by(|a, b| samples.name(*a).cmp(samples.name(*b))),
        "split" => by_key(ids, samples.splits(), String::cmp),
        "group" => by_key(ids, samples.groups(), String::cmp),
        "label" => by_key(ids, samples.labels(), order),
        _ => by_column(samples, ids, column)?,
    }
    Ok(())
}

fn by_key<K>(ids: &mut [usize], keys: &Keys<K>, order: impl Fn(&K, &K) -> Ordering) {
    // Sort the keys, which are few, rather than compare them for the many samples.
    let different = keys.different();
    let mut places: Vec<usize> = (0..different.len()).collect();
    places.sort_by(|a, b| order(&different[*a], &different[*b]));
    let mut rank = vec![0; different.len()];
    places.iter().enumerate().for_each(|(position, number)| rank[*number] = position);
    ids.sort_by_key(|id| keys.number(*id).map_or(usize::MAX, |number| rank[number as usize]));
}

fn by_column(samples: &Samples, ids: &mut [usize], column: &str) -> Result<()> {
    let is_own = ["nan", "inf"].contains(&column);
    if !is_own && !samples.columns().iter().any(|name| name == column) {
        return Err(Error::conflict(format!("there is no column '{column}' to sort by")));
    }
    let value = |id: &usize| -> Result<(Value, usize)> {
        let mut sample = samples.get(*id)?;
        let value = match column {
            "nan" => Value::from(sample.nan),
            "inf" => Value::from(sample.inf),
            _ => sample.columns.remove(column).unwrap_or(Value::Null),
        };
        Ok((value, *id))
    };
    let mut all = ids.iter().map(value).collect::<Result<Vec<_>>>()?;
    all.sort_by(|(a, _), (b, _)| order(a, b));
    ids.iter_mut().zip(all).for_each(|(to, (_, id))| *to = id);
    Ok(())
}

/// Numbers come first, then texts, then everything else, then missing values.
fn order(a: &Value, b: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Null => 3,
        _ => 2,
    };
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => rank(a).cmp(&rank(b)),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_all_kinds_have_an_order() {
        let mut values =
            vec![json!(null), json!("b"), json!(10), json!(true), json!("a"), json!(2.5)];
        values.sort_by(order);
        assert_eq!(
            values,
            [json!(2.5), json!(10), json!("a"), json!("b"), json!(true), json!(null)]
        );
    }
}
