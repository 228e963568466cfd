//! Coordinates from one reference system to another, by Proj4's definitions of EPSG codes.

use hsipack_format::{Error, Result};
use proj4rs::Proj;
use proj4rs::transform::transform;

use crate::place::georeference;

/// From the coordinates of one system to those of another.
pub struct Conversion {
    from: Proj,
    to: Proj,
}

impl Conversion {
    /// The conversion between two systems, given as EPSG codes or WKT; `None` if they are the same,
    /// or if one of them is not known.
    ///
    /// # Errors
    /// If the systems differ and one has no EPSG code, or one that has no definition.
    pub fn between(from: Option<&str>, to: Option<&str>) -> Result<Option<Self>> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
        let codes = [from, to].map(code_of);
        if from == to || codes[0].is_some() && codes[0] == codes[1] {
            return Ok(None);
        }
        let refused = || {
            Error::unsupported(format!(
                "labels and cube are in different reference systems, {} and {}, and hsipack cannot convert one into the other",
                short(from),
                short(to)
            ))
            .with_remedy("convert the labels to the reference system of the cube: ogr2ogr -t_srs for features, gdalwarp -t_srs for rasters")
        };
        let [Some(from), Some(to)] = codes.map(|code| Proj::from_epsg_code(code?).ok()) else {
            return Err(refused());
        };
        Ok(Some(Self { from, to }))
    }

    /// A position in the other system; `None` if it has none.
    pub fn point(&self, [x, y]: [f64; 2]) -> Option<[f64; 2]> {
        let angle = |is_angle: bool, value: f64| if is_angle { value.to_radians() } else { value };
        let degrees = self.from.is_latlong();
        let mut point = (angle(degrees, x), angle(degrees, y), 0.0);
        transform(&self.from, &self.to, &mut point).ok()?;
        let degrees = self.to.is_latlong();
        let angle = |value: f64| if degrees { value.to_degrees() } else { value };
        let [x, y] = [angle(point.0), angle(point.1)];
        (x.is_finite() && y.is_finite()).then_some([x, y])
    }
}

/// The EPSG code of a system. WKT without a code is recognised by its names, as far as files of
/// this field have such.
fn code_of(crs: &str) -> Option<u16> {
    georeference::code_of(crs).or_else(|| georeference::code_by_name(crs))
}

/// The name of a system in a message.
pub(super) fn short(crs: &str) -> String {
    let name = crs.split('"').nth(1).filter(|_| crs.contains('['));
    name.map_or_else(|| crs.chars().take(80).collect(), str::to_owned)
}
