//! TIFF, GeoTIFF and BigTIFF files.

use std::path::Path;

use hsipack_format::{DType, ErrorKind};
use hsipack_source::{Access, AxisOrder, OpenOptions, RowBuffer, Scaling};
use proptest::prelude::*;

use crate::common::{
    canonical_sha256, check_against_truth, check_fixture, fixture, open, shared, truth,
};
use crate::opening::check_shared;

const M3: &str = "tiff/M3_4030seg_L2_aristcrater.tif";

#[test]
fn real_and_derived_files_have_the_values_other_readers_find() {
    check_shared(M3, None);
    check_shared("derived/corn_multipage_deflate.tif", None);
    check_shared("derived/m3_planar_be_bigtiff.tif", None);
    check_shared("derived/m3_contig_lzw_pred3_tiled.tif", None);
}

#[test]
fn moon_mineralogy_mapper_tile_has_its_wavelengths() {
    let Some(path) = shared(M3) else { return };
    let source = open(&path, None);
    let info = source.info();
    let wavelength = info.wavelength.as_ref().unwrap();
    assert_eq!(wavelength.len(), 83);
    assert_eq!(
        (wavelength[0], wavelength[1], wavelength[82]),
        (540.840027, 580.76001, 2976.199951)
    );
    assert_eq!(info.ignore_value, Some(-999.0));
    assert!(info.scaling.is_none());
    let names = info.band_names.as_ref().unwrap();
    assert_eq!(names[1], "Resize (Band 4:M3G20090205T074030_V01_RFL.IMG) (580.760010)");
    assert_eq!(info.notes, Vec::<String>::new());
    assert_eq!(info.dtype, DType::F32);
    assert_eq!(source.access(), Access::Random);
}

#[test]
fn every_layout_compression_predictor_type_and_byte_order_reads() {
    for name in [
        "contig_u16_strips",
        "contig_gdal",
        "contig_f32_deflate_pred3",
        "contig_f64_lzw_pred3_be",
        "contig_u16_lzw_pred2_tiled",
        "contig_i64_tiled_be",
        "contig_f16_one_strip",
        "contig_rgb_and_more",
        "rgb",
        "planar_i16_zstd",
        "planar_u32_lzw_be",
        "planar_f32_tiled_big",
        "pages_f64_zstd_be",
        "pages_u8_packbits",
        "pages_i8",
        "pages_i32_tiled",
        "pages_u64_big_be",
        "pages_white_is_zero",
        "pages_pyramid",
        "sparse_tiles",
        "imagej_headless",
        "tifffile_truncated",
    ] {
        eprintln!("{name}");
        check_fixture(&format!("tiff/{name}.tif"));
    }
}

#[test]
fn gdal_metadata_give_the_bands_their_meaning() {
    let source = open(&fixture("tiff/contig_gdal.tif"), None);
    let info = source.info();
    let expected: Vec<f64> = (0..12).map(|band| 400.0 + 600.0 / 11.0 * f64::from(band)).collect();
    let close = |got: &[f64], expected: &[f64]| {
        assert_eq!(got.len(), expected.len());
        for (got, expected) in got.iter().zip(expected) {
            assert!((got - expected).abs() < 2e-3, "{got} {expected}");
        }
    };
    close(info.wavelength.as_ref().unwrap(), &expected);
    close(info.fwhm.as_ref().unwrap(), &[5.25; 12]);
    let good: Vec<bool> = (0..12).map(|band| band != 3).collect();
    assert_eq!(info.good_bands.as_ref().unwrap(), &good);
    assert_eq!(info.scaling, Scaling { multiply: 0.0001, divide: 1.0, add: -0.1 });
    assert_eq!(info.ignore_value, Some(-9999.0));
    assert_eq!(info.band_names.as_ref().unwrap()[7], "band 7 & co");
    assert_eq!(info.format, "TIFF");
}

#[test]
fn guesses_and_omissions_are_noted() {
    let has_note = |name: &str, what: &str| {
        let source = open(&fixture(name), None);
        let notes = source.info().notes.join("; ");
        assert!(notes.contains(what), "{name}: {notes}");
    };
    has_note("tiff/rgb.tif", "RGB");
    has_note("tiff/pages_pyramid.tif", "5 pages are reduced copies");
    has_note("tiff/pages_white_is_zero.tif", "zero is white");
    has_note("tiff/sparse_tiles.tif", "lacks some");
}

#[test]
fn masks_of_any_depth_are_one_band_of_class_numbers() {
    let options = OpenOptions { mask: true, ..Default::default() };
    for name in ["u8", "palette", "1bit", "2bit", "4bit"] {
        let name = format!("tiff/mask_{name}.tif");
        let source = hsipack_source::open(&fixture(&name), &options).unwrap();
        check_against_truth(&*source, &truth(&fixture(""), &name));
        let error = hsipack_source::open(&fixture(&name), &OpenOptions::default()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.remedy().unwrap().to_string().contains("for a mask, use mask"), "{error}");
    }
    let layers = hsipack_source::open(&fixture("tiff/pages_u8_packbits.tif"), &options).unwrap();
    assert_eq!(layers.info().shape.bands, 12);
}

#[test]
fn the_user_can_say_that_pages_are_image_rows() {
    let path = fixture("tiff/pages_i8.tif");
    let plain = open(&path, None);
    let mut all = RowBuffer::new();
    plain.read_rows(0..7, &mut all).unwrap();
    let value = |y: usize, x: usize, b: usize| all.as_slice::<i8>()[(y * 9 + x) * 12 + b];
    // The file is (page 12, row 7, column 9).
    for text in ["yxb", "ybx", "xyb", "bxy", "xby"] {
        let axes = AxisOrder::parse(text).unwrap();
        let options = OpenOptions { axes: Some(axes.into()), ..Default::default() };
        let source = hsipack_source::open(&path, &options).unwrap();
        let shape = source.info().shape;
        assert_eq!(axes.lengths(shape), [12, 7, 9], "{text}");
        assert!((1..=shape.rows).contains(&source.preferred_rows(1 << 20)));
        let mut row = RowBuffer::new();
        for y in 0..shape.rows {
            source.read_rows(y..y + 1, &mut row).unwrap();
            for x in 0..shape.columns {
                for b in 0..shape.bands {
                    let at = axes.0.map(|axis| match axis {
                        hsipack_source::Axis::Row => y,
                        hsipack_source::Axis::Column => x,
                        hsipack_source::Axis::Band => b,
                    });
                    assert_eq!(
                        row.as_slice::<i8>()[x * shape.bands + b],
                        value(at[1], at[2], at[0])
                    );
                }
            }
        }
    }
}

#[test]
fn files_without_one_clear_cube_are_refused_with_a_remedy() {
    let refused = |name: &str, kind: ErrorKind, what: &str| {
        let path = fixture(name);
        let error = hsipack_source::open(&path, &OpenOptions::default()).err().unwrap();
        assert_eq!(error.path(), Some(path.as_path()), "{error}");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.what().contains(what), "{error}");
        error
    };
    refused("tiff/refused_pages_differ.tif", ErrorKind::Ambiguous, "1-2: 7x9x1 uint16, 3: 4x9x1");
    refused(
        "tiff/refused_two_cubes.tif",
        ErrorKind::Ambiguous,
        "12 samples per pixel each: several cubes",
    );
    refused("tiff/refused_4d.tif", ErrorKind::Unsupported, "2x12");
    refused("tiff/refused_complex.tif", ErrorKind::Unsupported, "complex");
    let error = refused("tiff/refused_lzma.tif", ErrorKind::Unsupported, "LZMA");
    assert!(error.remedy().unwrap().to_string().contains("gdal_translate"));
    let options = OpenOptions { variable: Some("a".to_owned()), ..Default::default() };
    assert!(hsipack_source::open(&fixture("tiff/rgb.tif"), &options).is_err());
}

/// Opens and reads changed bytes. Returns the text of the error, or the hash of all values.
fn outcome(bytes: Vec<u8>) -> Result<String, String> {
    let mask = OpenOptions { mask: true, ..Default::default() };
    let source =
        hsipack_source::tiff::open_bytes(bytes, &mask).map_err(|error| error.to_string())?;
    let shape = source.info().shape;
    let preferred = source.preferred_rows(1 << 20);
    assert!((1..=shape.rows).contains(&preferred));
    // A fuzzed file may declare a large size, but not a larger one than its bytes allow.
    if shape.checked_values().is_none_or(|values| values > 1 << 22) {
        return Ok("large".to_owned());
    }
    let mut buffer = RowBuffer::new();
    for start in (0..shape.rows).step_by(preferred) {
        let rows = start..shape.rows.min(start + preferred);
        source.read_rows(rows, &mut buffer).map_err(|error| error.to_string())?;
    }
    Ok(canonical_sha256(&*source, shape.rows))
}

fn bytes_of(name: &str) -> Vec<u8> {
    std::fs::read(fixture(&format!("tiff/{name}.tif"))).unwrap()
}

#[test]
fn files_cut_short_anywhere_are_errors() {
    for name in ["contig_f32_deflate_pred3", "planar_u32_lzw_be", "pages_u64_big_be", "mask_1bit"] {
        let bytes = bytes_of(name);
        let whole = outcome(bytes.clone()).unwrap();
        for len in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
            // The removed bytes may be unused, but removing them never changes a value.
            if let Ok(hash) = outcome(bytes[..len].to_vec()) {
                assert_eq!(hash, whole, "{name} cut to {len} bytes");
            }
        }
        assert!(outcome(bytes[..bytes.len() / 2].to_vec()).is_err());
    }
}

/// Sets the value of an inline tag in the first directory of a little-endian classic TIFF.
fn with_tag(mut bytes: Vec<u8>, tag: u16, value: u32) -> Vec<u8> {
    let at = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
    for entry in bytes[at + 2..][..count * 12].chunks_exact_mut(12) {
        if entry[..2] == tag.to_le_bytes() {
            entry[2..4].copy_from_slice(&4u16.to_le_bytes());
            entry[4..8].copy_from_slice(&1u32.to_le_bytes());
            entry[8..].copy_from_slice(&value.to_le_bytes());
            return bytes;
        }
    }
    panic!("no tag {tag}");
}

#[test]
fn crafted_headers_are_refused_before_memory_is_taken() {
    let bytes = || bytes_of("contig_f16_one_strip");
    assert!(outcome(bytes()).is_ok());
    for (tag, value) in [
        (256, 0xFFFF_FFF0), // width
        (257, 0xFFFF_FFF0), // height
        (277, 65_535),      // samples
        (277, 0),
        (278, 0),           // rows per strip
        (279, 0xFFFF_FFFF), // strip length
        (273, 0xFFFF_FF00), // strip offset
        (258, 0),           // bits
        (258, 24),
        (259, 7), // JPEG
        (339, 6), // complex
    ] {
        let error = outcome(with_tag(bytes(), tag, value)).unwrap_err();
        assert!(!error.is_empty(), "tag {tag}: {error}");
    }
    // The directory names itself as the next one.
    let mut circle = bytes();
    let at = u32::from_le_bytes(circle[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(circle[at..at + 2].try_into().unwrap()));
    circle[at + 2 + count * 12..][..4].copy_from_slice(&(at as u32).to_le_bytes());
    assert!(outcome(circle).unwrap_err().contains("loop"));
}

#[test]
fn plain_strips_without_byte_counts_are_as_long_as_their_pixels() {
    for name in ["contig_u16_strips", "pages_i8"] {
        let bytes = bytes_of(name);
        let mut uncounted = bytes.clone();
        let mut at = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        while at != 0 {
            let count = usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
            for entry in uncounted[at + 2..][..count * 12].chunks_exact_mut(12) {
                if entry[..2] == 279u16.to_le_bytes() {
                    entry[..2].copy_from_slice(&65_000u16.to_le_bytes());
                }
            }
            let next = at + 2 + count * 12;
            at = u32::from_le_bytes(bytes[next..next + 4].try_into().unwrap()) as usize;
        }
        assert_ne!(bytes, uncounted);
        assert_eq!(outcome(uncounted).unwrap(), outcome(bytes).unwrap());
    }
    let compressed = bytes_of("contig_f16_one_strip");
    let at = u32::from_le_bytes(compressed[4..8].try_into().unwrap()) as usize;
    let tag =
        compressed[at..].windows(2).position(|pair| pair == 279u16.to_le_bytes()).unwrap() + at;
    let mut uncounted = compressed;
    uncounted[tag..tag + 2].copy_from_slice(&65_000u16.to_le_bytes());
    assert!(outcome(uncounted).unwrap_err().contains("how long"));
}

#[test]
fn a_damaged_strip_is_an_error_that_names_file_page_and_strip() {
    let mut bytes = bytes_of("planar_i16_zstd");
    let len = bytes.len();
    bytes[len - 40..].fill(0xAA);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.tif");
    std::fs::write(&path, bytes).unwrap();
    let source = open(&path, None);
    let error = source.read_rows(0..7, &mut RowBuffer::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    let text = error.to_string();
    assert!(text.contains("damaged.tif: page 1, band 12, strip"), "{text}");
}

#[test]
fn several_threads_read_one_source() {
    let source = open(&fixture("tiff/contig_f16_one_strip.tif"), None);
    let mut whole = RowBuffer::new();
    source.read_rows(0..7, &mut whole).unwrap();
    let (source, whole) = (&*source, &whole);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut row = RowBuffer::new();
                for y in (0..7).map(|y| (y * 3 + thread) % 7) {
                    source.read_rows(y..y + 1, &mut row).unwrap();
                    assert_eq!(row.bytes(), &whole.bytes()[y * 9 * 12 * 2..][..9 * 12 * 2]);
                }
            });
        }
    });
}

#[test]
fn rows_are_asked_for_in_whole_strips_or_tiles_within_the_budget() {
    let preferred = |name: &str, budget| open(&fixture(name), None).preferred_rows(budget);
    assert_eq!(preferred("tiff/contig_u16_lzw_pred2_tiled.tif", 1 << 30), 37);
    let row = 2 * 21 * 12 * 2;
    assert_eq!(preferred("tiff/contig_u16_lzw_pred2_tiled.tif", 20 * row), 16);
    assert_eq!(preferred("tiff/contig_u16_lzw_pred2_tiled.tif", 5 * row), 5);
    assert_eq!(preferred("tiff/contig_u16_lzw_pred2_tiled.tif", 0), 1);
}

#[test]
fn hundreds_of_pages_open_and_read() {
    // The directories of one file with repeated bands: 480 pages share the values of 12 bands.
    let mut bytes = bytes_of("pages_i8");
    let mut directories = Vec::new();
    let u32_at =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut at = u32_at(&bytes, 4) as usize;
    while at != 0 {
        let count = usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()));
        directories.push(bytes[at..at + 2 + count * 12].to_vec());
        at = u32_at(&bytes, at + 2 + count * 12) as usize;
    }
    assert_eq!(directories.len(), 12);
    let start = bytes.len();
    bytes[4..8].copy_from_slice(&(start as u32).to_le_bytes());
    for page in 0..480 {
        bytes.extend(&directories[page % 12]);
        let next = if page == 479 { 0 } else { bytes.len() as u32 + 4 };
        bytes.extend(next.to_le_bytes());
    }
    let source = hsipack_source::tiff::open_bytes(bytes, &OpenOptions::default()).unwrap();
    assert_eq!(source.info().shape.bands, 480);
    let mut rows = RowBuffer::new();
    source.read_rows(2..5, &mut rows).unwrap();
    let mut bands = RowBuffer::new();
    open(&fixture("tiff/pages_i8.tif"), None).read_rows(2..5, &mut bands).unwrap();
    for (many, few) in rows.bytes().chunks(480).zip(bands.bytes().chunks(12)) {
        assert!(many.chunks(12).all(|repeated| repeated == few));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300), big: bool) {
        let mut bytes = if big { b"MM\0\x2B".to_vec() } else { b"II\x2A\0\x08\0\0\0".to_vec() };
        bytes.extend(body);
        let _ = outcome(bytes);
    }

    #[test]
    fn changed_bytes_never_panic(
        name in prop::sample::select(vec![
            "contig_gdal", "contig_f32_deflate_pred3", "contig_f64_lzw_pred3_be", "planar_i16_zstd",
            "contig_i64_tiled_be", "pages_u8_packbits", "pages_u64_big_be", "sparse_tiles",
            "mask_1bit", "imagej_headless",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        in_head: bool,
    ) {
        let mut bytes = bytes_of(name);
        for (index, value) in changes {
            let len = if in_head { bytes.len().min(300) } else { bytes.len() };
            let at = index.index(len);
            bytes[at] = value;
        }
        let _ = outcome(bytes);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error =
        hsipack_source::open(Path::new("nowhere/none.tif"), &OpenOptions::default()).err().unwrap();
    assert!(error.to_string().contains("nowhere/none.tif"), "{error}");
}
