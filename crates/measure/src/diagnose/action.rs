//! A change that may make training faster.

use hsipack_read::CacheKind;
use serde::{Deserialize, Serialize};

/// A change to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum Action {
    /// Keep samples in memory.
    Cache {
        /// As stored, or decoded; or the default, which is decoded if all samples fit.
        cache: CacheKind,
        /// Bytes of memory needed.
        bytes: u64,
    },
    /// Shuffle windows within a few blocks of cubes that are held decoded, as loaders do by
    /// default.
    ShuffleWindow {
        /// Bytes of memory needed.
        bytes: u64,
        /// Number of times that a chunk is then decoded per epoch.
        decoded: f64,
    },
    /// Decode with this many threads, or load with this many workers.
    Threads {
        /// Number of threads or workers.
        threads: usize,
    },
    /// Leave out an augmentation, or find a cheaper one.
    Without {
        /// Index of the augmentation, from 0.
        index: usize,
        /// Its name.
        name: String,
    },
    /// Train on crops.
    Crop {
        /// Rows and columns of the crops.
        pixels: [u32; 2],
    },
    /// Page-lock batches and copy them asynchronously.
    Pin,
    /// A change that no option makes.
    Other,
}
