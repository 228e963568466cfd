//! Targets and further images of a sample are answered like its image, in their own pixels.

use std::fs;

use hsipack_pack::convert::{Assignment, ConvertOptions, MaskOption, convert};
use hsipack_pack::progress::Progress;
use serde_json::{Value, json};

use crate::common::{COLUMNS, ROWS, Viewed, label, write_envi, write_npy};

/// A value of a target, of which one pixel is missing.
fn height(row: usize, column: usize) -> f32 {
    if (row, column) == (1, 2) { f32::NAN } else { row as f32 * 10.0 + column as f32 * 0.5 }
}

/// A value of an image of twice the rows and columns, exact in fp16.
fn photo(row: usize, column: usize, band: usize) -> f32 {
    ((row * 7 + column * 3 + band * 50) % 97) as f32
}

/// A value of an image of a third of the rows and columns.
fn coarse(row: usize, column: usize, band: usize) -> f32 {
    (row * 3 + column) as f32 + band as f32 * 0.25
}

fn floats(shape: [usize; 3], value: impl Fn(usize, usize, usize) -> f32) -> Vec<u8> {
    let [rows, columns, bands] = shape;
    let mut bytes = Vec::new();
    for at in 0..rows * columns * bands {
        let (row, column, band) = (at / bands / columns, at / bands % columns, at % bands);
        bytes.extend_from_slice(&value(row, column, band).to_le_bytes());
    }
    bytes
}

/// A server for one cube with a mask, a target and two further images.
fn viewed(folder: &tempfile::TempDir) -> Viewed {
    let folder = folder.path();
    write_envi(&folder.join("s"), 1);
    let labels: Vec<u8> = (0..ROWS * COLUMNS).map(|at| label(at / COLUMNS, at % COLUMNS)).collect();
    write_npy(&folder.join("mask.npy"), "|u1", &[ROWS, COLUMNS], &labels);
    let heights = floats([ROWS, COLUMNS, 1], |row, column, _| height(row, column));
    write_npy(&folder.join("height.npy"), "<f4", &[ROWS, COLUMNS], &heights);
    let fine = [2 * ROWS, 2 * COLUMNS, 3];
    write_npy(&folder.join("photo.npy"), "<f4", &fine, &floats(fine, photo));
    let third = [ROWS / 3, COLUMNS / 3, 2];
    write_npy(&folder.join("coarse.npy"), "<f4", &third, &floats(third, coarse));
    let named = |name: &str| Assignment {
        name: name.to_owned(),
        value: folder.join(format!("{name}.npy")).display().to_string(),
    };
    let output = folder.join("arrays.hsipack");
    let mut options =
        ConvertOptions::new(vec![folder.join("s.hdr").display().to_string()], &output);
    options.mask = vec![MaskOption::new("mask", folder.join("mask.npy").display().to_string())];
    options.target = vec![named("height")];
    options.image = vec![named("photo"), named("coarse")];
    convert(&options, &Progress::default(), &|_| {}).unwrap();
    Viewed::of(&output)
}

#[test]
fn arrays_are_listed_with_their_bands_and_resolution() {
    let folder = tempfile::tempdir().unwrap();
    let facts = viewed(&folder).get("api/cube/0").json();
    let arrays = facts["arrays"].as_array().unwrap();
    let all: Vec<[&Value; 5]> = arrays
        .iter()
        .map(|array| ["name", "role", "shape", "factor", "dtype"].map(|key| &array[key]))
        .collect();
    assert_eq!(
        json!(all),
        json!([
            ["height", "target", [ROWS, COLUMNS, 1], 1.0, "float32"],
            ["coarse", "image", [ROWS / 3, COLUMNS / 3, 2], 1.0 / 3.0, "float16"],
            ["photo", "image", [2 * ROWS, 2 * COLUMNS, 3], 2.0, "float16"],
        ])
    );
    assert_eq!(arrays[0]["presets"], json!([]));
    assert_eq!(arrays[2]["presets"][0]["bands"], json!([0, 1, 2]));
}

#[test]
fn values_and_spectra_are_those_of_the_array() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = viewed(&folder);
    let planes = viewed.get("api/cube/0/planes?bands=0&array=height");
    assert_eq!(planes.shape(), [1, ROWS, COLUMNS]);
    for (at, found) in planes.singles().into_iter().enumerate() {
        let wanted = height(at / COLUMNS, at % COLUMNS);
        assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{at}: {found} {wanted}");
    }
    let planes = viewed.get("api/cube/0/planes?bands=2,0&array=photo");
    assert_eq!(planes.shape(), [2, 2 * ROWS, 2 * COLUMNS]);
    let pixels = 4 * ROWS * COLUMNS;
    for (at, found) in planes.singles().into_iter().enumerate() {
        let (band, pixel) = ([2, 0][at / pixels], at % pixels);
        assert_eq!(found, photo(pixel / (2 * COLUMNS), pixel % (2 * COLUMNS), band));
    }
    let spectrum = viewed.get("api/cube/0/spectrum?rows=0:2&columns=1:3&array=coarse").json();
    assert_eq!(spectrum["mean"], json!([3.0, 3.25]));
    // The image itself is not mixed up with them, and can be asked for at the same time.
    let image = viewed.get("api/cube/0/planes?bands=0");
    assert_eq!(image.shape(), [1, ROWS, COLUMNS]);
    assert_eq!(viewed.get("api/cube/0/planes?bands=0&array=photo").shape()[1], 2 * ROWS);
    let angles = viewed.get("api/cube/0/angles?rows=3:4&columns=5:6&array=photo");
    assert_eq!(angles.shape(), [2 * ROWS, 2 * COLUMNS]);
    assert!(angles.singles()[3 * 2 * COLUMNS + 5] < 1e-3);
}

#[test]
fn masks_are_drawn_in_the_pixels_of_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let viewed = viewed(&folder);
    let fine = viewed.get("api/cube/0/mask/mask?array=photo&rows=1:5&columns=7:13");
    assert_eq!(fine.shape(), [4, 6]);
    for (at, found) in fine.body.as_chunks::<2>().0.iter().enumerate() {
        let (row, column) = (1 + at / 6, 7 + at % 6);
        assert_eq!(u16::from_le_bytes(*found), u16::from(label(row / 2, column / 2)));
    }
    let third = viewed.get("api/cube/0/mask/mask?array=coarse");
    assert_eq!(third.shape(), [ROWS / 3, COLUMNS / 3]);
    for (at, found) in third.body.as_chunks::<2>().0.iter().enumerate() {
        let (row, column) = (at / (COLUMNS / 3), at % (COLUMNS / 3));
        assert_eq!(u16::from_le_bytes(*found), u16::from(label(3 * row + 1, 3 * column + 1)));
    }
}

#[test]
fn arrays_and_bands_that_do_not_exist_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.hdr");
    let viewed = viewed(&folder);
    let error = viewed.get("api/cube/0/planes?bands=0&array=nothing").error();
    assert!(error.contains("no target or further image 'nothing'"), "{error}");
    assert!(viewed.get("api/cube/0/planes?bands=1&array=height").error().contains("bands=1"));
    assert!(viewed.get("api/cube/0/spectrum?rows=0:3&array=coarse").error().contains("0:2"));
    // A cube in a file has no other arrays.
    fs::remove_dir_all(folder.path().join("arrays.hsipack")).unwrap();
    let raw = Viewed::of(&path);
    assert_eq!(raw.get("api/cube/0").json()["arrays"], json!([]));
    assert!(raw.get("api/cube/0/planes?bands=0&array=height").error().contains("no target"));
}
