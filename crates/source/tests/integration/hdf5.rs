//! HDF5 files: generic files, NetCDF-4, HDF-EOS5, MATLAB v7.3, products.

use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, ErrorKind};
use hsipack_source::{Axes, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

use crate::common::{check_against_truth, check_fixture, fixture, open, shared, truth};
use crate::opening::check_shared;

fn wavelengths() -> Vec<f64> {
    (0..12)
        .map(|band| (400.0 + f64::from(band) * 600.0 / 11.0) * 1e3)
        .map(|nm| nm.round() / 1e3)
        .collect()
}

fn close(found: Option<&Vec<f64>>, wanted: &[f64]) {
    let found = found.expect("there is a list");
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 1e-3, "{found} is not {wanted}");
    }
}

fn options(variable: Option<&str>) -> OpenOptions {
    OpenOptions { variable: variable.map(str::to_owned), ..Default::default() }
}

fn info(name: &str, variable: Option<&str>) -> CubeInfo {
    open(&fixture(&format!("hdf5/{name}")), variable).info().clone()
}

fn error(name: &str, variable: Option<&str>) -> Error {
    let path = fixture(&format!("hdf5/{name}"));
    let error = hsipack_source::open(&path, &options(variable)).err().expect("this is refused");
    assert_eq!(error.path(), Some(&*path), "{error}");
    error
}

fn with(name: &str, options: &OpenOptions) -> Box<dyn Source> {
    hsipack_source::open(&fixture(&format!("hdf5/{name}")), options)
        .unwrap_or_else(|e| panic!("{e}"))
}

fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no '{word}' in: {error}");
    }
}

#[test]
fn every_fixture_is_read_as_h5py_reads_it() {
    let text = std::fs::read_to_string(fixture("TRUTH.json")).unwrap();
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for name in all.keys().filter(|name| name.starts_with("hdf5/")) {
        if name.starts_with("hdf5/masks.h5") || name.starts_with("hdf5/no_wavelength.h5") {
            continue; // They need an option; tested below.
        }
        eprintln!("{name}");
        check_fixture(name);
        checked += 1;
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn real_cubes_are_read_as_h5py_reads_them() {
    check_shared("derived/prisma_layout.he5#VNIR_Cube", None);
    check_shared("derived/prisma_layout.he5#SWIR_Cube", None);
    check_shared("derived/emit_layout.nc", None);
    check_shared("derived/neon_layout.h5", None);
    check_shared("derived/m3_v73.mat", None);
    let Some(path) = shared("derived/generic.h5") else { return };
    let truth = truth(&shared("").unwrap(), "derived/generic.h5");
    for variable in ["/scan/cube", "scan/cube", "cube", "cube_bsq", "/scan/cube_bsq", "CUBE"] {
        let source = open(&path, Some(variable));
        check_against_truth(&*source, &truth);
        assert_eq!(source.info().wavelength.as_ref().map(Vec::len), Some(83));
    }
}

#[test]
fn two_real_cubes_are_ambiguous() {
    let Some(path) = shared("derived/generic.h5") else { return };
    let error = hsipack_source::open(&path, &options(None)).err().unwrap();
    assert_says(
        &error,
        ErrorKind::Ambiguous,
        &["generic.h5::/scan/cube (50x50x83 ", "::/scan/cube_bsq (83x50x50 "],
    );
    let error = hsipack_source::open(&path, &options(Some("scan"))).err().unwrap();
    assert_says(&error, ErrorKind::Ambiguous, &["cube_bsq"]);
}

#[test]
fn prisma_has_two_cubes_with_their_own_bands() {
    let Some(path) = shared("derived/prisma_layout.he5") else { return };
    let error = hsipack_source::open(&path, &options(None)).err().unwrap();
    assert_says(
        &error,
        ErrorKind::Ambiguous,
        &[
            "prisma_layout.he5::",
            "Data Fields/VNIR_Cube (10x83x10 uint16)",
            "SWIR_Cube (10x207x10 uint16)",
        ],
    );
    let vnir = open(&path, Some("VNIR_Cube")).info().clone();
    assert_eq!(vnir.format, "PRISMA L2D (HDF-EOS5)");
    let nm = vnir.wavelength.unwrap();
    assert!((nm[0] - 969.5268).abs() < 1e-3 && nm[0] > nm[10]);
    assert_eq!(vnir.fwhm.unwrap()[0], 10.0);
    let good = vnir.good_bands.unwrap();
    assert_eq!(good.iter().filter(|good| !**good).count(), 3);
    assert_eq!(good[80..], [false; 3]);
    let low = f64::from(0.016_905_582_f32);
    let high = f64::from(0.374_696_22_f32);
    assert_eq!(vnir.scaling, Scaling { multiply: high - low, divide: 65535.0, add: low });
    assert_eq!(vnir.ignore_value, None);
    let swir = open(&path, Some("/HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube")).info().clone();
    assert!((swir.wavelength.unwrap()[0] - 2492.9238).abs() < 1e-3);
    assert_eq!(swir.scaling.add, f64::from(-0.01_f32));
}

#[test]
fn real_metadata_are_those_of_the_product() {
    let Some(path) = shared("derived/emit_layout.nc") else { return };
    let emit = open(&path, None).info().clone();
    assert!(emit.format.starts_with("EMIT L2A"), "{}", emit.format);
    assert_eq!(emit.ignore_value, Some(-9999.0));
    assert_eq!(emit.wavelength.as_ref().map(Vec::len), Some(285));
    assert!((emit.wavelength.unwrap()[0] - 381.0).abs() < 1.0);
    assert_eq!(emit.fwhm.map(|fwhm| fwhm.len()), Some(285));
    // The crop's header marks 41 bands bad.
    assert_eq!(emit.good_bands.unwrap().iter().filter(|good| !**good).count(), 41);
    assert!(emit.scaling.is_none());

    let neon = open(&shared("derived/neon_layout.h5").unwrap(), None).info().clone();
    assert!(neon.format.starts_with("NEON reflectance"), "{}", neon.format);
    assert_eq!(neon.ignore_value, Some(-9999.0));
    assert_eq!(neon.scaling, Scaling { divide: 10000.0, ..Scaling::NONE });
    assert_eq!(neon.wavelength.map(|nm| nm.len()), Some(83));
    assert_eq!(neon.fwhm.map(|fwhm| fwhm.len()), Some(83));
    assert_eq!(neon.good_bands, None);

    let mat = open(&shared("derived/m3_v73.mat").unwrap(), None).info().clone();
    assert_eq!(mat.format, "MATLAB v7.3");
    assert_eq!(mat.wavelength, None);
}

#[test]
fn other_products_are_known_by_their_layout() {
    let prisma = info("prisma_l1.he5", Some("VNIR_Cube"));
    assert_eq!(prisma.format, "PRISMA L1 (HDF-EOS5)");
    assert_eq!(prisma.scaling, Scaling { multiply: 1.0, divide: 100.0, add: -0.25 });
    let good = prisma.good_bands.unwrap();
    assert!(!good[0] && good[1] && !good[10] && !good[11], "flagged, and without wavelength");
    assert_says(&error("prisma_l1.he5", None), ErrorKind::Ambiguous, &["HCO", "SWIR_Cube"]);
    assert!(!error("prisma_l1.he5", None).to_string().contains("HRC"));

    let aviris = info("aviris.nc", None);
    assert!(aviris.format.starts_with("AVIRIS"));
    close(aviris.wavelength.as_ref(), &wavelengths());
    close(aviris.fwhm.as_ref(), &[5.25; 12]);
    assert_eq!(aviris.ignore_value, Some(-9999.0));
    assert_eq!(info("aviris.nc", Some("reflectance")).shape, aviris.shape);

    let emit = info("emit_l1b.nc", None);
    assert!(emit.format.starts_with("EMIT L1B"));
    assert_eq!(emit.wavelength, Some(wavelengths()));

    let neon = info("neon.h5", None);
    assert_eq!((neon.ignore_value, neon.scaling.divide), (Some(-9999.0), 10000.0));
    let inside = |nm: &f64| (600.0..=700.0).contains(nm) || (900.0..=950.0).contains(nm);
    let good: Vec<bool> = wavelengths().iter().map(|nm| !inside(nm)).collect();
    assert!(good.contains(&false));
    assert_eq!(neon.good_bands, Some(good));

    let delmic = info("delmic.h5", None);
    assert!(delmic.format.starts_with("Delmic"));
    close(delmic.wavelength.as_ref(), &wavelengths());
}

#[test]
fn neon_radiance_is_refused_with_a_remedy() {
    let whole = error("neon_radiance.h5", None);
    assert_says(&whole, ErrorKind::Unsupported, &["RadianceDecimalPart", "sum"]);
    let part = error("neon_radiance.h5", Some("RadianceIntegerPart"));
    assert_says(&part, ErrorKind::Unsupported, &["neither of which is the cube"]);
}

#[test]
fn attributes_travel_along() {
    let info = info("attributes.h5", None);
    close(info.wavelength.as_ref(), &wavelengths());
    close(info.fwhm.as_ref(), &[5.25; 12]);
    let mut good = vec![true; 12];
    good[10] = false;
    assert_eq!(info.good_bands, Some(good));
    assert_eq!(info.ignore_value, Some(-32768.0));
    assert_eq!(info.scaling, Scaling { multiply: 0.0001, divide: 1.0, add: -0.5 });
    assert_eq!(info.notes, Vec::<String>::new());
}

#[test]
fn lists_that_do_not_fit_are_skipped_with_a_note() {
    let info = info("misfit.h5", None);
    assert_eq!(info.wavelength, None);
    assert!(
        info.notes.iter().any(|note| note.contains("5 values for 12 bands")),
        "{:?}",
        info.notes
    );
    assert_eq!(info.scaling.divide, 10000.0);
    assert!(info.notes.iter().any(|note| note.contains("Scale_Factor")));
    assert_eq!(info.ignore_value, Some(-1.0));
    assert!(info.notes.iter().any(|note| note.contains("-9999")), "{:?}", info.notes);
}

#[test]
fn wavenumbers_are_no_wavelengths() {
    let info = info("wavenumbers.h5", None);
    assert_eq!(info.wavelength, None);
    assert!(info.notes.iter().any(|note| note.contains("cm-1")), "{:?}", info.notes);
}

#[test]
fn netcdf_dimensions_tell_the_axes() {
    let dims = info("dims.nc", None);
    assert_eq!(dims.format, "NetCDF-4");
    close(dims.wavelength.as_ref(), &wavelengths());
    assert_eq!(dims.ignore_value, Some(-9999.0));
    // A dimension without a variable is stored as zeros, which are not wavelengths.
    assert_eq!(info("bare_dims.nc", None).wavelength, None);
}

#[test]
fn micrometres_become_nanometres() {
    close(info("orders.h5", Some("flat/byx")).wavelength.as_ref(), &wavelengths());
}

#[test]
fn axes_that_cannot_be_told_are_asked_for() {
    let unknown = error("no_wavelength.h5", None);
    assert_says(&unknown, ErrorKind::Ambiguous, &["7x9x12", "give the order of axes with axes"]);
    let square = error("square.h5", None);
    assert_says(
        &square,
        ErrorKind::Ambiguous,
        &["12x9x12", "more than one axis", "give the order of axes with axes"],
    );
    let options = OpenOptions { axes: Axes::parse("yxb"), ..Default::default() };
    let source = with("no_wavelength.h5", &options);
    check_against_truth(&*source, &truth(&fixture(""), "hdf5/no_wavelength.h5"));
    let options = OpenOptions { axes: Axes::parse("bxy"), ..Default::default() };
    assert_eq!(with("no_wavelength.h5", &options).info().shape, CubeShape::new(12, 9, 7));
    let square = with("square.h5", &options);
    assert_eq!(square.info().shape, CubeShape::new(12, 9, 12));
    assert_eq!(square.info().wavelength, Some(wavelengths()));
}

#[test]
fn matlab_axes_are_counted_as_matlab_counts_them() {
    let options = OpenOptions {
        variable: Some("other".into()),
        axes: Axes::parse("xyb"),
        ..Default::default()
    };
    // MATLAB's size(other) is 5 x 6 x 4.
    assert_eq!(with("v73.mat", &options).info().shape, CubeShape::new(6, 5, 4));
    let struct_field = info("v73.mat", Some("scene"));
    assert_eq!(struct_field.wavelength, Some(wavelengths()));
    assert_eq!(info("v73.mat", Some("good")).dtype, DType::Bool);
    // Four bands of bytes are pictures, and the content of #refs# belongs to MATLAB.
    check_against_truth(
        &*with("v73.mat", &Default::default()),
        &truth(&fixture(""), "hdf5/v73.mat#cube"),
    );
}

#[test]
fn masks_are_images_or_layers() {
    let mask = |variable: &str, axes: Option<&str>| OpenOptions {
        variable: Some(variable.into()),
        axes: axes.and_then(Axes::parse),
        mask: true,
        ..Default::default()
    };
    for (name, axes) in [("labels", None), ("layers", Some("yxb")), ("one", None)] {
        let source = with("masks.h5", &mask(name, axes));
        check_against_truth(&*source, &truth(&fixture(""), &format!("hdf5/masks.h5#{name}")));
    }
    // MATLAB's images are stored columns first.
    let matlab = with("v73.mat", &mask("gt", None));
    check_against_truth(&*matlab, &truth(&fixture(""), "hdf5/masks.h5#labels"));
    let refused = error("masks.h5", Some("labels"));
    assert_says(&refused, ErrorKind::Unsupported, &["2-D", "7x9", "as a mask with mask"]);
    // The only image of class ids is chosen, although the file also contains a cube.
    let Some(path) = shared("derived/m3_v73.mat") else { return };
    let options = OpenOptions { mask: true, variable: Some("map".into()), ..Default::default() };
    let map = hsipack_source::open(&path, &options).unwrap();
    assert_eq!(map.info().shape, CubeShape::new(50, 50, 1));
    let options = OpenOptions { mask: true, ..Default::default() };
    let map = hsipack_source::open(&path, &options).unwrap();
    assert_eq!((map.info().shape.bands, map.info().dtype), (1, DType::U8));
}

#[test]
fn links_and_equal_names_are_sorted_out() {
    // Hard links to one dataset are one candidate. Cycles are not followed forever.
    assert_eq!(info("links.h5", None).shape, CubeShape::new(7, 9, 12));
    let twice = error("names.h5", Some("cube"));
    assert_says(&twice, ErrorKind::Ambiguous, &["::/day1/cube (7x9x12 uint16)", "::/day2/cube"]);
    assert_says(&error("names.h5", None), ErrorKind::Ambiguous, &["/day1/cube", "/day2/cube"]);
    assert_eq!(info("names.h5", Some("day1")).shape, CubeShape::new(7, 9, 12));
    let missing = error("names.h5", Some("radiance"));
    assert!(missing.to_string().contains("no dataset 'radiance'"), "{missing}");
    assert!(missing.to_string().contains("/day2/wavelength (12 float64)"), "{missing}");
    let dangling = error("links.h5", Some("dangling"));
    assert!(dangling.to_string().contains("no dataset 'dangling'"), "{dangling}");
}

#[test]
fn other_arrays_are_refused() {
    for (name, words) in [
        ("image", "2-D"),
        ("complex", "holds"),
        ("text", "string"),
        ("table", "compound"),
        ("enum", "enum"),
        ("empty", "empty"),
        ("null", "0-D"),
        ("list", "1-D"),
        ("long_double", "not numbers"),
    ] {
        let error = error("not_cubes.h5", Some(name));
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    assert_says(
        &error("not_cubes.h5", None),
        ErrorKind::Unsupported,
        &["no 3-D array", "can be a mask"],
    );
    assert_says(&error("nothing.h5", None), ErrorKind::Unsupported, &["holds nothing"]);
    assert_says(&error("five.h5", Some("stack")), ErrorKind::Unsupported, &["4-D", "2x3x4x5"]);
}

#[test]
fn a_filter_that_is_missing_is_named() {
    let error = error("blosc.h5", None);
    assert_says(&error, ErrorKind::Unsupported, &["Blosc", "32001", "h5repack"]);
}

#[test]
fn virtual_cubes_need_their_files() {
    assert_says(&error("virtual_missing.h5", None), ErrorKind::Io, &["gone.h5", "missing"]);
}

#[test]
fn damaged_files_are_errors() {
    for name in ["cut.h5", "only_signature.h5"] {
        assert_says(&error(name, None), ErrorKind::Malformed, &["copy the file again"]);
    }
    assert_says(
        &error("huge.h5", Some("wide")),
        ErrorKind::Malformed,
        &["claims to be 2x1099511627776x12"],
    );
    assert_says(&error("huge.h5", Some("overflow")), ErrorKind::Malformed, &["impossibly large"]);
    // libhdf5 itself would never return from this one.
    assert_says(&error("damaged_heap.nc", None), ErrorKind::Malformed, &["heap of texts"]);
    let path = fixture("hdf5/damaged_chunk.h5");
    let source = open(&path, None);
    let error = source.read_rows(0..7, &mut RowBuffer::new()).unwrap_err();
    assert_says(&error, ErrorKind::Malformed, &["cannot read rows 0 to 6"]);
    assert_eq!(error.path(), Some(&*path));
}

#[test]
fn values_in_other_files_are_not_followed() {
    let outside = error("external_storage.h5", None);
    assert_says(&outside, ErrorKind::Unsupported, &["/cube", "external storage", "h5repack"]);
    // Wavelengths are not read from there either.
    assert_eq!(info("external_wavelengths.h5", None).wavelength, None);
    for name in ["cube", "/group/cube", "group/wavelength"] {
        let link = error("external_link.h5", Some(name));
        assert_says(&link, ErrorKind::Unsupported, &["external link", "not followed"]);
    }
    assert_says(&error("external_link.h5", None), ErrorKind::Unsupported, &["holds nothing"]);
    assert_says(&error("links.h5", Some("outside")), ErrorKind::Unsupported, &["external link"]);
}

/// A folder with copies of fixtures, as pairs of `from` and `to`.
fn folder_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    for (from, to) in files {
        std::fs::copy(fixture(&format!("hdf5/{from}")), folder.path().join(to)).unwrap();
    }
    folder
}

fn refused_at(path: &Path, kind: ErrorKind, words: &[&str]) {
    let error = hsipack_source::open(path, &options(None)).err().expect("this is refused");
    assert_says(&error, kind, words);
    assert_eq!(error.path(), Some(path), "{error}");
    assert!(error.remedy().is_some(), "{error}");
}

#[test]
fn virtual_cubes_are_made_of_files_in_their_folder_and_below() {
    let named: Vec<_> = info("virtual_bands.h5", None)
        .files
        .iter()
        .map(|file| file.canonicalize().unwrap())
        .collect();
    let parts = ["virtual_bands.h5", "parts/half0.h5", "parts/half1.h5"];
    let parts = parts.map(|name| fixture(&format!("hdf5/{name}")).canonicalize().unwrap());
    assert_eq!(named, parts, "all files of the cube are known");
    assert_eq!(info("virtual_nested.h5", None).files.len(), 4);
    assert_eq!(info("virtual_own.h5", Some("cube")).files.len(), 1);

    for name in ["parts/upward.h5", "parts/absolute.h5"] {
        let path = fixture(&format!("hdf5/{name}"));
        refused_at(&path, ErrorKind::Unsupported, &["virtual dataset", "not in the folder"]);
    }
    // Also if a link leads out of the folder.
    let outside = folder_of(&[("parts/half0.h5", "half0.h5"), ("parts/half1.h5", "half1.h5")]);
    let folder =
        folder_of(&[("virtual_bands.h5", "cube.h5"), ("parts/half1.h5", "parts/half1.h5")]);
    let cube = folder.path().join("cube.h5");
    refused_at(&cube, ErrorKind::Io, &["'parts/half0.h5'", "missing"]);
    let part = folder.path().join("parts/half0.h5");
    std::os::unix::fs::symlink(outside.path().join("half0.h5"), &part).unwrap();
    refused_at(&cube, ErrorKind::Unsupported, &["'parts/half0.h5'", "not in the folder"]);
    std::fs::remove_file(&part).unwrap();
    // A link within the folder is fine, and so is a link to the cube itself.
    std::fs::copy(outside.path().join("half0.h5"), folder.path().join("kept.h5")).unwrap();
    std::os::unix::fs::symlink("../kept.h5", &part).unwrap();
    let link = outside.path().join("link.h5");
    std::os::unix::fs::symlink(&cube, &link).unwrap();
    for path in [&cube, &link] {
        check_against_truth(&*open(path, None), &truth(&fixture(""), "hdf5/virtual_bands.h5"));
    }
}

#[test]
fn parts_of_virtual_cubes_are_looked_at_before_libhdf5_reads_them() {
    // Reading a pipe would wait forever.
    let folder =
        folder_of(&[("virtual_bands.h5", "cube.h5"), ("parts/half1.h5", "parts/half1.h5")]);
    let pipe = folder.path().join("parts/half0.h5");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let cube = folder.path().join("cube.h5");
    refused_at(&cube, ErrorKind::Unsupported, &["'parts/half0.h5'", "not a regular file"]);
    // A different file from the one that the cube was made of.
    std::fs::remove_file(&pipe).unwrap();
    std::fs::copy(fixture("hdf5/whole.h5"), &pipe).unwrap();
    refused_at(&cube, ErrorKind::Malformed, &["'parts/half0.h5::bands'", "cannot open"]);
    std::fs::write(&pipe, "no HDF5").unwrap();
    refused_at(&cube, ErrorKind::Malformed, &["'parts/half0.h5::bands'"]);
    // External storage behind a virtual dataset, and a virtual dataset that is part of itself.
    let folder =
        folder_of(&[("virtual_nested.h5", "cube.h5"), ("external_storage.h5", "parts/inner.h5")]);
    let cube = folder.path().join("cube.h5");
    refused_at(&cube, ErrorKind::Unsupported, &["external storage"]);
    std::fs::copy(&cube, folder.path().join("parts/inner.h5")).unwrap();
    std::os::unix::fs::symlink(".", folder.path().join("parts/parts")).unwrap();
    refused_at(&cube, ErrorKind::Unsupported, &["contain themselves"]);
}

/// Reads a cube if it can be opened. It must never panic.
fn try_everything(path: &Path) {
    if let Ok(source) = hsipack_source::open(path, &options(None)) {
        let rows = source.info().shape.rows;
        let mut out = RowBuffer::new();
        if source.info().shape.row_values() < 1 << 20 {
            let _ = source.read_rows(0..1, &mut out);
            let _ = source.read_rows(rows - 1..rows, &mut out);
        }
    }
}

#[test]
fn mutated_and_cut_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 20_261_121_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for name in ["whole.h5", "v73.mat", "aviris.nc", "attributes.h5", "links.h5"] {
        let bytes = std::fs::read(fixture(&format!("hdf5/{name}"))).unwrap();
        for round in 0..100 {
            let mut mutant = bytes.clone();
            for _ in 0..=round % 5 {
                let at = random(mutant.len());
                mutant[at] = random(256) as u8;
            }
            if round % 8 == 7 {
                mutant.truncate(random(bytes.len()));
            }
            let path = folder.path().join(format!("m-{name}"));
            std::fs::write(&path, &mutant).unwrap();
            try_everything(&path);
        }
    }
}

#[test]
fn reads_that_follow_the_chunks_are_recommended() {
    let source = open(&fixture("hdf5/orders.h5"), Some("chunked/yxb"));
    // Chunks span 4 rows of 216 bytes; two buffers.
    assert_eq!(source.preferred_rows(1 << 20), 7);
    assert_eq!(source.preferred_rows(0), 1);
    assert_eq!(source.preferred_rows(2 * 5 * 216 + 120), 4);
}

#[test]
fn several_threads_may_read_at_once() {
    let source = open(&fixture("hdf5/orders.h5"), Some("chunked/byx"));
    let mut whole = RowBuffer::new();
    source.read_rows(0..7, &mut whole).unwrap();
    std::thread::scope(|scope| {
        for row in 0..7 {
            let (source, whole) = (&source, &whole);
            scope.spawn(move || {
                let mut out = RowBuffer::new();
                source.read_rows(row..row + 1, &mut out).unwrap();
                assert_eq!(out.bytes(), &whole.bytes()[row * 216..][..216]);
            });
        }
    });
}
