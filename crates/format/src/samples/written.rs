//! The text of `samples.jsonl` and its index, as they are written.

use super::index::{Builder, Origin};
use super::{Sample, Samples, encode_one};
use crate::Result;

/// Samples that are written: those of a dataset, if it goes on, then new ones.
pub struct Written {
    text: Vec<u8>,
    index: Builder<'static>,
}

impl Written {
    /// The samples of `base`, and nothing yet after them. Its lines stay as they are.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn after(base: Option<&Samples>) -> Result<Self> {
        let Some(base) = base else {
            return Ok(Self { text: Vec::new(), index: Builder::default() });
        };
        let mut text = base.text()?;
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        Ok(Self { text, index: Builder::after(base.index_of_lines(), base.len()) })
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// If it cannot be the next one: it has another number or place, or too long a name or line.
    pub fn add(&mut self, sample: &Sample) -> Result<()> {
        let start = self.text.len();
        encode_one(sample, &mut self.text);
        let line = &self.text[start..self.text.len() - 1];
        let added = self.index.add(start as u64, line);
        added.map_err(|error| error.within(format_args!("sample {}", sample.id)))
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The text and its index; `sha256` is the sum of the text.
    pub fn finish(self, sha256: [u8; 32]) -> (Vec<u8>, Vec<u8>) {
        let origin = Origin { len: self.text.len() as u64, sha256 };
        (self.text, self.index.finish(&origin))
    }
}
