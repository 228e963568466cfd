//! The 28 bytes before an HSD cube.
#![no_main]

use hsipack_source::hsd::Header;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::parse(bytes) {
        assert!(!header.shape.is_empty() && header.shape.checked_values().is_some());
        assert!(header.components > 0);
    }
});
