//! Where the lines of `samples.jsonl` are read from.

use std::ops::Range;

use crate::{Error, Result};

/// The text of `samples.jsonl`, in memory or elsewhere.
pub trait Lines: Send + Sync {
    /// Hands the bytes `span` of the text to `take`, once.
    ///
    /// # Errors
    /// If they cannot be read, or there are no such bytes.
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Names the file in an error of what it says.
    fn locate(&self, error: Error) -> Error {
        error
    }
}

impl Lines for Vec<u8> {
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let there = usize::try_from(span.start)
            .ok()
            .zip(usize::try_from(span.end).ok())
            .and_then(|(start, end)| self.get(start..end));
        let there = there.ok_or_else(|| Error::damaged("a line lies beyond the end"))?;
        take(there);
        Ok(())
    }
}
