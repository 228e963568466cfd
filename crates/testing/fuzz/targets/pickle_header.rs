//! The pickled header of HTC files, read without executing anything.
#![no_main]

use hsipack_source::htc::pickle::{Header, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, length)) = parse(bytes) else { return };
    assert!(length <= bytes.len());
    if let Header::Named(arrays) = header {
        assert!(arrays.len() <= length);
    }
});
