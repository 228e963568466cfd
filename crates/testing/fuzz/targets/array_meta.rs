//! `zarr.json` of packed datasets: what is read can be written, and reads the same again.
#![no_main]

use hsipack_format::zarr::{ArrayMeta, parse_group, to_text};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let _ = parse_group(text);
    let Ok(meta) = ArrayMeta::parse(text) else { return };
    let again = ArrayMeta::parse(&to_text(&meta.to_json()));
    assert_eq!(again.expect("what was written can be read"), meta);
});
