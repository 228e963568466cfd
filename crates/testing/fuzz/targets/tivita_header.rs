//! The 12 bytes before a Tivita cube.
#![no_main]

use hsipack_source::tivita::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(shape) = parse(bytes) {
        assert!(!shape.is_empty() && shape.checked_values().is_some());
    }
});
