//! What a split came to. The field names are the keys of `hsipack split --json`; they stay.

use serde::Serialize;

/// What a split came to.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: String,
    /// The mask whose pixels were divided.
    pub mask: String,
    /// What is kept whole: `pixels`, `blocks` or `regions`.
    pub by: &'static str,
    /// Rows and columns of a block; `null` if not by blocks.
    pub block: Option<usize>,
    /// Blocks or regions that have labelled pixels; `null` by pixels.
    pub units: Option<usize>,
    /// What was drawn by.
    pub seed: u64,
    /// Samples of the dataset.
    pub samples: usize,
    /// Labelled pixels.
    pub pixels: u64,
    /// The splits, the first of which is for training.
    pub splits: Vec<SplitReport>,
    /// The classes, in the order of their ids.
    pub classes: Vec<ClassReport>,
    /// Labelled pixels that no share is of.
    pub unused: u64,
    /// Rows and columns of the patches that training reads.
    pub patch: [u32; 2],
    /// What patches around training pixels see of the other splits.
    pub seen: Vec<SeenReport>,
    /// Rows and columns within which no pixel of another split is near a training pixel; `null` without a buffer.
    pub buffer: Option<[u32; 2]>,
    /// Training pixels that the buffer took out of all splits.
    pub buffered: u64,
    /// Masks of these names were there and got replaced.
    pub replaced: Vec<String>,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Seconds it took.
    pub seconds: f64,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// One split.
#[derive(Clone, Debug, Serialize)]
pub struct SplitReport {
    /// Its name.
    pub name: String,
    /// The mask that has its pixels.
    pub mask: String,
    /// Its pixels.
    pub pixels: u64,
    /// Its part of all labelled pixels.
    pub share: f64,
    /// Bytes of the mask's shards; 0 if nothing was written.
    pub stored_bytes: u64,
}

/// One class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    /// Its id.
    pub id: u16,
    /// Its name, where the mask has names.
    pub name: Option<String>,
    /// Its labelled pixels.
    pub pixels: u64,
    /// Those of each split.
    pub splits: Vec<u64>,
    /// Those that no share is of.
    pub unused: u64,
    /// Those that the buffer took out of training.
    pub buffered: u64,
}

/// What patches around training pixels see of one other split.
#[derive(Clone, Debug, Serialize)]
pub struct SeenReport {
    /// The split.
    pub split: String,
    /// Its pixels.
    pub pixels: u64,
    /// Its pixels that lie in a patch around a training pixel.
    pub inside: u64,
    /// The same as a part of its pixels.
    pub inside_share: f64,
    /// Its pixels whose own patch shares pixels with one around a training pixel.
    pub overlapping: u64,
    /// The same as a part of its pixels.
    pub overlapping_share: f64,
}

/// `part` of `all`; 0 of nothing.
pub fn share(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}
