//! What is asked for.

use std::time::Duration;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// A packed dataset, or cubes as `convert` takes them.
    pub paths: Vec<String>,
    /// Files below input folders to leave out: glob patterns.
    pub exclude: Vec<String>,
    /// Uncompressed bytes (float16) to try everything on.
    pub sample: usize,
    /// Fewer candidates, rounds and seconds.
    pub quick: bool,
    /// Decoding threads in training.
    pub cores: usize,
    /// Stored bytes a second that the disk gives; some usual rates where not told.
    pub disk_rate: Option<f64>,
    /// How long the model works on a batch.
    pub step_time: Option<Duration>,
    /// Cubes in a batch.
    pub batch_size: usize,
    /// Rows and columns of windows, where training takes crops or patches.
    pub patch: Option<[u32; 2]>,
}
