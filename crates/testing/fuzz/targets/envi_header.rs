//! ENVI headers: whatever is taken for one holds together.
#![no_main]

use hsipack_source::envi::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(header) = parse(bytes) else { return };
    assert!(!header.shape.is_empty());
    assert!(header.file_len() > header.offset);
    let _ = header.describe_len();
    let bands = header.shape.bands;
    let as_long = |length: Option<usize>| length.is_none_or(|length| length == bands);
    assert!(as_long(header.wavelength.as_ref().map(Vec::len)));
    assert!(as_long(header.fwhm.as_ref().map(Vec::len)));
    assert!(as_long(header.good_bands.as_ref().map(Vec::len)));
    assert!(as_long(header.band_names.as_ref().map(Vec::len)));
    let finite = |list: &Option<Vec<f64>>| list.iter().flatten().all(|value| value.is_finite());
    assert!(finite(&header.wavelength) && finite(&header.fwhm));
});
