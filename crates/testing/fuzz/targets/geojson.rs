//! GeoJSON: features on a map.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../labels.rs"]
mod labels;

fuzz_target!(|bytes: &[u8]| {
    labels::write("labels.geojson", bytes);
    labels::read_mask("labels.geojson", Some("kind"));
});
