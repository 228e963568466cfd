//! The binary header of HySpex cameras: its part of fixed length.
#![no_main]

use hsipack_source::products::hyspex::Head;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(head) = Head::parse(bytes) {
        assert!(head.bytes() > 2181);
    }
});
