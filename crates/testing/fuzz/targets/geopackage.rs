//! GeoPackages: tables of an SQLite database, and geometries in well-known binary.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../labels.rs"]
mod labels;

fuzz_target!(|bytes: &[u8]| {
    labels::write("labels.gpkg", bytes);
    labels::read_mask("labels.gpkg", Some("kind"));
});
