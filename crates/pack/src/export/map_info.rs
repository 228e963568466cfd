//! The georeferencing in ENVI headers: `map info`, and the reference system as ESRI's WKT.

use hsipack_format::Geo;
use hsipack_format::geo::{Datum, Unit, Utm};

/// The lines of a header, each with a line end; or the reason why there are none.
pub(super) fn lines(geo: &Geo) -> Result<String, String> {
    let grid = Grid::of(geo).ok_or(
        "ENVI headers cannot describe mirrored or skewed pixels; the georeferencing is left out",
    )?;
    let [x, .., y, _, _] = geo.transform;
    let origin = format!("1, 1, {x}, {y}, {}, {}", grid.width, grid.height);
    let turned = match grid.rotation {
        0.0 => String::new(),
        angle => format!(", rotation={angle}"),
    };
    let line =
        |name: &str, words: &str| format!("map info = {{{name}, {origin}{words}{turned}}}\n");
    let text = |wkt: &str| format!("coordinate system string = {{{wkt}}}\n");
    let unit = match geo.unit {
        Some(Unit::Degree) => ", units=Degrees",
        Some(Unit::Metre) => ", units=Meters",
        None => "",
    };
    let code = geo.epsg();
    if let Some(zone) = code.and_then(Utm::of_epsg) {
        let hemisphere = if zone.south { "South" } else { "North" };
        let words = format!(", {}, {hemisphere}, {}, units=Meters", zone.zone, name_of(zone.datum));
        return Ok(line("UTM", &words) + &text(&projected(zone)));
    }
    let geographic = |datum: &Datum| Some(datum.geographic_epsg()) == code;
    if let Some(datum) = Datum::ALL.into_iter().find(geographic) {
        let words = format!(", {}, units=Degrees", name_of(datum));
        return Ok(line("Geographic Lat/Lon", &words) + &text(&degrees(datum)));
    }
    match &geo.crs {
        None => Ok(line("Arbitrary", unit)),
        Some(crs) if code.is_none() => Ok(line("Arbitrary", unit) + &text(crs)),
        Some(crs) => Err(format!(
            "ENVI headers cannot store {crs} without its definition; the georeferencing is left out (use .tif)"
        )),
    }
}

/// A note about pixels that programs place differently.
pub(super) fn note(geo: &Geo) -> Option<&'static str> {
    let grid = Grid::of(geo)?;
    let is_turned = grid.rotation.rem_euclid(180.0) != 0.0 && grid.width != grid.height;
    is_turned.then_some(
        "its pixels are turned and not square, which GDAL, and QGIS through it, reads from ENVI headers as skewed (use .tif)",
    )
}

/// The grid of pixels as `map info` describes it.
struct Grid {
    width: f64,
    height: f64,
    /// Counter-clockwise, in degrees.
    rotation: f64,
}

impl Grid {
    /// `None` if the transform does more than rotate and stretch pixels.
    fn of(geo: &Geo) -> Option<Self> {
        let [_, a, b, _, d, e] = geo.transform;
        let [width, height] = geo.pixel_size();
        if b == 0.0 && d == 0.0 && e > 0.0 {
            // As in the reader, a rotation of 180° means that rows run from south to north.
            return (a > 0.0).then_some(Self { width, height, rotation: 180.0 });
        }
        let (sin, cos) = (d / width, a / width);
        let fits = |have: f64, want: f64| (have - want).abs() <= 1e-9 * height;
        let is_turned = fits(b, sin * height) && fits(e, -cos * height);
        is_turned.then(|| Self { width, height, rotation: sin.atan2(cos).to_degrees() + 0.0 })
    }
}

/// ENVI's name for a datum.
fn name_of(datum: Datum) -> &'static str {
    match datum {
        Datum::Wgs84 => "WGS-84",
        Datum::Nad27 => "North America 1927",
        Datum::Nad83 => "North America 1983",
        Datum::Etrs89 => "ETRS89",
    }
}

/// WKT of a system in longitude and latitude.
fn degrees(datum: Datum) -> String {
    let (name, spheroid) = match datum {
        Datum::Wgs84 => ("WGS_1984", "\"WGS_1984\",6378137.0,298.257223563"),
        Datum::Nad27 => ("North_American_1927", "\"Clarke_1866\",6378206.4,294.9786982"),
        Datum::Nad83 => ("North_American_1983", "\"GRS_1980\",6378137.0,298.257222101"),
        Datum::Etrs89 => ("ETRS_1989", "\"GRS_1980\",6378137.0,298.257222101"),
    };
    format!(
        "GEOGCS[\"GCS_{name}\",DATUM[\"D_{name}\",SPHEROID[{spheroid}]],PRIMEM[\"Greenwich\",0.0],\
         UNIT[\"Degree\",0.0174532925199433]]"
    )
}

/// WKT of a UTM zone.
fn projected(zone: Utm) -> String {
    let (meridian, letter) = (6 * i32::from(zone.zone) - 183, if zone.south { 'S' } else { 'N' });
    let northing = if zone.south { 10_000_000 } else { 0 };
    let name = match zone.datum {
        Datum::Wgs84 => "WGS_1984",
        Datum::Nad27 => "NAD_1927",
        Datum::Nad83 => "NAD_1983",
        Datum::Etrs89 => "ETRS_1989",
    };
    format!(
        "PROJCS[\"{name}_UTM_Zone_{}{letter}\",{},PROJECTION[\"Transverse_Mercator\"],\
         PARAMETER[\"False_Easting\",500000.0],PARAMETER[\"False_Northing\",{northing}.0],\
         PARAMETER[\"Central_Meridian\",{meridian}.0],PARAMETER[\"Scale_Factor\",0.9996],\
         PARAMETER[\"Latitude_Of_Origin\",0.0],UNIT[\"Meter\",1.0]]",
        zone.zone,
        degrees(zone.datum)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_source::envi;

    fn read_back(geo: &Geo) -> Option<Geo> {
        let layout = "ENVI\nsamples = 4\nlines = 3\nbands = 2\ndata type = 12\ninterleave = bil\nbyte order = 0\n";
        let header = envi::parse(format!("{layout}{}", lines(geo).unwrap()).as_bytes()).unwrap();
        // Reading and writing note the same pixels.
        assert_eq!(header.notes.len(), usize::from(note(geo).is_some()), "{geo:?}");
        header.geo
    }

    #[test]
    fn map_info_survives_a_round_trip() {
        let north_up = [634200.25, 30.0, 0.0, 5297190.0, 0.0, -20.0];
        for (crs, unit) in [
            ("EPSG:32632", Unit::Metre),
            ("EPSG:32723", Unit::Metre),
            ("EPSG:25833", Unit::Metre),
            ("EPSG:26711", Unit::Metre),
            ("EPSG:26911", Unit::Metre),
            ("EPSG:4326", Unit::Degree),
            ("EPSG:4258", Unit::Degree),
            (
                "PROJCS[\"Lambert\",GEOGCS[\"x\",DATUM[\"D_RGF_1993\",SPHEROID[\"s\",1,2]]]]",
                Unit::Metre,
            ),
        ] {
            let geo = Geo::new(Some(crs.into()), north_up).unwrap().in_unit(Some(unit));
            assert_eq!(read_back(&geo), Some(geo));
        }
        let south_up = [634200.25, 30.0, 0.0, 5297190.0, 0.0, 20.0];
        let geo = Geo::new(Some("EPSG:32632".into()), south_up).unwrap().in_unit(Some(Unit::Metre));
        assert_eq!(read_back(&geo), Some(geo));
        let nowhere = Geo::new(None, north_up).unwrap();
        assert_eq!(read_back(&nowhere), Some(nowhere));
    }

    #[test]
    fn turned_pixels_are_read_as_they_are_written() {
        for angle in [-27.0f64, 45.0, 90.0, 179.0, -90.0, 133.3] {
            let (sin, cos) = angle.to_radians().sin_cos();
            let transform = [5e5, 16.0 * cos, 8.0 * sin, 4e6, 16.0 * sin, -8.0 * cos];
            let geo = Geo::new(Some("EPSG:32611".into()), transform).unwrap();
            assert!(note(&geo).is_some());
            let back = read_back(&geo).unwrap();
            for (actual, expected) in back.transform.iter().zip(transform) {
                assert!((actual - expected).abs() < 1e-9, "{angle}: {back:?}");
            }
        }
    }

    #[test]
    fn facts_that_headers_cannot_hold_become_notes() {
        let geo = |crs: &str, a| Geo::new(Some(crs.into()), [0.0, a, 0.0, 0.0, 0.0, -2.0]).unwrap();
        assert!(lines(&geo("EPSG:32632", -2.0)).unwrap_err().contains("mirrored"));
        assert!(lines(&geo("EPSG:2154", 2.0)).unwrap_err().contains("EPSG:2154"));
    }
}
