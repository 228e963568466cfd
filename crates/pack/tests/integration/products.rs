//! Products of sensors: the metadata of a cube, in all places where makers write them.

use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{CubeShape, Error, ErrorKind};
use hsipack_pack::convert::parts::{self, Part, WorkOptions};
use hsipack_pack::convert::{ConvertOptions, ValueOptions};
use hsipack_pack::info::CubeReport;
use hsipack_pack::input::Input;
use hsipack_pack::physical::Cube;
use hsipack_pack::progress::Progress;
use hsipack_pack::search;
use hsipack_source::{CubeInfo, OpenOptions, Source};
use hsipack_store::Dataset;
use serde_json::Value;

use crate::common::{check_against_truth, check_fixture, fixture, open, shared, truth};
use crate::conversion::{content, pack};

const L1B: &str = "ENMAP01-____L1B-DT0000000001_20230612T102020Z_001_V010400_20240215T101112Z";
const L1C: &str = "ENMAP01-____L1C-DT0000000001_20230612T102020Z_001_V010400_20240215T101112Z";
const L2A: &str = "ENMAP01-____L2A-DT0000000001_20230612T102020Z_001_V010400_20240215T101112Z";
const DESIS: &str = "DESIS-HSI-L1C-DT0000000001_001-20200601T234520-V0210";
const WYVERN: &str = "wyvern_dragonette-001_20240808T073501_51b92993_l2a";
const AVIRIS: &str = "f080702t01p00r09rdn_c";

fn fixture_info(name: &str, variable: Option<&str>) -> CubeInfo {
    open(&fixture(&format!("products/{name}")), variable).info().clone()
}

/// A copy of a delivery among the fixtures, whose files may be renamed and changed.
struct Delivery(tempfile::TempDir);

impl Delivery {
    fn of(folder: &str) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for entry in fixture(&format!("products/{folder}")).read_dir().unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        Self(copy)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    fn change(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).unwrap();
        assert!(text.contains(from), "{name} has no {from}");
        fs::write(self.path(name), text.replace(from, to)).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }
}

fn open_error(path: &Path, variable: Option<&str>) -> Error {
    let options = OpenOptions { variable: variable.map(str::to_owned), ..Default::default() };
    hsipack_source::open(path, &options)
        .err()
        .unwrap_or_else(|| panic!("{} opened", path.display()))
}

fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for word in words {
        assert!(text.contains(word), "{text} lacks {word}");
    }
}

/// Count, minimum, maximum and sum of the finite physical values.
fn physical(source: &dyn Source) -> (u64, f64, f64, f64) {
    let (mut count, mut least, mut most, mut sum) = (0, f64::INFINITY, f64::NEG_INFINITY, 0.0);
    let cube = Cube::of_source(source);
    cube.read_rows(0..cube.shape.rows, &mut |_, _, values| {
        for value in values.iter().filter(|value| value.is_finite()) {
            (count, sum) = (count + 1, sum + value);
            (least, most) = (least.min(*value), most.max(*value));
        }
        Ok(())
    })
    .unwrap();
    (count, least, most, sum)
}

#[test]
fn stored_numbers_stay_as_they_are() {
    let text = fs::read_to_string(fixture("TRUTH.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let names = all.as_object().unwrap().keys().filter(|name| name.starts_with("products/"));
    let names: Vec<&String> = names.collect();
    assert!(names.len() > 14);
    names.into_iter().for_each(|name| check_fixture(name));
}

#[test]
fn enmap_bands_have_gains_of_their_own() {
    let info = fixture_info(&format!("enmap_l1c/{L1C}-SPECTRAL_IMAGE.TIF"), None);
    assert_eq!(info.format, "EnMAP L1C (GeoTIFF)");
    assert_eq!(info.unit.as_deref(), Some("W/(m2 sr nm)"));
    assert_eq!(info.ignore_value, Some(0.0));
    let scaling = info.band_scaling.as_ref().unwrap();
    assert_eq!((scaling[0].multiply, scaling[0].add), (1e-6, -0.02));
    assert_eq!((scaling[11].multiply, scaling[11].add), (2e-5, 0.01));
    let nm = info.wavelength.unwrap();
    assert_eq!((nm[0], nm[11], info.fwhm.unwrap()[3]), (400.0, 1000.0, 5.25));
    assert_eq!(info.geo.unwrap().crs.as_deref(), Some("EPSG:32632"));
    let names = info.band_names.unwrap();
    assert_eq!((names[4].as_str(), &names[5][..4]), ("VNIR 618.182 nm", "SWIR"));
    assert!(info.notes.iter().any(|note| note.contains("bands 3 to 6 are of both")));
    assert!(info.files[1].ends_with(format!("{L1C}-METADATA.xml")));
}

#[test]
fn enmap_l2a_has_bands_without_data() {
    let source = open(&fixture(&format!("products/enmap_l2a/{L2A}-METADATA.XML")), None);
    let info = source.info();
    assert_eq!(info.empty_bands, [7, 8]);
    assert_eq!((info.scaling.multiply, info.ignore_value), (0.0001, Some(-32768.0)));
    assert_eq!(info.band_scaling, None, "all are alike");
    let good = info.good_bands.as_ref().unwrap();
    assert!(good[6] && !good[7] && !good[8] && good[9]);
    let (count, least, most, _) = physical(&*source);
    assert_eq!(count, (7 * 9 - 3) * 10);
    assert!(0.0 < least && most <= 0.4, "{least} {most}");
}

#[test]
fn each_detector_of_enmap_l1b_has_its_bands() {
    let folder = fixture("products/enmap_l1b");
    let xml = folder.join(format!("{L1B}-METADATA.XML"));
    for (path, name) in [(&folder, "SWIR"), (&xml, "SWIR"), (&xml, "swir")] {
        let info = open(path, Some(name)).info().clone();
        assert_eq!(info.shape, CubeShape::new(7, 9, 7), "{}", path.display());
        assert_eq!(info.wavelength.unwrap()[0], 672.727);
        assert_eq!(info.band_scaling.unwrap()[6].multiply, 2e-5);
        assert_eq!(info.geo, None);
    }
    let vnir = fixture_info(&format!("enmap_l1b/{L1B}-SPECTRAL_IMAGE_VNIR.TIF"), None);
    assert_eq!((vnir.shape.bands, vnir.wavelength.unwrap()[0]), (5, 400.0));
    for path in [&folder, &xml] {
        assert_says(&open_error(path, None), ErrorKind::Ambiguous, &["::VNIR", "::SWIR"]);
        assert_says(&open_error(path, Some("NIR")), ErrorKind::Conflict, &["NIR", "::VNIR"]);
    }
    // Both are packed; quality layers and metadata are not cubes.
    for path in [&folder, &xml] {
        let inputs =
            search::expand(&[path.display().to_string()], &[], &ValueOptions::default()).unwrap();
        assert_eq!(inputs.len(), 2, "{inputs:?}");
    }
}

#[test]
fn enmap_files_are_known_by_all_their_names() {
    for (image, metadata) in [
        ("SPECTRAL_IMAGE.TIF", "METADATA.XML"),
        ("SPECTRAL_IMAGE.tif", "METADATA.xml"),
        ("SPECTRAL_IMAGE.GEOTIFF", "METADATA.XML"),
        ("SPECTRAL_IMAGE.geotiff", "METADATA.XML"),
        ("spectral_image.tif", "metadata.xml"),
        ("SPECTRAL_IMAGE_COG.TIF", "METADATA.XML"),
        ("SPECTRAL_IMAGE_COG.tiff", "METADATA.XML"),
    ] {
        let delivery = Delivery::of("enmap_l1c");
        delivery.rename(&format!("{L1C}-METADATA.xml"), &format!("{L1C}-{metadata}"));
        delivery.rename(&format!("{L1C}-SPECTRAL_IMAGE.TIF"), &format!("{L1C}-{image}"));
        for name in [format!("{L1C}-{image}"), format!("{L1C}-{metadata}"), String::new()] {
            let info = open(&delivery.path(&name), None).info().clone();
            assert!(info.band_scaling.is_some(), "{image} {metadata} {name}");
        }
    }
}

#[test]
fn enmap_as_envi_is_described_by_its_xml() {
    let delivery = Delivery::of("enmap_l1c");
    let stored = open(&delivery.path(&format!("{L1C}-SPECTRAL_IMAGE.TIF")), None);
    let mut rows = hsipack_source::RowBuffer::new();
    stored.read_rows(0..7, &mut rows).unwrap();
    delivery.remove(&format!("{L1C}-SPECTRAL_IMAGE.TIF"));
    fs::write(delivery.path(&format!("{L1C}-SPECTRAL_IMAGE.BIP")), rows.bytes()).unwrap();
    fs::write(
        delivery.path(&format!("{L1C}-SPECTRAL_IMAGE.HDR")),
        "ENVI\nsamples = 9\nlines = 7\nbands = 12\ndata type = 12\ninterleave = bip\n",
    )
    .unwrap();
    for name in ["SPECTRAL_IMAGE.BIP", "SPECTRAL_IMAGE.HDR", "METADATA.xml"] {
        let info = open(&delivery.path(&format!("{L1C}-{name}")), None).info().clone();
        assert_eq!(info.format, "EnMAP L1C (ENVI BIP)", "{name}");
        assert!(info.band_scaling.is_some(), "{name}");
    }
    let inputs =
        search::expand(&[delivery.0.path().display().to_string()], &[], &ValueOptions::default())
            .unwrap();
    assert_eq!(inputs.len(), 1, "{inputs:?}");
}

#[test]
fn enmap_parts_that_are_missing_or_disagree_are_named() {
    let image = format!("{L1C}-SPECTRAL_IMAGE.TIF");
    let xml = format!("{L1C}-METADATA.xml");
    let delivery = Delivery::of("enmap_l1c");
    delivery.remove(&xml);
    let error = open_error(&delivery.path(&image), None);
    assert_says(&error, ErrorKind::Malformed, &[&image, "METADATA.XML", "missing", "put "]);

    let delivery = Delivery::of("enmap_l1c");
    delivery.remove(&image);
    for name in [&xml, ""] {
        let error = open_error(&delivery.path(name), None);
        assert_says(&error, ErrorKind::Malformed, &["image", "missing", "-SPECTRAL_IMAGE.TIF"]);
    }

    for (from, to, what) in [
        ("<columns>9", "<columns>10", "7 x 9 pixels, not 7 x 10"),
        ("<level>L1C", "<level>L2A", "of L1C, not L2A"),
        ("number=\"12\"", "number=\"13\"", "1, 2, 3"),
        ("<GainOfBand>1e-06</GainOfBand>", "", "GainOfBand"),
        ("</level_X>", "", "XML"),
    ] {
        let delivery = Delivery::of("enmap_l1c");
        delivery.change(&xml, from, to);
        let error = open_error(&delivery.path(&image), None);
        assert!(error.to_string().contains(what) && error.to_string().contains(L1C), "{error}");
    }

    // Different bands: the metadata of one level with the image of another.
    let delivery = Delivery::of("enmap_l1b");
    delivery.rename(&format!("{L1B}-SPECTRAL_IMAGE_VNIR.TIF"), "a.tif");
    delivery.rename(
        &format!("{L1B}-SPECTRAL_IMAGE_SWIR.TIF"),
        &format!("{L1B}-SPECTRAL_IMAGE_VNIR.TIF"),
    );
    let error = open_error(&delivery.path(""), Some("VNIR"));
    assert_says(&error, ErrorKind::Conflict, &["7 bands, not 5", "METADATA.XML"]);

    let delivery = Delivery::of("enmap_l1c");
    delivery.rename(&image, &format!("{L1C}-SPECTRAL_IMAGE.JP2"));
    let error = open_error(&delivery.path(&xml), None);
    assert_says(&error, ErrorKind::Unsupported, &["JPEG 2000", "gdal_translate"]);
}

#[test]
fn an_enmap_patch_of_l2a_needs_no_xml() {
    let delivery = Delivery::of("enmap_l2a");
    delivery.remove(&format!("{L2A}-METADATA.XML"));
    let image = delivery.path(&format!("{L2A}-SPECTRAL_IMAGE.GEOTIFF"));
    let info = open(&image, None).info().clone();
    assert_eq!((info.scaling.multiply, info.ignore_value), (0.0001, Some(-32768.0)));
    assert_eq!(info.wavelength, None);
    assert!(info.notes.iter().any(|note| note.contains("METADATA.XML is missing")));
}

#[test]
fn several_products_in_a_folder_have_to_be_named() {
    let delivery = Delivery::of("enmap_l1c");
    for name in ["METADATA.XML", "SPECTRAL_IMAGE.GEOTIFF"] {
        let path = fixture(&format!("products/enmap_l2a/{L2A}-{name}"));
        fs::copy(&path, delivery.path(path.file_name().unwrap().to_str().unwrap())).unwrap();
    }
    let error = open_error(&delivery.path(""), None);
    assert_says(&error, ErrorKind::Ambiguous, &["several products", L1C, L2A]);
    let inputs =
        search::expand(&[delivery.0.path().display().to_string()], &[], &ValueOptions::default())
            .unwrap();
    assert_eq!(inputs.len(), 2, "{inputs:?}");
}

#[test]
fn desis_is_described_by_xml_or_header() {
    for (folder, name) in [
        ("desis_l1c", format!("{DESIS}-METADATA.xml")),
        ("desis_l1c", format!("{DESIS}-SPECTRAL_IMAGE.tif")),
        ("desis_l1c", String::new()),
        ("desis_l1b", format!("{}-SPECTRAL_IMAGE.hdr", DESIS.replace("L1C", "L1B"))),
    ] {
        let info = fixture_info(&format!("{folder}/{name}"), None);
        let level = if folder == "desis_l1c" { "L1C (GeoTIFF)" } else { "L1B (TIFF)" };
        assert_eq!(info.format, format!("DESIS {level}"), "{name}");
        assert_eq!(info.ignore_value, Some(-32768.0));
        assert_eq!(info.unit.as_deref(), Some("mW/(cm2 sr um)"));
        let scaling = info.band_scaling.unwrap();
        assert_eq!((scaling[11].multiply, scaling[11].add), (2e-5, 0.01));
        assert_eq!((info.wavelength.unwrap()[0], info.fwhm.unwrap()[0]), (400.0, 5.25));
    }
}

#[test]
fn desis_parts_that_are_missing_or_disagree_are_named() {
    let image = format!("{DESIS}-SPECTRAL_IMAGE.tif");
    let xml = format!("{DESIS}-METADATA.xml");
    let delivery = Delivery::of("desis_l1c");
    delivery.change(&xml, "<productType>L1C", "<productType>L1B");
    assert_says(&open_error(&delivery.path(&image), None), ErrorKind::Conflict, &["L1C, not L1B"]);
    delivery.remove(&xml);
    let error = open_error(&delivery.path(&image), None);
    assert_says(&error, ErrorKind::Malformed, &["METADATA.xml", "missing", ".hdr"]);
    let l2 = image.replace("L1C", "L2A");
    delivery.rename(&image, &l2);
    let info = open(&delivery.path(&l2), None).info().clone();
    assert_eq!((info.scaling.multiply, info.band_scaling), (0.0001, None));
}

#[test]
fn wyvern_l2a_is_scaled_though_no_tag_says_so() {
    for name in [format!("{WYVERN}.tiff"), format!("{WYVERN}.json"), String::new()] {
        let source = open(&fixture(&format!("products/wyvern_l2a/{name}")), None);
        let info = source.info();
        assert_eq!(info.format, "Wyvern L2A (GeoTIFF)");
        assert_eq!((info.scaling.multiply, info.ignore_value), (1e-4, Some(0.0)));
        let nm = info.wavelength.as_ref().unwrap();
        assert!(
            (nm[1] - 454.545).abs() < 1e-9 && (info.fwhm.as_ref().unwrap()[1] - 5.25).abs() < 1e-9
        );
        let (count, _, most, _) = physical(&*source);
        assert_eq!((count, most), ((7 * 9 - 3) * 12, 0.4));
    }
    let delivery = Delivery::of("wyvern_l2a");
    delivery.change(&format!("{WYVERN}.json"), "\"L2A\"", "\"L1B\"");
    let error = open_error(&delivery.path(&format!("{WYVERN}.tiff")), None);
    assert_says(&error, ErrorKind::Conflict, &["L2A, not L1B", ".json"]);
}

#[test]
fn aviris_classic_is_divided_by_its_gains() {
    let name = format!("aviris_classic/{AVIRIS}_sc01_ort_img");
    for name in [name.clone(), format!("{name}.hdr")] {
        let source = open(&fixture(&format!("products/{name}")), None);
        let info = source.info();
        assert_eq!(info.format, "AVIRIS classic (ENVI BIP)");
        assert_eq!(info.ignore_value, Some(-50.0));
        let divisors: Vec<f64> =
            info.band_scaling.as_ref().unwrap().iter().map(|band| band.divide).collect();
        assert_eq!([divisors[0], divisors[4], divisors[11]], [300.0, 600.0, 1200.0]);
        assert_eq!(info.wavelength.as_ref().unwrap()[11], 1000.0);
        assert_eq!(info.fwhm.as_ref().unwrap()[0], 5.25);
        assert_eq!(physical(&*source).0, (7 * 9 - 3) * 12);
    }
    let delivery = Delivery::of("aviris_classic");
    delivery.remove(&format!("{AVIRIS}.gain"));
    let error = open_error(&delivery.path(&format!("{AVIRIS}_sc01_ort_img")), None);
    assert_says(&error, ErrorKind::Malformed, &[".gain", "missing", "put it beside"]);
    fs::write(delivery.path(&format!("{AVIRIS}.gain")), "300 1\n300 2\n").unwrap();
    let error = open_error(&delivery.path(&format!("{AVIRIS}_sc01_ort_img")), None);
    assert_says(&error, ErrorKind::Conflict, &["12 bands, not 2", ".gain"]);
}

#[test]
fn prisma_bands_without_a_centre_have_no_values() {
    let path = fixture("products/hdf5/PRS_L2D_STD_20230502102837_20230502102842_0001.he5");
    let vnir = open(&path, Some("VNIR_Cube"));
    assert_eq!((&vnir.info().empty_bands[..], vnir.info().ignore_value), (&[0][..], Some(0.0)));
    assert_eq!(physical(&*vnir).0, (7 * 9 - 3) * 4);
    let geo = vnir.info().geo.clone().unwrap();
    assert_eq!(geo.crs.as_deref(), Some("EPSG:32632"));
    // Corners are given as the centres of pixels.
    assert_eq!(geo.transform, [559_985.0, 30.0, 0.0, 5_930_015.0, 0.0, -30.0]);
    let swir = open(&path, Some("SWIR_Cube"));
    assert_eq!(swir.info().empty_bands, [6]);
    assert_eq!(swir.info().unit.as_deref(), Some("1 (surface reflectance)"));
}

#[test]
fn tanager_lies_where_its_grid_does() {
    let path = "hdf5/20250423_134021_00_4001_ortho_sr_hdf5.h5";
    let info = fixture_info(path, None);
    assert_eq!(info.format, "Tanager ortho (HDF-EOS5)");
    assert_eq!(info.good_bands.unwrap().iter().filter(|good| !**good).count(), 1);
    assert_eq!((info.wavelength.unwrap()[11], info.fwhm.unwrap()[0]), (1000.0, 5.25));
    let geo = info.geo.unwrap();
    assert_eq!(geo.crs.as_deref(), Some("EPSG:32632"));
    assert_eq!(geo.transform, [634_200.0, 30.0, 0.0, 5_297_190.0, 0.0, -30.0]);
}

#[test]
fn pace_cubes_have_lists_of_their_own() {
    let l1b = "hdf5/PACE_OCI.20240601T174521.L1B.V3.nc";
    let swir = fixture_info(l1b, Some("rhot_SWIR"));
    assert_eq!(swir.shape, CubeShape::new(7, 9, 3));
    assert_eq!(swir.wavelength.unwrap(), [890.909, 1000.0, 945.455]);
    assert_eq!(swir.fwhm.unwrap(), [45.0, 80.0, 75.0]);
    assert_eq!(fixture_info(l1b, Some("rhot_blue")).fwhm, None);
    let error = open_error(&fixture(&format!("products/{l1b}")), None);
    assert_says(&error, ErrorKind::Ambiguous, &["rhot_blue", "rhot_red", "rhot_SWIR"]);
    let rrs = fixture_info("hdf5/PACE_OCI.20240601T174521.L2.OC_AOP.V3_1.nc", None);
    assert_eq!((rrs.wavelength.unwrap().len(), rrs.unit.as_deref()), (10, Some("sr^-1")));
    assert_eq!(rrs.scaling.multiply, f64::from(2e-6_f32));
}

#[test]
fn detectors_are_joined_in_order_of_wavelength() {
    let prisma = "products/hdf5/PRS_L2D_STD_20230502102837_20230502102842_0001.he5";
    let pace = "products/hdf5/PACE_OCI.20240601T174521.L1B.V3.nc";
    for (file, names, bands) in [
        (prisma, ["VNIR_Cube", "SWIR_Cube"].as_slice(), 10),
        (pace, ["rhot_blue", "rhot_red", "rhot_SWIR"].as_slice(), 10),
    ] {
        let path = fixture(file);
        let error = open_error(&path, None);
        assert!(error.to_string().contains(&format!("'::{}'", names.join("+"))), "{error}");
        let joined = open(&path, Some(&names.join("+")));
        let info = joined.info();
        assert_eq!(info.shape, CubeShape::new(7, 9, bands));
        assert!(info.wavelength.as_ref().unwrap().is_sorted());
        // The number of values and their sum are those of the single cubes together.
        let parts = names.iter().map(|name| physical(&*open(&path, Some(name))));
        let (count, sum) = parts.fold((0, 0.0), |(n, s), (count, _, _, sum)| (n + count, s + sum));
        let (all, _, _, total) = physical(&*joined);
        assert_eq!(all, count);
        assert!((total - sum).abs() < 1e-9 * sum, "{total} {sum}");
    }
    let error = open_error(&fixture(pace), Some("rhot_blue+rhot_green"));
    assert_says(&error, ErrorKind::NotFound, &["rhot_green"]);
}

#[test]
fn info_shows_what_a_user_of_the_sensor_expects() {
    let report = |name: &str| {
        let (file, cube) = name.split_once("::").unwrap_or((name, ""));
        let variable = (!cube.is_empty()).then(|| cube.to_owned());
        let input = Input { variable, ..Input::of(&fixture(file)) };
        let source = open(&input.file, input.variable.as_deref());
        CubeReport::new(&input, &*source, false).unwrap()
    };
    let l1c = report(&format!("products/enmap_l1c/{L1C}-METADATA.xml"));
    assert_eq!(l1c.unit.as_deref(), Some("W/(m2 sr nm)"));
    assert!(l1c.scaling.is_none());
    assert_eq!(l1c.band_scaling.unwrap().last().unwrap().multiply, 2e-5);
    assert_eq!(l1c.geo.unwrap().pixel_size(), [30.0, 30.0]);
    assert_eq!(l1c.files.len(), 2);
    assert_eq!(l1c.quality_layers, ["defective"]);
    let l2a = report("products/enmap_l2a");
    assert_eq!((l2a.empty_bands, l2a.bad_bands), (vec![7, 8], Some(vec![7, 8])));
    assert_eq!(l2a.scaling.unwrap().multiply, 0.0001);
    // The ignored values: a corner, and all values of the bands without data.
    assert_eq!(l2a.values.unwrap().ignored, 3 * 12 + 60 * 2);
    let prisma = report("hdf5/prisma_l1.he5::VNIR_Cube");
    assert_eq!(prisma.quality_layers[..3], ["defective", "saturated", "low_accuracy"]);
    // Bands that the sensor does not use are at 0 nm.
    let bands = prisma.wavelengths.unwrap();
    assert_eq!((bands.count, bands.order, bands.fwhm_nm), (12, "descending", Some([5.25, 5.25])));
    assert!(bands.min_nm > 500.0);
}

#[test]
fn every_band_is_packed_in_its_unit_by_one_process_or_several() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let options = |name: &str| {
        let inputs = ["enmap_l1c", "enmap_l2a", "desis_l1c"]
            .map(|name| fixture(&format!("products/{name}")).display().to_string());
        ConvertOptions::new(inputs.to_vec(), out(name))
    };
    let report = pack(&options("whole"));
    assert!(
        report.notes.iter().any(|note| note.contains("in the same stack")),
        "{:?}",
        report.notes
    );
    let plan = out("plan.json");
    parts::plan(&options("parts"), &plan, &Progress::default(), &|_| {}).unwrap();
    let work = WorkOptions::new(Part::WHOLE);
    parts::work(&plan, &work, &Progress::default(), &|_| {}).unwrap();
    parts::commit(&plan, false).unwrap();
    assert!(content(&out("whole")) == content(&out("parts")));
    let dataset = Dataset::open(out("whole")).unwrap();
    let unit = |id: usize| dataset.samples().get(id).unwrap().source.unit;
    assert_eq!(unit(0).as_deref(), Some("W/(m2 sr nm)"));
    assert_eq!(unit(1).as_deref(), Some("1 (surface reflectance)"));
    assert_eq!(dataset.samples().get(0).unwrap().source.scaling, None);
    assert_eq!(dataset.samples().get(1).unwrap().source.scaling, Some([0.0001, 1.0, 0.0]));
}

/// Every cube of a product, among the real ones and those with a copied layout: bits of stored
/// numbers, physical values, band centres and widths, validity, reference system and transform.
#[test]
fn products_of_the_shared_data_are_as_their_makers_define_them() {
    /// Not products: white and dark references, and HySpex's own header.
    const OTHERS: [&str; 6] =
        ["headwall", "hyspex", "resonon", "specim_core", "specim_fx", "specim_iq"];
    let Some(folder) = shared("sensors") else { return };
    if !folder.is_dir() {
        return hsipack_testing::skipped(format_args!("no {}", folder.display()));
    }
    let text = fs::read_to_string(folder.join("TRUTH.json")).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let mut compared = 0;
    for name in all.as_object().unwrap().keys() {
        if OTHERS.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let (file, variable) = match name.split_once('#') {
            Some((file, variable)) => (file, Some(variable)),
            None => (name.as_str(), None),
        };
        let source = open(&folder.join(file), variable);
        let truth = truth(&folder, name);
        if truth.get("sha256_canonical").is_some() {
            check_against_truth(&*source, &truth);
        }
        if truth["physical"]["result"].is_object() {
            check_physical(name, &*source, &truth["physical"]);
            compared += 1;
        }
    }
    assert!(compared > 24, "{compared}");
}

fn check_physical(name: &str, source: &dyn Source, truth: &Value) {
    let info = source.info();
    let number = |value: &Value| value.as_f64();
    let near = |found: f64, wanted: f64| (found - wanted).abs() <= 1e-9 * wanted.abs().max(1e-6);
    let (count, least, most, sum) = physical(source);
    let result = &truth["result"];
    assert_eq!(Some(count), result["valid"].as_u64(), "{name}");
    for (what, found) in [("min", least), ("max", most), ("sum", sum)] {
        let wanted = number(&result[what]).unwrap();
        // Sums have terms of both signs, in another order.
        let slack = if what == "sum" { 1e-9 * (count as f64) * least.abs().max(most) } else { 0.0 };
        assert!(
            near(found, wanted) || (found - wanted).abs() <= slack,
            "{name}: {what} {found}, not {wanted}"
        );
    }
    let lists = &truth["wavelength_nm"];
    for (first, last, list) in
        [("first", "last", &info.wavelength), ("fwhm_first", "fwhm_last", &info.fwhm)]
    {
        if let (Some(first), Some(last)) = (number(&lists[first]), number(&lists[last])) {
            let list = list.as_ref().unwrap_or_else(|| panic!("{name} lacks a list of bands"));
            // Some are stored in single precision.
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-3;
            assert!(close(list[0], first) && close(list[list.len() - 1], last), "{name}: {list:?}");
            assert_eq!(lists["count"].as_u64(), Some(list.len() as u64), "{name}");
        }
    }
    if let Some(bad) = truth["bad_bands"].as_array() {
        let bad: Vec<usize> = bad.iter().map(|band| band.as_u64().unwrap() as usize).collect();
        let good = info.good_bands.as_ref().unwrap();
        let found: Vec<usize> = (0..good.len()).filter(|band| !good[*band]).collect();
        assert_eq!(found, bad, "{name}");
    }
    if let Some(transform) = truth["transform_gdal"].as_array() {
        let geo = info.geo.as_ref().unwrap_or_else(|| panic!("{name} is not georeferenced"));
        let wanted: Vec<f64> = transform.iter().filter_map(number).collect();
        let alike = |(found, wanted): (&f64, &f64)| (found - wanted).abs() <= 1e-6;
        assert!(geo.transform.iter().zip(&wanted).all(alike), "{name}: {:?}", geo.transform);
        if let Some(crs) = truth["crs"].as_str().filter(|crs| crs.starts_with("EPSG:")) {
            assert_eq!(geo.crs.as_deref(), Some(crs), "{name}");
        }
    }
}

/// Metadata with a part cut out, doubled or replaced give an error or a cube, never a panic.
#[test]
fn damaged_metadata_are_an_error_or_a_cube() {
    let named = [
        ("enmap_l1b", format!("{L1B}-METADATA.XML")),
        ("enmap_l2a", format!("{L2A}-METADATA.XML")),
        ("desis_l1c", format!("{DESIS}-METADATA.xml")),
        ("desis_l1b", format!("{}-SPECTRAL_IMAGE.hdr", DESIS.replace("L1C", "L1B"))),
        ("wyvern_l2a", format!("{WYVERN}.json")),
        ("aviris_classic", format!("{AVIRIS}.gain")),
        ("aviris_classic", format!("{AVIRIS}.spc")),
    ];
    let mut random = 20_261_126_u64;
    let mut below = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % most.max(1)
    };
    for (folder, name) in named {
        let delivery = Delivery::of(folder);
        let whole = fs::read(delivery.path(&name)).unwrap();
        for _ in 0..60 {
            let start = below(whole.len());
            let end = (start + below(80)).min(whole.len());
            let with: &[u8] = match below(4) {
                0 => b"",
                1 => b"-1e999",
                2 => b"<\xFF\0>",
                _ => &whole[below(start + 1)..end],
            };
            let damaged = [&whole[..start], with, &whole[end..]].concat();
            fs::write(delivery.path(&name), damaged).unwrap();
            for variable in [None, Some("VNIR".to_owned())] {
                let options = OpenOptions { variable, ..Default::default() };
                match hsipack_source::open(delivery.0.path(), &options) {
                    Ok(source) => assert!(source.info().shape.bands > 0),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
