//! The options of a tuning run.

use std::time::Duration;

/// The options of a tuning run.
#[derive(Clone, Debug)]
pub struct Options {
    /// A packed dataset, or cubes in any form that `convert` accepts.
    pub paths: Vec<String>,
    /// Files in input folders to skip: glob patterns.
    pub exclude: Vec<String>,
    /// Size of the sample, in uncompressed bytes (float16).
    pub sample: usize,
    /// Use fewer candidates, fewer rounds and less time.
    pub quick: bool,
    /// Decoding threads in training.
    pub cores: usize,
    /// Stored bytes per second of the disk; some usual rates if `None`.
    pub disk_rate: Option<f64>,
    /// Time that the model needs for a batch.
    pub step_time: Option<Duration>,
    /// Cubes per batch.
    pub batch_size: usize,
    /// Rows and columns of windows, if training uses crops or patches.
    pub patch: Option<[u32; 2]>,
}
