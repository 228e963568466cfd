//! The strategies, and the options of a benchmark.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hsipack_format::CubeShape;
#[cfg(feature = "clap")]
use hsipack_format::arguments::count;
use hsipack_read::plan::DEFAULT_BATCH_SIZE;
use serde::{Deserialize, Serialize};

#[cfg(feature = "clap")]
use super::arguments;
use super::augment::Augment;
use crate::step::StepKind;
use crate::{Error, Result};
use hsipack_store::threads::cores;

/// A way to load data from files onto the device. Each strategy adds one improvement to the one
/// before it.
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
    /// Decoded on the device: the ring holds compressed chunks. Not published; for CUDA devices
    /// only.
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
        Self::ALL.into_iter().filter(|strategy| on_gpu || *strategy != Self::DeviceDecode).collect()
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

impl Default for CubeSize {
    /// The size of generated cubes.
    fn default() -> Self {
        Self { rows: 480, columns: 640, bands: 100 }
    }
}

impl FromStr for CubeSize {
    type Err = Error;

    /// Parses `480x640x100`.
    fn from_str(text: &str) -> Result<Self> {
        let sizes = text
            .split(['x', 'X'])
            .map(|part| part.parse().ok().filter(|size| (1..=1 << 20).contains(size)));
        match sizes.collect::<Option<Vec<usize>>>().as_deref() {
            Some(&[rows, columns, bands]) => Ok(Self { rows, columns, bands }),
            _ => Err(Error::conflict(format!("{text} is not the size of a cube"))
                .with_remedy("give ROWSxCOLUMNSxBANDS of at least 1 each, such as 480x640x100")),
        }
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

/// Settings that are the same for all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct Settings {
    /// Number of cubes in a batch
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = DEFAULT_BATCH_SIZE, value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Training"))]
    pub batch_size: usize,
    /// Number of workers in strategies 0 to 3, and of decoding threads in the others
    /// [default: one per core]
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = cores(), hide_default_value = true, value_parser = count(1..=1024), help_heading = "Training"))]
    pub workers: usize,
    /// Number of epochs to measure each time
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = 3, value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Cases"))]
    pub epochs: usize,
    /// Number of epochs to run before the measured ones, each time
    ///
    /// If the device augments or trains a network, more epochs are run, until there were three
    /// times as many batches as there is room for.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 1, value_parser = count(0..=u64::from(u32::MAX)), help_heading = "Cases"))]
    pub warmup_epochs: usize,
    /// Work of the device for a batch.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub step: StepKind,
    /// Device that batches go to: cpu (auto is the same), or cuda or cuda:1, which need the Python
    /// package with torch
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAME", default_value = "auto", help_heading = "Training")
    )]
    pub device: String,
    /// How cubes are augmented.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub augment: Augment,
    /// Seed of everything that is drawn: the order and augmentations
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = 0, help_heading = "Training")
    )]
    pub seed: u64,
    /// Drop the files from the system's file cache after every epoch, to measure reading from the
    /// disk
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Cases"))]
    pub drop_cache: bool,
    /// Wait this long before every read of a file, such as 2ms, as on a network disk
    /// [default: no wait]
    #[cfg_attr(feature = "clap", arg(long = "latency", value_name = "TIME", value_parser = arguments::seconds, default_value = "0s", hide_default_value = true, help_heading = "Cases"))]
    pub latency_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_size: DEFAULT_BATCH_SIZE,
            workers: cores(),
            epochs: 3,
            warmup_epochs: 1,
            step: StepKind::Time(0.05),
            device: "auto".to_owned(),
            augment: Augment::default(),
            seed: 0,
            drop_cache: false,
            latency_s: 0.0,
        }
    }
}

/// The options of a benchmark. The feature `clap` makes them arguments of `hsipack bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(mut_arg("step_time", |arg| arg.default_value("50ms"))))]
#[serde(default)]
pub struct BenchOptions {
    /// A packed dataset, or cubes as `hsipack convert` takes them [default: generated cubes]
    pub path: Option<String>,
    /// Number of cubes to generate (12 by default), or maximum number of cubes to take from PATH
    /// [default: all of PATH]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Cubes"))]
    pub cubes: Option<usize>,
    /// Size of the generated cubes
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "ROWSxCOLUMNSxBANDS",
            default_value_t,
            conflicts_with = "path",
            help_heading = "Cubes"
        )
    )]
    pub shape: CubeSize,
    /// Folder below which to make the files of all strategies [default: the working directory]
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "DIR",
            default_value = ".",
            hide_default_value = true,
            help_heading = "Cubes"
        )
    )]
    pub work_dir: PathBuf,
    /// Keep the files; the same command uses the files of generated cubes again
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Cubes"))]
    pub keep: bool,
    /// Strategies, by name or number from 0, separated by commas
    /// [default: all that the device can run]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Cases")
    )]
    pub strategies: Vec<Strategy>,
    /// Read at most this many bytes per second, for all workers together, such as 1000MB/s, or
    /// unlimited (repeatable) [default: unlimited]
    #[serde(rename = "rate_limit")]
    #[cfg_attr(feature = "clap", arg(long = "rate-limit", value_name = "BYTES/s", value_parser = arguments::rate_limit, help_heading = "Cases"))]
    pub rate_limits: Vec<Option<u64>>,
    /// How often to measure every case
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 3, value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Cases"))]
    pub repeats: usize,
    /// Settings that are the same for all cases.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub settings: Settings,
}

/// The default number of generated cubes.
const CUBES: usize = 12;

impl Default for BenchOptions {
    fn default() -> Self {
        Self {
            path: None,
            cubes: None,
            shape: CubeSize::default(),
            work_dir: PathBuf::from("."),
            keep: false,
            strategies: Vec::new(),
            rate_limits: Vec::new(),
            repeats: 3,
            settings: Settings::default(),
        }
    }
}

impl BenchOptions {
    /// The source of the cubes.
    pub fn source(&self) -> Cubes {
        match &self.path {
            Some(path) => Cubes::Path { path: path.clone(), count: self.cubes },
            None => Cubes::Generated { count: self.cubes.unwrap_or(CUBES), shape: self.shape },
        }
    }

    /// The strategies to measure, each once, in their order.
    pub fn strategies(&self) -> Vec<Strategy> {
        let mut strategies = self.strategies.clone();
        if strategies.is_empty() {
            strategies = Strategy::all_on(&self.settings.device);
        }
        strategies.sort_unstable();
        strategies.dedup();
        strategies
    }

    /// The rates to measure at, each once; unlimited if `None`.
    pub fn rate_limits(&self) -> Vec<Option<u64>> {
        let mut rates = Vec::new();
        for rate in &self.rate_limits {
            if !rates.contains(rate) {
                rates.push(*rate);
            }
        }
        if rates.is_empty() {
            rates.push(None);
        }
        rates
    }
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
