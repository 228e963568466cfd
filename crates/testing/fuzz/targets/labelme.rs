//! labelme's shapes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../labels.rs"]
mod labels;

fuzz_target!(|bytes: &[u8]| {
    labels::write("labels.json", bytes);
    labels::read_mask("labels.json", None);
});
