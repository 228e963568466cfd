//! `samples.jsonl`: what is read can be written, and reads the same again.
#![no_main]

use hsipack_format::samples::{Samples, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let stacks = ["2x3x4", "5x6x7"];
    let Ok(samples) = Samples::decode(text.to_vec(), &stacks) else { return };
    let all = || samples.iter().map(|sample| sample.expect("the line is in memory"));
    let again = Samples::decode(encode(all()), &stacks).expect("what was written can be read");
    assert!(again.iter().map(|sample| sample.expect("the line is in memory")).eq(all()));
});
