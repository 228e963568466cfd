//! Where pixels lie, according to the [CF conventions](https://cfconventions.org): the coordinates
//! of rows and columns, and a *grid mapping*, a variable whose attributes define the coordinate
//! reference system.
//!
//! | attribute or variable | what is read from it |
//! |---|---|
//! | `crs_wkt`, `spatial_ref` | EPSG code, or the text |
//! | `grid_mapping_name` and its parameters | EPSG code of longitude and latitude, and of UTM zones |
//! | coordinates (`standard_name`, `units`) | the transform, if they are evenly spaced |
//! | `GeoTransform` | the transform, unless the coordinates contradict it: a part that was cut out keeps the transform of the whole |
//!
//! NetCDF and Zarr use the same attributes. Their readers find the variables.

use hsipack_format::geo::{Datum, Unit, Utm};
use hsipack_format::{CubeShape, Geo};

use crate::container::Attributes;
use crate::place::georeference;

/// How far coordinates may deviate from even spacing, in pixels. In single precision, a northing is
/// exact to half a metre.
const UNEVEN: f64 = 1.0 / 32.0;

/// The coordinates along one axis of a cube.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Coordinates {
    /// One value per row or column.
    pub values: Vec<f64>,
    /// Their `standard_name`, which says what they are.
    pub standard_name: Option<String>,
    /// Their unit, as written.
    pub units: Option<String>,
}

/// Entries of a file about a cube's grid.
#[derive(Default)]
pub(crate) struct Said<'a> {
    /// The grid mapping.
    pub mapping: Option<&'a dyn Attributes>,
    /// The coordinates of columns.
    pub x: Option<Coordinates>,
    /// The coordinates of rows.
    pub y: Option<Coordinates>,
}

impl Said<'_> {
    /// Whether there are coordinates that may be positions, but nothing says so. Whole steps of 1
    /// are most likely numbers of pixels.
    fn may_have_place(&self, shape: CubeShape) -> bool {
        let (Some(x), Some(y)) = (&self.x, &self.y) else { return false };
        self.mapping.is_none()
            && [(x, shape.columns), (y, shape.rows)].iter().all(|(list, len)| {
                let is_bare = list.standard_name.is_none() && list.units.is_none();
                let spacing = list.spacing().filter(|_| list.values.len() == *len && *len > 1);
                is_bare && spacing.is_some_and(|spacing| spacing.step.abs() != 1.0)
            })
    }
}

/// Where the pixels of a cube of this shape lie. Adds notes about anything that is not kept.
pub(crate) fn geo(metadata: &Said<'_>, shape: CubeShape, notes: &mut Vec<String>) -> Option<Geo> {
    let grid = Grid::of(metadata, shape);
    if grid.is_none() && metadata.may_have_place(shape) {
        notes.push(
            "the coordinates x and y are not kept, because nothing says what they are; a grid mapping, or standard_name and units, would".to_owned(),
        );
    }
    let lists = match grid.as_ref().map(|grid| Some((grid.x.spacing()?, grid.y.spacing()?))) {
        Some(None) => {
            notes.push(
                "coordinates are not evenly spaced; the georeferencing is not kept".to_owned(),
            );
            return None;
        }
        other => other.flatten(),
    };
    let stated =
        metadata.mapping.and_then(|mapping| given_transform(&mapping.text("GeoTransform")?));
    let transform = match (lists, stated) {
        (Some(lists), Some(stated)) if agree(stated, lists, shape) => stated,
        (Some((x, y)), stated) => {
            if stated.is_some() {
                notes.push(
                    "GeoTransform does not match the coordinates; the coordinates are used"
                        .to_owned(),
                );
            }
            [x.first - x.step / 2.0, x.step, 0.0, y.first - y.step / 2.0, 0.0, y.step]
        }
        (None, stated) => stated?,
    };
    let Some(geo) = Geo::new(None, transform) else {
        notes.push("the georeferencing is not used: its numbers make no sense".to_owned());
        return None;
    };
    let unit = grid.and_then(|grid| grid.unit);
    let (crs, crs_unit) = match metadata.mapping {
        Some(mapping) => system(mapping, notes),
        None if unit == Some(Unit::Degree) => {
            notes.push(
                "longitude and latitude are assumed to be in WGS 84, because no datum is given"
                    .to_owned(),
            );
            (Some("EPSG:4326".to_owned()), None)
        }
        None => (None, None),
    };
    // Some writers number the pixels if they do not know where on Earth these lie.
    let counts_pixels = crs.is_none() && geo.pixel_size() == [1.0, 1.0];
    (!counts_pixels).then(|| Geo { crs, unit: crs_unit.or(unit), ..geo })
}

/// Coordinates of columns and rows, both in the same reference system.
struct Grid {
    x: Coordinates,
    y: Coordinates,
    unit: Option<Unit>,
}

impl Grid {
    /// `None` if coordinates are missing, do not fit the shape or are not positions. A list of one
    /// value does not count either, because it has no spacing.
    fn of(metadata: &Said<'_>, shape: CubeShape) -> Option<Self> {
        let (x, y) = (metadata.x.as_ref()?, metadata.y.as_ref()?);
        let mapped = metadata.mapping.is_some();
        let (factor, unit) = x.unit("projection_x_coordinate", ("longitude", "degreee"), mapped)?;
        let same = y.unit("projection_y_coordinate", ("latitude", "degreen"), mapped)?;
        let fits = same == (factor, unit)
            && [(x, shape.columns), (y, shape.rows)]
                .iter()
                .all(|(list, len)| list.values.len() == *len && *len > 1);
        let scaled = |list: &Coordinates| Coordinates {
            values: list.values.iter().map(|value| value * factor).collect(),
            ..list.clone()
        };
        fits.then(|| Self { x: scaled(x), y: scaled(y), unit })
    }
}

/// Evenly spaced numbers, rising or falling.
#[derive(Clone, Copy, Debug)]
struct Spacing {
    first: f64,
    step: f64,
}

impl Coordinates {
    /// The factor that turns the coordinates into positions, and their unit; `None` if they are not
    /// positions. They are positions if their standard name says so, if they have a unit that only
    /// positions have, or if there is a grid mapping.
    fn unit(
        &self,
        plane: &str,
        (degrees, direction): (&str, &str),
        mapped: bool,
    ) -> Option<(f64, Option<Unit>)> {
        // degrees_east, degree_east, degree_E, degreeE, degreesE
        let units = self.units.as_deref().unwrap_or_default().to_lowercase();
        let units = units.replace(['_', ' '], "").replace("degrees", "degree");
        let is_degrees = units.starts_with("degree") || units.is_empty();
        match self.standard_name.as_deref() {
            Some(name) if name == degrees && is_degrees => return Some((1.0, Some(Unit::Degree))),
            Some(name) if name != plane => return None,
            None if units.starts_with(direction) => return Some((1.0, Some(Unit::Degree))),
            None if !mapped => return None,
            _ => {}
        }
        match units.as_str() {
            "m" | "metre" | "metres" | "meter" | "meters" => Some((1.0, Some(Unit::Metre))),
            "km" | "kilometre" | "kilometres" | "kilometer" | "kilometers" => {
                Some((1000.0, Some(Unit::Metre)))
            }
            "" | "ft" | "foot" | "feet" | "ussurveyfoot" | "usft" => Some((1.0, None)),
            _ => None,
        }
    }

    /// The spacing; `None` if they are not evenly spaced.
    fn spacing(&self) -> Option<Spacing> {
        let (first, last) = (*self.values.first()?, *self.values.last()?);
        let step = (last - first) / (self.values.len() - 1) as f64;
        let is_even = |(index, value): (usize, &f64)| {
            (value - (first + index as f64 * step)).abs() <= UNEVEN * step.abs()
        };
        let even = step != 0.0 && self.values.iter().enumerate().all(is_even);
        even.then_some(Spacing { first, step })
    }
}

/// The six numbers of a GDAL transform, written in one text.
fn given_transform(text: &str) -> Option<[f64; 6]> {
    let numbers = text.split([' ', ',']).filter(|word| !word.is_empty());
    let numbers: Vec<f64> = numbers.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// Whether a transform puts the centres of the first and the last pixel where the coordinates do.
fn agree(transform: [f64; 6], (x, y): (Spacing, Spacing), shape: CubeShape) -> bool {
    let [left, a, b, top, d, e] = transform;
    let near = |start: f64, step: f64, list: Spacing, len: usize| {
        [0, len - 1].into_iter().all(|index| {
            let (middle, other) =
                (start + step * (index as f64 + 0.5), list.first + list.step * index as f64);
            (middle - other).abs() <= UNEVEN * list.step.abs()
        })
    };
    b == 0.0 && d == 0.0 && near(left, a, x, shape.columns) && near(top, e, y, shape.rows)
}

/// The reference system that a grid mapping defines, and its unit if that is known.
fn system(mapping: &dyn Attributes, notes: &mut Vec<String>) -> (Option<String>, Option<Unit>) {
    let texts = ["crs_wkt", "spatial_ref"].map(|key| mapping.text(key));
    let code = texts.iter().flatten().find_map(|text| georeference::code_of(text));
    if let Some(code) = code.or_else(|| by_parameters(mapping)) {
        return (Some(format!("EPSG:{code}")), georeference::unit_of(code));
    }
    if let Some(wkt) = texts.iter().flatten().find_map(|text| georeference::wkt(text)) {
        return (Some(wkt.text), wkt.unit);
    }
    let name = mapping.text("grid_mapping_name").map(|name| {
        let name: String = name.chars().take(60).collect();
        format!(" ({})", hsipack_format::text::printable(&name))
    });
    notes.push(format!(
        "the reference system{} has no EPSG code; only the coordinates of pixels are kept",
        name.unwrap_or_default()
    ));
    (None, None)
}

/// The EPSG code of a system that CF's parameters define: longitude and latitude, or a UTM zone, in
/// a known datum.
fn by_parameters(mapping: &dyn Attributes) -> Option<u16> {
    let datum = datum(mapping)?;
    let is = |key: &str, wanted: f64| {
        mapping.number(key).is_none_or(|value| (value - wanted).abs() <= 1e-9 * wanted.abs())
    };
    match mapping.text("grid_mapping_name")?.as_str() {
        "latitude_longitude" => {
            is("longitude_of_prime_meridian", 0.0).then_some(datum.geographic_epsg())
        }
        "transverse_mercator" => {
            let zone = (mapping.number("longitude_of_central_meridian")? + 183.0) / 6.0;
            let south = match mapping.number("false_northing")? {
                0.0 => false,
                10_000_000.0 => true,
                _ => return None,
            };
            let is_utm = zone.fract() == 0.0
                && (1.0..=60.0).contains(&zone)
                && mapping.number("scale_factor_at_central_meridian")? == 0.9996
                && mapping.number("false_easting")? == 500_000.0
                && is("latitude_of_projection_origin", 0.0)
                && is("longitude_of_prime_meridian", 0.0);
            is_utm.then(|| Utm { datum, zone: zone as u8, south }.epsg()).flatten()
        }
        _ => None,
    }
}

/// The datum, by its name, or by an ellipsoid that no other datum has.
fn datum(mapping: &dyn Attributes) -> Option<Datum> {
    let names = ["horizontal_datum_name", "geographic_crs_name"];
    let named: Vec<String> = names.into_iter().filter_map(|key| mapping.text(key)).collect();
    if !named.is_empty() {
        return named.iter().find_map(|name| georeference::datum(name));
    }
    let (axis, flattening) = Datum::Wgs84.ellipsoid();
    let is = |key: &str, wanted: f64| {
        mapping.number(key).is_some_and(|value| (value / wanted - 1.0).abs() < 1e-10)
    };
    (is("semi_major_axis", axis) && is("inverse_flattening", flattening)).then_some(Datum::Wgs84)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use crate::container::{self, JsonAttributes};

    impl Attributes for Value {
        fn names(&self) -> Vec<String> {
            self.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
        }
        fn value(&self, name: &str) -> Option<container::Value> {
            JsonAttributes(self.as_object()?.clone()).value(name)
        }
    }

    fn list(values: &[f64], standard_name: &str, units: &str) -> Option<Coordinates> {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some(Coordinates {
            values: values.to_vec(),
            standard_name: text(standard_name),
            units: text(units),
        })
    }

    const X: [f64; 3] = [634215.0, 634245.0, 634275.0];
    const Y: [f64; 2] = [5297180.0, 5297160.0];
    const TRANSFORM: [f64; 6] = [634200.0, 30.0, 0.0, 5297190.0, 0.0, -20.0];

    fn plane(mapping: Option<&Value>, x: &[f64], units: &str) -> (Option<Geo>, Vec<String>) {
        let (x, y) =
            (list(x, "projection_x_coordinate", units), list(&Y, "projection_y_coordinate", units));
        let mapping = mapping.map(|mapping| mapping as &dyn Attributes);
        let mut notes = Vec::new();
        (geo(&Said { mapping, x, y }, CubeShape::new(2, 3, 4), &mut notes), notes)
    }

    #[test]
    fn coordinates_are_the_middles_of_pixels() {
        let mapping = json!({"spatial_ref": "EPSG:32632"});
        let (found, notes) = plane(Some(&mapping), &X, "m");
        let found = found.unwrap();
        assert_eq!((found.crs.as_deref(), found.unit), (Some("EPSG:32632"), Some(Unit::Metre)));
        assert_eq!((found.transform, notes.len()), (TRANSFORM, 0));
        // In kilometres, from south to north.
        let (x, y) = (X.map(|x| x / 1e3), [5297.16, 5297.18]);
        let metadata = Said {
            mapping: Some(&mapping),
            x: list(&x, "projection_x_coordinate", "km"),
            y: list(&y, "projection_y_coordinate", "km"),
        };
        let found = geo(&metadata, CubeShape::new(2, 3, 4), &mut Vec::new()).unwrap();
        let wanted = [634200.0, 30.0, 0.0, 5297150.0, 0.0, 20.0];
        for (actual, other) in found.transform.iter().zip(wanted) {
            assert!((actual - other).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn coordinates_without_a_meaning_are_noted() {
        let notes = |x: &[f64], y: &[f64], units: &str| {
            let (x, y) = (list(x, "", units), list(y, "", units));
            let mut notes = Vec::new();
            assert_eq!(
                geo(&Said { mapping: None, x, y }, CubeShape::new(2, 3, 4), &mut notes),
                None
            );
            notes.len()
        };
        assert_eq!(notes(&X, &Y, ""), 1);
        // Numbers of pixels, other quantities, and lists that are not even.
        assert_eq!(notes(&[0.0, 1.0, 2.0], &[0.0, 1.0], ""), 0);
        assert_eq!((notes(&X, &Y, "mm"), notes(&[1.0, 30.0, 90.0], &Y, "")), (0, 0));
        assert_eq!(notes(&X[..2], &Y, ""), 0);
    }

    #[test]
    fn a_transform_is_taken_where_coordinates_do_not_contradict_it() {
        let whole = json!({"GeoTransform": "634200 30 0 5297190 0 -20 ", "crs_wkt": "EPSG:32632"});
        // Rounded to single precision.
        let (found, notes) = plane(Some(&whole), &X.map(|x| x + 0.01), "m");
        assert_eq!((found.unwrap().transform, notes.len()), (TRANSFORM, 0));
        // Cut out of a larger image, whose transform was kept.
        let (found, notes) = plane(Some(&whole), &X.map(|x| x + 30.0), "m");
        assert_eq!(found.unwrap().transform[0], 634230.0);
        assert!(notes[0].contains("GeoTransform"), "{notes:?}");
        // Without coordinates, pixels may also be rotated.
        let turned = json!({"GeoTransform": "5 20 10 7 10 -20", "crs_wkt": "EPSG:32632"});
        let metadata = Said { mapping: Some(&turned), ..Said::default() };
        let found = geo(&metadata, CubeShape::new(2, 3, 4), &mut Vec::new()).unwrap();
        assert_eq!(found.transform, [5.0, 20.0, 10.0, 7.0, 10.0, -20.0]);
    }

    #[test]
    fn irregular_grids_are_ignored() {
        let mapping = json!({"spatial_ref": "EPSG:32632"});
        let (found, notes) = plane(Some(&mapping), &[1.0, 2.0, 4.0], "m");
        assert!(found.is_none() && notes[0].contains("not evenly spaced"), "{notes:?}");
        assert_eq!(plane(Some(&mapping), &[1.0, 1.0, 1.0], "m").0, None);
        assert_eq!(plane(Some(&mapping), &[1.0, f64::NAN, 3.0], "m").0, None);
        assert_eq!(plane(Some(&mapping), &X, "rad").0, None);
        assert_eq!(plane(Some(&mapping), &X[..2], "m").0, None);
        // Numbered pixels, without a reference system.
        let metadata = Said {
            x: list(&[0.0, 1.0, 2.0], "projection_x_coordinate", ""),
            y: list(&[0.0, 1.0], "projection_y_coordinate", ""),
            mapping: None,
        };
        assert_eq!(geo(&metadata, CubeShape::new(2, 3, 4), &mut Vec::new()), None);
        let metadata = Said { x: list(&X, "", ""), y: list(&Y, "", ""), mapping: None };
        assert_eq!(geo(&metadata, CubeShape::new(2, 3, 4), &mut Vec::new()), None);
    }

    #[test]
    fn degrees_are_known_by_name_or_unit() {
        let (x, y) = ([7.5, 7.75, 8.0], [47.5, 47.0]);
        for (names, units) in [
            (["longitude", "latitude"], ["degrees_east", "degrees_north"]),
            (["", ""], ["degree_E", "degreesN"]),
            (["longitude", "latitude"], ["degrees", ""]),
        ] {
            let metadata = Said {
                x: list(&x, names[0], units[0]),
                y: list(&y, names[1], units[1]),
                mapping: None,
            };
            let mut notes = Vec::new();
            let found = geo(&metadata, CubeShape::new(2, 3, 4), &mut notes).unwrap();
            assert_eq!(found.crs.as_deref(), Some("EPSG:4326"));
            assert_eq!(found.unit, Some(Unit::Degree));
            assert_eq!(found.transform, [7.375, 0.25, 0.0, 47.75, 0.0, -0.5]);
            assert!(notes[0].contains("WGS 84"), "{notes:?}");
        }
        // Latitude and longitude swapped, and names of a rotated pole.
        for names in [["latitude", "longitude"], ["grid_longitude", "grid_latitude"]] {
            let metadata = Said {
                x: list(&x, names[0], "degrees"),
                y: list(&y, names[1], "degrees"),
                mapping: None,
            };
            assert_eq!(geo(&metadata, CubeShape::new(2, 3, 4), &mut Vec::new()), None);
        }
    }

    #[test]
    fn systems_are_told_by_text_or_parameters() {
        let system_of = |mapping: Value| {
            let mut notes = Vec::new();
            let (crs, unit) = system(&mapping, &mut notes);
            assert_eq!(notes.len(), usize::from(crs.is_none()), "{notes:?}");
            (crs.unwrap_or_default(), unit)
        };
        let wgs84 = json!({
            "grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0,
            "inverse_flattening": 298.257223563,
        });
        assert_eq!(system_of(wgs84), ("EPSG:4326".into(), Some(Unit::Degree)));
        let mut utm = json!({
            "grid_mapping_name": "transverse_mercator", "longitude_of_central_meridian": -45.0,
            "false_northing": 1e7, "false_easting": 5e5, "scale_factor_at_central_meridian": 0.9996,
            "latitude_of_projection_origin": 0.0, "semi_major_axis": 6378137.0,
            "inverse_flattening": 298.257223563,
        });
        assert_eq!(system_of(utm.clone()), ("EPSG:32723".into(), Some(Unit::Metre)));
        utm["false_easting"] = json!(400_000.0);
        assert_eq!(system_of(utm), (String::new(), None));
        let named = json!({
            "grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0,
            "inverse_flattening": 298.257222101, "horizontal_datum_name": "North American Datum 1983",
        });
        assert_eq!(system_of(named), ("EPSG:4269".into(), Some(Unit::Degree)));
        // An ellipsoid that several datums share.
        let grs80 = json!({
            "grid_mapping_name": "latitude_longitude", "semi_major_axis": 6378137.0,
            "inverse_flattening": 298.257222101,
        });
        assert_eq!(system_of(grs80), (String::new(), None));
        for code in [32723, 4258, 25832] {
            let wkt = hsipack_format::geo::wkt::of_epsg(code).unwrap();
            assert_eq!(system_of(json!({"crs_wkt": wkt})).0, format!("EPSG:{code}"));
        }
        let esri = "PROJCS[\"x\",GEOGCS[\"y\"]]";
        assert_eq!(system_of(json!({"spatial_ref": esri})), (esri.into(), None));
        assert_eq!(system_of(json!({"spatial_ref": "nonsense"})), (String::new(), None));
    }

    proptest! {
        #[test]
        fn whatever_is_said_nothing_panics(
            text in "(EPSG:|PROJCS\\[|-?[0-9e.]{1,4} ?){0,8}",
            values in prop::collection::vec(prop::num::f64::ANY, 0..4),
            units in "(degrees?_?(east|north|E|N)?|m|km|rad|ß)?",
        ) {
            let mapping = json!({"GeoTransform": text, "spatial_ref": text, "grid_mapping_name": text});
            let metadata = Said {
                mapping: Some(&mapping),
                x: list(&values, "", &units),
                y: list(&values, "projection_y_coordinate", &units),
            };
            let shape = CubeShape::new(values.len(), values.len(), 1);
            if let Some(found) = geo(&metadata, shape, &mut Vec::new()) {
                prop_assert!(found.transform.iter().all(|number| number.is_finite()));
            }
        }
    }
}
