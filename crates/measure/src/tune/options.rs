//! The options of a tuning run.

use std::time::Duration;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{bytes, count, duration, pixels, rate};
use hsipack_read::plan::DEFAULT_BATCH_SIZE;
use serde::{Deserialize, Serialize};

use hsipack_store::threads::cores;

/// The options of a tuning run. The feature `clap` makes them arguments of `hsipack tune`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct TuneOptions {
    /// A packed dataset, or files, folders, archives, globs, file::variable, CSV lists
    #[cfg_attr(feature = "clap", arg(required = true, value_name = "PATH"))]
    pub paths: Vec<String>,
    /// Skip files and folders below input folders whose path or name matches this glob (repeatable)
    #[cfg_attr(feature = "clap", arg(long, value_name = "GLOB"))]
    pub exclude: Vec<String>,
    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    #[cfg_attr(feature = "clap", arg(long, value_name = "AXES"))]
    pub axes: Option<String>,
    /// Try fewer candidates in fewer rounds: about 10 s instead of a minute
    #[cfg_attr(feature = "clap", arg(long))]
    pub quick: bool,
    /// Rate of the disk that training reads from, in stored bytes per second, such as 1000MB/s
    /// [default: unlimited, 1000, 500 and 100 MB/s, side by side]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES/s", value_parser = rate, help_heading = "Training"))]
    pub disk_rate: Option<u64>,
    /// Time of the training step for a batch, such as 50ms [default: no time]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration, help_heading = "Training"))]
    pub step_time: Option<Duration>,
    /// Number of cubes in a batch
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = DEFAULT_BATCH_SIZE, value_parser = count(1..=u64::from(u32::MAX)), help_heading = "Training"))]
    pub batch_size: usize,
    /// Size in pixels of the crops or patches that training reads. Shows what they cost with
    /// different chunk shapes, and what loaders do about it
    #[cfg_attr(feature = "clap", arg(long, value_name = "RxC", value_parser = pixels, help_heading = "Training"))]
    pub patch: Option<[u32; 2]>,
    /// Number of cores that decode in training; results for more cores than this machine has are
    /// extrapolated in proportion [default: all cores of this machine]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = cores(), hide_default_value = true, value_parser = count(1..=1024), help_heading = "Training"))]
    pub cores: usize,
    /// Device that batches go to: cuda (the first one), cuda:1, …. Also measures decoding on it,
    /// with several sizes of blocks, and chooses for it [default: only the CPU decodes]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DEVICE", help_heading = "Training"))]
    pub device: Option<String>,
    /// Uncompressed size of the cubes to try everything on. Needs about 20 times as much memory
    /// [default: 48MB, with --quick 16MB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Measuring"))]
    pub sample_size: Option<usize>,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            paths: Vec::new(),
            exclude: Vec::new(),
            axes: None,
            quick: false,
            disk_rate: None,
            step_time: None,
            batch_size: DEFAULT_BATCH_SIZE,
            patch: None,
            cores: cores(),
            device: None,
            sample_size: None,
        }
    }
}

impl TuneOptions {
    /// Size of the sample, in uncompressed bytes (float16).
    pub(super) fn sample_bytes(&self) -> usize {
        self.sample_size.unwrap_or(if self.quick { 16_000_000 } else { 48_000_000 })
    }
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    #[test]
    fn flags_set_the_options_of_their_names() {
        let parsed = |words: &str| {
            let command = TuneOptions::augment_args(Command::new("tune")).no_binary_name(true);
            TuneOptions::from_arg_matches(&command.try_get_matches_from(words.split(' '))?)
        };
        let default = parsed("cubes").unwrap();
        let expected = TuneOptions { paths: vec!["cubes".to_owned()], ..TuneOptions::default() };
        let json = |options: &TuneOptions| serde_json::to_string(options).unwrap();
        assert_eq!(json(&default), json(&expected));
        assert_eq!(default.sample_bytes(), 48_000_000);
        assert_eq!(parsed("cubes --quick").unwrap().sample_bytes(), 16_000_000);
        let options = parsed("a b --disk-rate 5MB/s --patch 9 --step-time 1ms --cores 3").unwrap();
        assert_eq!((options.disk_rate, options.patch), (Some(5_000_000), Some([9, 9])));
        assert_eq!((options.step_time, options.cores), (Some(Duration::from_millis(1)), 3));
        for wrong in ["a --batch-size 0", "a --cores 0", "a --disk-rate 5", "--quick"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
