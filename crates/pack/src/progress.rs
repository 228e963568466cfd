//! The progress of a long task, and a flag to stop it. Any thread may use both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hsipack_format::{Error, ErrorKind, Result};

/// Counters of a running conversion or validation.
#[derive(Debug, Default)]
pub struct Progress {
    /// Cubes that are done.
    pub cubes: AtomicU64,
    /// Uncompressed bytes read: values of source cubes, or of packed chunks.
    pub bytes_in: AtomicU64,
    /// Bytes written.
    pub bytes_out: AtomicU64,
    /// Set to stop the task. A stopped task can be resumed from its finished parts.
    pub stop: Arc<AtomicBool>,
}

impl Progress {
    /// Returns an error if the user asked to stop.
    ///
    /// # Errors
    /// If [`stop`](Self::stop) is set.
    pub fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Interrupted, "stopped")),
            false => Ok(()),
        }
    }
}
