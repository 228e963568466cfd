//! Patterns of files of bands, and of mosaics.
#![no_main]

use hsipack_source::{BandPattern, Mosaic};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = BandPattern::parse(text);
    if let Ok(mosaic) = text.parse::<Mosaic>() {
        assert_eq!(mosaic.to_string().parse::<Mosaic>().ok(), Some(mosaic));
    }
});
