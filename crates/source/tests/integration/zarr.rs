//! Zarr v2 and v3 datasets.

use std::path::{Path, PathBuf};

use hsipack_format::ErrorKind;
use hsipack_source::{AxisOrder, OpenOptions, RowBuffer, Scaling, Source};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use crate::common::{check_against_truth, check_fixture, fixture, open, truth};
use crate::opening::check_shared;

#[test]
fn derived_datasets_have_the_values_other_readers_find() {
    check_shared("derived/corn_v3.zarr", None);
    check_shared("derived/m3_v2.zarr", None);
    check_shared("derived/m3_v3_shard.zarr", None);
}

#[test]
fn every_type_codec_and_byte_order_reads() {
    let types = [
        "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
        "float16", "float32", "float64",
    ];
    for name in types {
        check_fixture(&format!("zarr/v2_{name}.zarr"));
        check_fixture(&format!("zarr/v3_{name}.zarr"));
    }
    for name in [
        "v2_zlib_fortran",
        "v2_gzip_slash",
        "v2_zstd_xarray",
        "v3_blosc_named",
        "v3_transpose_gzip",
        "v3_shard_crc",
    ] {
        check_fixture(&format!("zarr/{name}.zarr"));
    }
}

fn close(got: &[f64], expected: impl Fn(f64) -> f64) {
    assert_eq!(got.len(), 12);
    for (band, got) in got.iter().enumerate() {
        let expected = expected(band as f64);
        assert!((got - expected).abs() < 2e-3, "{got} {expected}");
    }
}

#[test]
fn groups_as_xarray_writes_them_give_cube_and_wavelengths() {
    for version in [2, 3] {
        let name = format!("zarr/group_v{version}.zarr");
        for variable in ["", "#scene/reflectance", "#reflectance", "#scene"] {
            check_fixture(&format!("{name}{variable}"));
        }
        let source = open(&fixture(&name), Some("Reflectance"));
        let info = source.info();
        assert_eq!(info.format, format!("Zarr v{version}"));
        close(info.wavelength.as_ref().unwrap(), |band| 400.0 + 600.0 / 11.0 * band);
        close(info.fwhm.as_ref().unwrap(), |_| 5.25);
        let good: Vec<bool> = (0..12).map(|band| band != 3).collect();
        assert_eq!(info.good_bands.as_ref().unwrap(), &good);
        assert_eq!(info.notes, Vec::<String>::new());
    }
}

#[test]
fn attributes_give_wavelengths_ignore_value_and_scaling() {
    let source = open(&fixture("zarr/v3_blosc_named.zarr"), None);
    let info = source.info();
    close(info.wavelength.as_ref().unwrap(), |band| 400.0 + 600.0 / 11.0 * band);
    close(info.fwhm.as_ref().unwrap(), |_| 5.25);
    assert_eq!(info.ignore_value, Some(-9999.0));
    assert!(info.scaling.is_none());

    let source = open(&fixture("zarr/v2_zstd_xarray.zarr"), None);
    assert_eq!(source.info().ignore_value, Some(-9999.0));
    let scaling = Scaling { multiply: 0.0001, divide: 1.0, add: 0.5 };
    assert_eq!(source.info().scaling, scaling);
    // A fill value is only the content of chunks that were never written, not an ignore value.
    assert_eq!(open(&fixture("zarr/v2_uint16.zarr"), None).info().ignore_value, None);
}

#[test]
fn the_user_decides_on_axes_over_all_else() {
    let path = fixture("zarr/v3_blosc_named.zarr");
    let axes = AxisOrder::parse("yxb").unwrap();
    let options = OpenOptions { axes: Some(axes.into()), ..Default::default() };
    let shape = hsipack_source::open(&path, &options).unwrap().info().shape;
    assert_eq!((shape.rows, shape.columns, shape.bands), (9, 12, 7));
}

#[test]
fn without_names_the_band_axis_is_the_one_as_long_as_the_wavelengths() {
    let (_folder, path) = copy("v3_blosc_named.zarr");
    let text = std::fs::read_to_string(path.join("zarr.json")).unwrap();
    let mut metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    metadata.as_object_mut().unwrap().remove("dimension_names");
    std::fs::write(path.join("zarr.json"), metadata.to_string()).unwrap();
    let source = open(&path, None);
    let shape = source.info().shape;
    assert_eq!((shape.rows, shape.columns, shape.bands), (9, 7, 12));
    assert!(source.info().notes.is_empty());
    // Widths say as much as wavelengths.
    metadata["attributes"]["wavelength"] = json!([1.0, 2.0]);
    std::fs::write(path.join("zarr.json"), metadata.to_string()).unwrap();
    let source = open(&path, None);
    let shape = source.info().shape;
    assert_eq!((shape.rows, shape.columns, shape.bands), (9, 7, 12));
    assert_eq!(source.info().wavelength, None);
    let notes = source.info().notes.join("; ");
    assert!(notes.contains("2 values for 12 bands"), "{notes}");
    metadata["attributes"] = json!({});
    std::fs::write(path.join("zarr.json"), metadata.to_string()).unwrap();
    let source = open(&path, None);
    let shape = source.info().shape;
    assert_eq!((shape.rows, shape.columns, shape.bands), (9, 12, 7));
    let notes = source.info().notes.join("; ");
    assert!(notes.contains("nothing says what the axes are"), "{notes}");
}

#[test]
fn masks_are_one_band_whatever_their_axes_order() {
    let options = OpenOptions { mask: true, ..Default::default() };
    for name in ["zarr/mask.zarr", "zarr/mask_xy.zarr"] {
        let source = hsipack_source::open(&fixture(name), &options).unwrap();
        check_against_truth(&*source, &truth(&fixture(""), name));
        let error = hsipack_source::open(&fixture(name), &OpenOptions::default()).err().unwrap();
        assert!(error.remedy().unwrap().to_string().contains("as a mask with mask"), "{error}");
    }
    let options = OpenOptions { variable: Some("classes".to_owned()), ..options };
    let source = hsipack_source::open(&fixture("zarr/group_v3.zarr"), &options).unwrap();
    check_against_truth(&*source, &truth(&fixture(""), "zarr/mask.zarr"));
}

fn refused(path: &Path, variable: Option<&str>, kind: ErrorKind, what: &str) -> String {
    let options = OpenOptions { variable: variable.map(str::to_owned), ..Default::default() };
    let error =
        hsipack_source::open(path, &options).err().unwrap_or_else(|| panic!("{path:?} opens"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.path().unwrap().starts_with(path), "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    error.to_string()
}

#[test]
fn datasets_without_one_clear_cube_are_refused_with_a_remedy() {
    let two = fixture("zarr/two_cubes.zarr");
    let text = refused(&two, None, ErrorKind::Ambiguous, "two_cubes.zarr::cube0 (7x9x12 uint16)");
    assert!(text.contains("two_cubes.zarr::cube1 (7x9x12 float32)"), "{text}");
    check_fixture("zarr/two_cubes.zarr#cube0");
    check_fixture("zarr/two_cubes.zarr#cube1");
    refused(&two, Some("cube2"), ErrorKind::NotFound, "no variable 'cube2'; the file holds");
    let group = fixture("zarr/group_v3.zarr");
    refused(&group, Some("scene/wavelength"), ErrorKind::Unsupported, "1-D");
    let single = fixture("zarr/v3_uint8.zarr");
    refused(&single, Some("a"), ErrorKind::Unsupported, "single array");
    let fixture = |name: &str| fixture(&format!("zarr/{name}"));
    refused(&fixture("refused_4d.zarr"), None, ErrorKind::Unsupported, "4-D (2x7x9x12)");
    refused(&fixture("refused_complex.zarr"), None, ErrorKind::Unsupported, "complex64");
    refused(&fixture("refused_unwritten.zarr"), None, ErrorKind::Malformed, "no chunks");
    refused(&fixture("refused_lzma_v2.zarr"), None, ErrorKind::Unsupported, "lzma");
    refused(&fixture("refused_delta_v2.zarr"), None, ErrorKind::Unsupported, "delta");
    let text = refused(
        &fixture("packed.hsipack"),
        None,
        ErrorKind::Unsupported,
        "already a packed dataset",
    );
    assert!(text.contains("hsipack export") && text.contains("with append"), "{text}");
    let metadata = fixture("v3_uint8.zarr/zarr.json");
    let text = refused(&metadata, None, ErrorKind::Unsupported, "metadata of a Zarr dataset");
    assert!(text.contains("v3_uint8.zarr)"), "{text}");
}

/// A copy of a fixture that may be damaged.
fn copy(name: &str) -> (TempDir, PathBuf) {
    fn copy_folder(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let to = to.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => copy_folder(&entry.path(), &to),
                false => drop(std::fs::copy(entry.path(), to).unwrap()),
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.zarr");
    copy_folder(&fixture(&format!("zarr/{name}")), &path);
    (folder, path)
}

fn read_all(source: &dyn Source) -> hsipack_format::Result<Vec<u8>> {
    let mut rows = RowBuffer::new();
    source.read_rows(0..source.info().shape.rows, &mut rows)?;
    Ok(rows.bytes().to_vec())
}

#[test]
fn absurd_metadata_are_refused_before_memory_is_taken() {
    let chunk = "/chunk_grid/configuration/chunk_shape/0";
    let inner = "/codecs/0/configuration/chunk_shape/0";
    for (name, file, pointer, value) in [
        ("v3_float32.zarr", "zarr.json", chunk, json!(1_000_000_000_000u64)),
        ("v3_float32.zarr", "zarr.json", "/shape/1", json!(90_000_000_000u64)),
        ("v3_float32.zarr", "zarr.json", "/shape/0", json!(u64::MAX)),
        ("v3_float32.zarr", "zarr.json", "/shape/0", json!(0)),
        ("v3_float32.zarr", "zarr.json", "/shape/0", json!(-7)),
        ("v3_float32.zarr", "zarr.json", "/shape", json!("7")),
        ("v3_float32.zarr", "zarr.json", "/zarr_format", json!(4)),
        ("v3_float32.zarr", "zarr.json", "/chunk_grid/name", json!("rectilinear")),
        ("v3_float32.zarr", "zarr.json", "/codecs/0/name", json!("lerc")),
        ("v3_float32.zarr", "zarr.json", "/data_type", json!("string")),
        ("v3_shard_crc.zarr", "zarr.json", chunk, json!(6_000_000_000_000u64)),
        ("v3_shard_crc.zarr", "zarr.json", inner, json!(5)),
        ("v3_shard_crc.zarr", "zarr.json", inner, json!(0)),
        ("v2_float32.zarr", ".zarray", "/chunks/0", json!(4_000_000_000_000u64)),
        ("v2_float32.zarr", ".zarray", "/dtype", json!("|S4")),
        ("v2_float32.zarr", ".zarray", "/dtype", json!([["a", "<f4"]])),
        ("v2_float32.zarr", ".zarray", "/zarr_format", json!(1)),
        ("v2_float32.zarr", ".zarray", "", json!([])),
    ] {
        let (_folder, path) = copy(name);
        let text = std::fs::read_to_string(path.join(file)).unwrap();
        let mut metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
        *metadata.pointer_mut(pointer).unwrap() = value;
        std::fs::write(path.join(file), metadata.to_string()).unwrap();
        let error = hsipack_source::open(&path, &OpenOptions::default()).err();
        let error = error.unwrap_or_else(|| panic!("{name} with {pointer} changed opens"));
        assert!(error.path().unwrap().starts_with(&path), "{error}");
        std::fs::write(path.join(file), &text[..text.len() / 2]).unwrap();
        let error = hsipack_source::open(&path, &OpenOptions::default()).err().unwrap();
        assert!(error.to_string().contains("not JSON"), "{error}");
    }
}

#[test]
fn damaged_chunks_are_errors_that_name_the_dataset() {
    for (name, chunk) in [
        ("v3_float32.zarr", "c/0/0/0"),
        ("v3_blosc_named.zarr", "c/0/0/0"),
        ("v3_transpose_gzip.zarr", "c/0/0/0"),
        ("v3_shard_crc.zarr", "c/0/0/0"),
        ("v2_zlib_fortran.zarr", "0.0.0"),
        ("v2_zstd_xarray.zarr", "0.0.0"),
    ] {
        let (_folder, path) = copy(name);
        let file = path.join(chunk);
        let bytes = std::fs::read(&file).unwrap();
        let source = open(&path, None);
        assert!(read_all(&*source).is_ok());
        for len in [0, 1, 7, 16, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&file, &bytes[..len]).unwrap();
            let error = read_all(&*source).expect_err(&format!("{name} cut to {len}"));
            assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
            assert!(error.path().unwrap().starts_with(&path), "{error}");
        }
        std::fs::write(&file, &bytes).unwrap();
        assert!(read_all(&*source).is_ok());
    }
}

#[test]
fn shard_indexes_that_point_anywhere_are_errors() {
    let (_folder, path) = copy("v3_shard_crc.zarr");
    let text = std::fs::read_to_string(path.join("zarr.json")).unwrap();
    let mut metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Without a checksum, the index is trusted.
    let codecs = metadata.pointer_mut("/codecs/0/configuration/index_codecs").unwrap();
    assert_eq!(codecs.as_array_mut().unwrap().pop().unwrap()["name"], "crc32c");
    std::fs::write(path.join("zarr.json"), metadata.to_string()).unwrap();
    for shard in ["c/0/0/0", "c/1/0/0"] {
        let bytes = std::fs::read(path.join(shard)).unwrap();
        std::fs::write(path.join(shard), &bytes[..bytes.len() - 4]).unwrap();
    }
    let file = path.join("c/0/0/0");
    let bytes = std::fs::read(&file).unwrap();
    let source = open(&path, None);
    read_all(&*source).unwrap();
    // A shard has nine chunks: offset and length of the first one.
    let index = bytes.len() - 9 * 16;
    for (offset, size) in [
        (1 << 63, 1 << 63),
        (1 << 63, 1),
        (u64::MAX - 5, 100),
        (u64::MAX - 1, 1),
        (1 << 40, 100),
        (0, 1 << 40),
        (0, u64::MAX - 1),
    ] {
        let mut changed = bytes.clone();
        changed[index..index + 8].copy_from_slice(&offset.to_le_bytes());
        changed[index + 8..index + 16].copy_from_slice(&size.to_le_bytes());
        std::fs::write(&file, &changed).unwrap();
        for rows in [0..1, 0..6, 0..10] {
            let error = source
                .read_rows(rows.clone(), &mut RowBuffer::new())
                .expect_err(&format!("{offset} {size} {rows:?}"));
            assert!(error.path().unwrap().starts_with(&path), "{error}");
            // This is found before zarrs adds them up, which would panic.
            assert!(error.to_string().contains("refers to chunks outside it"), "{error}");
        }
    }
}

#[test]
fn rows_are_asked_for_in_whole_chunks_within_the_budget() {
    let preferred = |name: &str, budget| open(&fixture(name), None).preferred_rows(budget);
    let row = 3 * 9 * 12 * 2;
    assert_eq!(preferred("zarr/v3_shard_crc.zarr", 1 << 30), 10);
    assert_eq!(preferred("zarr/v3_shard_crc.zarr", 5 * row), 4);
    assert_eq!(preferred("zarr/v3_shard_crc.zarr", row), 1);
    assert_eq!(preferred("zarr/v3_shard_crc.zarr", 0), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn changed_bytes_never_panic(
        (name, file) in prop::sample::select(vec![
            ("v3_shard_crc.zarr", "zarr.json"), ("v3_shard_crc.zarr", "c/0/0/0"),
            ("v3_blosc_named.zarr", "zarr.json"), ("v3_blosc_named.zarr", "c/0/0/0"),
            ("v2_zlib_fortran.zarr", ".zarray"), ("v2_zstd_xarray.zarr", "0.0.0"),
            ("v2_zstd_xarray.zarr", ".zattrs"),
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (_folder, path) = copy(name);
        let file = path.join(file);
        let mut bytes = std::fs::read(&file).unwrap();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        std::fs::write(&file, bytes).unwrap();
        if let Ok(source) = hsipack_source::open(&path, &OpenOptions::default())
            && source.info().shape.values() < 1 << 22
        {
            let _ = read_all(&*source);
        }
    }
}
