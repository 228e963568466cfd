//! The files of one array that are open, and which of its chunks were verified.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use hsipack_format::Error;
use hsipack_format::shard::ShardIndex;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::memory;

use crate::Result;
use crate::store::StoredFile;

/// The open files of one array, and which of its chunks were verified.
#[derive(Debug)]
pub(crate) struct Files {
    pub(super) open: Box<[OnceLock<ShardHandle>]>,
    /// Locked while a file is opened, so that it is opened only once.
    pub(super) opening: Mutex<()>,
    /// One bit per chunk.
    pub(super) verified: Box<[AtomicU64]>,
}

/// A shard file, or the file of one chunk if the array is not sharded.
#[derive(Debug)]
pub(super) struct ShardHandle {
    /// `None` if it was never written: all its values are the fill value.
    pub file: Option<Arc<dyn StoredFile>>,
    pub index: ShardIndex,
}

impl ShardHandle {
    /// Bytes of the file; 0 if it was never written.
    pub(super) fn len(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.len())
    }
}

impl Files {
    /// # Errors
    /// If the metadata claim more chunks than there is memory for notes about them.
    pub(super) fn new(chunks: &ChunkArray) -> Result<Self> {
        let total = chunks.len().checked_mul(chunks.grid().chunks_per_sample());
        let total = total
            .ok_or_else(|| Error::malformed("the array has too many chunks").at(chunks.folder()))?;
        let files = if is_sharded(chunks) { chunks.shards() } else { total };
        Ok(Self {
            open: noted(files, OnceLock::new)?,
            opening: Mutex::default(),
            verified: noted(total.div_ceil(64), || AtomicU64::new(0))?,
        })
    }
}

/// `len` notes about chunks.
fn noted<T>(len: usize, note: impl Fn() -> T) -> Result<Box<[T]>> {
    let what = "the notes about all chunks";
    memory::check((len as u64).saturating_mul(size_of::<T>() as u64), what)?;
    let mut notes = memory::reserved(len, what)?;
    notes.extend((0..len).map(|_| note()));
    Ok(notes.into())
}

pub(crate) fn is_sharded(chunks: &ChunkArray) -> bool {
    chunks.meta().chunk_shape.is_some()
}
