//! Where the pixels of an array lie: its grid mapping, and the coordinates of its rows and columns, all beside it.

use hsipack_format::{CubeShape, Geo};
use serde_json::{Map, Value};

use super::axes::Kept;
use super::choose::Found;
use super::metadata::Node;
use super::spectral::beside;
use crate::cf::{self, Coordinates, Said};
use crate::{Axis, AxisOrder};

/// The attributes of an array.
struct Mapping(Map<String, Value>);

impl cf::Attributes for Mapping {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name)?.as_str().map(str::to_owned)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }
}

/// Where the pixels of the array `found` lie, if the dataset follows CF. Adds notes about anything that is not
/// kept.
pub(super) fn geo(
    found: &Found,
    kept: &Kept,
    order: AxisOrder,
    shape: CubeShape,
    notes: &mut Vec<String>,
) -> Option<Geo> {
    let group = found.folder.parent()?;
    let attributes = |name: &str| {
        // Only a name, not a path out of the group.
        let is_name = !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.');
        is_name.then(|| Node::read(&group.join(name)).ok()?.map(|node| node.attributes)).flatten()
    };
    let list = |axis| {
        let name = kept.names.get(order.position(axis))?.as_deref()?;
        let about = attributes(name)?;
        let text = |key: &str| about.get(key).and_then(Value::as_str).map(str::to_owned);
        let (values, units) = beside(&group.join(name))?;
        Some(Coordinates { values, standard_name: text("standard_name"), units })
    };
    let named = found.node.attributes.get("grid_mapping").and_then(Value::as_str);
    let named = named.and_then(|names| names.split_whitespace().next());
    let mapping = named.and_then(|name| attributes(name.trim_end_matches(':'))).map(Mapping);
    let said = Said {
        mapping: mapping.as_ref().map(|mapping| mapping as &dyn cf::Attributes),
        x: list(Axis::Column),
        y: list(Axis::Row),
    };
    cf::geo(&said, shape, notes)
}
