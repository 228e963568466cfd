//! Where the pixels of a cube lie on Earth.

pub mod cf;
pub mod wkt;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::text;

/// Maximum length of the text of a coordinate reference system, in bytes. The longest WKT in use
/// has a few thousand.
pub const MAX_CRS: usize = 16 << 10;

/// A coordinate reference system, and the transform from pixels to its coordinates.
///
/// The transform follows GDAL's convention: it maps a column and a row, counted from the outer
/// corner of the first pixel, to a position.
///
/// ```
/// use hsipack_format::Geo;
///
/// // Pixels of 30 m, the first one's upper left corner at 634200 E, 5297190 N in UTM zone 32.
/// let geo = Geo::new(Some("EPSG:32632".into()), [634200.0, 30.0, 0.0, 5297190.0, 0.0, -30.0]).unwrap();
/// assert_eq!(geo.at(0.0, 0.0), [634200.0, 5297190.0]);
/// assert_eq!(geo.at(2.5, 1.5), [634275.0, 5297145.0]); // the middle of the pixel in row 1, column 2
/// assert_eq!(geo.window(10, 20).at(0.0, 0.0), geo.at(20.0, 10.0));
/// assert_eq!((geo.epsg(), geo.pixel_size()), (Some(32632), [30.0, 30.0]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Geo {
    /// `EPSG:` and a code, or WKT; `None` if the file does not give it in a form that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crs: Option<String>,
    /// `[x, a, b, y, d, e]`: the position is x + a × column + b × row, y + d × column + e × row.
    pub transform: [f64; 6],
    /// The unit of positions, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
}

/// A unit of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Longitude and latitude in degrees: the reference system is geographic.
    Degree,
    /// Metres.
    Metre,
}

impl Unit {
    /// The name that is stored in metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Degree => "degree",
            Self::Metre => "metre",
        }
    }

    /// `°` or `m`.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Degree => "°",
            Self::Metre => "m",
        }
    }
}

impl Geo {
    /// Pixels in this reference system. `None` if the transform contains a value that is not a
    /// finite number or maps all pixels onto one line, or if the text is not that of a reference
    /// system.
    pub fn new(crs: Option<String>, transform: [f64; 6]) -> Option<Self> {
        let geo = Self { crs, transform, unit: None };
        geo.is_sound().then_some(geo)
    }

    /// The same location, with a unit.
    pub fn in_unit(self, unit: Option<Unit>) -> Self {
        Self { unit, ..self }
    }

    fn is_sound(&self) -> bool {
        let [_, a, b, _, d, e] = self.transform;
        let area = a * e - b * d;
        self.transform.iter().all(|number| number.is_finite())
            && area.is_finite()
            && area != 0.0
            && self.crs.as_deref().is_none_or(|crs| {
                !crs.is_empty() && crs.len() <= MAX_CRS && text::printable(crs) == crs
            })
    }

    /// The position of a point in the image. Pixel (row, column) extends from (column, row) to
    /// (column + 1, row + 1).
    pub fn at(&self, column: f64, row: f64) -> [f64; 2] {
        let [x, a, b, y, d, e] = self.transform;
        [x + a * column + b * row, y + d * column + e * row]
    }

    /// The location of the part of the image that starts at this row and column. The start may be
    /// outside the image (negative).
    pub fn window(&self, row: i64, column: i64) -> Self {
        let [_, a, b, _, d, e] = self.transform;
        let [x, y] = self.at(column as f64, row as f64);
        Self { transform: [x, a, b, y, d, e], ..self.clone() }
    }

    /// Width and height of a pixel, in the unit of the reference system.
    pub fn pixel_size(&self) -> [f64; 2] {
        let [_, a, b, _, d, e] = self.transform;
        [a.hypot(d), b.hypot(e)]
    }

    /// Whether rows run from north to south and columns from west to east.
    pub fn is_north_up(&self) -> bool {
        let [_, a, b, _, d, e] = self.transform;
        b == 0.0 && d == 0.0 && a > 0.0 && e < 0.0
    }

    /// The EPSG code of the reference system, if it is given as a code.
    pub fn epsg(&self) -> Option<u16> {
        self.crs.as_deref()?.strip_prefix("EPSG:")?.parse().ok()
    }

    /// Reads the location from a line of `samples.jsonl`. `None` if the value is something else,
    /// such as a table column named `geo` that older versions accepted.
    pub(crate) fn if_sound<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Self>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let geo: Option<Self> = serde_json::from_value(value).ok();
        Ok(geo.filter(Self::is_sound))
    }
}

/// A UTM zone. Each datum has a base code; the EPSG code of a zone is the base plus the zone
/// number.
///
/// ```
/// use hsipack_format::geo::{Datum, Utm};
///
/// let zone = Utm { datum: Datum::Wgs84, zone: 32, south: false };
/// assert_eq!(zone.epsg(), Some(32632));
/// assert_eq!(Utm::of_epsg(32632), Some(zone));
/// // NAD27 covers only North America.
/// assert_eq!(Utm { datum: Datum::Nad27, zone: 32, south: false }.epsg(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utm {
    /// The datum.
    pub datum: Datum,
    /// 1 to 60.
    pub zone: u8,
    /// Whether the zone is in the southern hemisphere, where 10 000 km are added to northings.
    pub south: bool,
}

/// A geodetic datum in which UTM zones, or longitude and latitude, are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datum {
    /// World Geodetic System 1984.
    Wgs84,
    /// North American Datum 1927.
    Nad27,
    /// North American Datum 1983.
    Nad83,
    /// European Terrestrial Reference System 1989.
    Etrs89,
}

impl Datum {
    /// Every datum.
    pub const ALL: [Self; 4] = [Self::Wgs84, Self::Nad27, Self::Nad83, Self::Etrs89];

    /// The EPSG code of longitude and latitude in degrees.
    pub const fn geographic_epsg(self) -> u16 {
        match self {
            Self::Wgs84 => 4326,
            Self::Nad27 => 4267,
            Self::Nad83 => 4269,
            Self::Etrs89 => 4258,
        }
    }

    /// For each range of UTM zones: the base code (EPSG code minus zone), the first and last zone,
    /// and whether they are southern zones.
    const fn zones(self) -> &'static [(u16, u8, u8, bool)] {
        match self {
            Self::Wgs84 => &[(32600, 1, 60, false), (32700, 1, 60, true)],
            Self::Nad27 => &[(26700, 1, 22, false)],
            Self::Nad83 => &[(26900, 1, 23, false)],
            Self::Etrs89 => &[(25800, 28, 38, false)],
        }
    }
}

impl Utm {
    /// Its EPSG code, if there is one.
    pub fn epsg(self) -> Option<u16> {
        let zones = self.datum.zones().iter();
        let mut fitting = zones.filter(|(_, first, last, south)| {
            (*first..=*last).contains(&self.zone) && *south == self.south
        });
        fitting.next().map(|(base, ..)| base + u16::from(self.zone))
    }

    /// The zone with this EPSG code.
    pub fn of_epsg(code: u16) -> Option<Self> {
        Datum::ALL.into_iter().find_map(|datum| {
            datum.zones().iter().find_map(|(base, first, last, south)| {
                let zone = u8::try_from(code.checked_sub(*base)?).ok()?;
                let of = Self { datum, zone, south: *south };
                (*first..=*last).contains(&zone).then_some(of)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_geo_is_refused() {
        let north_up = [1.0, 2.0, 0.0, 3.0, 0.0, -2.0];
        assert!(Geo::new(None, north_up).is_some());
        for transform in [
            [f64::NAN, 2.0, 0.0, 3.0, 0.0, -2.0],
            [1.0, f64::INFINITY, 0.0, 3.0, 0.0, -2.0],
            [1.0, 2.0, 2.0, 3.0, 4.0, 4.0],
            [0.0; 6],
            [1.0, 1e300, 0.0, 3.0, 0.0, 1e300],
        ] {
            assert_eq!(Geo::new(None, transform), None);
        }
        for crs in ["", "EPSG:\u{1b}[31m", &"x".repeat(MAX_CRS + 1)] {
            assert_eq!(Geo::new(Some(crs.into()), north_up), None);
        }
    }

    #[test]
    fn zones_and_codes_are_one_to_one() {
        let mut count = 0;
        for code in 0..=u16::MAX {
            if let Some(zone) = Utm::of_epsg(code) {
                assert_eq!(zone.epsg(), Some(code));
                count += 1;
            }
        }
        assert_eq!(count, 60 + 60 + 22 + 23 + 11);
    }

    #[test]
    fn it_is_read_from_what_it_is_written_as() {
        let geo = Geo::new(Some("EPSG:4326".into()), [7.5, 1e-3, 0.0, 47.25, 0.0, -1e-3]).unwrap();
        for geo in [geo.clone(), Geo { crs: None, ..geo.clone() }, geo.in_unit(Some(Unit::Degree))]
        {
            let text = serde_json::to_string(&geo).unwrap();
            assert_eq!(serde_json::from_str::<Geo>(&text).unwrap(), geo, "{text}");
        }
    }

    proptest! {
        #[test]
        fn windows_lie_where_they_lay_in_the_whole(
            numbers in prop::array::uniform6(-1e4..1e4f64),
            (row, column) in (-1000i64..1000, -1000i64..1000),
            (down, across) in (0f64..100.0, 0f64..100.0),
        ) {
            prop_assume!(Geo::new(None, numbers).is_some());
            let geo = Geo::new(None, numbers).unwrap();
            let whole = geo.at(column as f64 + across, row as f64 + down);
            let part = geo.window(row, column).at(across, down);
            for (expected, other) in whole.iter().zip(part) {
                prop_assert!((expected - other).abs() <= 1e-6, "{whole:?} {part:?}");
            }
        }
    }
}
