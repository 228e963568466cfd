//! Files of colors of classes: CSV, JSON, ESRI, QGIS, CVAT.
#![no_main]

use hsipack_source::labels::read_colors;
use libfuzzer_sys::fuzz_target;

#[path = "../files.rs"]
mod files;

fuzz_target!(|bytes: &[u8]| {
    files::write("colors.txt", bytes);
    if let Ok(colors) = read_colors(&files::path("colors.txt")) {
        assert!(!colors.is_empty());
    }
});
