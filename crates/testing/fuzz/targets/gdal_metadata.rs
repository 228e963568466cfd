//! GDAL's metadata: XML, and what it says about bands.
#![no_main]

use hsipack_format::{CubeShape, DType};
use hsipack_source::CubeInfo;
use hsipack_source::tiff::gdal_metadata::{GdalMetadata, wavelengths_in_names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let names: Vec<String> = text.lines().map(str::to_owned).collect();
    let _ = wavelengths_in_names(&names);
    let both = [GdalMetadata::parse(text), GdalMetadata::parse_side_file(text)];
    let both = both.iter().flatten().flat_map(|metadata| [1, 2, 7].map(|bands| (metadata, bands)));
    for (metadata, bands) in both {
        let mut info = CubeInfo::new("TIFF", CubeShape::new(1, 1, bands), DType::U16, "a.tif");
        metadata.describe(&mut info);
        let finite = |list: &Option<Vec<f64>>| list.iter().flatten().all(|value| value.is_finite());
        assert!(finite(&info.wavelength) && finite(&info.fwhm));
        assert!(info.wavelength.is_none_or(|list| list.len() == bands));
        assert!(info.fwhm.is_none_or(|list| list.len() == bands));
        assert!(info.good_bands.is_none_or(|list| list.len() == bands));
        assert!(info.band_names.is_none_or(|list| list.len() == bands));
    }
});
