//! The result of a split. The field names are the keys of `hsipack split --json` and must not
//! change.

use serde::Serialize;

/// The result of a split.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: String,
    /// The mask whose pixels were divided.
    pub mask: String,
    /// Units that were not divided: `pixels`, `blocks` or `regions`.
    pub by: &'static str,
    /// Rows and columns of a block; `null` if not divided by blocks.
    pub block: Option<usize>,
    /// Number of blocks or regions that have labelled pixels; `null` if divided by pixels.
    pub units: Option<usize>,
    /// The seed of the random choices.
    pub seed: u64,
    /// Number of samples of the dataset.
    pub samples: usize,
    /// Number of labelled pixels.
    pub pixels: u64,
    /// The splits. The first one is for training.
    pub splits: Vec<SplitReport>,
    /// The classes, in the order of their ids.
    pub classes: Vec<ClassReport>,
    /// Number of labelled pixels that no split got.
    pub unused: u64,
    /// Rows and columns of the patches that training reads.
    pub patch: [u32; 2],
    /// How many pixels of the other splits the patches around training pixels contain.
    pub seen: Vec<SeenReport>,
    /// Rows and columns around a training pixel in which no other split has a pixel; `null` without
    /// a buffer.
    pub buffer: Option<[u32; 2]>,
    /// Number of training pixels that the buffer removed from all splits.
    pub buffered: u64,
    /// Names of existing masks that were replaced.
    pub replaced: Vec<String>,
    /// Whether this was a dry run that wrote nothing.
    pub dry_run: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// One split.
#[derive(Clone, Debug, Serialize)]
pub struct SplitReport {
    /// Its name.
    pub name: String,
    /// The mask that has its pixels.
    pub mask: String,
    /// Number of its pixels.
    pub pixels: u64,
    /// Its share of all labelled pixels.
    pub share: f64,
    /// Bytes of the mask's shards; 0 if nothing was written.
    pub stored_bytes: u64,
}

/// One class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// Its id.
    pub id: u16,
    /// Its name, if the mask has names.
    pub name: Option<String>,
    /// Number of its labelled pixels.
    pub pixels: u64,
    /// Number of its pixels in each split.
    pub splits: Vec<u64>,
    /// Number of its pixels that no split got.
    pub unused: u64,
    /// Number of its pixels that the buffer removed from training.
    pub buffered: u64,
}

/// How many pixels of one other split the patches around training pixels contain.
#[derive(Clone, Debug, Serialize)]
pub struct SeenReport {
    /// The split.
    pub split: String,
    /// Number of its pixels.
    pub pixels: u64,
    /// Number of its pixels that lie in a patch around a training pixel.
    pub inside: u64,
    /// `inside` as a share of its pixels.
    pub inside_share: f64,
    /// Number of its pixels whose own patch shares pixels with a patch around a training pixel.
    pub overlapping: u64,
    /// `overlapping` as a share of its pixels.
    pub overlapping_share: f64,
}

/// `part` divided by `all`; 0 if `all` is 0.
pub fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}
