//! Where the pixels lie, according to `map info` and `coordinate system string`.
//!
//! ```text
//! map info = {UTM, 1, 1, 634200, 5297190, 30, 30, 32, North, WGS-84, units=Meters, rotation=-27}
//!             name, reference pixel, its position, pixel size, zone, hemisphere, datum
//! ```
//! The reference pixel is counted from 1, and a whole number means the upper left corner of a
//! pixel.

use hsipack_format::Geo;
use hsipack_format::geo::{Datum, Unit, Utm};

use super::fields::{Fields, number, shorten};
use crate::place::georeference::{self, Wkt};

/// Where the pixels lie. Adds notes about contradictions and unknown entries.
pub(super) fn geo(fields: &Fields, notes: &mut Vec<String>) -> Option<Geo> {
    let text = fields.get("map info")?;
    let Some(map) = Map::parse(text) else {
        notes.push(format!(
            "map info '{}' is not used: it is not in the form that ENVI writes",
            shorten(text)
        ));
        return None;
    };
    let wkt = fields.get("coordinate system string").and_then(|text| {
        let read = georeference::wkt(text);
        if read.is_none() {
            notes.push(format!("coordinate system string '{}' is not used", shorten(text)));
        }
        read
    });
    if map.name == "arbitrary" && wkt.is_none() && map.counts_pixels() {
        return None;
    }
    let Some(geo) = Geo::new(None, map.transform()) else {
        notes.push(format!("map info '{}' is not used: it gives no pixel size", shorten(text)));
        return None;
    };
    if map.is_ambiguous() {
        notes.push(TURNED.to_owned());
    }
    let (crs, unit) = map.crs(wkt.as_ref(), notes);
    Some(Geo { crs, unit, ..geo })
}

/// A note about pixels that `map info` turns and that are not square.
pub const TURNED: &str = "its pixels are turned and not square: ENVI headers place them as hsipack does, but GDAL, and QGIS through it, skew them";

struct Map<'a> {
    /// In lower case.
    name: String,
    /// Reference pixel, its position, pixel size.
    numbers: [f64; 6],
    /// The words after the numbers, without named ones such as `units=Meters`.
    words: Vec<&'a str>,
    /// In lower case.
    units: Option<String>,
    /// In degrees.
    rotation: f64,
}

impl<'a> Map<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(',').map(str::trim);
        let name = parts.next()?.to_lowercase();
        let mut numbers = [0.0; 6];
        for slot in &mut numbers {
            *slot = number(parts.next()?).filter(|number| number.is_finite())?;
        }
        let (mut words, mut units, mut rotation) = (Vec::new(), None, 0.0);
        for part in parts {
            // Resonon omits the `=` between key and value.
            let named = |key: &str| {
                let (start, value) = part.split_at_checked(key.len())?;
                let is_key = start.eq_ignore_ascii_case(key) && value.starts_with(['=', ' ', '\t']);
                is_key.then(|| value.trim_start_matches(['=', ' ', '\t']))
            };
            if let Some(value) = named("units") {
                units = Some(value.to_lowercase());
            } else if let Some(value) = named("rotation") {
                rotation = number(value).filter(|angle| angle.is_finite())?;
            } else {
                words.push(part);
            }
        }
        Some(Self { name, numbers, words, units, rotation })
    }

    /// Whether the positions are just pixel numbers. Some writers use them if they do not know
    /// where on Earth the pixels lie.
    fn counts_pixels(&self) -> bool {
        let [_, _, _, _, width, height] = self.numbers;
        (width, height) == (1.0, 1.0)
    }

    /// Whether programs disagree about what the rotation means.
    fn is_ambiguous(&self) -> bool {
        let [.., width, height] = self.numbers;
        self.rotation.rem_euclid(180.0) != 0.0 && width != height
    }

    fn transform(&self) -> [f64; 6] {
        let [column, row, x, y, width, height] = self.numbers;
        // The rotation is counter-clockwise. Quarter turns are exact.
        let (sin, cos) = match self.rotation.rem_euclid(360.0) {
            0.0 | 180.0 => (0.0, 1.0),
            90.0 => (1.0, 0.0),
            270.0 => (-1.0, 0.0),
            angle => angle.to_radians().sin_cos(),
        };
        // In GDAL, half a turn means that rows run from south to north.
        let down = if self.rotation.abs() == 180.0 { 1.0 } else { -1.0 };
        let (a, b, d, e) = (cos * width, sin * height, sin * width, down * cos * height);
        let (columns, rows) = (column - 1.0, row - 1.0);
        // Adding 0 turns -0 into 0.
        [x - a * columns - b * rows, a, b, y - d * columns - e * rows, d, e]
            .map(|coefficient| coefficient + 0.0)
    }

    fn unit(&self) -> Option<Unit> {
        match self.units.as_deref()? {
            "meters" | "metres" | "meter" | "m" => Some(Unit::Metre),
            "degrees" | "degree" => Some(Unit::Degree),
            _ => None,
        }
    }

    /// The reference system: its EPSG code if there is one, otherwise the WKT in the header.
    fn crs(&self, wkt: Option<&Wkt>, notes: &mut Vec<String>) -> (Option<String>, Option<Unit>) {
        let wkt_code = wkt.and_then(|wkt| wkt.epsg.clone());
        let (code, unit) = match self.name.as_str() {
            "utm" => (self.utm(wkt, notes), Some(Unit::Metre)),
            name if name.starts_with("geographic") => {
                let datum = self.datum(self.words.first().copied(), wkt, notes);
                (datum.map(Datum::geographic_epsg), Some(Unit::Degree))
            }
            _ => (None, None),
        };
        let fits = self.units.is_none() || self.unit() == unit;
        let code = code.filter(|_| fits).map(|code| format!("EPSG:{code}"));
        match (wkt_code.or(code), wkt) {
            (Some(code), wkt) => {
                (Some(code), wkt.and_then(|wkt| wkt.unit).or(unit).or_else(|| self.unit()))
            }
            (None, Some(wkt)) => (Some(wkt.text.clone()), wkt.unit.or_else(|| self.unit())),
            (None, None) => {
                if self.name != "arbitrary" {
                    let words = self.words.join(", ");
                    notes.push(format!(
                        "the reference system of map info ({}: {}) is not known; only the coordinates of pixels are kept",
                        shorten(&self.name),
                        shorten(&words)
                    ));
                }
                (None, self.unit())
            }
        }
    }

    /// The EPSG code of a UTM zone.
    fn utm(&self, wkt: Option<&Wkt>, notes: &mut Vec<String>) -> Option<u16> {
        let (zone, hemisphere) = (self.words.first()?, self.words.get(1).copied().unwrap_or(""));
        // Some writers give a southern zone a negative number.
        let zone: i8 = zone.parse().ok()?;
        let south = match hemisphere.to_ascii_lowercase().as_str() {
            "north" => false,
            "south" => true,
            // A latitude band. S is not accepted, because it may also mean south.
            band if matches!(band.as_bytes(), [b'n'..=b'r' | b't'..=b'x']) => false,
            band if matches!(band.as_bytes(), [b'c'..=b'm']) => true,
            "" => zone < 0,
            _ => return None,
        };
        let datum = self.datum(self.words.get(2).copied(), wkt, notes)?;
        Utm { datum, zone: zone.unsigned_abs(), south: south || zone < 0 }.epsg()
    }

    /// The datum of this name, or the datum of the WKT if there is no name. `None` if the two
    /// differ: then the WKT counts.
    fn datum(
        &self,
        name: Option<&str>,
        wkt: Option<&Wkt>,
        notes: &mut Vec<String>,
    ) -> Option<Datum> {
        let other = wkt.and_then(|wkt| wkt.datum.as_deref());
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return georeference::datum(other?);
        };
        let datum = georeference::datum(name)?;
        let Some(other) = other else { return Some(datum) };
        if georeference::datum(other) == Some(datum) {
            return Some(datum);
        }
        notes.push(format!(
            "map info has the datum {}, but coordinate system string has {}, which is used",
            shorten(name),
            shorten(other)
        ));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> (Option<Geo>, Vec<String>) {
        let mut notes = Vec::new();
        let fields = Fields::parse(&format!("ENVI\n{lines}\n")).unwrap();
        (geo(&fields, &mut notes), notes)
    }

    fn crs(map: &str) -> Option<String> {
        read(&format!("map info = {{{map}}}")).0.unwrap().crs
    }

    #[test]
    fn a_zone_has_a_code() {
        for (map, code) in [
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 32, North, WGS-84", Some("EPSG:32632")),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 23, South,WGS-84, units=Meters", Some("EPSG:32723")),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, -23, , WGS-84", Some("EPSG:32723")),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 11, North, North America 1927", Some("EPSG:26711")),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 15, T, WGS-84, units  meters", Some("EPSG:32615")),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 15, S, WGS-84", None),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 61, North, WGS-84", None),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 32, North, Mars-2000", None),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30, 32, North, WGS-84, units=Feet", None),
            ("UTM, 1, 1, 6e5, 5e6, 30, 30", None),
            (
                "Geographic Lat/Lon, 1, 1, 7, 47, 1e-3, 1e-3, WGS-84, units=Degrees",
                Some("EPSG:4326"),
            ),
            ("Geographic Lat/Lon, 1, 1, 7, 47, 1, 1, WGS-84, units=Seconds", None),
            ("Arbitrary, 1, 1, 0, 0, 2, 2", None),
        ] {
            assert_eq!(crs(map).as_deref(), code, "{map}");
        }
    }

    #[test]
    fn the_reference_pixel_is_counted_from_one_and_is_a_corner() {
        let transform = |map: &str| read(&format!("map info = {{{map}}}")).0.unwrap().transform;
        let corner = [100.0, 2.0, 0.0, 500.0, 0.0, -3.0];
        assert_eq!(transform("UTM, 1, 1, 100, 500, 2, 3"), corner);
        assert_eq!(transform("UTM, 1.5, 1.5, 101, 498.5, 2, 3"), corner);
        assert_eq!(transform("UTM, 11, 21, 120, 440, 2, 3"), corner);
        let turned = transform("UTM, 1, 1, 100, 500, 2, 2, units=Meters, rotation=90");
        assert_eq!(turned, [100.0, 0.0, 2.0, 500.0, 2.0, 0.0]);
        let oblong = |rotation: u32| {
            read(&format!(
                "map info = {{UTM, 1, 1, 100, 500, 2, 3, 32, North, WGS-84, rotation={rotation}}}"
            ))
            .1
        };
        assert_eq!((oblong(33).as_slice(), oblong(180).len()), (&[TURNED.to_owned()][..], 0));
        let south_up = transform("UTM, 1, 1, 100, 500, 2, 2, rotation=180");
        assert_eq!(south_up, [100.0, 2.0, 0.0, 500.0, 0.0, 2.0]);
    }

    #[test]
    fn coordinate_system_string_replaces_missing_codes_and_other_datums() {
        let lambert = "PROJCS[\"Lambert\",GEOGCS[\"x\",DATUM[\"D_RGF_1993\",SPHEROID[\"s\",1,2]]]]";
        let map = "map info = {Lambert Conformal Conic, 1, 1, 7e5, 6e6, 1, 1, RGF, units=Meters}";
        let (geo, notes) = read(&format!("{map}\ncoordinate system string = {{{lambert}}}"));
        let geo = geo.unwrap();
        assert_eq!((geo.crs.as_deref(), geo.unit), (Some(lambert), Some(Unit::Metre)));
        assert_eq!(notes, [""; 0]);
        let utm = "map info = {UTM, 1, 1, 6e5, 5e6, 30, 30, 32, North, WGS-84}";
        let (geo, notes) = read(&format!("{utm}\ncoordinate system string = {{{lambert}}}"));
        assert_eq!(geo.unwrap().crs.as_deref(), Some(lambert));
        assert!(notes[0].contains("D_RGF_1993"), "{notes:?}");
        let (geo, notes) = read(map);
        assert_eq!(geo.unwrap().crs, None);
        assert!(notes[0].contains("lambert conformal conic"), "{notes:?}");
    }

    #[test]
    fn nonsense_is_a_note() {
        for map in
            ["", "UTM", "UTM, a, 1, 1, 1, 1, 1", "UTM, 1, 1, 1, 1, 0, 0", "UTM, 1, 1, nan, 1, 1, 1"]
        {
            let (geo, notes) = read(&format!("map info = {{{map}}}"));
            assert_eq!(geo, None);
            assert_eq!(notes.len(), usize::from(!map.is_empty()), "{map}: {notes:?}");
        }
        assert_eq!(read("map info = {Arbitrary, 1, 1, 0, 0, 1, 1, 0, North}"), (None, vec![]));
        let odd = "map info = {UTM, 1, 1, 6e5, 5e6, 30, 30, 32, North, WGS-84}\ncoordinate system string = {x}";
        let (geo, notes) = read(odd);
        assert_eq!(geo.unwrap().crs.as_deref(), Some("EPSG:32632"));
        assert!(notes[0].contains("coordinate system string 'x'"), "{notes:?}");
    }
}
