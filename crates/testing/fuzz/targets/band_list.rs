//! Band centres in texts: lists, columns of tables, lists with units.
#![no_main]

use hsipack_source::{band_numbers, parse_band_centers};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(values) = band_numbers(text) {
        assert!(values.iter().all(|value| value.is_finite()));
    }
    if let Some(Ok(centers)) = parse_band_centers(text) {
        assert!(!centers.is_empty() && centers.iter().all(|nm| nm.is_finite()));
    }
});
