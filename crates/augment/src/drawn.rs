//! The parameters drawn for one sample, and what decides them.

use hsipack_format::random::Random;
use hsipack_format::{Error, Result};
use serde::{Deserialize, Serialize};

/// The key from which a sample's parameters are drawn, in addition to seed and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleKey {
    /// The sample's id.
    pub sample: usize,
    /// Number of the item among the sample's items in the epoch.
    pub repeat: u64,
}

/// The parameters drawn for one sample and one augmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "drawn", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // the names say it; units are those of the augmentations' options
pub enum Drawn {
    /// It is applied, and has no parameters.
    Plain,
    /// Quarter turns, counter-clockwise.
    Turns { turns: u8 },
    /// Angle in degrees, scale factors of x and y, shift along x and y in pixels, shear in degrees.
    Affine { angle: f64, scale: [f64; 2], translation: [f64; 2], shear: [f64; 2] },
    /// Angle in degrees.
    Rotate { angle: f64 },
    /// Corners (x, y) before and after: top left, top right, bottom right, bottom left.
    Perspective { from: [[f64; 2]; 4], to: [[f64; 2]; 4] },
    /// Seed of a field or of noise.
    Seed { seed: u64 },
    /// First column and row of the window, and its size.
    Window { x: usize, y: usize, width: usize, height: usize },
    /// The rectangle, and a random spectrum if one was requested.
    Erase { x: usize, y: usize, width: usize, height: usize, spectrum: Option<Vec<f64>> },
    /// Index of the donor in the batch; which of its labels (0 … 1 over those that may be copied),
    /// or the label itself.
    Transplant { donor: usize, pick: f64, label: Option<i64> },
    /// Index of the donor in the batch, the rectangle, and its share of the frame's area.
    CutMix { donor: usize, x: usize, y: usize, width: usize, height: usize, lambda: f64 },
    /// Index of the donor in the batch, and its share.
    MixUp { donor: usize, lambda: f64 },
    /// For every target cell, counted column by column, the source cell, counted row by row.
    Jigsaw { order: Vec<usize> },
    /// Size of the patches (rows, columns), and the hidden ones, counted row by row.
    Patches { size: [usize; 2], hidden: Vec<usize> },
    /// A factor, summand, width or shift.
    Number { value: f64 },
    /// One number for each band.
    Numbers { values: Vec<f64> },
    /// Band indices, counted from 0.
    Bands { bands: Vec<usize> },
    /// Strength, and direction in radians from the x axis towards the y axis.
    Ramp { strength: f64, direction: f64 },
}

impl Drawn {
    /// A seed small enough to stay exact in JSON readers that store numbers as float64.
    pub(crate) fn seed(random: &mut Random) -> Self {
        Self::Seed { seed: random.bits() >> 11 }
    }

    /// The error if parameters belong to another augmentation.
    pub(crate) fn misfit(&self, op: &str) -> Error {
        Error::conflict(format!("parameters {self:?} do not fit {op}")).with_remedy(
            "replay parameters with the pipeline and the frame size that they were drawn for",
        )
    }
}

/// The samples for which parameters were drawn.
pub(crate) fn applied(drawn: &[Option<Drawn>]) -> impl Iterator<Item = (usize, &Drawn)> {
    drawn.iter().enumerate().filter_map(|(sample, drawn)| Some((sample, drawn.as_ref()?)))
}

/// Applies `of` to all drawn parameters.
pub(crate) fn each<T>(
    drawn: &[Option<Drawn>],
    of: impl Fn(&Drawn) -> Result<T>,
) -> Result<Vec<Option<T>>> {
    drawn.iter().map(|drawn| drawn.as_ref().map(&of).transpose()).collect()
}

/// Whether parameters were drawn, for each sample.
pub(crate) fn which(drawn: &[Option<Drawn>]) -> Vec<bool> {
    drawn.iter().map(Option::is_some).collect()
}

/// Checks that a donor is in the batch.
pub(crate) fn check_donor(donor: usize, samples: usize) -> Result<()> {
    if donor < samples {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "pixels come from sample {donor}, but the batch has {samples} samples"
    ))
    .with_remedy("replay parameters with a batch of the size that they were drawn for"))
}
