//! Options: which spectra to compute.

use std::path::PathBuf;

use hsipack_format::samples::Condition;

/// Selects the samples and regions, and the statistic.
#[derive(Clone, Debug)]
pub struct SpectraOptions {
    /// The dataset.
    pub dataset: PathBuf,
    /// Uses the samples that the dataset had when it had this fingerprint; `None` uses its present samples.
    pub as_of: Option<String>,
    /// The mask whose classes, or layers, are the regions.
    pub mask: String,
    /// The statistic that makes a region's spectrum.
    pub statistic: Statistic,
    /// Only samples of these splits; all samples if empty.
    pub splits: Vec<String>,
    /// Only samples that fulfil this condition; all samples if `None`.
    pub condition: Option<Condition>,
    /// Only samples with these ids; all samples if `None`.
    pub samples: Option<Vec<usize>>,
    /// A region with fewer pixels in a cube is skipped in that cube.
    pub min_pixels: u64,
    /// Class ids, or numbers of layers, to skip.
    pub ignore: Vec<u32>,
    /// Whether pixels of class id 0 are also a region. Layer 0 is always treated like any other layer.
    pub background: bool,
    /// Number of threads.
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
            threads: std::thread::available_parallelism().map_or(1, usize::from),
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
