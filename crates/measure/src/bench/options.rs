//! The strategies, and the options of a benchmark.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hsipack_format::CubeShape;
use hsipack_read::augment::{Affine, Flip, Op, Padding, Pipeline, Range};
use serde::{Deserialize, Serialize};

use crate::step::StepKind;
use crate::{Error, Result};

/// A way to load data from files onto the device. Each strategy adds one improvement to the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// float32 files, read and augmented by workers on the CPU.
    #[serde(rename = "original")]
    Original,
    /// Compressed with Blosc.
    #[serde(rename = "+blosc")]
    Blosc,
    /// Stored as float16.
    #[serde(rename = "+fp16")]
    Half,
    /// Augmented on the device.
    #[serde(rename = "+gpu-aug")]
    DeviceAugment,
    /// Decompressed into a ring of slots that is allocated once: hsipack's loader.
    #[serde(rename = "+ring-buffer")]
    Ring,
    /// Decoded on the device: the ring holds compressed chunks. Not published; for CUDA devices only.
    #[serde(rename = "+device-decode")]
    DeviceDecode,
}

impl Strategy {
    /// All strategies, in order.
    pub const ALL: [Self; 6] = [
        Self::Original,
        Self::Blosc,
        Self::Half,
        Self::DeviceAugment,
        Self::Ring,
        Self::DeviceDecode,
    ];

    /// The strategies that a device of this name can run.
    pub fn all_on(device: &str) -> Vec<Self> {
        let on_gpu = device.starts_with("cuda");
        Self::ALL.into_iter().filter(|one| on_gpu || *one != Self::DeviceDecode).collect()
    }

    /// The name; that of the publication for the first five.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Blosc => "+blosc",
            Self::Half => "+fp16",
            Self::DeviceAugment => "+gpu-aug",
            Self::Ring => "+ring-buffer",
            Self::DeviceDecode => "+device-decode",
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

    /// Parses the name, with or without its `+`, or the number from 0.
    fn from_str(text: &str) -> Result<Self> {
        let plain = text.trim().trim_start_matches('+');
        let found = Self::ALL.into_iter().enumerate().find(|(number, strategy)| {
            plain == strategy.name().trim_start_matches('+') || plain == number.to_string()
        });
        found.map(|(_, strategy)| strategy).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::unsupported(format!("no strategy is named {text}"))
                .with_remedy(format!("choose from {names}, or 0 to 5"))
        })
    }
}

/// Source of the cubes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cubes {
    /// Generated for the benchmark.
    Generated {
        /// Number of cubes.
        count: usize,
        /// Rows, columns and bands of each.
        shape: CubeSize,
    },
    /// Cubes of the user: a packed dataset, or anything that `hsipack convert` accepts.
    Path {
        /// The path as typed.
        path: String,
        /// At most this many cubes; all if `None`.
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
    /// Number of values in a cube.
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
    /// No augmentation.
    None,
    /// As in the published benchmark: an affine map for half of the cubes, and a flip along each axis for a quarter.
    Published,
    /// By a list of the user.
    Pipeline(Pipeline),
}

/// Settings that are the same for all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Cubes per batch.
    pub batch_size: usize,
    /// Workers of strategies 0 to 3, or decoding threads of the ring.
    pub workers: usize,
    /// Number of measured epochs.
    pub epochs: usize,
    /// Number of warm-up epochs before them.
    pub warmup_epochs: usize,
    /// Work of the device for a batch.
    pub step: StepKind,
    /// `cpu`, `cuda:0`, …
    pub device: String,
    /// How cubes are augmented.
    pub augment: Augment,
    /// Seed of the order and the augmentations.
    pub seed: u64,
    /// Whether to drop the files from the system's cache after every epoch.
    pub drop_cache: bool,
    /// Seconds that every read of a file waits first, as on a network disk.
    #[serde(default)]
    pub latency_s: f64,
}

/// Options of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchOptions {
    /// The cubes.
    pub cubes: Cubes,
    /// The strategies, in the order in which they are run.
    pub strategies: Vec<Strategy>,
    /// Bytes read per second by all workers together; unlimited if `None`.
    pub rate_limits: Vec<Option<u64>>,
    /// Number of times every case is measured.
    pub repeats: usize,
    /// Folder in which files are made.
    pub work_dir: PathBuf,
    /// Whether to keep the files.
    pub keep: bool,
    /// Settings that are the same for all cases.
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

/// The published benchmark's augmentations: an affine map (±45°, 6.25 %, 0.9 to 1.1, reflection) for half of the cubes,
/// and a flip along each axis for a quarter of them.
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
        assert!("6".parse::<Strategy>().unwrap_err().to_string().contains("+gpu-aug"));
    }
    #[test]
    fn only_gpus_decode() {
        assert_eq!(Strategy::all_on("cuda:0"), Strategy::ALL);
        assert_eq!(Strategy::all_on("cpu"), Strategy::ALL[..5]);
    }
}
