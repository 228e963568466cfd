//! Chunks, decoded by the crate `zarrs`: what it gets to read, and what becomes of its panics.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, Result};
use zarrs::array::{Array, ArrayBytes, ArraySubset, CodecOptions};
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

pub(super) fn open_zarrs(folder: &Path) -> Result<Array<ChunkFiles>> {
    let store = ChunkFiles { folder: folder.to_owned() };
    guarded(|| Array::open(Arc::new(store), "/"))?.map_err(|error| {
        Error::unsupported(format!("cannot decode this array: {error}"))
            .with_remedy(
                "rewrite it with the codecs bytes, blosc, zstd, gzip, zlib, transpose or sharding",
            )
            .caused_by(error)
    })
}

/// The files of one array, for `zarrs` to read.
///
/// Its own file store takes memory for whatever length a shard's index names, and takes files that
/// may not be read for chunks that were never written, which read as the fill value.
pub(super) struct ChunkFiles {
    folder: PathBuf,
}

impl ChunkFiles {
    fn open(&self, key: &StoreKey) -> std::io::Result<Option<(File, u64)>> {
        match File::open(self.folder.join(key.as_str())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(file) => {
                let len = file.metadata()?.len();
                Ok(Some((file, len)))
            }
        }
    }
}

/// Reads the bytes of `range` from a file of `len` bytes.
fn read_range(file: &File, len: u64, range: ByteRange) -> Result<Bytes, StorageError> {
    let (start, count) = match range {
        ByteRange::FromStart(start, Some(count)) => (Some(start), count),
        ByteRange::FromStart(start, None) => (Some(start), len.saturating_sub(start)),
        ByteRange::Suffix(count) => (len.checked_sub(count), count),
    };
    let start =
        start.filter(|start| start.checked_add(count).is_some_and(|end| end <= len)).ok_or_else(
            || StorageError::Other(format!("a chunk of {len} bytes is cut short or damaged")),
        )?;
    let mut bytes = vec![0; count as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.into())
}

impl ReadableStorageTraits for ChunkFiles {
    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some((file, len)) = self.open(key)? else { return Ok(None) };
        Ok(Some(Box::new(ranges.map(move |range| read_range(&file, len, range)))))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        Ok(self.open(key)?.map(|(_, len)| len))
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}

/// Runs `zarrs`, which trusts offsets in shard indexes and adds them unchecked: a damaged file may
/// make it panic, which is an error of the file and not of the program.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        Error::malformed("the array is damaged").with_remedy("copy it again, or write it anew")
    })
}

/// The values of `subset`, native byte order.
pub(super) fn retrieve(array: &Array<ChunkFiles>, subset: &ArraySubset) -> Result<Vec<u8>> {
    // The caller reads from as many threads as it sees fit.
    let options =
        CodecOptions::default().with_concurrent_target(1).with_chunk_concurrent_minimum(1);
    let damaged = |error: &dyn std::fmt::Display| {
        Error::malformed(format!("cannot be decoded: {error}"))
            .with_remedy("copy it again; chunks are cut short or damaged")
    };
    let bytes = guarded(|| array.retrieve_array_subset_opt::<ArrayBytes>(subset, &options))?
        .map_err(|error| damaged(&error).caused_by(error))?;
    let bytes = bytes.into_fixed().map_err(|error| damaged(&error).caused_by(error))?;
    Ok(bytes.into_owned())
}
