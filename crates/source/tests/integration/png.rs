//! PNG masks.

use std::path::Path;

use hsipack_format::{ErrorKind, Result};
use hsipack_source::{OpenOptions, Source};

use crate::common::{check_against_truth, fixture, truth};

fn open_mask(path: &Path) -> Result<Box<dyn Source>> {
    hsipack_source::open(path, &OpenOptions { mask: true, ..Default::default() })
}

#[test]
fn masks_have_the_class_ids_that_were_written() {
    for name in [
        "gray1",
        "gray8",
        "gray16",
        "palette1",
        "palette2",
        "palette4",
        "palette8",
        "gray1_plain",
        "gray1_adam7",
        "gray2_plain",
        "gray2_adam7",
        "gray4_plain",
        "gray4_adam7",
        "gray8_plain",
        "gray8_adam7",
        "gray16_plain",
        "gray16_adam7",
    ] {
        let name = format!("png/{name}.png");
        let source = open_mask(&fixture(&name)).unwrap_or_else(|error| panic!("{error}"));
        check_against_truth(&*source, &truth(&fixture(""), &name));
        assert_eq!(source.info().shape.bands, 1, "{name}");
    }
}

#[test]
fn colours_are_no_class_ids() {
    for name in ["png/rgb.png", "png/gray_alpha.png"] {
        let Err(error) = open_mask(&fixture(name)) else { panic!("{name} opened") };
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.path(), Some(fixture(name).as_path()));
        assert!(error.remedy().unwrap().to_string().contains("grayscale or palette"), "{error}");
    }
}

#[test]
fn a_named_image_is_a_cube_but_not_one_that_a_search_finds() {
    let path = fixture("png/gray8.png");
    let cube = hsipack_source::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(cube.info().shape, open_mask(&path).unwrap().info().shape);
    assert!(hsipack_source::is_picture(&path) && !hsipack_source::is_cube_file(&path));
}

#[test]
fn interlaced_and_plain_files_of_the_same_image_differ_but_read_alike() {
    for bits in [1, 2, 4, 8, 16] {
        let [plain, adam7] =
            ["plain", "adam7"].map(|how| fixture(&format!("png/gray{bits}_{how}.png")));
        assert_ne!(std::fs::read(&plain).unwrap(), std::fs::read(&adam7).unwrap());
        let [plain, adam7] = [plain, adam7]
            .map(|path| crate::common::canonical_sha256(&*open_mask(&path).unwrap(), 4));
        assert_eq!(plain, adam7);
    }
}
