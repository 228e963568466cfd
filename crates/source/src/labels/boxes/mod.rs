//! Bounding boxes of objects, in pixels of their cube.
//!
//! | file | boxes |
//! |---|---|
//! | `coco.rs` | COCO: `bbox` of annotations, in one file for all pictures |
//! | `voc.rs` | Pascal VOC: XML, a file for each picture |
//! | `yolo.rs` | YOLO: a text for each picture, and names of classes in a file beside it |
//! | `table.rs` | CSV, for one picture or several |
//!
//! A box is `[x_min, y_min, x_max, y_max]`, by the edges of pixels: that around the whole cube is
//! `[0, 0, columns, rows]`.

mod coco;
mod table;
mod voc;
mod yolo;

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::{bounded_read, mirror};

use super::cube_names::CubeNames;
use super::{coco as annotations, json};

/// The most boxes of a cube.
const MAX_BOXES: usize = 1 << 14;

/// Boxes of a cube, and the class of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boxes {
    /// `[x_min, y_min, x_max, y_max]` of each.
    pub boxes: Vec<[f64; 4]>,
    /// The class of each.
    pub labels: Vec<Label>,
}

/// The class of a box.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// Its name.
    Name(String),
    /// Its id, if the file names no classes.
    Id(i64),
}

/// The cube whose boxes are wanted.
#[derive(Clone, Copy, Debug)]
pub struct CubeOfBoxes<'a> {
    /// Its names, for files with the boxes of several cubes.
    pub names: &'a CubeNames,
    /// Its rows and columns.
    pub size: [usize; 2],
}

/// The pictures that a file has labels of.
#[derive(Clone, Debug, PartialEq)]
pub enum Pictures {
    /// Several, with these names.
    Named(Vec<String>),
    /// A table that names none, so it is of one.
    NotNamed {
        /// Its columns.
        columns: Vec<String>,
    },
    /// One, or the file says nothing about it.
    One,
}

impl Boxes {
    /// Adds a box.
    ///
    /// # Errors
    /// A message, if it has no area or a number without a value, is outside of the cube, or one of
    /// too many.
    fn add(
        &mut self,
        corners: [f64; 4],
        label: Label,
        [rows, columns]: [usize; 2],
    ) -> Result<(), String> {
        let [left, top, right, bottom] = corners;
        if !corners.iter().all(|corner| corner.is_finite()) {
            return Err("a corner of the box is not a finite number".to_owned());
        }
        if right <= left || bottom <= top {
            return Err(format!(
                "the box has no area: it goes from {left}, {top} to {right}, {bottom}"
            ));
        }
        if right <= 0.0 || bottom <= 0.0 || left >= columns as f64 || top >= rows as f64 {
            return Err(format!(
                "the box from {left}, {top} to {right}, {bottom} (x, y) is outside of the cube of {columns} x {rows} pixels"
            ));
        }
        if self.boxes.len() == MAX_BOXES {
            return Err(format!("there are more than {MAX_BOXES} boxes"));
        }
        self.boxes.push(corners);
        self.labels.push(label);
        Ok(())
    }
}

/// The error for a wrong box at a place in a file.
fn wrong(location: impl std::fmt::Display, what: impl std::fmt::Display) -> Error {
    Error::malformed(format!("{location}: {what}"))
        .with_remedy("correct the box, or remove it; boxes that are partly outside are kept")
}

/// Reads the boxes of a cube in `path`: COCO, Pascal VOC, YOLO or CSV. `class` is the column of a
/// CSV that says the classes, if it is not one of the usual names.
///
/// # Errors
/// If the file is malformed, or a box does not fit the cube;
/// [`hsipack_format::ErrorKind::NotFound`] if it lists the cubes that it is about, and not this
/// one.
pub fn read(path: &Path, class: Option<&str>, cube: CubeOfBoxes<'_>) -> Result<Boxes> {
    let head = bounded_read::head(path, 512)?;
    mirror::prepare(path)?;
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&head).trim_ascii_start();
    let is_table = is_table(path);
    if let Some(class) = class.filter(|_| !is_table) {
        return Err(Error::unsupported(format!("only tables have columns, such as {class:?}"))
            .at(path)
            .with_remedy("leave out what follows '::'"));
    }
    let found = if is_table {
        table::read(path, class, cube)
    } else if text.starts_with(b"<") {
        voc::read(path, cube)
    } else if json::recognises(text) {
        coco::read(path, cube)
    } else {
        yolo::read(path, cube)
    };
    found.map_err(|error| error.at(path))
}

/// The pictures of a file with boxes or other labels.
///
/// # Errors
/// If the file cannot be read.
pub fn pictures(path: &Path) -> Result<Pictures> {
    if !path.is_file() {
        return Ok(Pictures::One);
    }
    mirror::prepare(path)?;
    if is_table(path) {
        return table::pictures(path);
    }
    if !json::recognises(&bounded_read::head(path, 64)?) || json::kind(path)? != json::Kind::Coco {
        return Ok(Pictures::One);
    }
    annotations::read(path).map(|coco| Pictures::Named(coco.entries.names().to_vec()))
}

/// Forgets the table that was read last.
pub(super) fn forget() {
    table::forget();
}

fn is_table(path: &Path) -> bool {
    let is = |ending: &str| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    };
    ["csv", "tsv"].iter().any(|ending| is(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_without_area_or_outside_are_refused() {
        let mut boxes = Boxes::default();
        let mut add = |corners| boxes.add(corners, Label::Id(1), [10, 20]);
        add([0.0, 0.0, 20.0, 10.0]).unwrap();
        add([-5.0, 9.5, 1.0, 30.0]).unwrap();
        for (corners, what) in [
            ([1.0, 1.0, 1.0, 2.0], "no area"),
            ([1.0, 3.0, 2.0, 2.0], "no area"),
            ([1.0, f64::NAN, 2.0, 2.0], "finite"),
            ([20.0, 0.0, 21.0, 1.0], "outside of the cube of 20 x 10"),
            ([0.0, -3.0, 1.0, 0.0], "outside"),
        ] {
            assert!(add(corners).unwrap_err().contains(what), "{corners:?}");
        }
        assert_eq!(boxes.labels, [Label::Id(1), Label::Id(1)]);
    }
}
