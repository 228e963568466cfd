//! ESRI (ArcGIS) headers. They have the same suffixes as ENVI headers and are not read. They are
//! recognised only so that the error can say what to do.

use std::collections::BTreeMap;

use hsipack_format::Error;

use super::fields::{decode, lines, shorten};

/// `KEY value` lines of an ESRI header, keys in lower case.
fn fields(text: &str) -> BTreeMap<String, &str> {
    lines(text)
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(key, value)| (key.to_lowercase(), value.trim()))
        .collect()
}

/// Whether a text is an ESRI header, of a `.bil`, `.bip`, `.bsq` or `.flt` file.
pub(super) fn is_header(text: &str) -> bool {
    let fields = fields(text);
    let has = |key| fields.contains_key(key);
    has("nrows") && has("ncols") && ["layout", "nbits", "nbands", "byteorder"].into_iter().any(has)
}

/// Refuses an ESRI header. The message shows the ENVI header to write instead.
pub(super) fn refusal(bytes: &[u8]) -> Error {
    let text = decode(bytes);
    let fields = fields(&text);
    let get = |key: &str| fields.get(key).map(|value| shorten(value));
    let known = |key: &str| get(key).unwrap_or_else(|| "?".to_owned());
    let pixel_type = get("pixeltype").unwrap_or_default().to_lowercase();
    let code = match (get("nbits").as_deref().unwrap_or("8"), pixel_type.as_str()) {
        ("8", _) => "1",
        ("16", "signedint") => "2",
        ("16", _) => "12",
        ("32", "float") => "4",
        ("32", "signedint") => "3",
        ("32", "unsignedint") => "13",
        _ => "?",
    };
    let motorola = get("byteorder").is_some_and(|order| order.to_lowercase().starts_with('m'));
    Error::unsupported("an ESRI (ArcGIS) header, not an ENVI one").with_remedy(format!(
        "write an ENVI header instead: the line ENVI, then samples = {}, lines = {}, bands = {}, \
         data type = {code}, interleave = {}, byte order = {}, header offset = {}",
        known("ncols"),
        known("nrows"),
        get("nbands").unwrap_or_else(|| "1".to_owned()),
        get("layout").unwrap_or_else(|| "bil".to_owned()).to_lowercase(),
        u8::from(motorola),
        get("skipbytes").unwrap_or_else(|| "0".to_owned()),
    ))
}
