//! `samples.jsonl`: what is read can be written, and reads the same again.
#![no_main]

use hsipack_format::samples::{decode, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(samples) = decode(text) else { return };
    assert_eq!(decode(&encode(&samples)).expect("what was written can be read"), samples);
});
