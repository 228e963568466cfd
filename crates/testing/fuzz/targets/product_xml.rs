//! The XML of EnMAP and DESIS: lists of bands.
#![no_main]

use hsipack_source::products::dlr::Band;
use hsipack_source::products::{desis, enmap};
use libfuzzer_sys::fuzz_target;

fn check(bands: &[Band]) {
    assert!(!bands.is_empty() && bands.len() <= 4096);
    for band in bands {
        assert!(band.wavelength > 0.0 && band.fwhm > 0.0 && band.gain != 0.0);
        assert!([band.wavelength, band.fwhm, band.gain, band.offset].iter().all(|n| n.is_finite()));
    }
}

fuzz_target!(|text: &str| {
    if let Ok(metadata) = enmap::Metadata::parse(text) {
        check(&metadata.bands);
        metadata.check();
    }
    if let Ok(metadata) = desis::Metadata::parse(text) {
        check(&metadata.bands);
    }
});
