//! Well-known text (WKT 2, ISO 19162) of the reference systems whose definitions hsipack knows:
//! longitude and latitude in a [`Datum`], and UTM zones.
//!
//! Other codes stay codes. Programs that need their definitions have a database of them (PROJ).

use super::{Datum, Utm};

const DEGREE: &str = "ANGLEUNIT[\"degree\",0.0174532925199433]";
const METRE: &str = "LENGTHUNIT[\"metre\",1]";

impl Datum {
    /// The datum for which this code means longitude and latitude in degrees.
    pub fn of_geographic_epsg(code: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|datum| datum.geographic_epsg() == code)
    }

    /// Semi-major axis in metres and inverse flattening of its ellipsoid.
    pub const fn ellipsoid(self) -> (f64, f64) {
        match self {
            Self::Wgs84 => (6_378_137.0, 298.257_223_563),
            Self::Nad27 => (6_378_206.4, 294.978_698_213_898),
            Self::Nad83 | Self::Etrs89 => (6_378_137.0, 298.257_222_101),
        }
    }

    /// The EPSG names of the geographic system, the datum and the ellipsoid.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Wgs84 => ["WGS 84", "World Geodetic System 1984", "WGS 84"],
            Self::Nad27 => ["NAD27", "North American Datum 1927", "Clarke 1866"],
            Self::Nad83 => ["NAD83", "North American Datum 1983", "GRS 1980"],
            Self::Etrs89 => ["ETRS89", "European Terrestrial Reference System 1989", "GRS 1980"],
        }
    }

    /// The name, datum and ellipsoid, as they appear in both `GEOGCRS` and `BASEGEOGCRS`.
    fn base(self) -> String {
        let ([name, datum, ellipsoid], (axis, flattening)) = (self.names(), self.ellipsoid());
        format!(
            "\"{name}\",DATUM[\"{datum}\",ELLIPSOID[\"{ellipsoid}\",{axis},{flattening},{METRE}]],\
             PRIMEM[\"Greenwich\",0,{DEGREE}]"
        )
    }
}

impl Utm {
    /// The central meridian of the zone, in degrees east.
    pub fn central_meridian(self) -> f64 {
        6.0 * f64::from(self.zone) - 183.0
    }

    /// The offset that is added to northings, in metres.
    pub const fn false_northing(self) -> f64 {
        if self.south { 10_000_000.0 } else { 0.0 }
    }
}

/// The definition of an EPSG code, on one line; `None` if hsipack does not know it.
///
/// ```
/// let text = hsipack_format::geo::wkt::of_epsg(4326).unwrap();
/// assert!(text.starts_with("GEOGCRS[\"WGS 84\"") && text.ends_with("ID[\"EPSG\",4326]]"));
/// assert_eq!(hsipack_format::geo::wkt::of_epsg(2154), None);
/// ```
pub fn of_epsg(code: u16) -> Option<String> {
    let datum = Datum::of_geographic_epsg(code).map(degrees);
    datum.or_else(|| Utm::of_epsg(code).map(|zone| projected(zone, code)))
}

fn degrees(datum: Datum) -> String {
    format!(
        "GEOGCRS[{},CS[ellipsoidal,2],AXIS[\"geodetic latitude (Lat)\",north,ORDER[1],{DEGREE}],\
         AXIS[\"geodetic longitude (Lon)\",east,ORDER[2],{DEGREE}],ID[\"EPSG\",{}]]",
        datum.base(),
        datum.geographic_epsg()
    )
}

fn projected(zone: Utm, code: u16) -> String {
    let name = format!("UTM zone {}{}", zone.zone, if zone.south { 'S' } else { 'N' });
    let parameter = |name: &str, value: f64, unit: &str, code: u16| {
        format!("PARAMETER[\"{name}\",{value},{unit},ID[\"EPSG\",{code}]]")
    };
    let parameters = [
        parameter("Latitude of natural origin", 0.0, DEGREE, 8801),
        parameter("Longitude of natural origin", zone.central_meridian(), DEGREE, 8802),
        parameter("Scale factor at natural origin", 0.9996, "SCALEUNIT[\"unity\",1]", 8805),
        parameter("False easting", 500_000.0, METRE, 8806),
        parameter("False northing", zone.false_northing(), METRE, 8807),
    ];
    format!(
        "PROJCRS[\"{} / {name}\",BASEGEOGCRS[{},ID[\"EPSG\",{}]],CONVERSION[\"{name}\",\
         METHOD[\"Transverse Mercator\",ID[\"EPSG\",9807]],{}],CS[Cartesian,2],\
         AXIS[\"(E)\",east,ORDER[1],{METRE}],AXIS[\"(N)\",north,ORDER[2],{METRE}],ID[\"EPSG\",{code}]]",
        zone.datum.names()[0],
        zone.datum.base(),
        zone.datum.geographic_epsg(),
        parameters.join(","),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_and_datum_has_a_text_that_closes_and_names_its_code() {
        let mut count = 0;
        for code in 0..=u16::MAX {
            let Some(text) = of_epsg(code) else { continue };
            assert!(text.ends_with(&format!(",ID[\"EPSG\",{code}]]")), "{text}");
            assert_eq!(text.matches('[').count(), text.matches(']').count(), "{text}");
            assert_eq!(text.matches('"').count() % 2, 0, "{text}");
            count += 1;
        }
        assert_eq!(count, 4 + 60 + 60 + 22 + 23 + 11);
    }

    #[test]
    fn zones_lie_around_their_meridians() {
        let zone = |code| Utm::of_epsg(code).unwrap();
        assert_eq!(zone(32632).central_meridian(), 9.0);
        assert_eq!(zone(26911).central_meridian(), -117.0);
        assert_eq!(zone(32723).false_northing(), 1e7);
        let text = of_epsg(32723).unwrap();
        assert!(text.starts_with("PROJCRS[\"WGS 84 / UTM zone 23S\""), "{text}");
        assert!(text.contains("\"False northing\",10000000,"), "{text}");
    }
}
