//! What is asked for.

use std::path::PathBuf;

use hsipack_format::samples::Condition;

/// Spectra of which regions of which samples.
#[derive(Clone, Debug)]
pub struct SpectraOptions {
    /// The dataset.
    pub dataset: PathBuf,
    /// With the samples that it had when this was its fingerprint; as it is now if `None`.
    pub as_of: Option<String>,
    /// The mask whose classes, or layers, are the regions.
    pub mask: String,
    /// What a region's spectrum is.
    pub statistic: Statistic,
    /// Only samples of these splits; all if empty.
    pub splits: Vec<String>,
    /// Only samples that fulfil this; all if `None`.
    pub condition: Option<Condition>,
    /// Only these samples, by id; all if `None`.
    pub samples: Option<Vec<usize>>,
    /// Regions that have fewer pixels in a cube are left out there.
    pub min_pixels: u64,
    /// Class ids, or numbers of layers, to leave out.
    pub ignore: Vec<u32>,
    /// Whether pixels of class id 0 are a region, too. Of layers, number 0 is one like the others.
    pub background: bool,
    /// Threads.
    pub jobs: usize,
}

impl SpectraOptions {
    /// Mean spectra of all regions of a mask, by one thread a core.
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
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// What a region's spectrum is, band by band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statistic {
    /// The mean of the finite values.
    #[default]
    Mean,
    /// The median of the finite values; of an even number of them the mean of the two in the middle.
    Median,
}

hsipack_format::option_names!(Statistic, "statistic", { Mean => "mean", Median => "median" });
