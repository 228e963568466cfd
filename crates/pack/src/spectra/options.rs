//! Options: which spectra to compute.

use std::path::PathBuf;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{class_list, condition, count, one_of};
use hsipack_format::samples::Condition;
use hsipack_store::threads::cores;

/// Selects the samples and regions, and the statistic. The feature `clap` makes these options
/// arguments of `hsipack spectra`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct SpectraOptions {
    /// A packed dataset: a folder, or its URL
    pub dataset: PathBuf,
    /// Uses the samples that the dataset had when it had this fingerprint; `None` uses its present
    /// samples.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub as_of: Option<String>,
    /// Mask whose classes, or layers, are the regions
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub mask: String,
    /// Statistic of each band over the pixels of a region: mean or median
    ///
    /// The median is exact, and keeps the values of the region in a cube in memory, 8 bytes each.
    /// If they take more than 256 MiB, the bands are done in parts, one after the other.
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = one_of(&Statistic::ALL), default_value_t = Statistic::Mean))]
    pub statistic: Statistic,
    /// Read only cubes of these splits, such as train or train,val (repeatable)
    /// [default: all cubes]
    #[cfg_attr(feature = "clap", arg(long = "split", value_name = "NAME", value_delimiter = ','))]
    pub splits: Vec<String>,
    /// Read only cubes that meet a condition on the columns of samples.jsonl, such as "label ==
    /// 'urban' and cloud < 10" [default: all cubes]
    ///
    /// A condition may have ==, !=, <, <=, >, >=, in ('a', 'b'), and, or, not, and brackets.
    #[cfg_attr(feature = "clap", arg(long = "where", value_name = "CONDITION", value_parser = condition))]
    pub condition: Option<Condition>,
    /// Only samples with these ids; all samples if `None`.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub samples: Option<Vec<usize>>,
    /// Skip regions with fewer pixels
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 1))]
    pub min_pixels: u64,
    // With its path, the type is one value for clap: a list.
    /// Treat these classes as unlabelled, or layers by number, such as 255 or 4,7-9
    /// [default: none except class 0]
    #[cfg_attr(feature = "clap", arg(long, value_name = "LIST", value_parser = class_list, default_value = "", hide_default_value = true))]
    pub ignore: std::vec::Vec<u32>,
    // Layer 0 is always treated like any other layer.
    /// Treat class 0 as a region, too [default: its pixels are unlabelled]
    #[cfg_attr(feature = "clap", arg(long))]
    pub background: bool,
    /// Number of threads; each has a cube of its own [default: one per core]
    #[cfg_attr(feature = "clap", arg(short = 'j', long, alias = "jobs", value_parser = count(1..=1024), default_value_t = cores(), hide_default_value = true))]
    pub threads: usize,
}

impl SpectraOptions {
    /// Mean spectra of all regions of a mask, with one thread for each core.
    pub fn new(dataset: impl Into<PathBuf>, mask: impl Into<String>) -> Self {
        Self {
            dataset: dataset.into(),
            as_of: None,
            mask: mask.into(),
            statistic: Statistic::Mean,
            splits: Vec::new(),
            condition: None,
            samples: None,
            min_pixels: 1,
            ignore: Vec::new(),
            background: false,
            threads: cores(),
        }
    }
}

/// The statistic that makes a region's spectrum, band by band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statistic {
    /// The mean of the finite values.
    #[default]
    Mean,
    /// The median of the finite values. If their number is even, the mean of the two in the middle.
    Median,
}

hsipack_format::option_names!(Statistic, "statistic", { Mean => "mean", Median => "median" });
