//! Where the pixels lie, by the tags and keys of
//! [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html).
//!
//! Only what every reader knows is used: an affine transform, or a pixel size with a tie point; and
//! a reference system that has an EPSG code, or WKT in a citation as ESRI writes it. Anything else
//! is dropped, with a note. A world file gives the transform that the tags do not.

use std::path::{Path, PathBuf};

use hsipack_format::Geo;
use hsipack_format::geo::Unit;

use super::directory::{
    Directories, GEO_KEYS, GEO_TEXTS, MODEL_PIXEL_SCALE, MODEL_TIE_POINTS, MODEL_TRANSFORMATION,
    Page,
};
use crate::place::{georeference, world_file};

const MODEL_TYPE: u16 = 1024;
const RASTER_TYPE: u16 = 1025;
const CITATION: u16 = 1026;
const GEOGRAPHIC_TYPE: u16 = 2048;
const ANGULAR_UNITS: u16 = 2054;
const PROJECTED_TYPE: u16 = 3072;
const PROJECTED_CITATION: u16 = 3073;
const LINEAR_UNITS: u16 = 3076;

/// Units of coordinates.
const METRE: u16 = 9001;
const DEGREE: u16 = 9102;

/// GeoTIFF does not define more keys.
const MAX_KEYS: u64 = 4096;
/// A code that stands for "defined by other keys"; 0 stands for "undefined".
const USER_DEFINED: u16 = 32767;
/// Prefix of ESRI before WKT in a citation.
const ESRI_TEXT: &str = "ESRI PE String = ";

/// Where the pixels of a page of the file at `path` lie, and its world file, if this gives the
/// transform. Adds notes about anything that is not kept.
pub(super) fn geo(
    directories: &Directories<'_>,
    page: &Page,
    path: &Path,
    notes: &mut Vec<String>,
) -> (Option<Geo>, Option<PathBuf>) {
    let keys = Keys::read(directories, page);
    if let Some(transform) = transform(directories, page, notes) {
        return (own_geo(transform, &keys, notes), None);
    }
    let Some((file, transform)) = world_file::transform(path, notes) else { return (None, None) };
    match Geo::new(None, transform) {
        Some(geo) => {
            let (crs, unit) = keys.crs(notes);
            (Some(Geo { crs, unit, ..geo }), Some(file))
        }
        None => {
            notes.push(format!("{} is not used: its numbers make no sense", file.display()));
            (None, None)
        }
    }
}

/// The place that a page states itself.
fn own_geo(mut transform: [f64; 6], keys: &Keys, notes: &mut Vec<String>) -> Option<Geo> {
    if keys.number(RASTER_TYPE) == Some(2) {
        // Positions refer to the centres of pixels.
        let [x, a, b, y, d, e] = transform;
        transform = [x - (a + b) / 2.0, a, b, y - (d + e) / 2.0, d, e];
    }
    let Some(geo) = Geo::new(None, transform) else {
        notes.push("the georeferencing is not used: its numbers make no sense".to_owned());
        return None;
    };
    let (crs, unit) = keys.crs(notes);
    // Some writers number the pixels if they do not know where on Earth these lie.
    let counts_pixels = crs.is_none() && geo.pixel_size() == [1.0, 1.0];
    (!counts_pixels).then_some(Geo { crs, unit, ..geo })
}

fn transform(
    directories: &Directories<'_>,
    page: &Page,
    notes: &mut Vec<String>,
) -> Option<[f64; 6]> {
    if let Some([a, b, _, x, d, e, _, y, ..]) =
        directories.doubles(page, MODEL_TRANSFORMATION, 16).as_deref()
    {
        return Some([*x, *a, *b, *y, *d, *e]);
    }
    let tie = directories.doubles(page, MODEL_TIE_POINTS, 6);
    let scale = directories.doubles(page, MODEL_PIXEL_SCALE, 3);
    match (tie.as_deref(), scale.as_deref()) {
        (Some([column, row, _, x, y, _]), Some([width, height, ..])) => {
            // Some writers give a negative height by mistake. Readers agree to ignore the sign.
            let height = height.abs();
            Some([x - column * width, *width, 0.0, y + row * height, 0.0, -height])
        }
        (Some(_), None) => {
            notes.push(
                "the image has control points instead of a transform; they are not kept".to_owned(),
            );
            None
        }
        _ => None,
    }
}

/// The keys of a page: numbers of 16 bits, and texts.
struct Keys {
    entries: Vec<[u16; 4]>,
    texts: String,
}

impl Keys {
    fn read(directories: &Directories<'_>, page: &Page) -> Self {
        let numbers = directories.shorts(page, GEO_KEYS, 4 * (MAX_KEYS + 1)).unwrap_or_default();
        let (entries, _) = numbers.as_chunks::<4>();
        // The first entry is the header.
        let entries = entries.get(1..).unwrap_or_default().to_vec();
        Self { entries, texts: directories.text(page, GEO_TEXTS).unwrap_or_default() }
    }

    fn entry(&self, key: u16) -> Option<&[u16; 4]> {
        self.entries.iter().find(|entry| entry[0] == key)
    }

    fn number(&self, key: u16) -> Option<u16> {
        let [_, location, _, value] = self.entry(key)?;
        (*location == 0).then_some(*value)
    }

    fn text(&self, key: u16) -> Option<&str> {
        let [_, location, count, start] = *self.entry(key)?;
        let start = usize::from(start);
        let text = self.texts.get(start..start.checked_add(usize::from(count))?)?;
        (location == GEO_TEXTS).then(|| text.trim_end_matches('|'))
    }

    /// The EPSG code in this key.
    fn code(&self, key: u16) -> Option<u16> {
        self.number(key).filter(|code| !matches!(*code, 0 | USER_DEFINED))
    }

    fn crs(&self, notes: &mut Vec<String>) -> (Option<String>, Option<Unit>) {
        let projected = self.number(MODEL_TYPE) != Some(2);
        let key = if projected { PROJECTED_TYPE } else { GEOGRAPHIC_TYPE };
        let code = self.code(key);
        let unit = match (projected, self.code(LINEAR_UNITS), self.code(ANGULAR_UNITS)) {
            (true, Some(METRE), _) => Some(Unit::Metre),
            (true, None, _) => code.and_then(georeference::unit_of),
            (false, _, Some(DEGREE) | None) => Some(Unit::Degree),
            _ => None,
        };
        if let Some(code) = code {
            return (Some(format!("EPSG:{code}")), unit);
        }
        let texts = [PROJECTED_CITATION, CITATION].into_iter().filter_map(|key| self.text(key));
        let mut wkts =
            texts.clone().filter_map(|text| georeference::wkt(text.strip_prefix(ESRI_TEXT)?));
        if let Some(wkt) = wkts.next() {
            let unit = wkt.unit.or(unit);
            return (Some(wkt.epsg.unwrap_or(wkt.text)), unit);
        }
        if !self.entries.is_empty() {
            let names: Vec<&str> = texts.filter(|text| !text.is_empty()).take(1).collect();
            let name = names.first().map(|name| {
                let name: String = name.chars().take(60).collect();
                format!(" ({})", hsipack_format::text::printable(&name))
            });
            notes.push(format!(
                "the reference system{} has no EPSG code; only the coordinates of pixels are kept",
                name.unwrap_or_default()
            ));
        }
        (None, unit)
    }
}
