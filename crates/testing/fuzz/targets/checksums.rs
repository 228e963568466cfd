//! `SHA256SUMS`: no line leads out of the dataset.
#![no_main]

use hsipack_format::checksums::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    for (path, sum) in parse(text).unwrap_or_default() {
        assert!(!path.is_empty() && !path.starts_with('/') && sum.len() == 64);
        assert!(path.split('/').all(|part| part != ".."));
    }
});
