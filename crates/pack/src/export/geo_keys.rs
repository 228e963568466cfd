//! The georeferencing as tags and keys of
//! [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html).

use std::io::{Seek, Write};

use hsipack_format::Geo;
use hsipack_format::geo::Unit;
use tiff::encoder::{DirectoryEncoder, TiffKind};
use tiff::tags::Tag;

const PIXEL_SCALE: Tag = Tag::Unknown(33550);
const TIE_POINTS: Tag = Tag::Unknown(33922);
const TRANSFORMATION: Tag = Tag::Unknown(34264);
const KEYS: Tag = Tag::Unknown(34735);
const TEXTS: u16 = 34737;

const USER_DEFINED: u16 = 32767;

/// Writes the tags.
pub(super) fn write<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, impl Write + Seek, K>,
    geo: &Geo,
) -> tiff::TiffResult<()> {
    let [x, a, b, y, d, e] = geo.transform;
    if geo.is_north_up() {
        directory.write_tag(PIXEL_SCALE, [a, -e, 0.0].as_slice())?;
        directory.write_tag(TIE_POINTS, [0.0, 0.0, 0.0, x, y, 0.0].as_slice())?;
    } else {
        let rows = [a, b, 0.0, x, d, e, 0.0, y, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        directory.write_tag(TRANSFORMATION, rows.as_slice())?;
    }
    let (keys, text) = keys(geo);
    directory.write_tag(KEYS, keys.as_slice())?;
    match text {
        // The TIFF encoder adds the NUL at the end.
        Some(text) => directory.write_tag(Tag::Unknown(TEXTS), text.as_str()),
        None => Ok(()),
    }
}

/// The directory of keys, and the text to which it refers.
fn keys(geo: &Geo) -> (Vec<u16>, Option<String>) {
    let degrees = geo.unit == Some(Unit::Degree);
    let (model, system) = if degrees { (2, 2048) } else { (1, 3072) };
    // Pixels are areas, so positions are those of their corners.
    let area = [1025, 0, 1, 1];
    let mut text = None;
    let entries: Vec<[u16; 4]> = match (geo.epsg(), &geo.crs) {
        (Some(code), _) => vec![[1024, 0, 1, model], area, [system, 0, 1, code]],
        // GDAL and ESRI recognise WKT by the text before it; GDAL does so only if the model is user-defined.
        (None, Some(wkt)) if wkt.is_ascii() && !wkt.contains('|') => {
            let citation = format!("ESRI PE String = {wkt}|");
            let citation_key = [3073, TEXTS, citation.len() as u16, 0];
            text = Some(citation);
            vec![[1024, 0, 1, USER_DEFINED], area, [3072, 0, 1, USER_DEFINED], citation_key]
        }
        _ => vec![area],
    };
    let header = [1, 1, 0, entries.len() as u16];
    let mut sorted = entries;
    sorted.sort_unstable();
    ([header].into_iter().chain(sorted).flatten().collect(), text)
}
