//! Quality layers of products, as boolean layers of a mask.
//!
//! | product | layers, in the order of their bits |
//! |---|---|
//! | EnMAP L1C, L2A | `land`, `water`, `background`, `cloud`, `cloud_shadow`, `haze`, `cirrus`, `snow`, `defective` |
//! | EnMAP L1B | `defective` |
//! | DESIS | `defective`; in L2A followed by `shadow`, `land`, `snow`, `haze_land`, `haze_water`, `cloud_land`, `cloud_water`, `water` |
//! | Tanager | `nodata`, `cloud`, `cirrus` |
//! | PRISMA L1 | `defective`, `saturated`, `low_accuracy`, for joined cubes those of each, such as `vnir_defective`; `cloud`, `sun_glint`, `water`, `snow`, `bare_soil`, `crop`, `forest`, `wetland`, `urban` |
//! | PRISMA L2 | `invalid`, `negative`, `saturated`; for joined cubes those of each, such as `vnir_invalid` |
//! | Wyvern | `clear`, `cloud`, `nodata` |
//! | EMIT L2A | `cloud`, `cirrus`, `water`, `spacecraft`, `dilated_cloud`, `aggregate` |
//! | PACE L1B | `flagged`; for joined cubes those of each, such as `blue_flagged` |
//! | PACE L2 | `l2_flags`: up to 16 of the flags whose pixels NASA's maps skip |
//!
//! Each product's file says where its layers lie and what is tested. Layers that a delivery does
//! not have, such as files that were not ordered, are skipped.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::delivery::{self, Part};
use crate::{AxisOrder, RowBuffer};

/// A boolean layer, and what it is made of.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Its name.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The dataset in it, if it has several.
    pub variable: Option<String>,
    /// The dataset's axes, if it has three.
    pub order: Option<AxisOrder>,
    /// For which pixels it is set.
    pub test: Test,
}

/// A test on the values of a pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Test {
    /// Any value is not 0.
    Any,
    /// Any value is one of these.
    AnyOf(&'static [f64]),
    /// The value of this band, from 0, is this number.
    Is(usize, f64),
    /// The value of this band, from 0, is not 0.
    IsSet(usize),
    /// The value of the only band has at least one of these bits.
    Bits(u32),
}

impl Layer {
    /// A layer in a file of its own.
    pub fn in_file(name: &str, file: PathBuf, test: Test) -> Self {
        Self { name: name.to_owned(), file, variable: None, order: None, test }
    }

    /// A layer in a dataset of the file at `path`.
    pub fn in_dataset(name: &str, path: &Path, dataset: String, test: Test) -> Self {
        Self { variable: Some(dataset), ..Self::in_file(name, path.to_owned(), test) }
    }
}

impl Test {
    /// Whether the test holds for the values at these places, which belong to one pixel.
    pub fn holds(self, values: &RowBuffer, mut pixel: Range<usize>) -> bool {
        match self {
            Test::Any => pixel.any(|at| values.number(at) != 0.0),
            Test::AnyOf(wanted) => pixel.any(|at| wanted.contains(&values.number(at))),
            Test::Is(band, wanted) => values.number(pixel.start + band) == wanted,
            Test::IsSet(band) => values.number(pixel.start + band) != 0.0,
            // Flags are whole numbers. In some files, the highest of 32 bits is the sign.
            Test::Bits(bits) => (values.number(pixel.start) as i64 as u32) & bits != 0,
        }
    }
}

impl delivery::Found {
    /// The file of the same delivery whose name ends with `end` and one of `endings`.
    pub fn companion(
        &self,
        end: &'static str,
        endings: &'static [&'static str],
    ) -> Option<PathBuf> {
        let line = delivery::FileName { start: "", end, endings, part: Part::Layer };
        let mut paths =
            line.names(&self.base).into_iter().map(|name| self.path.with_file_name(name));
        paths.find(|path| delivery::is_there(path))
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::DType;

    use super::*;

    #[test]
    fn values_are_tested() {
        let mut values = RowBuffer::new();
        let bytes = values.reset(DType::I32, 6);
        bytes.copy_from_slice(bytemuck::cast_slice(&[0, 0, 3, 0, 1, i32::MIN]));
        let pixels = |test: Test| [0, 2, 4].map(|at| test.holds(&values, at..at + 2));
        assert_eq!(pixels(Test::Any), [false, true, true]);
        assert_eq!(pixels(Test::AnyOf(&[3.0])), [false, true, false]);
        assert_eq!(pixels(Test::AnyOf(&[1.0, 3.0])), [false, true, true]);
        assert_eq!(pixels(Test::Is(0, 1.0)), [false, false, true]);
        assert_eq!(pixels(Test::IsSet(1)), [false, false, true]);
        assert_eq!(pixels(Test::Bits(2)), [false, true, false]);
        assert!(Test::Bits(1 << 31).holds(&values, 5..6));
    }
}
