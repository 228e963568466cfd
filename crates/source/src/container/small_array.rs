//! Small arrays beside cubes: the value of a column for a cube.

use std::path::Path;

use hsipack_format::{DType, Error, Result};

use crate::container::Value;
use crate::{Listed, detect};

/// The values of a small array.
#[derive(Clone, Debug, PartialEq)]
pub enum SmallArray {
    /// Numbers of this type.
    Numbers(Vec<f64>, DType),
    /// Integers, some of which have more digits than `f64` holds.
    Integers(Vec<i128>),
    /// Texts.
    Texts(Vec<String>),
}

/// The array `name` of the container at `path`, and its values if at most one axis is longer
/// than 1. `name` may be only the last part of its path; `None` stands for the only array. `None`
/// if the file is no container.
///
/// # Errors
/// If the container cannot be read, or has no such array, or several.
pub fn small_array(
    path: &Path,
    name: Option<&str>,
) -> Result<Option<(Listed, Option<SmallArray>)>> {
    let mut found = None;
    detect::visit(path, &mut |container| {
        let all = container.arrays_anywhere(&|_| true);
        let wanted = name.map(|name| name.trim_matches('/'));
        let exact = all
            .iter()
            .filter(|entry| wanted.is_none_or(|wanted| entry.path.trim_matches('/') == wanted));
        let last = all.iter().filter(|entry| Some(entry.name()) == wanted);
        let mut fitting: Vec<_> = exact.collect();
        if fitting.is_empty() {
            fitting = last.collect();
        }
        let [entry] = fitting[..] else {
            let names = all.iter().take(LISTED).map(|entry| entry.path.clone()).collect();
            let what = match (name, fitting.len()) {
                (Some(name), 0) => format!("there is no array '{name}'"),
                (Some(name), count) => format!("{count} arrays are called '{name}'"),
                (None, 0) => "there is no array".to_owned(),
                (None, count) => format!("there are {count} arrays"),
            };
            return Err(Error::conflict(what)
                .with_choices(names)
                .with_remedy("name one of the arrays after '::'"));
        };
        let long = entry.lengths.iter().filter(|length| **length != 1).count();
        let mut value = container.values(&entry.path)?;
        if entry.path.is_empty() && value.is_none() {
            // An .npy file holds nothing else.
            value = crate::flat::numpy::numbers_in(path)?;
        }
        let values = match value {
            _ if long > 1 => None,
            Some(Value::Numbers(numbers)) => {
                entry.dtype.map(|dtype| SmallArray::Numbers(numbers, dtype))
            }
            Some(Value::Integers(whole)) => Some(SmallArray::Integers(whole)),
            Some(Value::Texts(texts)) => Some(SmallArray::Texts(texts)),
            None => None,
        };
        found = Some((Listed::from(entry.clone()), values));
        Ok(())
    })
    .map_err(|error| error.at(path))?;
    Ok(found)
}

/// The most names that a message lists.
const LISTED: usize = 5;
