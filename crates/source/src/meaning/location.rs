//! Where the pixels of an array lie: its grid mapping, and the coordinates of its rows and columns.

use hsipack_format::{CubeShape, Geo};

use super::axes::Placed;
use crate::axes::axis_order::Axis;
use crate::container::{Container, nearest, parent, plain};
use crate::place::cf::{self, Coordinates, Said};

/// Where the pixels of the cube in the array at `path` lie, if the container follows CF. Adds notes
/// about anything that is not kept.
pub(super) fn geo(
    container: &dyn Container,
    path: &str,
    placed: &Placed,
    notes: &mut Vec<String>,
) -> Option<Geo> {
    let names = container.axis_names(path);
    let list = |axis| {
        let dimension = placed.axes[placed.order.position(axis)];
        coordinates(container, path, names.get(dimension)?.as_deref()?)
    };
    let attributes = container.attributes(path);
    let mapping = attributes.text("grid_mapping").and_then(|names| {
        // `crs`, or, in CF's longer form, `crs: x y other: lat lon`.
        let name = names.split_whitespace().next()?.trim_end_matches(':');
        Some(container.attributes(&nearest(container, path, name)?.path))
    });
    let metadata = Said { mapping: mapping.as_deref(), x: list(Axis::Column), y: list(Axis::Row) };
    let found = cf::geo(&metadata, placed.shape(), notes);
    if found.is_none() {
        let listed = attributes.text("coordinates").unwrap_or_default();
        notes.extend(of_every_pixel(container, path, &listed, placed.shape()));
    }
    found
}

/// The coordinate variable of the axis `name`.
fn coordinates(container: &dyn Container, path: &str, name: &str) -> Option<Coordinates> {
    let entry = nearest(container, path, name)?;
    if entry.lengths.len() != 1 {
        return None;
    }
    let attributes = container.attributes(&entry.path);
    Some(Coordinates {
        values: container.values(&entry.path).ok()??.numbers()?.0,
        standard_name: attributes.text("standard_name"),
        units: attributes.text("units"),
    })
}

/// A note if there are longitudes and latitudes of every pixel, listed in the array's `coordinates`
/// or beside it.
fn of_every_pixel(
    container: &dyn Container,
    path: &str,
    listed: &str,
    shape: CubeShape,
) -> Option<String> {
    const NAMES: [&str; 4] = ["latitude", "longitude", "lat", "lon"];
    let beside = container.arrays_in(parent(path), &|name| NAMES.contains(&&*plain(name)));
    let beside = beside.iter().map(|entry| entry.name());
    let mut found: Vec<&str> = Vec::new();
    for name in listed.split_whitespace().chain(beside) {
        let entry = nearest(container, path, name);
        let is_map = entry.is_some_and(|entry| entry.lengths == [shape.rows, shape.columns]);
        if is_map && !found.contains(&name) {
            found.push(name);
        }
    }
    let degrees = |name: &&str| {
        let path = nearest(container, path, name).map(|entry| entry.path).unwrap_or_default();
        let attributes = container.attributes(&path);
        let units = attributes.text("units").unwrap_or_default().to_lowercase();
        units.starts_with("degree") || NAMES.contains(&plain(name).as_str())
    };
    found.retain(|name| degrees(name));
    (found.len() >= 2).then(|| {
        format!(
            "the positions of pixels are stored in '{}', which are not kept",
            found.join("' and '")
        )
    })
}
