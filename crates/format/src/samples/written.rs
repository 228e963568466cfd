//! Writing the text of `samples.jsonl` and its index.

use super::index::{Builder, Origin, UNKNOWN};
use super::{Sample, Samples, encode_one};
use crate::{Error, Result, checksums};

/// Builds the index of a list of samples; `sha256` is the checksum of their text.
pub fn index_of(samples: &Samples, sha256: [u8; 32]) -> Vec<u8> {
    let index = samples.index_of_lines();
    let origin = Origin { len: index.end_of(samples.len()), sha256 };
    Builder::after(index, samples.len()).finish(&origin)
}

/// Samples to be written: those of an existing dataset, if samples are appended to it, then the new
/// ones.
pub struct Written {
    text: Vec<u8>,
    index: Builder<'static>,
}

impl Written {
    /// Starts with the samples of `base`. Their lines stay as they are.
    ///
    /// # Errors
    /// If they cannot be read, or differ from the lines that were indexed: a damaged text must not
    /// get a new checksum.
    pub fn after(base: Option<&Samples>) -> Result<Self> {
        let Some(base) = base else {
            return Ok(Self { text: Vec::new(), index: Builder::default() });
        };
        let mut text = base.text()?;
        let (index, sum) = (base.index_of_lines(), base.index_of_lines().origin().sha256);
        if base.len() == index.len() && sum != UNKNOWN && checksums::digest(&text) != sum {
            return Err(base.locate(Error::damaged("the file does not match SHA256SUMS")));
        }
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        Ok(Self { text, index: Builder::after(index, base.len()) })
    }

    /// Adds a sample.
    ///
    /// # Errors
    /// If it cannot be the next sample: its id or position does not follow, or its name or line is
    /// too long.
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

    /// The text and its index; `sha256` is the checksum of the text.
    pub fn finish(self, sha256: [u8; 32]) -> (Vec<u8>, Vec<u8>) {
        let origin = Origin { len: self.text.len() as u64, sha256 };
        (self.text, self.index.finish(&origin))
    }
}
