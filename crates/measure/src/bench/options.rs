//! Strategies, and what is asked for.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hsipack_format::CubeShape;
use hsipack_read::augment::{Affine, Flip, Op, Padding, Pipeline, Range};
use serde::{Deserialize, Serialize};

use crate::step::StepKind;
use crate::{Error, Result};

/// A way from files to the device. Each keeps what the ones before it brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// float32 files, read and augmented by workers on the CPU.
    #[serde(rename = "original")]
    Original,
    /// Compressed with Blosc.
    #[serde(rename = "+blosc")]
    Blosc,
    /// float16.
    #[serde(rename = "+fp16")]
    Half,
    /// Augmented on the device.
    #[serde(rename = "+gpu-aug")]
    DeviceAugment,
    /// Decompressed into a ring of slots that are allocated once: the loader of hsipack.
    #[serde(rename = "+ring-buffer")]
    Ring,
}

impl Strategy {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Original, Self::Blosc, Self::Half, Self::DeviceAugment, Self::Ring];

    /// The published name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Blosc => "+blosc",
            Self::Half => "+fp16",
            Self::DeviceAugment => "+gpu-aug",
            Self::Ring => "+ring-buffer",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = Error;

    /// The name, with or without its `+`, or the number from 0.
    fn from_str(text: &str) -> Result<Self> {
        let plain = text.trim().trim_start_matches('+');
        let found = Self::ALL.into_iter().enumerate().find(|(number, strategy)| {
            plain == strategy.name().trim_start_matches('+') || plain == number.to_string()
        });
        found.map(|(_, strategy)| strategy).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::unsupported(format!("no strategy is named {text}"))
                .with_remedy(format!("choose from {names}, or 0 to 4"))
        })
    }
}

/// Where the cubes come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cubes {
    /// Drawn for the purpose.
    Generated {
        /// How many.
        count: usize,
        /// Rows, columns and bands of each.
        shape: CubeSize,
    },
    /// The user's: a packed dataset, or what `hsipack convert` takes.
    Path {
        /// As typed.
        path: String,
        /// At most so many; all if `None`.
        count: Option<usize>,
    },
}

/// Rows, columns and bands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // the names say it all
pub struct CubeSize {
    pub rows: usize,
    pub columns: usize,
    pub bands: usize,
}

impl CubeSize {
    /// Values of a cube.
    pub const fn values(self) -> usize {
        self.rows * self.columns * self.bands
    }
}

impl From<CubeShape> for CubeSize {
    fn from(shape: CubeShape) -> Self {
        Self { rows: shape.rows, columns: shape.columns, bands: shape.bands }
    }
}

impl fmt::Display for CubeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.rows, self.columns, self.bands)
    }
}

/// How cubes are augmented.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Augment {
    /// Not at all.
    None,
    /// As in the published benchmark: an affine map of half of the cubes, flips of a quarter each.
    Published,
    /// By the user's list.
    Pipeline(Pipeline),
}

/// What is the same for all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Cubes of a batch.
    pub batch_size: usize,
    /// Workers of strategies 0 to 3; decoding threads of the ring.
    pub workers: usize,
    /// Epochs measured.
    pub epochs: usize,
    /// Epochs before them.
    pub warmup_epochs: usize,
    /// What the device does with a batch.
    pub step: StepKind,
    /// `cpu`, `cuda:0`, …
    pub device: String,
    /// How cubes are augmented.
    pub augment: Augment,
    /// Seed of order and augmentations.
    pub seed: u64,
    /// Have the system forget the files after every epoch.
    pub drop_cache: bool,
    /// Seconds that every read of a file waits first, as from a network disk.
    #[serde(default)]
    pub latency_s: f64,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchOptions {
    /// The cubes.
    pub cubes: Cubes,
    /// The strategies, in order.
    pub strategies: Vec<Strategy>,
    /// Bytes read a second, all workers together; unlimited where `None`.
    pub rate_limits: Vec<Option<u64>>,
    /// How often every case is measured.
    pub repeats: usize,
    /// Where files are made.
    pub work_dir: PathBuf,
    /// Leave them there.
    pub keep: bool,
    /// The same for all cases.
    pub settings: Settings,
}

impl Augment {
    /// The list of augmentations; `None` if there are none.
    pub fn pipeline(&self, seed: u64) -> Option<Pipeline> {
        match self {
            Self::None => None,
            Self::Published => Some(Pipeline { seed, ..published() }),
            Self::Pipeline(pipeline) => Some(pipeline.clone()),
        }
    }
}

/// The published benchmark's augmentations: an affine map (±45°, 6.25 %, 0.9 to 1.1, reflection) of half of the cubes, a
/// quarter mirrored along each axis.
pub fn published() -> Pipeline {
    let flip = Flip { p: 0.25 };
    Pipeline::new(vec![
        Op::Affine(Affine {
            p: 0.5,
            degrees: Range::around_zero(45.0),
            translate: [0.0625, 0.0625],
            scale: Range::new(0.9, 1.1),
            padding: Padding::Reflection,
            ..Affine::default()
        }),
        Op::Hflip(flip.clone()),
        Op::Vflip(flip),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_are_found_by_name_and_number() {
        for (number, strategy) in Strategy::ALL.into_iter().enumerate() {
            assert_eq!(strategy.name().parse::<Strategy>().unwrap(), strategy);
            assert_eq!(number.to_string().parse::<Strategy>().unwrap(), strategy);
            let json = serde_json::to_string(&strategy).unwrap();
            assert_eq!(json, format!("\"{strategy}\""));
        }
        assert_eq!("ring-buffer".parse::<Strategy>().unwrap(), Strategy::Ring);
        assert!("5".parse::<Strategy>().unwrap_err().to_string().contains("+gpu-aug"));
    }
}
