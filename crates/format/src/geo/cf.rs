//! The location of pixels as the [CF](https://cfconventions.org) conventions record it and xarray,
//! rioxarray and GDAL read it: the coordinates of rows and columns, and a *grid mapping*, which is
//! a variable whose attributes describe the reference system.
//!
//! ```text
//! y            float64 (y)   positions of the middles of rows; none if the grid is turned
//! x            float64 (x)   of columns
//! spatial_ref  uint8   ()    attributes: crs_wkt, spatial_ref, GeoTransform, and CF's parameters where they are known
//! ```
//!
//! An array on that grid refers to `spatial_ref` in its attribute `grid_mapping`, and to `y` and
//! `x` by the names of its axes.

use serde_json::{Map, Value, json};

use super::{Datum, Geo, Unit, Utm, wkt};
use crate::zarr::{ArrayMeta, ChunkCodecs};
use crate::{DType, codec};

/// The coordinates of columns.
pub const X: &str = "x";
/// The coordinates of rows.
pub const Y: &str = "y";
/// The grid mapping, under the name that rioxarray looks for.
pub const GRID_MAPPING: &str = "spatial_ref";
/// All three names.
pub const NAMES: [&str; 3] = [Y, X, GRID_MAPPING];

/// One of these arrays, stored as one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoArray {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// Its metadata.
    pub meta: ArrayMeta,
    /// The chunk as stored.
    pub chunk: Vec<u8>,
}

impl GeoArray {
    fn new(name: &'static str, values: Option<&[f64]>, attributes: Map<String, Value>) -> Self {
        let shape: Vec<u64> = values.iter().map(|values| values.len() as u64).collect();
        let (dtype, fill_value) = match values {
            Some(_) => (DType::F64, json!("NaN")),
            None => (DType::U8, json!(0)),
        };
        let mut chunk: Vec<u8> = match values {
            Some(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            None => vec![0],
        };
        codec::append_checksum(&mut chunk);
        let meta = ArrayMeta {
            file_shape: shape.clone(),
            dimension_names: shape.iter().map(|_| name.to_owned()).collect(),
            shape,
            dtype,
            chunk_shape: None,
            codecs: ChunkCodecs { compression: None, checksum: true },
            fill_value,
            attributes,
        };
        Self { name, meta, chunk }
    }

    /// The file of the chunk, relative to the array's folder.
    pub fn chunk_file(&self) -> String {
        ArrayMeta::file_key(&vec![0; self.meta.shape.len()])
    }
}

/// The file of the only chunk of the array with this name, relative to the array's folder.
pub fn chunk_file(name: &str) -> String {
    ArrayMeta::file_key(if name == GRID_MAPPING { &[] } else { &[0] })
}

/// The arrays that give the location of the pixels of an image with `rows` rows and `columns`
/// columns.
///
/// ```
/// use hsipack_format::{Geo, geo::cf};
///
/// let geo = Geo::new(Some("EPSG:32632".into()), [634200.0, 30.0, 0.0, 5297190.0, 0.0, -30.0]).unwrap();
/// let names = |geo: &Geo| cf::arrays(geo, 2, 3).iter().map(|array| array.name).collect::<Vec<_>>();
/// assert_eq!(names(&geo), ["y", "x", "spatial_ref"]);
/// let turned = Geo { transform: [634200.0, 20.0, 10.0, 5297190.0, 10.0, -20.0], ..geo };
/// assert_eq!(names(&turned), ["spatial_ref"]);
/// ```
pub fn arrays(geo: &Geo, rows: usize, columns: usize) -> Vec<GeoArray> {
    let [x, a, b, y, d, e] = geo.transform;
    let mut arrays = Vec::new();
    if b == 0.0 && d == 0.0 {
        for (name, first, step, len) in [(Y, y, e, rows), (X, x, a, columns)] {
            let middles: Vec<f64> =
                (0..len).map(|pixel| first + step * (pixel as f64 + 0.5)).collect();
            arrays.push(GeoArray::new(name, Some(&middles), axis(geo, name)));
        }
    }
    arrays.push(GeoArray::new(GRID_MAPPING, None, reference(geo)));
    arrays
}

/// Adds attributes to an array that say its pixels lie on the grid of [`arrays`] beside it. Because
/// the grid mapping is listed in `coordinates`, xarray keeps it with the array even if it is not
/// asked to decode grid mappings.
pub fn refer(attributes: &mut Map<String, Value>, geo: &Geo) {
    let coordinates = match attributes.get("coordinates").and_then(Value::as_str) {
        Some(others) => format!("{others} {GRID_MAPPING}"),
        None => GRID_MAPPING.to_owned(),
    };
    attributes.insert("coordinates".to_owned(), json!(coordinates));
    attributes.insert("grid_mapping".to_owned(), json!(GRID_MAPPING));
    // GDAL's Zarr reader looks here first. It does not accept codes in a grid mapping.
    let crs = match (geo.epsg(), &geo.crs) {
        (Some(code), _) => {
            Some(json!({ "url": format!("http://www.opengis.net/def/crs/EPSG/0/{code}") }))
        }
        (None, Some(crs)) if crs.contains('[') => Some(json!({ "wkt": crs })),
        _ => None,
    };
    attributes.extend(crs.map(|crs| ("_CRS".to_owned(), crs)));
}

fn map<const N: usize>(attributes: [(&str, Value); N]) -> Map<String, Value> {
    attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn axis(geo: &Geo, name: &str) -> Map<String, Value> {
    let degrees = geo.unit == Some(Unit::Degree);
    let (standard, long, units) = match (name, degrees) {
        (X, true) => ("longitude", "longitude", "degrees_east"),
        (X, false) => ("projection_x_coordinate", "x coordinate of projection", "m"),
        (_, true) => ("latitude", "latitude", "degrees_north"),
        _ => ("projection_y_coordinate", "y coordinate of projection", "m"),
    };
    let mut all = map([
        ("standard_name", json!(standard)),
        ("long_name", json!(long)),
        ("axis", json!(name.to_uppercase())),
    ]);
    if geo.unit.is_some() {
        all.insert("units".to_owned(), json!(units));
    }
    all
}

/// The reference system and the transform.
fn reference(geo: &Geo) -> Map<String, Value> {
    let mut all = geo.epsg().and_then(parameters).unwrap_or_default();
    if let Some(crs) = &geo.crs {
        let epsg_text = geo.epsg().and_then(wkt::of_epsg);
        let text = epsg_text.or_else(|| crs.contains('[').then(|| crs.clone()));
        all.extend(text.as_ref().map(|text| ("crs_wkt".to_owned(), json!(text))));
        // Readers also accept a code here.
        all.insert("spatial_ref".to_owned(), json!(text.as_ref().unwrap_or(crs)));
    }
    let transform: Vec<String> = geo.transform.iter().map(f64::to_string).collect();
    all.insert("GeoTransform".to_owned(), json!(transform.join(" ")));
    all
}

/// CF's own parameters for the reference systems that hsipack knows.
fn parameters(code: u16) -> Option<Map<String, Value>> {
    let ellipsoid = |datum: Datum| {
        let (axis, flattening) = datum.ellipsoid();
        [
            ("semi_major_axis", json!(axis)),
            ("inverse_flattening", json!(flattening)),
            ("longitude_of_prime_meridian", json!(0.0)),
        ]
    };
    if let Some(datum) = Datum::of_geographic_epsg(code) {
        let mut all = map([("grid_mapping_name", json!("latitude_longitude"))]);
        all.extend(map(ellipsoid(datum)));
        return Some(all);
    }
    let zone = Utm::of_epsg(code)?;
    let mut all = map([
        ("grid_mapping_name", json!("transverse_mercator")),
        ("latitude_of_projection_origin", json!(0.0)),
        ("longitude_of_central_meridian", json!(zone.central_meridian())),
        ("scale_factor_at_central_meridian", json!(0.9996)),
        ("false_easting", json!(500_000.0)),
        ("false_northing", json!(zone.false_northing())),
    ]);
    all.extend(map(ellipsoid(zone.datum)));
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geo(crs: &str, transform: [f64; 6], unit: Unit) -> Geo {
        Geo::new(Some(crs.into()), transform).unwrap().in_unit(Some(unit))
    }

    fn text<'a>(array: &'a GeoArray, key: &str) -> &'a str {
        array.meta.attributes[key].as_str().unwrap()
    }

    #[test]
    fn coordinates_are_those_of_the_middles_of_pixels() {
        let north_up = [634200.0, 30.0, 0.0, 5297190.0, 0.0, -20.0];
        let [y, x, reference] = &arrays(&geo("EPSG:32632", north_up, Unit::Metre), 2, 3)[..] else {
            panic!()
        };
        let values = |array: &GeoArray| -> Vec<f64> {
            let values = codec::verify(&array.chunk).unwrap().as_chunks::<8>().0.iter();
            values.map(|value| f64::from_le_bytes(*value)).collect()
        };
        assert_eq!(values(y), [5297180.0, 5297160.0]);
        assert_eq!(values(x), [634215.0, 634245.0, 634275.0]);
        assert_eq!((x.chunk_file(), reference.chunk_file()), ("c/0".into(), "c".into()));
        for array in [y, x, reference] {
            assert_eq!(array.chunk_file(), chunk_file(array.name));
            assert_eq!(
                ArrayMeta::parse(&crate::zarr::to_text(&array.meta.to_json())).unwrap(),
                array.meta
            );
        }
        assert_eq!((text(x, "standard_name"), text(y, "units")), ("projection_x_coordinate", "m"));
        assert_eq!(text(reference, "GeoTransform"), "634200 30 0 5297190 0 -20");
        assert_eq!(text(reference, "grid_mapping_name"), "transverse_mercator");
        assert_eq!(reference.meta.attributes["longitude_of_central_meridian"], 9.0);
    }

    #[test]
    fn degrees_are_longitude_and_latitude() {
        let transform = [7.25, 1e-3, 0.0, 47.5, 0.0, -2e-3];
        let [y, x, reference] = &arrays(&geo("EPSG:4326", transform, Unit::Degree), 2, 3)[..]
        else {
            panic!()
        };
        assert_eq!((text(x, "standard_name"), text(x, "units")), ("longitude", "degrees_east"));
        assert_eq!((text(y, "standard_name"), text(y, "units")), ("latitude", "degrees_north"));
        assert_eq!(text(reference, "grid_mapping_name"), "latitude_longitude");
    }

    #[test]
    fn a_system_is_told_as_well_as_it_is_known() {
        let north_up = [0.0, 1.0, 0.0, 0.0, 0.0, -1.0];
        let described = |crs: Option<&str>| {
            let geo = Geo::new(crs.map(str::to_owned), north_up).unwrap();
            let all = reference(&geo);
            ["crs_wkt", "spatial_ref"]
                .map(|key| all.get(key).map(|text| text.as_str().unwrap().to_owned()))
        };
        assert_eq!(described(Some("EPSG:2154")), [None, Some("EPSG:2154".to_owned())]);
        assert_eq!(
            described(Some("PROJCS[\"x\"]")),
            [(); 2].map(|()| Some("PROJCS[\"x\"]".to_owned()))
        );
        assert_eq!(described(None), [None, None]);
        let [wkt, same] = described(Some("EPSG:25832"));
        assert!(wkt == same && wkt.unwrap().starts_with("PROJCRS[\"ETRS89 / UTM zone 32N\""));
    }

    #[test]
    fn an_array_names_the_grid_mapping_beside_its_other_coordinates() {
        let transform = [7.25, 1e-3, 0.0, 47.5, 0.0, -2e-3];
        let mut attributes = map([("coordinates", json!("wavelength"))]);
        refer(&mut attributes, &geo("EPSG:2154", transform, Unit::Metre));
        assert_eq!(attributes["coordinates"], "wavelength spatial_ref");
        assert_eq!(attributes["grid_mapping"], GRID_MAPPING);
        assert_eq!(attributes["_CRS"]["url"], "http://www.opengis.net/def/crs/EPSG/0/2154");
        let mut attributes = Map::new();
        refer(&mut attributes, &Geo::new(None, transform).unwrap());
        assert_eq!(attributes["coordinates"], GRID_MAPPING);
        assert!(!attributes.contains_key("_CRS"));
    }
}
