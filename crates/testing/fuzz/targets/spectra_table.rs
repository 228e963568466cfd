//! Tables of spectra: the header, and every row of the table.
#![no_main]

use hsipack_source::{OpenOptions, SpectraTable, spectra_header};
use libfuzzer_sys::fuzz_target;

#[path = "../support.rs"]
mod support;

/// The most rows that are read.
const MAX_ROWS: usize = 100;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = spectra_header(text.lines().next().unwrap_or_default());
    }
    support::write("spectra.csv", bytes);
    let Ok(Some(table)) = SpectraTable::open(&support::path("spectra.csv")) else { return };
    for row in 0..table.len().min(MAX_ROWS) {
        let options = OpenOptions { variable: Some(format!("[{row}]")), ..OpenOptions::default() };
        support::read_file("spectra.csv", bytes, &options);
    }
});
