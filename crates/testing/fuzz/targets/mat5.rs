//! The elements of MATLAB v5 files: numbers lie inside the file or a stream of it.
#![no_main]

use hsipack_source::matlab::v5::{Content, HEADER, parse};
use libfuzzer_sys::fuzz_target;

/// Without the header's last four bytes nothing is read: bytes that lack them get them.
fn with_byte_order(bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![b' '; HEADER - 4];
    file.extend(b"\x00\x01IM");
    file.extend(bytes);
    file
}

fn check(bytes: &[u8]) {
    let Ok(variables) = parse(bytes) else { return };
    for variable in variables {
        assert!(variable.lengths.len() >= 2);
        let Content::Numbers(numbers) = variable.content else { continue };
        match numbers.stream {
            Some(stream) => assert!(stream.start <= stream.end && stream.end <= bytes.len() as u64),
            None => assert!(numbers.offset <= bytes.len() as u64),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&with_byte_order(bytes));
});
