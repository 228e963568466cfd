//! Tivita SpecCube files.

use hsipack_format::ErrorKind;
use hsipack_source::{Axes, OpenOptions};

use crate::common::{check_fixture, fixture, open, shared};
use crate::opening::{check_bands, check_shared, refusal, survive_damage};

#[test]
fn a_speccube_is_read_upright() {
    check_shared("derived/2026_01_01_00_00_00_SpecCube.dat", None);
}

#[test]
fn the_sensors_wavelengths_are_known() {
    check_bands("tivita/2026_11_21_12_00_00_SpecCube.dat", false);
    let Some(path) = shared("derived/2026_01_01_00_00_00_SpecCube.dat") else { return };
    let source = open(&path, None);
    let wavelength = source.info().wavelength.as_ref().unwrap();
    assert_eq!((wavelength[0], wavelength[99]), (500.0, 1000.0));
    assert_eq!(source.info().format, "Tivita SpecCube");
}

#[test]
fn a_renamed_file_is_recognised_by_its_size() {
    check_fixture("tivita/renamed.raw");
    let notes = &open(&fixture("tivita/renamed.raw"), None).info().notes.clone();
    assert!(notes[0].contains("wavelengths are unknown"), "{notes:?}");
}

#[test]
fn broken_files_are_refused() {
    let plain = OpenOptions::default();
    let error = refusal("tivita/cut_short_SpecCube.dat", &plain, ErrorKind::Malformed);
    assert!(error.what().contains("3 columns, 4 rows and 100 bands"), "{error}");
    let error = refusal("tivita/negative_SpecCube.dat", &plain, ErrorKind::Malformed);
    assert!(error.what().contains("width of -1"), "{error}");
    refusal("tivita/tiny_SpecCube.dat", &plain, ErrorKind::Malformed);
}

#[test]
fn options_that_mean_nothing_here_are_refused() {
    let name = "tivita/2026_11_21_12_00_00_SpecCube.dat";
    let axes = OpenOptions { axes: Axes::parse("byx"), ..Default::default() };
    refusal(name, &axes, ErrorKind::Conflict);
    refusal(&format!("{name}#cube"), &OpenOptions::default(), ErrorKind::Conflict);
}

#[test]
fn damaged_files_never_panic() {
    survive_damage("tivita/2026_11_21_12_00_00_SpecCube.dat");
}
