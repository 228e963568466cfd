//! Opens inputs as labels of a small cube.

use hsipack_format::Geo;
use hsipack_source::labels::{self, CubeNames, LabelOptions};
use hsipack_source::{RowBuffer, Source};

pub use self::files::{path, write};

#[path = "files.rs"]
mod files;

/// Rows and columns of the cube.
pub const SIZE: [usize; 2] = [20, 30];

/// The names of the cube.
pub fn names() -> CubeNames {
    CubeNames { name: "a".to_owned(), relative: "a.npy".to_owned(), path: "/d/a.npy".to_owned() }
}

/// Opens the file called `name` as a mask, and reads every row. `variable` is what stands behind
/// the file.
pub fn read_mask(name: &str, variable: Option<&str>) {
    let geo = Geo { crs: None, transform: [0.0, 1.0, 0.0, 0.0, 0.0, -1.0], unit: None };
    for all_touched in [false, true] {
        let options = LabelOptions {
            variable: variable.map(str::to_owned),
            image: SIZE,
            cube: &names(),
            sample: None,
            samples: None,
            geo: Some(&geo),
            colors: &[],
            resampling: None,
            all_touched,
        };
        let Ok(source) = labels::open(&path(name), &options) else { return };
        read_rows(&*source);
    }
}

fn read_rows(source: &dyn Source) {
    let shape = source.info().shape;
    if [shape.rows, shape.columns] != SIZE {
        return;
    }
    let mut out = RowBuffer::new();
    for rows in [0..SIZE[0], 7..9] {
        let count = rows.len() * shape.row_values();
        if source.read_rows(rows, &mut out).is_ok() {
            assert_eq!(out.len(), count);
        }
    }
}
