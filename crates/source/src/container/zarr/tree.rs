//! A Zarr dataset as a [`Container`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use hsipack_format::Result;
use serde_json::{Map, Value as Json};
use zarrs::array::ArraySubset;

use super::chunks::{open_zarrs, retrieve};
use super::metadata::Node;
use crate::container::variables::to_value;
use crate::container::{ArrayEntry, Attributes, Container, JsonAttributes, Value, name_of, parent};

/// Longer lists are not read.
const MAX_LIST: usize = 1 << 20;
/// The most names of one folder that are compared.
const MAX_NAMES: usize = 10_000;
/// The attribute as which labels of channels are read.
const WAVELENGTH: &str = "wavelength";
/// How far above an array its dataset may begin.
const MAX_DEPTH: usize = 16;

/// A Zarr dataset: the folder of its root group, or of a single array.
pub(super) struct ZarrTree {
    root: PathBuf,
    /// All arrays, if they were listed.
    arrays: Option<Vec<ArrayEntry>>,
    /// Nodes that were read.
    nodes: RefCell<BTreeMap<String, Option<Node>>>,
}

/// The entry of an array.
pub(super) fn entry(path: String, node: &Node) -> Option<ArrayEntry> {
    let array = node.array.as_ref()?;
    Some(ArrayEntry { path, lengths: array.shape.clone(), dtype: array.dtype })
}

impl ZarrTree {
    /// The dataset in `root`, of which all arrays are known.
    pub fn listed(root: &Path, arrays: Vec<ArrayEntry>) -> Self {
        Self { root: root.to_owned(), arrays: Some(arrays), nodes: RefCell::default() }
    }

    /// The dataset that the array in `folder` belongs to, and the array's path in it.
    pub fn around(folder: &Path) -> (Self, String) {
        let mut root = folder.to_owned();
        let mut path = String::new();
        for _ in 0..MAX_DEPTH {
            let (Some(above), Some(name)) = (root.parent(), root.file_name()) else { break };
            path = format!("/{}{path}", name.to_string_lossy());
            let is_group =
                Node::read(above).is_ok_and(|node| node.is_some_and(|n| n.array.is_none()));
            root = above.to_owned();
            if !is_group {
                break;
            }
        }
        (Self { root, arrays: None, nodes: RefCell::default() }, path)
    }

    /// The folder of the node at `path`; `None` if `path` leads elsewhere.
    fn folder(&self, path: &str) -> Option<PathBuf> {
        let mut folder = self.root.clone();
        for name in path.split('/').skip(1) {
            if name.is_empty() || name.contains('\\') || name.starts_with('.') {
                return None;
            }
            folder.push(name);
        }
        Some(folder)
    }

    fn node(&self, path: &str) -> Option<Node> {
        if let Some(cached) = self.nodes.borrow().get(path) {
            return cached.clone();
        }
        let node = self.folder(path).and_then(|folder| Node::read(&folder).ok()?);
        self.nodes.borrow_mut().insert(path.to_owned(), node.clone());
        node
    }
}

impl Container for ZarrTree {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        if let Some(arrays) = &self.arrays {
            let inside = arrays.iter().filter(|entry| parent(&entry.path) == group);
            return inside.filter(|entry| wanted(entry.name())).cloned().collect();
        }
        // Only within a dataset: the folder around a single array may hold anything.
        if self.node(group).is_none() {
            return Vec::new();
        }
        let listed = self.folder(group).and_then(|folder| folder.read_dir().ok());
        let names = listed.into_iter().flatten().take(MAX_NAMES).flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| wanted(name));
        names.sort();
        names.iter().filter_map(|name| self.array(&format!("{group}/{name}"))).collect()
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let all = self.arrays.iter().flatten();
        all.filter(|entry| wanted(entry.name())).cloned().collect()
    }

    fn array(&self, path: &str) -> Option<ArrayEntry> {
        entry(path.to_owned(), &self.node(path)?)
    }

    fn attributes(&self, path: &str) -> Box<dyn Attributes + '_> {
        let mut attributes = self.node(path).map(|node| node.attributes).unwrap_or_default();
        if let Some(fill) = attributes.get("_FillValue").and_then(encoded) {
            attributes.insert("_FillValue".to_owned(), Json::from(fill));
        }
        if let Some(labels) = channel_labels(&attributes)
            && !attributes.contains_key(WAVELENGTH)
        {
            attributes.insert(WAVELENGTH.to_owned(), labels);
        }
        Box::new(JsonAttributes(attributes))
    }

    fn axis_names(&self, path: &str) -> Vec<Option<String>> {
        let Some(array) = self.node(path).and_then(|node| node.array) else { return Vec::new() };
        let group = self.node(parent(path)).map(|node| node.attributes).unwrap_or_default();
        let of_ome = scales(&group).find(|scale| scale.paths().any(|level| level == name_of(path)));
        match of_ome.map(|scale| scale.axes()).filter(|names| names.len() == array.shape.len()) {
            Some(names) => names.into_iter().map(Some).collect(),
            None => array.dimensions,
        }
    }

    fn values(&self, path: &str) -> Result<Option<Value>> {
        Ok(self.numbers(path))
    }

    fn fill_value(&self, path: &str) -> Option<f64> {
        self.node(path)?.array?.missing
    }
}

impl ZarrTree {
    /// The numbers of a short list, or of a single number.
    fn numbers(&self, path: &str) -> Option<Value> {
        let array = self.node(path)?.array?;
        let dtype = array.dtype?;
        let count = array.shape.iter().try_fold(1usize, |all, length| all.checked_mul(*length))?;
        let long = array.shape.iter().filter(|length| **length != 1).count();
        if count > MAX_LIST || long > 1 {
            return None;
        }
        let zarrs = open_zarrs(&self.folder(path)?, &array.stored).ok()?;
        let all =
            ArraySubset::new_with_shape(array.shape.iter().map(|length| *length as u64).collect());
        let bytes = retrieve(&zarrs, &all).ok()?;
        Some(to_value(&bytes, dtype, cfg!(target_endian = "big")))
    }
}

/// An image of OME-Zarr: one array per level of resolution.
pub(super) struct Scale<'a>(&'a Json);

/// The images that the attributes of a group describe: `multiscales`, in OME-Zarr 0.5 within `ome`.
pub(super) fn scales(attributes: &Map<String, Json>) -> impl Iterator<Item = Scale<'_>> {
    let ome = attributes.get("ome").and_then(|ome| ome.get("multiscales"));
    let list = ome.or_else(|| attributes.get("multiscales")).and_then(Json::as_array);
    list.into_iter().flatten().map(Scale)
}

impl Scale<'_> {
    /// The names of the arrays, from full resolution down.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let datasets = self.0["datasets"].as_array().into_iter().flatten();
        datasets.filter_map(|dataset| dataset["path"].as_str())
    }

    /// The names of the axes. In OME-Zarr 0.3, axes are only names.
    fn axes(&self) -> Vec<String> {
        let axes = self.0["axes"].as_array().into_iter().flatten();
        axes.filter_map(|axis| axis["name"].as_str().or(axis.as_str()).map(str::to_owned)).collect()
    }
}

/// The labels of OME-Zarr's channels, such as `450 nm`.
fn channel_labels(attributes: &Map<String, Json>) -> Option<Json> {
    let ome = attributes.get("ome").and_then(|ome| ome.get("omero"));
    let channels = ome.or_else(|| attributes.get("omero"))?["channels"].as_array()?;
    let labels = channels.iter().map(|channel| channel["label"].as_str().map(Json::from));
    labels.collect::<Option<Vec<_>>>().filter(|labels| !labels.is_empty()).map(Json::Array)
}

/// The number in a fill value that xarray encoded: base64 of a little-endian double.
fn encoded(json: &Json) -> Option<f64> {
    let text = json.as_str().or_else(|| json.as_array()?.first()?.as_str())?;
    if text.parse::<f64>().is_ok() {
        return None;
    }
    let bytes: [u8; 8] = BASE64_STANDARD.decode(text).ok()?.try_into().ok()?;
    Some(f64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values_of_xarray_are_base64_of_a_double() {
        // base64.standard_b64encode(struct.pack("<d", -9999.0))
        assert_eq!(encoded(&serde_json::json!("AAAAAICHw8A=")), Some(-9999.0));
        assert!(encoded(&serde_json::json!("AAAAAAAA+H8=")).unwrap().is_nan());
        for other in [serde_json::json!("-9999"), serde_json::json!("?"), serde_json::json!(-9999)]
        {
            assert_eq!(encoded(&other), None);
        }
    }
}
