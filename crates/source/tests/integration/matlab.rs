//! MATLAB v5 files.

use hsipack_format::ErrorKind;
use hsipack_source::{Access, Axes, OpenOptions, RowBuffer};

use crate::common::{check_against_truth, check_fixture, fixture, open, shared, truth};
use crate::opening::{
    check_bands, check_mask, check_shared, mask, open_with, read_error, refusal, survive_damage,
};

#[test]
fn real_cubes_are_read() {
    check_shared("derived/m3_v5_z.mat", None);
    check_shared("derived/corn_v5_raw.mat", None);
    check_shared("derived/m3_v5_bandsxpix.mat", None);
    check_shared("derived/corn_v5_struct.mat", None);
}

#[test]
fn wavelengths_in_a_real_struct_are_those_of_its_cube() {
    let Some(path) = shared("derived/corn_v5_struct.mat") else { return };
    let source = open(&path, Some("hsi.Data"));
    let wavelength = source.info().wavelength.as_ref().unwrap();
    assert_eq!((wavelength[0], wavelength[31]), (478.241, 513.38));
    let source = open(&path, Some("Data"));
    assert_eq!(source.info().shape.bands, 32);
}

#[test]
fn real_masks_are_read_beside_their_cubes() {
    for (file, rows, columns) in [("m3_v5_z", 50, 50), ("corn_v5_raw", 8, 10)] {
        let Some(path) = shared(&format!("derived/{file}.mat")) else { return };
        let source = open_with(&path, &mask(None));
        let shape = source.info().shape;
        assert_eq!((shape.rows, shape.columns, shape.bands), (rows, columns, 1));
    }
}

#[test]
fn every_class_is_read_plain_and_compressed() {
    for dtype in
        ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32"]
    {
        check_fixture(&format!("matlab/{dtype}.mat#cube"));
    }
    let access = |name| open(&fixture(name), None).access();
    assert_eq!(access("matlab/int16.mat"), Access::Random);
    assert_eq!(access("matlab/uint16.mat"), Access::Sequential);
}

#[test]
fn numbers_come_in_the_type_and_byte_order_they_are_stored_in() {
    check_bands("matlab/narrow.mat#indian_pines_corrected", false);
    check_bands("matlab/big_endian.mat#cube", false);
    check_bands("matlab/big_endian_narrow.mat#cube", false);
    check_mask("matlab/logical.mat#mask", false);
}

#[test]
fn a_cube_is_found_among_masks_cells_text_and_sparse_matrices() {
    for name in ["plain", "compressed"] {
        check_bands(&format!("matlab/mixed_{name}.mat#data"), false);
        check_mask(&format!("matlab/mixed_{name}.mat#map"), false);
    }
}

#[test]
fn fields_of_nested_structs_are_found_with_their_wavelengths() {
    for (name, fwhm) in
        [("matlab/nested.mat#scene.image.data", true), ("matlab/nested_plain.mat#data", false)]
    {
        let (file, _) = name.split_once('#').unwrap();
        let source = open(&fixture(file), None);
        check_against_truth(&*source, &truth(&fixture(""), name));
        let info = source.info();
        let wavelength = info.wavelength.as_ref().unwrap();
        assert!((wavelength[0] - 400.0).abs() < 1e-9 && (wavelength[11] - 1000.0).abs() < 1e-9);
        assert_eq!(info.fwhm.as_ref().map(|fwhm| (fwhm[0] * 1e6).round()), fwhm.then_some(5.25e6));
    }
}

#[test]
fn several_cubes_have_to_be_told_apart_by_name() {
    let plain = OpenOptions::default();
    let error = refusal("matlab/several.mat", &plain, ErrorKind::Ambiguous);
    assert!(error.to_string().contains("several.mat::s.cube (7x9x12 float32)"), "{error}");
    check_fixture("matlab/several.mat#s.cube");
    check_fixture("matlab/several.mat#cube");
    let error = refusal("matlab/several.mat#other", &plain, ErrorKind::NotFound);
    assert!(error.what().contains("several.mat::b"), "{error}");
}

#[test]
fn matrices_of_spectra_are_folded_into_images() {
    for name in [
        "spectra.mat#Y",
        "spectra_lines.mat#Y",
        "spectra_map.mat#Y",
        "spectra_pixels_first.mat#X",
        "cube_and_matrix.mat#img",
    ] {
        check_bands(&format!("matlab/{name}"), false);
        check_bands(&format!("matlab/{name}"), true);
    }
}

#[test]
fn pixels_that_run_along_the_rows_are_told_by_the_axes() {
    let name = "matlab/spectra_by_rows.mat";
    let axes = |text| OpenOptions { axes: Axes::parse(text), ..Default::default() };
    let source = open_with(&fixture(name), &axes("bxy"));
    check_against_truth(&*source, &truth(&fixture(""), &format!("{name}#Y")));
    refusal(name, &axes("yxb"), ErrorKind::Conflict);
}

#[test]
fn matrices_whose_image_is_unknown_or_disagrees_are_refused() {
    let plain = OpenOptions::default();
    let error = refusal("matlab/spectra_disagree.mat", &plain, ErrorKind::Malformed);
    assert!(error.what().contains("nRow x nCol = 7 x 8"), "{error}");
    refusal("matlab/spectra_disagree.mat#Y", &plain, ErrorKind::Malformed);
    refusal("matlab/spectra_alone.mat", &plain, ErrorKind::Unsupported);
    let error = refusal("matlab/spectra_alone.mat#Y", &plain, ErrorKind::Unsupported);
    assert!(error.remedy().unwrap().to_string().contains("nRow"), "{error}");
}

#[test]
fn files_that_hold_no_cube_are_refused() {
    let plain = OpenOptions::default();
    let error = refusal("matlab/version4.mat", &plain, ErrorKind::Unsupported);
    assert!(error.to_string().contains("save it with -v7"), "{error}");
    refusal("matlab/four_axes.mat", &plain, ErrorKind::Unsupported);
    refusal("matlab/four_axes.mat#cubes", &plain, ErrorKind::Unsupported);
    refusal("matlab/only_header.mat", &plain, ErrorKind::Unsupported);
    refusal("matlab/no_header.mat", &plain, ErrorKind::Malformed);
    refusal("matlab/cut_short.mat", &plain, ErrorKind::Malformed);
    refusal("matlab/mixed_plain.mat#map", &plain, ErrorKind::Unsupported);
    for (name, says) in [("complexes", "complex"), ("cells", "cell"), ("sparse", "sparse")] {
        let name = format!("matlab/mixed_compressed.mat#{name}");
        let error = refusal(&name, &plain, ErrorKind::Unsupported);
        assert!(error.what().contains(says), "{error}");
    }
}

#[test]
fn a_wrong_checksum_is_found_when_the_last_row_is_read() {
    read_error("matlab/bad_checksum.mat#cube");
    let sound = open(&fixture("matlab/large.mat"), None);
    sound.read_rows(0..50, &mut RowBuffer::new()).unwrap();
}

#[test]
fn damaged_files_never_panic() {
    for name in [
        "int16.mat",
        "mixed_plain.mat",
        "mixed_compressed.mat",
        "nested.mat",
        "spectra.mat",
        "big_endian_narrow.mat",
    ] {
        survive_damage(&format!("matlab/{name}"));
    }
}
