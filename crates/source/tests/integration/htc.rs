//! HTC blosc files.

use hsipack_format::ErrorKind;
use hsipack_source::OpenOptions;

use crate::common::{check_against_truth, check_fixture, fixture, open, shared, truth};
use crate::opening::{
    check_bands, check_mask, check_shared, mask, open_with, read_error, refusal, survive_damage,
};

#[test]
fn real_cubes_in_both_precisions_are_read() {
    check_shared("derived/htc_raw16.blosc", None);
    check_shared("derived/htc_raw32.blosc", None);
}

#[test]
fn a_real_mask_is_read_by_the_name_of_its_annotator() {
    let Some(path) = shared("derived/htc_segmentations.blosc") else { return };
    let name = "derived/htc_segmentations.blosc#polygon#annotator1";
    let source = open_with(&path, &mask(Some("polygon#annotator1")));
    check_against_truth(&*source, &truth(&shared("").unwrap(), name));
    let source = open_with(&path, &mask(Some("annotator1")));
    check_against_truth(&*source, &truth(&shared("").unwrap(), name));
}

#[test]
fn every_protocol_codec_shuffle_and_type_is_read() {
    for name in [
        "protocol2",
        "protocol3",
        "protocol4",
        "protocol5",
        "blosclz",
        "lz4",
        "lz4hc",
        "zlib",
        "big_endian",
        "uint8",
        "bool",
        "other_typesize",
        "incompressible",
        "many_blocks",
    ] {
        check_fixture(&format!("htc/{name}.blosc"));
    }
}

#[test]
fn rows_are_asked_for_in_whole_blocks() {
    let source = open(&fixture("htc/many_blocks.blosc"), None);
    assert!(source.preferred_rows(1 << 20) > 1);
    assert_eq!(source.preferred_rows(0), 1);
    assert!(source.preferred_rows(usize::MAX) <= source.info().shape.rows);
}

#[test]
fn cubes_with_the_sensors_bands_have_its_wavelengths() {
    check_bands("htc/sensor_bands.blosc", false);
    let source = open(&fixture("htc/sensor_bands.blosc"), None);
    assert!(source.info().notes[0].contains("assumed to be a Tivita cube"));
    check_bands("htc/protocol4.blosc", false);
}

#[test]
fn dictionaries_are_read_by_name() {
    for protocol in [2, 5] {
        check_mask(&format!("htc/masks_protocol{protocol}.blosc#polygon#annotator1"), true);
        check_mask(&format!("htc/masks_protocol{protocol}.blosc#blood"), true);
    }
    check_bands("htc/mixed.blosc#cube", false);
    check_mask("htc/mixed.blosc#mask", false);
    let error = refusal("htc/masks_protocol2.blosc", &mask(None), ErrorKind::Ambiguous);
    assert!(error.to_string().contains("::polygon#annotator1 (7x9 uint8)"), "{error}");
}

#[test]
fn pickles_that_would_call_something_are_refused_by_name() {
    let error = refusal("htc/evil.blosc", &OpenOptions::default(), ErrorKind::Unsupported);
    assert!(error.what().contains("system"), "{error}");
}

#[test]
fn broken_files_are_refused() {
    let plain = OpenOptions::default();
    for name in
        ["cut_short", "longer", "only_header", "bare_frame", "other_shape", "cut_short_dictionary"]
    {
        refusal(&format!("htc/{name}.blosc"), &plain, ErrorKind::Malformed);
    }
    let error = refusal("htc/complex.blosc", &plain, ErrorKind::Unsupported);
    assert!(error.what().contains("complex"), "{error}");
    refusal("htc/protocol4.blosc#cube", &plain, ErrorKind::Conflict);
    refusal("htc/masks_protocol2.blosc#blood", &plain, ErrorKind::Unsupported);
}

#[test]
fn a_damaged_frame_is_an_error_when_it_is_read() {
    read_error("htc/damaged.blosc");
}

#[test]
fn damaged_files_never_panic() {
    for name in [
        "protocol2.blosc",
        "lz4.blosc",
        "masks_protocol5.blosc",
        "many_blocks.blosc",
        "incompressible.blosc",
    ] {
        survive_damage(&format!("htc/{name}"));
    }
}
