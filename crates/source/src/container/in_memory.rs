//! A container in memory, for tests of the meaning of arrays.

use std::cell::Cell;
use std::collections::BTreeMap;

use hsipack_format::{DType, Result};
use serde_json::{Map, Value as Json};

use super::{ArrayEntry, Attributes, Container, JsonAttributes, Value};

/// Arrays with attributes, by their paths.
#[derive(Default)]
pub(crate) struct InMemory {
    arrays: BTreeMap<String, (ArrayEntry, Value)>,
    attributes: BTreeMap<String, Map<String, Json>>,
    /// How many arrays were read.
    pub read: Cell<usize>,
}

impl InMemory {
    /// Adds an array of these lengths whose values are of no interest.
    pub fn with(mut self, path: &str, lengths: &[usize]) -> Self {
        let entry = ArrayEntry {
            path: path.to_owned(),
            lengths: lengths.to_vec(),
            dtype: Some(DType::U16),
        };
        self.arrays.insert(path.to_owned(), (entry, Value::Numbers(Vec::new())));
        self
    }

    /// Adds a list.
    pub fn with_list(mut self, path: &str, values: &[f64]) -> Self {
        self = self.with(path, &[values.len()]);
        if let Some((_, value)) = self.arrays.get_mut(path) {
            *value = Value::Numbers(values.to_vec());
        }
        self
    }

    /// Adds attributes to the array or group at `path`.
    pub fn with_attributes(mut self, path: &str, json: Json) -> Self {
        let entries = self.attributes.entry(path.to_owned()).or_default();
        entries.extend(json.as_object().cloned().unwrap_or_default());
        self
    }
}

impl Container for InMemory {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let mut found = self.arrays_anywhere(wanted);
        found.retain(|entry| super::parent(&entry.path) == group);
        found
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let all = self.arrays.values().map(|(entry, _)| entry);
        all.filter(|entry| wanted(entry.name())).cloned().collect()
    }

    fn attributes(&self, path: &str) -> Box<dyn Attributes + '_> {
        Box::new(JsonAttributes(self.attributes.get(path).cloned().unwrap_or_default()))
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        Vec::new()
    }

    fn values(&self, path: &str) -> Result<Option<Value>> {
        self.read.set(self.read.get() + 1);
        Ok(self.arrays.get(path).map(|(_, value)| value.clone()))
    }
}
