//! Shard files, open for reading.

use std::path::Path;

use hsipack_format::Result;
use hsipack_format::shard::ShardIndex;

use crate::mapping::Mapping;

/// A shard file open for reading: mapped into memory, no descriptor held.
#[derive(Debug)]
pub struct ShardFile {
    file: Mapping,
    index: ShardIndex,
    data_len: u64,
}

impl ShardFile {
    /// Opens a shard of `chunks` chunks and reads its index.
    ///
    /// # Errors
    /// If the file cannot be read, is too short, or its index is damaged; all name the file.
    pub fn open(path: &Path, chunks: usize) -> Result<Self> {
        let file = Mapping::open(path)?;
        let span = ShardIndex::span(chunks, file.len()).map_err(|error| error.at(path))?;
        let data_len = span.start;
        let index = file
            .with(span, |bytes| ShardIndex::decode(bytes, data_len))
            .map_err(|error| error.at(path))?;
        Ok(Self { file, index, data_len })
    }

    /// Where the chunks lie.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Bytes of the file before the index.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives `take` stored chunk `chunk`, frame and checksum, where it lies; `None` if it was not written.
    ///
    /// # Errors
    /// If the file cannot be read, or `take` fails.
    pub fn with_stored<T>(
        &self,
        chunk: usize,
        take: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(span) = self.index.0[chunk] else { return Ok(None) };
        // The index was refused if the sum overflows or lies outside the file.
        self.file.with(span.offset..span.offset + span.len, take).map(Some)
    }
}
