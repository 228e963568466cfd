//! NumPy files.

use hsipack_format::ErrorKind;
use hsipack_source::{Access, Axes, OpenOptions, RowBuffer};

use crate::common::{check_against_truth, check_fixture, fixture, open, shared, truth};
use crate::opening::{
    check_bands, check_mask, check_shared, mask, open_with, read_error, refusal, survive_damage,
};

#[test]
fn real_npy_cubes_are_read() {
    check_shared("derived/corn_c_u2.npy", None);
    check_shared("derived/emit_fortran_f4.npy", None);
    check_shared("derived/emit_be_f4.npy", None);
    check_shared("derived/emit_f2.npy", None);
}

#[test]
fn real_npz_cubes_are_read() {
    check_shared("derived/emit_deflate.npz", None);
    check_shared("derived/corn_stored.npz", None);
}

#[test]
fn a_real_npz_gives_its_wavelengths_and_its_mask() {
    let Some(path) = shared("derived/emit_deflate.npz") else { return };
    let source = open(&path, None);
    let wavelength = source.info().wavelength.as_ref().unwrap();
    assert_eq!(wavelength.len(), 285);
    // The band centres of EMIT, as in the ENVI header of the same crop.
    assert!((wavelength[0] - 381.00558).abs() < 1e-4, "{}", wavelength[0]);
    assert!((wavelength[284] - 2492.9238).abs() < 1e-3, "{}", wavelength[284]);
    let shape = open_with(&path, &mask(None)).info().shape;
    assert_eq!((shape.rows, shape.columns, shape.bands), (10, 10, 1));
}

#[test]
fn every_type_order_and_header_version_is_read() {
    for name in [
        "float16_little",
        "float32_big",
        "float64_little",
        "int8_little",
        "uint8_little",
        "int16_big",
        "uint16_little",
        "int32_little",
        "uint32_big",
        "int64_big",
        "uint64_little",
        "bool",
        "version2_fortran",
        "version3_big_fortran",
        "foreign_header",
        "one_row",
    ] {
        check_fixture(&format!("numpy/{name}.npy"));
    }
}

#[test]
fn the_user_may_name_the_axes() {
    let options = OpenOptions { axes: Axes::parse("byx"), ..Default::default() };
    let name = "numpy/bands_first.npy";
    let source = open_with(&fixture(name), &options);
    check_against_truth(&*source, &truth(&fixture(""), name));
}

#[test]
fn two_axes_are_a_mask_and_no_cube() {
    check_mask("numpy/mask.npy", false);
    check_mask("numpy/mask_fortran.npy", false);
    let error = refusal("numpy/mask.npy", &OpenOptions::default(), ErrorKind::Unsupported);
    let remedy =
        "(give it as a mask with mask, leave it out with exclude, or save it with a third axis;";
    assert!(error.to_string().contains(remedy), "{error}");
    assert!(error.to_string().ends_with("stack them: numpy.dstack)"), "{error}");
}

#[test]
fn arrays_that_are_no_cubes_are_refused() {
    let plain = OpenOptions::default();
    for (name, kind, says) in [
        ("complex", ErrorKind::Unsupported, "complex"),
        ("structured", ErrorKind::Unsupported, "structured"),
        ("text", ErrorKind::Unsupported, "strings"),
        ("object", ErrorKind::Unsupported, "Python objects"),
        ("four_axes", ErrorKind::Unsupported, "4-D (2x3x4x5)"),
        ("empty", ErrorKind::Malformed, "0x4x5"),
        ("cut_short", ErrorKind::Malformed, "ends before"),
        ("two_arrays", ErrorKind::Malformed, "goes on"),
        ("cut_in_header", ErrorKind::Malformed, "inside its .npy header"),
    ] {
        let error = refusal(&format!("numpy/{name}.npy"), &plain, kind);
        assert!(error.what().contains(says), "{error}");
    }
    refusal("numpy/mask.npy#gt", &mask(None), ErrorKind::Conflict);
}

#[test]
fn archives_give_the_cube_its_bands_and_the_mask() {
    check_bands("numpy/stored.npz#cube", false);
    check_bands("numpy/deflated.npz#cube", false);
    check_mask("numpy/stored.npz#gt", false);
    check_mask("numpy/deflated.npz#gt", true);
    for name in ["cube", "second"] {
        check_fixture(&format!("numpy/several.npz#{name}"));
    }
}

#[test]
fn stored_members_are_read_in_place_and_deflated_ones_as_a_stream() {
    assert_eq!(open(&fixture("numpy/stored.npz"), None).access(), Access::Random);
    assert_eq!(open(&fixture("numpy/deflated.npz"), None).access(), Access::Sequential);
}

#[test]
fn micrometres_and_bad_bands_are_understood() {
    let name = "numpy/deflated_fortran.npz#cube";
    let source = open(&fixture("numpy/deflated_fortran.npz"), None);
    check_against_truth(&*source, &truth(&fixture(""), name));
    let info = source.info();
    let wavelength = info.wavelength.as_ref().unwrap();
    assert!((wavelength[11] - 1000.0).abs() < 1e-3 && (wavelength[0] - 400.0).abs() < 1e-3);
    assert_eq!(info.good_bands.as_ref().unwrap()[..3], [false, true, false]);
    assert!(info.notes[0].contains("micrometres"), "{:?}", info.notes);
}

#[test]
fn wavelengths_of_another_length_are_left_out_with_a_note() {
    check_bands("numpy/wrong_wavelengths.npz#arr", false);
    let source = open(&fixture("numpy/wrong_wavelengths.npz"), None);
    assert!(source.info().notes[0].contains("10 values for 12 bands"));
}

#[test]
fn archives_without_one_clear_cube_are_refused() {
    let plain = OpenOptions::default();
    let error = refusal("numpy/several.npz", &plain, ErrorKind::Ambiguous);
    assert!(error.to_string().contains("several.npz::second (7x9x12 uint16)"), "{error}");
    let error = refusal("numpy/several.npz#third", &plain, ErrorKind::NotFound);
    assert!(error.what().contains("several.npz::cube"), "{error}");
    let error = refusal("numpy/only_mask.npz", &plain, ErrorKind::Unsupported);
    assert!(error.to_string().contains("can be a mask (mask)"), "{error}");
    refusal("numpy/only_mask.npz#wavelengths", &plain, ErrorKind::Unsupported);
    refusal("numpy/contradiction.npz", &plain, ErrorKind::Malformed);
    refusal("numpy/cut_short.npz", &plain, ErrorKind::Malformed);
}

#[test]
fn a_wrong_checksum_in_an_archive_is_found_when_the_last_row_is_read() {
    let error = read_error("numpy/bad_checksum.npz#cube");
    assert!(error.what().contains("checksum"), "{error}");
    let source = open(&fixture("numpy/deflated_fortran.npz"), None);
    source.read_rows(0..7, &mut RowBuffer::new()).unwrap();
}

#[test]
fn damaged_files_never_panic() {
    for name in ["uint16_little.npy", "stored.npz", "deflated.npz", "foreign_header.npy"] {
        survive_damage(&format!("numpy/{name}"));
    }
}
