//! ENVI files.

use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};
use hsipack_source::{Access, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

use crate::common::{
    canonical_sha256, check_against_truth, check_fixture, fixture, open, shared, truth,
};
use crate::opening::check_shared;

fn open_mask(path: &Path) -> Box<dyn Source> {
    let options = OpenOptions { mask: true, ..Default::default() };
    hsipack_source::open(path, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn try_open(path: &Path) -> Result<Box<dyn Source>> {
    hsipack_source::open(path, &OpenOptions::default())
}

fn refusal(path: &Path) -> Error {
    match try_open(path) {
        Ok(source) => panic!("{} opened as {:?}", path.display(), source.info()),
        Err(error) => {
            assert!(error.remedy().is_some(), "no remedy: {error}");
            assert!(error.path().is_some(), "no path: {error}");
            error
        }
    }
}

/// The numbers in braces after `key` in a header, found without the reader under test.
fn list(header: &Path, key: &str) -> Vec<f64> {
    let text = fs::read_to_string(header).unwrap();
    let (_, tail) = text.split_once(&format!("\n{key} = {{")).unwrap();
    let (list, _) = tail.split_once('}').unwrap();
    list.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

#[test]
fn real_cubes_have_the_values_other_readers_find() {
    for (data, header) in [
        ("envi/corn-kernel-hyperspectral.raw", "envi/corn-kernel-hyperspectral.hdr"),
        ("envi/darkReference", "envi/darkReference.hdr"),
        ("envi/fenix_Radiometric_8x2_1x1.dat", "envi/fenix_Radiometric_8x2_1x1.hdr"),
        ("envi/emit20250324t221005_jpl_unmix_ex", "envi/emit20250324t221005_jpl_unmix_ex.hdr"),
        ("envi_malformed/darkReference2", "envi_malformed/darkReference2.hdr"),
        ("derived/m3_scaled.dat", "derived/m3_scaled.dat.hdr"),
        ("derived/emit_nan_inf.img", "derived/emit_nan_inf.hdr"),
    ] {
        check_shared(data, None);
        check_shared(data, Some(header));
    }
}

#[test]
fn every_type_interleave_and_byte_order_of_the_same_crop_is_read() {
    for name in [
        "corn_bip_be_off128",
        "corn_bil_gz",
        "corn_bsq_u8",
        "corn_bsq_i16",
        "corn_bip_i32",
        "corn_bil_f64",
        "corn_bsq_u32_be",
        "corn_bip_i64",
        "corn_bil_u64",
    ] {
        let data = format!("derived/{name}.img");
        check_shared(&data, None);
        check_shared(&data, Some(&format!("derived/{name}.hdr")));
    }
}

#[test]
fn fixtures_have_the_values_that_were_written() {
    for name in [
        "bsq_little_u1",
        "bsq_little_i2",
        "bsq_big_i4",
        "bsq_big_f4",
        "bil_little_f8",
        "bil_little_u2",
        "bil_big_u4",
        "bil_big_i8",
        "bip_little_u8",
        "bip_little_u1",
        "bip_big_i2",
        "bip_big_i4",
        "gzip_bsq_offset",
        "gzip_bil_offset",
        "gzip_bip_offset",
    ] {
        let name = format!("envi/{name}.img");
        check_fixture(&name);
        let header = fixture(&name.replace(".img", ".hdr"));
        check_against_truth(&*open(&header, None), &truth(&fixture(""), &name));
    }
    for (data, header) in [
        ("envi/one_row", "envi/one_row.hdr"),
        ("envi/metadata.dat", "envi/metadata.dat.hdr"),
        ("envi/SPELLING.BSQ", "envi/SPELLING.HDR"),
        ("envi/gzip_two_members.img.gz", "envi/gzip_two_members.img.hdr"),
    ] {
        check_fixture(data);
        check_against_truth(&*open(&fixture(header), None), &truth(&fixture(""), data));
    }
}

#[test]
fn wavelengths_of_real_cubes_are_those_of_their_headers_in_nm() {
    for (name, count, first, last, with_fwhm) in [
        ("corn-kernel-hyperspectral", 580, 366.551, 1048.421, false),
        ("darkReference", 978, 379.027, 1000.95, false),
        ("emit20250324t221005_jpl_unmix_ex", 285, 381.0055927, 2492.9238809, true),
        ("fenix_Radiometric_8x2_1x1", 363, 379.87, 2503.73, true),
    ] {
        let Some(header) = shared(&format!("envi/{name}.hdr")) else { return };
        let source = open(&header, None);
        let info = source.info();
        let wavelength = info.wavelength.as_deref().unwrap();
        assert_eq!(wavelength.len(), count, "{name}");
        assert_eq!(wavelength[0], first, "{name}");
        assert_eq!(wavelength[count - 1], last, "{name}");
        assert_eq!(wavelength, list(&header, "wavelength"), "{name}");
        assert_eq!(info.fwhm.is_some(), with_fwhm, "{name}");
        if let Some(fwhm) = &info.fwhm {
            assert_eq!(*fwhm, list(&header, "fwhm"), "{name}");
        }
        assert!(info.scaling.is_none() && info.class_names.is_none(), "{name}");
    }
}

#[test]
fn the_emit_crop_brings_its_bad_bands_names_and_ignore_value() {
    let Some(header) = shared("envi/emit20250324t221005_jpl_unmix_ex.hdr") else { return };
    let source = open(&header, None);
    let info = source.info();
    let good = info.good_bands.as_deref().unwrap();
    assert_eq!(good.iter().filter(|good| !**good).count(), 41);
    assert_eq!(info.ignore_value, Some(-9999.0));
    let names = info.band_names.as_deref().unwrap();
    assert_eq!(
        (names.len(), names[0].as_str(), names[284].as_str()),
        (285, "channel_0", "channel_284")
    );
    assert_eq!(info.notes, ["the header gives no wavelength unit; assumed to be nanometres"]);

    // Exactly the bands that the list marks as bad contain only -0.01.
    let mut rows = RowBuffer::new();
    source.read_rows(0..10, &mut rows).unwrap();
    for (band, good) in good.iter().enumerate() {
        let values = rows.as_slice::<f32>().iter().skip(band).step_by(285);
        assert_eq!(values.clone().count(), 100);
        assert_eq!(values.clone().all(|value| *value == -0.01), !good, "band {band}");
    }
}

#[test]
fn headers_of_derived_cubes_are_read() {
    let Some(m3) = shared("derived/m3_scaled.dat") else { return };
    let source = open(&m3, None);
    let info = source.info();
    assert_eq!(info.format, "ENVI BSQ");
    assert_eq!(info.scaling, Scaling { divide: 10000.0, ..Scaling::NONE });
    assert_eq!(info.ignore_value, Some(-9999.0));
    let bad: Vec<usize> =
        (0..83).filter(|band| !info.good_bands.as_ref().unwrap()[*band]).collect();
    assert_eq!(bad, [0, 1, 82]);
    assert_eq!(info.files, [m3.clone(), m3.with_file_name("m3_scaled.dat.hdr")]);

    let source = open(&shared("derived/emit_nan_inf.hdr").unwrap(), None);
    assert_eq!(source.info().ignore_value, Some(-9999.0));
    assert_eq!(source.info().wavelength.as_ref().unwrap()[0], 381.006);
    assert_eq!(source.info().notes, [""; 0]);

    let source = open(&shared("derived/corn_bil_gz.hdr").unwrap(), None);
    assert_eq!(source.info().format, "ENVI BIL, gzip");
    assert_eq!(source.access(), Access::Sequential);
    assert_eq!(source.info().wavelength.as_ref().unwrap()[..2], [478.241, 479.371]);
}

#[test]
fn a_missing_byte_order_is_guessed_and_noted() {
    let Some(corn) = shared("envi/corn-kernel-hyperspectral.raw") else { return };
    let source = open(&corn, None);
    assert_eq!(
        source.info().notes,
        ["the header gives no byte order; assumed to be little-endian"]
    );
    assert_eq!(source.info().shape, CubeShape::new(31, 43, 580));
    assert_eq!(source.access(), Access::Random);
}

#[test]
fn a_wavelength_list_of_the_wrong_length_is_dropped_and_noted() {
    let Some(header) = shared("envi_malformed/darkReference2.hdr") else { return };
    let source = open(&header, None);
    assert_eq!(source.info().wavelength, None);
    assert_eq!(
        source.info().notes,
        ["`wavelength` has 35 values for 978 bands, so it is not used"]
    );
}

#[test]
fn an_unknown_interleave_is_refused() {
    let Some(header) = shared("envi_malformed/darkReference4.hdr") else { return };
    let error = refusal(&header);
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert_eq!(error.path(), Some(header.as_path()));
    assert_eq!(
        (error.what(), error.remedy()),
        ("interleave is 'bup'", Some(&"use bsq, bil or bip".into()))
    );
}

#[test]
fn a_header_without_its_data_lists_the_names_tried() {
    let Some(header) = shared("envi_malformed/image_no_data_upper_BSQ.hdr") else { return };
    let error = refusal(&header);
    assert_eq!(error.path(), Some(header.as_path()));
    assert!(error.what().contains("missing"), "{error}");
    for name in ["image_no_data_upper_BSQ,", "image_no_data_upper_BSQ.raw", "BSQ.bsq"] {
        assert!(error.remedy().unwrap().to_string().contains(name), "{error}");
    }
}

#[test]
fn the_esri_header_of_a_camera_is_read() {
    let Some(data) = shared("envi_malformed/darkReference_arcgis") else { return };
    for path in [data.with_file_name("darkReference_arcgis.hdr"), data] {
        let source = open(&path, None);
        check_against_truth(
            &*source,
            &truth(&shared("").unwrap(), "envi_malformed/darkReference_arcgis"),
        );
        let info = source.info();
        assert_eq!(info.format, "ESRI BIL");
        assert_eq!(info.wavelength, None);
        assert_eq!(info.notes, ["WAVELENGTHS has 636 numbers for 978 bands, so it is not used"]);
    }
}

#[test]
fn esri_headers_with_padding_are_refused_if_the_size_agrees() {
    let header = "NROWS 3\nNCOLS 4\nNBANDS 2\nNBITS 16\nLAYOUT BIL\nBANDROWBYTES 10\n";
    let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.bil", &counting(SIZE))]);
    assert_eq!(open(&folder.path("x.bil"), None).info().shape, CubeShape::new(3, 4, 2));
    fs::write(folder.path("x.bil"), counting(SIZE + 12)).unwrap();
    let error = refusal(&folder.path("x.bil"));
    assert!(error.what().contains("BANDROWBYTES is 10, not 8"), "{error}");
}

#[test]
fn the_reference_system_of_an_esri_header_is_in_a_prj_file() {
    let header = "NROWS 3\nNCOLS 4\nNBANDS 2\nNBITS 16\nULXMAP 615\nULYMAP 485\nXDIM 30\nYDIM 30\n";
    let folder = Folder::new(&[
        ("x.hdr", header.as_bytes()),
        ("x.bil", &counting(SIZE)),
        ("x.prj", b"EPSG:32632"),
    ]);
    let source = open(&folder.path("x.hdr"), None);
    let geo = source.info().geo.as_ref().unwrap();
    assert_eq!(geo.crs.as_deref(), Some("EPSG:32632"));
    assert_eq!(geo.transform, [600.0, 30.0, 0.0, 500.0, 0.0, -30.0]);
}

#[test]
fn complex_cubes_are_refused() {
    for name in ["derived/corn_bsq_c64.hdr", "derived/corn_bsq_c128.img"] {
        let Some(path) = shared(name) else { return };
        let error = refusal(&path);
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.what().contains("complex"), "{error}");
    }
}

#[test]
fn metadata_written_by_spectral_comes_back() {
    let source = open(&fixture("envi/metadata.dat.hdr"), None);
    let info: &CubeInfo = source.info();
    let close = |got: &[f64], want: &[f64]| {
        assert_eq!(got.len(), want.len());
        got.iter()
            .zip(want)
            .for_each(|(got, want)| assert!((got - want).abs() < 1e-3, "{got} {want}"));
    };
    let want: Vec<f64> = (0..12).map(|i| 400.0 + 600.0 * f64::from(i) / 11.0).collect();
    close(info.wavelength.as_ref().unwrap(), &want);
    close(info.fwhm.as_ref().unwrap(), &[5.25; 12]);
    let good: Vec<bool> = (0..12).map(|band| band != 0 && band != 11).collect();
    assert_eq!(info.good_bands.as_deref(), Some(good.as_slice()));
    assert_eq!(info.band_names.as_ref().unwrap()[11], "band 11");
    assert_eq!(info.ignore_value, Some(-9999.0));
    assert_eq!(info.scaling, Scaling { divide: 4000.0, ..Scaling::NONE });
    assert_eq!(info.notes, [""; 0]);
    let mut row = RowBuffer::new();
    source.read_rows(0..1, &mut row).unwrap();
    assert_eq!(row.as_slice::<i16>()[..36], [-9999; 36]);
}

#[test]
fn a_classification_map_is_a_mask_with_class_names_and_no_cube() {
    for name in ["envi/classes.hdr", "envi/classes.img"] {
        let source = open_mask(&fixture(name));
        check_against_truth(&*source, &truth(&fixture(""), "envi/classes.img"));
        assert_eq!(
            source.info().class_names.as_ref().unwrap().join(" "),
            "none tumour vessel bone"
        );
        let error = refusal(&fixture(name));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.remedy().unwrap().to_string().contains("use it as labels, with mask"),
            "{error}"
        );
    }
}

// The following tests build small files: a cube of 3 lines, 4 samples, 2 bands, u16.

const KEYS: &str =
    "ENVI\nlines = 3\nsamples = 4\nbands = 2\ndata type = 12\ninterleave = bil\nbyte order = 0\n";
const SIZE: usize = 3 * 4 * 2 * 2;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, bytes) in files {
            fs::write(folder.path(name), bytes).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn data_opened_by(&self, name: &str) -> String {
        let source = open(&self.path(name), None);
        source.info().files[0].file_name().unwrap().to_str().unwrap().to_owned()
    }
}

fn counting(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn of_several_candidates_the_one_of_the_right_size_is_taken() {
    let (right, wrong) = (counting(SIZE), counting(SIZE + 2));
    let folder = Folder::new(&[
        ("x.hdr", KEYS.as_bytes()),
        ("x", &wrong),
        ("x.img", &wrong),
        ("x.raw", &right),
        ("x.log", &right),
    ]);
    assert_eq!(folder.data_opened_by("x.hdr"), "x.raw");
    fs::remove_file(folder.path("x.raw")).unwrap();
    assert_eq!(folder.data_opened_by("x.hdr"), "x.log");
    // A file of the wrong size is refused, even if it is named, as long as another file fits exactly.
    let error = refusal(&folder.path("x.img"));
    assert!(error.what().contains("x.log"), "{error}");
    fs::remove_file(folder.path("x.log")).unwrap();
    assert_eq!(folder.data_opened_by("x.hdr"), "x");
    assert_eq!(folder.data_opened_by("x.img"), "x.img");
}

#[test]
fn two_candidates_of_the_right_size_are_ambiguous_unless_one_is_named_like_the_interleave() {
    let (first, other) = (counting(SIZE), vec![7; SIZE]);
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.dat", &first), ("x.raw", &other)]);
    let error = refusal(&folder.path("x.hdr"));
    assert_eq!(error.kind(), ErrorKind::Ambiguous);
    assert!(error.what().contains("x.dat, x.raw"), "{error}");
    assert_eq!(folder.data_opened_by("x.raw"), "x.raw");

    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.bsq", &first), ("x.BIL", &other)]);
    assert_eq!(folder.data_opened_by("x.hdr"), "x.BIL");
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.bsq", &first), ("x.raw", &other)]);
    assert_eq!(folder.data_opened_by("x.hdr"), "x.raw");
    // A second name of the same file is not a second candidate.
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.dat", &first)]);
    fs::hard_link(folder.path("x.dat"), folder.path("x.raw")).unwrap();
    assert_eq!(folder.data_opened_by("x.hdr"), "x.dat");
}

#[test]
fn a_header_is_never_taken_for_data() {
    // Without a suffix, its own name is the first place to look.
    let folder = Folder::new(&[("x", KEYS.as_bytes())]);
    assert!(refusal(&folder.path("x")).what().contains("missing"));
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.hdr.hdr", KEYS.as_bytes())]);
    assert!(refusal(&folder.path("x.hdr.hdr")).what().contains("missing"));
    // A header that is padded to exactly the size of its data.
    let layout = KEYS.replace("lines = 3", "lines = 10").replace("samples = 4", "samples = 5");
    let header = format!("{:100}", layout.replace("= 12", "= 1"));
    assert_eq!(header.len(), 10 * 5 * 2);
    let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.txt", header.as_bytes())]);
    assert!(refusal(&folder.path("x.hdr")).what().contains("missing"));
}

#[test]
fn the_nearer_of_two_headers_is_taken_unless_only_the_other_fits() {
    let data = counting(SIZE);
    let turned = KEYS.replace("lines = 3", "lines = 4").replace("samples = 4", "samples = 3");
    let larger = KEYS.replace("lines = 3", "lines = 30");
    let shape = |folder: &Folder| open(&folder.path("x.img"), None).info().shape;
    let folder = Folder::new(&[
        ("x.img", &data),
        ("x.img.hdr", turned.as_bytes()),
        ("x.hdr", KEYS.as_bytes()),
    ]);
    assert_eq!(shape(&folder), CubeShape::new(4, 3, 2));
    for unfit in [larger.as_str(), "ENVI\nlines = 3"] {
        fs::write(folder.path("x.img.hdr"), unfit).unwrap();
        assert_eq!(shape(&folder), CubeShape::new(3, 4, 2));
    }
    fs::remove_file(folder.path("x.hdr")).unwrap();
    assert!(refusal(&folder.path("x.img")).what().contains("the header lacks"));
}

#[test]
fn short_data_are_refused_with_both_sizes_and_what_would_fit() {
    for (interleave, remedy) in [("bil", "it holds 2 whole lines"), ("bsq", "correct the header")] {
        let header = KEYS.replace("bil", interleave) + "header offset = 5\n";
        let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.img", &counting(SIZE + 4))]);
        for name in ["x.hdr", "x.img"] {
            let error = refusal(&folder.path(name));
            assert_eq!(error.kind(), ErrorKind::Malformed);
            assert_eq!(error.path(), Some(folder.path("x.img").as_path()));
            for part in ["has 52 bytes", "requires 53", "offset 5 + 3 lines x 4 samples x 2 bands"]
            {
                assert!(error.what().contains(part), "{part}: {error}");
            }
            assert!(error.remedy().unwrap().to_string().ends_with(remedy), "{error}");
        }
    }
}

#[test]
fn bytes_behind_the_cube_are_noted_and_not_read() {
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.img", &counting(SIZE + 9))]);
    let source = open(&folder.path("x.hdr"), None);
    assert_eq!(source.info().notes, ["9 bytes after the cube are not used"]);
    let exact = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.img", &counting(SIZE))]);
    let exact = open(&exact.path("x.hdr"), None);
    assert_eq!(canonical_sha256(&*source, 3), canonical_sha256(&*exact, 3));
}

#[test]
fn gzip_is_known_by_its_magic_number_too() {
    let data = counting(SIZE);
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.img.gz", &gzip(&data))]);
    for name in ["x.hdr", "x.img.gz"] {
        let source = open(&folder.path(name), None);
        assert_eq!(source.info().notes, ["the data are gzip, though the header does not say so"]);
        let mut rows = RowBuffer::new();
        source.read_rows(2..3, &mut rows).unwrap();
        assert_eq!(rows.as_slice::<u16>()[..2], [0x2120, 0x2928]);
    }
    // Plain data may start like gzip by chance. If they have exactly the right size, they are plain.
    let mut chance = data.clone();
    chance[..3].copy_from_slice(&[0x1F, 0x8B, 8]);
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.img", &chance)]);
    let source = open(&folder.path("x.hdr"), None);
    assert_eq!((source.info().format.as_str(), source.access()), ("ENVI BIL", Access::Random));
}

#[test]
fn gzip_that_is_short_damaged_or_none_is_an_error() {
    let header = format!("{KEYS}file compression = 1\n");
    let read = |data: &[u8]| -> Result<()> {
        let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.img", data)]);
        try_open(&folder.path("x.hdr"))?.read_rows(0..3, &mut RowBuffer::new())
    };
    let sound = gzip(&counting(SIZE));
    read(&sound).unwrap();
    read(&gzip(&counting(SIZE + 5))).unwrap();
    let mut damaged = sound.clone();
    let position = damaged.len() - 6; // in the checksum
    damaged[position] ^= 1;
    for (data, what) in [
        (gzip(&counting(SIZE - 1)), "the compressed data end before byte 48"),
        (sound[..sound.len() - 20].to_vec(), "the compressed data end before byte 48"),
        (damaged, "cannot decompress"),
        (counting(SIZE - 1), "but it is not"),
        (counting(SIZE + 1), "but it is not"),
    ] {
        let error = read(&data).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.what().contains(what), "{error}");
        assert!(error.path().unwrap().ends_with("x.img"), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.img", &counting(SIZE))]);
    let source = open(&folder.path("x.hdr"), None);
    assert_eq!(source.info().notes, ["the header says gzip, but the data are not compressed"]);
}

#[test]
fn gzip_that_cannot_hold_the_cube_is_refused_on_opening() {
    let header = KEYS.replace("lines = 3", "lines = 3000000");
    let folder = Folder::new(&[("x.hdr", header.as_bytes()), ("x.img.gz", &gzip(&counting(SIZE)))]);
    let error = refusal(&folder.path("x.hdr"));
    assert!(error.what().contains("cannot hold the 48000000"), "{error}");
}

#[test]
fn data_without_a_header_and_headers_that_are_none_are_refused_by_name() {
    let folder = Folder::new(&[
        ("x.raw", &[1, 2, 3]),
        ("y", &[1, 2, 3]),
        ("analyze.hdr", b"\x5c\x01\0\0dsr"),
        ("radiance.hdr", b"#?RADIANCE\nFORMAT=32-bit_rle_rgbe\n"),
    ]);
    let error = refusal(&folder.path("x.raw"));
    assert!(error.what().contains("there is no x.hdr or x.raw.hdr beside it"), "{error}");
    assert_eq!(refusal(&folder.path("y")).what(), "not a cube in any format hsipack knows");
    for name in ["analyze.hdr", "radiance.hdr"] {
        let error = refusal(&folder.path(name));
        assert!(error.what().contains("not an ENVI header"), "{error}");
        assert_eq!(error.path(), Some(folder.path(name).as_path()));
    }
    assert!(refusal(&folder.path("radiance.hdr")).what().contains("#?RADIANCE"));
}

#[test]
fn a_spectral_library_is_refused_for_what_it_is() {
    let header = format!("{KEYS}file type = ENVI Spectral Library\n");
    let folder = Folder::new(&[("lib.hdr", header.as_bytes()), ("lib.sli", &counting(SIZE))]);
    for name in ["lib.hdr", "lib.sli"] {
        let error = refusal(&folder.path(name));
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.what().contains("spectral library"), "{error}");
        assert_eq!(error.path(), Some(folder.path("lib.hdr").as_path()));
    }
}

#[test]
fn a_huge_header_is_refused_without_reading_it_whole() {
    let mut header = KEYS.as_bytes().to_vec();
    header.resize((4 << 20) + 1, b'\n');
    let folder = Folder::new(&[("x.hdr", &header), ("x.img", &counting(SIZE))]);
    assert!(refusal(&folder.path("x.hdr")).what().contains(&format!("at most {}", 4 << 20)));
    header.pop();
    fs::write(folder.path("x.hdr"), &header).unwrap();
    assert_eq!(open(&folder.path("x.img"), None).info().dtype, DType::U16);
}

#[test]
fn a_variable_is_refused_and_an_axis_order_noted() {
    let folder = Folder::new(&[("x.hdr", KEYS.as_bytes()), ("x.img", &counting(SIZE))]);
    let options = OpenOptions { variable: Some("cube".to_owned()), ..Default::default() };
    let Err(error) = hsipack_source::open(&folder.path("x.hdr"), &options) else {
        panic!("opened")
    };
    assert_eq!(error.remedy(), Some(&"leave out ::cube".into()));
    let axes = hsipack_source::Axes::parse("bxy");
    let options = OpenOptions { axes, ..Default::default() };
    let source = hsipack_source::open(&folder.path("x.hdr"), &options).unwrap();
    assert_eq!(source.info().notes, ["axes bxy are not used: the header says bil"]);
}

#[test]
fn lines_behind_the_cube_are_a_note_and_a_second_cube_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let header = "ENVI\nsamples = 3\nlines = 2\nbands = 4\ndata type = 1\ninterleave = bil\nbyte order = 0\n";
    std::fs::write(folder.path().join("cube.hdr"), header).unwrap();
    let open = |bytes: usize| {
        std::fs::write(folder.path().join("cube.img"), vec![7; bytes]).unwrap();
        hsipack_source::open(&folder.path().join("cube.hdr"), &Default::default())
    };
    let padded = open(24 + 11).unwrap();
    assert!(padded.info().notes.iter().any(|note| note.contains("11 bytes")));
    let longer = open(24 + 12).unwrap();
    assert_eq!(longer.info().notes, ["12 bytes (a whole line) after the cube are not used"]);
    for bytes in [48, 72] {
        let error = open(bytes).err().unwrap().to_string();
        assert!(
            error.contains("cube.img") && error.contains(&format!("has {bytes} bytes")),
            "{error}"
        );
    }
}

#[test]
fn a_header_of_another_sort_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cube.hdr"), "something else\n").unwrap();
    std::fs::write(folder.path().join("cube.img"), [0; 24]).unwrap();
    let error = hsipack_source::open(&folder.path().join("cube.img"), &Default::default());
    let error = error.err().unwrap().to_string();
    assert!(error.contains("cube.hdr: not an ENVI header"), "{error}");
}
