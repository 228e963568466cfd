//! Features on a map: shapes in the coordinates of a file, each with the value of an attribute.

use std::path::PathBuf;

use hsipack_format::{Error, Geo, Result};

use super::classes::Value;
use super::crs::Conversion;
use super::resample::{apply, inverse};
use super::shapes::Shape;

/// The most points of all features together, which are in memory.
const MAX_POINTS: usize = 1 << 25;
/// The most names of attributes that an error lists.
pub(super) const MAX_LISTED: usize = 20;

/// A feature: its shapes in the coordinates of the file, and the value of the attribute.
pub(super) struct Feature {
    pub shapes: Vec<Shape>,
    pub value: Value,
}

/// Features of a file.
pub(super) struct Features {
    /// The format's name.
    pub format: &'static str,
    /// Their reference system; `None` if the file does not give it.
    pub crs: Option<String>,
    /// The features.
    pub features: Vec<Feature>,
    /// Names of the attributes, as far as they were met.
    pub attributes: Vec<String>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// Counts what is read of a file, so that memory stays bounded.
#[derive(Default)]
pub(super) struct Budget {
    points: usize,
}

impl Budget {
    /// Accounts for the points of shapes of feature `number`.
    ///
    /// # Errors
    /// If there are too many, or one is not finite.
    pub fn take(&mut self, shapes: &[Shape], number: usize) -> Result<()> {
        let points = || shapes.iter().flat_map(|shape| &shape.points);
        self.points += points().count();
        if self.points > MAX_POINTS {
            return Err(Error::unsupported(format!(
                "the file has more than {MAX_POINTS} vertices"
            ))
            .with_remedy("simplify the features, or divide the file"));
        }
        match points().flatten().all(|number| number.is_finite()) {
            true => Ok(()),
            false => Err(Error::malformed(format!(
                "feature {number} has a coordinate that is not a finite number"
            ))
            .with_remedy("correct the feature")),
        }
    }
}

/// Remembers the name of an attribute, for errors.
pub(super) fn remember(attributes: &mut Vec<String>, name: &str) {
    if attributes.len() <= MAX_LISTED && !attributes.iter().any(|attribute| attribute == name) {
        attributes.push(name.to_owned());
    }
}

/// The error for features whose cube has no place on a map.
pub(super) fn not_placed() -> Error {
    Error::unsupported("these are features on a map, but their cube is not georeferenced").with_remedy(
        "give a cube with the transform of its pixels, such as an ENVI header with map info or a GeoTIFF",
    )
}

/// The error for a position that cannot be converted.
pub(super) fn not_in_the_cube() -> Error {
    Error::malformed("it has a position that the reference system of the cube does not have")
        .with_remedy("remove it, or correct the reference system of the file")
}

/// A shape in pixels; `None` if a point has no place in the cube's reference system.
pub(super) fn in_pixels(
    mut shape: Shape,
    geo: &Geo,
    conversion: Option<&Conversion>,
) -> Option<Shape> {
    if let Some(conversion) = conversion {
        for point in &mut shape.points {
            *point = conversion.point(*point)?;
        }
    }
    shape.clockwise();
    let pixels = inverse(geo.transform);
    shape.points.iter_mut().for_each(|point| *point = apply(pixels, *point));
    shape.points.iter().flatten().all(|number| number.is_finite()).then_some(shape)
}
