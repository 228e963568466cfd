//! Shard files that are open for reading.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::Result;
use hsipack_format::shard::ShardIndex;

use crate::mapping::Mapping;
use crate::remote;
use crate::stores::{ReadBuffer, RemoteStore, Store, StoredFile, coalesce};

/// A shard that is open for reading: a file that is mapped into memory without a descriptor, or an
/// object on a server.
#[derive(Debug)]
pub struct ShardFile {
    bytes: Bytes,
    index: ShardIndex,
    data_len: u64,
}

#[derive(Debug)]
enum Bytes {
    File(Mapping),
    Object(Arc<dyn StoredFile>),
}

impl Bytes {
    fn open(path: &Path) -> Result<Self> {
        match remote::is_url(path) {
            true => RemoteStore::new().open(path).map(Self::Object),
            false => Mapping::open(path).map(Self::File),
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Object(object) => object.len(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Object(object) => object.path(),
        }
    }

    fn with<T>(&self, span: Range<u64>, take: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        match self {
            Self::File(file) => file.with(span, take),
            Self::Object(object) => {
                let (mut take, mut taken) = (Some(take), None);
                object.with_bytes(span, &mut ReadBuffer::new(), &mut |bytes| {
                    taken = take.take().map(|take| take(bytes)).transpose()?;
                    Ok(())
                })?;
                Ok(taken.expect("the closure was called"))
            }
        }
    }
}

impl ShardFile {
    /// Opens a shard of `chunks` chunks and reads its index.
    ///
    /// # Errors
    /// If the file cannot be read, is too short, or its index is damaged; the error names the file.
    pub fn open(path: &Path, chunks: usize) -> Result<Self> {
        let bytes = Bytes::open(path)?;
        let span = ShardIndex::span(chunks, bytes.len()).map_err(|error| error.at(path))?;
        let data_len = span.start;
        let index = bytes
            .with(span, |bytes| ShardIndex::decode(bytes, data_len))
            .map_err(|error| error.at(path))?;
        Ok(Self { bytes, index, data_len })
    }

    /// A hint that these chunks will be needed soon. A mapped file does not need the hint.
    pub(crate) fn ask_ahead(&self, chunks: impl Iterator<Item = usize>) {
        let Bytes::Object(object) = &self.bytes else { return };
        let spans = chunks.filter_map(|chunk| self.index.0[chunk]);
        let mut spans: Vec<_> = spans.map(|span| span.offset..span.offset + span.len).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let near = object.near();
        coalesce(&spans, near.gap, near.run).for_each(|run| object.prefetch(run.span));
    }

    /// The positions of the chunks.
    pub fn index(&self) -> &ShardIndex {
        &self.index
    }

    /// Length of the file in bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len()
    }

    /// Whether the file is empty. A shard that can be opened never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of bytes before the index.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.bytes.path()
    }

    /// Calls `take` with stored chunk `chunk` (frame and checksum), without a copy if possible.
    /// `None` if the chunk was not written.
    ///
    /// # Errors
    /// If the file cannot be read, or `take` fails.
    pub fn with_stored<T>(
        &self,
        chunk: usize,
        take: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(span) = self.index.0[chunk] else { return Ok(None) };
        // The sum cannot overflow or be outside the file: such an index was refused.
        self.bytes.with(span.offset..span.offset + span.len, take).map(Some)
    }
}
