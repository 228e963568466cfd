//! Kind and size of crops, before their further options.

use serde::{Deserialize, Serialize};

use super::Crop;

/// Where crops lie in their cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CropKind {
    /// Anywhere: [`Crop::Random`].
    Random,
    /// In the middle: [`Crop::Centre`].
    Center,
    /// On a grid over the cube: [`Crop::Grid`].
    Grid,
}

hsipack_format::option_names!(CropKind, "kind of windows", {
    Random => "random",
    Center => "center",
    Grid => "grid",
});

/// Kind and size of crops, such as `random 64x64` on a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CropSize {
    /// Where they lie.
    pub kind: CropKind,
    /// Rows and columns in pixels.
    pub size: [u32; 2],
}

impl CropSize {
    /// The crop: one for each cube if they are random, side by side if they are on a grid.
    pub fn crop(self) -> Crop {
        let [rows, columns] = self.size;
        match self.kind {
            CropKind::Random => Crop::Random { rows, columns, per_sample: 1, min_labelled: 0.0 },
            CropKind::Center => Crop::Centre { rows, columns },
            CropKind::Grid => {
                Crop::Grid { rows, columns, row_step: rows, column_step: columns, pad: None }
            }
        }
    }
}

/// Crops of a kind and a size, or whole cubes. The feature `clap` makes it the argument
/// `--windows`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WindowOption(pub Option<CropSize>);

impl WindowOption {
    /// The crop.
    pub fn crop(self) -> Crop {
        self.0.map_or(Crop::Whole, CropSize::crop)
    }

    /// Whether the crops are of this kind.
    pub fn is(self, kind: CropKind) -> bool {
        self.0.is_some_and(|size| size.kind == kind)
    }
}
