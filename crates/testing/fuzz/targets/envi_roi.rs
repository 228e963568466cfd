//! ENVI's regions of interest: text and XML.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../labels.rs"]
mod labels;

fuzz_target!(|bytes: &[u8]| {
    labels::write("labels.txt", bytes);
    labels::read_mask("labels.txt", None);
});
