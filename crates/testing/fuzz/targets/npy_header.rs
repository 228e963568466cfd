//! The header of `.npy` files.
#![no_main]

use hsipack_source::numpy::header::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = parse(bytes) {
        assert!(header.data_offset <= bytes.len());
    }
    // The dictionary alone, so that mutations need not keep its length right.
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    let mut whole = b"\x93NUMPY\x01\x00".to_vec();
    whole.extend(length.to_le_bytes());
    whole.extend(bytes);
    let _ = parse(&whole);
});
