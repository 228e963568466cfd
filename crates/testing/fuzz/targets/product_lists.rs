//! Descriptions of products' cubes in other texts than XML: the grids of HDF-EOS, Wyvern's STAC
//! items, the lists of AVIRIS, the ENVI header of DESIS.
#![no_main]

use hsipack_source::products::{Grid, desis, parse_centres, parse_gain, wyvern};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some(grid) = Grid::parse(text, "HYP") {
        assert!(!grid.transform().iter().any(|number| number.is_nan()));
    }
    if let Ok(item) = wyvern::Item::parse(text.as_bytes()) {
        assert!(item.bands().len() <= text.len());
    }
    let usable = |number: &f64| *number > 0.0 && number.is_finite();
    assert!(
        parse_gain(text).is_ok_and(|gains| gains.iter().all(usable)) || parse_gain(text).is_err()
    );
    if let Ok(list) = parse_centres(text) {
        assert!(list.iter().all(|(centre, fwhm)| usable(centre) && usable(fwhm)));
    }
    if let Ok(bands) = desis::parse_header(text) {
        assert!(bands.iter().all(|band| usable(&band.wavelength) && band.gain != 0.0));
    }
});
