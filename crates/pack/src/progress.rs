//! How far a long task is, and the wish to stop it; both safe to use from any thread.

use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a conversion or validation has done so far.
#[derive(Debug, Default)]
pub struct Progress {
    /// Cubes that are done.
    pub cubes: AtomicU64,
    /// Uncompressed bytes taken in: values of source cubes, or of packed chunks.
    pub bytes_in: AtomicU64,
    /// Bytes written.
    pub bytes_out: AtomicU64,
    /// Set to stop; what is finished can be resumed from.
    pub stop: AtomicBool,
}
