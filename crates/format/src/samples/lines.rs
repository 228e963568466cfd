//! The source of the lines of `samples.jsonl`.

use std::ops::Range;

use crate::{Error, Result};

/// The text of `samples.jsonl`, in memory or elsewhere.
pub trait Lines: Send + Sync {
    /// Calls `take` once with the bytes `span` of the text.
    ///
    /// # Errors
    /// If the bytes cannot be read, or `span` is outside the text.
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Adds the name of the file to an error about its content.
    fn locate(&self, error: Error) -> Error {
        error
    }
}

impl Lines for Vec<u8> {
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let line = usize::try_from(span.start)
            .ok()
            .zip(usize::try_from(span.end).ok())
            .and_then(|(start, end)| self.get(start..end));
        let line = line.ok_or_else(|| Error::damaged("a line lies beyond the end"))?;
        take(line);
        Ok(())
    }
}
