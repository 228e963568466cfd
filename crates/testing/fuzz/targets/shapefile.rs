//! Shapefiles: shapes, and the table of their attributes. The first two bytes say how long the
//! shapes are.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../labels.rs"]
mod labels;

fuzz_target!(|bytes: &[u8]| {
    let Some((len, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let (shapes, table) = bytes.split_at(bytes.len().min(u16::from_le_bytes(*len).into()));
    labels::write("labels.shp", shapes);
    labels::write("labels.dbf", table);
    labels::read_mask("labels.shp", Some("kind"));
});
