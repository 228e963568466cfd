//! Which array of a file is the cube, if there is also a picture or an array with more axes.

use std::path::Path;

use hsipack_format::{CubeShape, Error, ErrorKind};
use hsipack_source::{Axes, OpenOptions};

use crate::common::{check_fixture, fixture, open};

fn options(variable: Option<&str>, axes: Option<&str>) -> OpenOptions {
    OpenOptions {
        variable: variable.map(str::to_owned),
        axes: axes.map(|axes| Axes::parse(axes).expect("axes")),
        mask: false,
        ..Default::default()
    }
}

fn shape(path: &Path, options: &OpenOptions) -> CubeShape {
    hsipack_source::open(path, options).unwrap_or_else(|error| panic!("{error}")).info().shape
}

fn refused(name: &str, options: &OpenOptions, kind: ErrorKind, words: &[&str]) -> Error {
    let path = fixture(&format!("previews/{name}"));
    let error =
        hsipack_source::open(&path, options).err().unwrap_or_else(|| panic!("{name} opens"));
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.path().is_some_and(|at| at.starts_with(&path)), "{error}");
    assert!(error.remedy().is_some(), "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "no '{word}' in: {error}");
    }
    error
}

#[test]
fn a_cube_of_more_axes_is_taken_and_not_the_picture_beside_it() {
    for name in [
        "five.h5",
        "time.nc",
        "v73.mat",
        "v5.mat",
        "five.npz",
        "five_v2.zarr",
        "five_v3.zarr",
        "five_named.zarr",
        "thumbnail.tif",
        "within.tif",
        "pyramid.tif",
    ] {
        eprintln!("{name}");
        check_fixture(&format!("previews/{name}"));
    }
    // The picture is read if the user says so.
    let picture = CubeShape::new(40, 50, 3);
    for (name, variable) in [
        ("v5.mat", "rgb"),
        ("v73.mat", "rgb"),
        ("five.npz", "rgb"),
        ("five_v3.zarr", "thumb"),
        ("thumbnail.tif", "1"),
    ] {
        let path = fixture(&format!("previews/{name}"));
        assert_eq!(open(&path, Some(variable)).info().shape, picture, "{name}");
    }
    let named = options(Some("Preview"), Some("yxb"));
    assert_eq!(shape(&fixture("previews/five.h5"), &named), picture);
}

#[test]
fn every_axis_can_be_named() {
    let path = fixture("previews/five.h5");
    for (axes, want) in [("11yxb", [7, 9, 12]), ("11bxy", [12, 9, 7]), ("xyb", [9, 7, 12])] {
        let shape = shape(&path, &options(Some("Acquisition/Image"), Some(axes)));
        assert_eq!([shape.rows, shape.columns, shape.bands], want, "{axes}");
    }
    // MATLAB's index order is the opposite of the order in the file.
    let path = fixture("previews/v73.mat");
    assert_eq!(shape(&path, &options(Some("data"), Some("11bxy"))), CubeShape::new(12, 9, 7));
    for name in ["five_v3.zarr", "v5.mat", "five.npz"] {
        let path = fixture(&format!("previews/{name}"));
        let named = options(Some("data"), Some("11bxy"));
        assert_eq!(shape(&path, &named), CubeShape::new(12, 9, 7), "{name}");
        refused(name, &options(Some("data"), Some("1yxb")), ErrorKind::Conflict, &["1x1x7x9x12"]);
    }
    // A single line: it is unclear which axis of length 1 has the rows.
    refused(
        "line.h5",
        &options(Some("Data"), None),
        ErrorKind::Ambiguous,
        &["every axis with axes", "11yxb"],
    );
    let line = options(Some("Data"), Some("11yxb"));
    assert_eq!(shape(&fixture("previews/line.h5"), &line), CubeShape::new(1, 9, 12));
    refused("line.h5", &options(None, None), ErrorKind::Ambiguous, &["::/Data", "::/Preview"]);
}

#[test]
fn arrays_without_possible_axes_are_errors_even_beside_a_picture() {
    let series = options(None, None);
    refused("series.h5", &series, ErrorKind::Unsupported, &["/Data", "4-D", "2x7x9x12"]);
    refused("series.h5", &options(None, Some("1yxb")), ErrorKind::Conflict, &["/Data", "axis 1"]);
    let both = ["series_and_cube.h5::/mean (7x9x12 uint16)", "::/series (2x7x9x12 uint16)"];
    refused("series_and_cube.h5", &series, ErrorKind::Ambiguous, &both);
    let path = fixture("previews/series_and_cube.h5");
    assert_eq!(open(&path, Some("mean")).info().shape, CubeShape::new(7, 9, 12));
    // Spectra of an image with an unknown shape, and a picture.
    let words = ["flat.npz::rgb (20x20x3 uint8)", "flat.npz::pixels (63x12 float64)", "picture"];
    refused("flat.npz", &series, ErrorKind::Ambiguous, &words);
}

#[test]
fn pages_of_several_sizes_are_chosen_by_their_numbers() {
    let plain = options(None, None);
    let words = ["1-12: 7x9x1 uint16, 13: 5x5x1 uint8", "sizes.tif::1-12"];
    refused("sizes.tif", &plain, ErrorKind::Ambiguous, &words);
    check_fixture("previews/sizes.tif#1-12");
    let words = ["1: 8x8x3 uint8, 1.1: 7x9x12 uint16"];
    refused("larger_within.tif", &plain, ErrorKind::Ambiguous, &words);
    let path = fixture("previews/larger_within.tif");
    assert_eq!(open(&path, Some("1.1")).info().shape, CubeShape::new(7, 9, 12));
    for page in ["0", "14", "2-1", "1-14", "1.1", "1.", "cube", ""] {
        refused("sizes.tif", &options(Some(page), None), ErrorKind::Conflict, &["13 pages"]);
    }
}
