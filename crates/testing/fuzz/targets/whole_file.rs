//! A whole file through the reader that recognises it, rows and all.
//!
//! The first byte says how the file is called and opened (`scripts/dev/fuzz` puts it before each
//! fixture): bits 0 to 2 the name, bit 4 whether it is a mask, bit 5 whether axes are given. ENVI
//! is a header, a NUL and the data.
#![no_main]

#[path = "../support.rs"]
mod support;

use hsipack_source::{Axes, OpenOptions};
use libfuzzer_sys::fuzz_target;

const NAMES: [&str; 8] =
    ["a.mat", "a.npy", "a.npz", "a.blosc", "a.tif", "a_SpecCube.dat", "a.png", "a.hdr"];

fuzz_target!(|input: &[u8]| {
    let Some((selector, bytes)) = input.split_first() else { return };
    // HDF5 files go to the HDF5 library, which is not ours to fuzz.
    if bytes.windows(4).any(|window| window == b"\x89HDF") {
        return;
    }
    let options = OpenOptions {
        mask: selector & 0x10 != 0,
        axes: (selector & 0x20 != 0).then(|| Axes::parse("bxy").expect("an order")),
        ..OpenOptions::default()
    };
    let name = NAMES[usize::from(selector & 7)];
    if name != "a.hdr" {
        return support::read_file(name, bytes, &options);
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    support::write("a.img", bytes.get(end + 1..).unwrap_or_default());
    support::read_file(name, &bytes[..end], &options);
});
