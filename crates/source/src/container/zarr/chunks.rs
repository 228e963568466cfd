//! Decodes chunks with the crate `zarrs`: limits what it reads, and turns its panics into errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;
use zarrs::array::{Array, ArrayBytes, ArraySubset, CodecOptions};
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

use super::metadata::{ShardIndex, Stored};
use super::{decoded, inflate};

pub(super) fn open_zarrs(folder: &Path, stored: &Stored) -> Result<Array<ChunkFiles>> {
    let store = ChunkFiles { folder: folder.to_owned(), stored: stored.clone() };
    inflate::register();
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
/// The file store of `zarrs` allocates memory for any length that a shard's index states. It takes
/// files that it may not read for chunks that were never written, which read as the fill value. And
/// it trusts what it reads. Therefore a shard's index is checked against the shard, and compressed
/// chunks against the size that they should have, before `zarrs` gets them.
pub(super) struct ChunkFiles {
    folder: PathBuf,
    stored: Stored,
}

/// A file of an array.
struct ChunkFile {
    file: Window,
    len: u64,
    /// Where the chunks of a shard lie; empty for other files.
    chunks: Vec<(u64, u64)>,
}

fn refused(what: impl Into<String>) -> StorageError {
    StorageError::Other(what.into())
}

impl ChunkFiles {
    fn open(&self, key: &StoreKey) -> Result<Option<ChunkFile>, StorageError> {
        let path = self.folder.join(key.as_str());
        if path.metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let file = bounded_read::window(&path).map_err(|error| refused(error.to_string()))?;
        let len = file.len();
        let mut file = ChunkFile { file, len, chunks: Vec::new() };
        if let Some(index) = self.stored.shards.filter(|_| !key.as_str().ends_with(".json")) {
            file.chunks = file.index(&index)?;
        }
        Ok(Some(file))
    }

    /// The bytes of `range`. An error if a chunk in them decodes to more than a chunk may.
    fn read(&self, file: &ChunkFile, range: ByteRange) -> Result<Bytes, StorageError> {
        let (start, bytes) = file.read(range)?;
        let Some(compressor) = self.stored.compressor else { return Ok(bytes) };
        let whole_shard = !file.chunks.is_empty() && start == 0 && bytes.len() as u64 == file.len;
        let fits = match whole_shard {
            true => file.chunks.iter().all(|(offset, len)| {
                let chunk = &bytes[*offset as usize..(offset + len) as usize];
                decoded::fits(compressor, chunk, self.stored.decoded)
            }),
            false => decoded::fits(compressor, &bytes, self.stored.decoded),
        };
        match fits {
            true => Ok(bytes),
            false => Err(refused(format!(
                "a chunk decodes to more than the {} bytes that the metadata state",
                self.stored.decoded
            ))),
        }
    }
}

impl ChunkFile {
    /// The bytes of `range`, and where they start.
    fn read(&self, range: ByteRange) -> Result<(u64, Bytes), StorageError> {
        let len = self.len;
        let (start, count) = match range {
            ByteRange::FromStart(start, Some(count)) => (Some(start), count),
            ByteRange::FromStart(start, None) => (Some(start), len.saturating_sub(start)),
            ByteRange::Suffix(count) => (len.checked_sub(count), count),
        };
        let start = start
            .filter(|start| start.checked_add(count).is_some_and(|end| end <= len))
            .ok_or_else(|| refused(format!("a chunk of {len} bytes is cut short or damaged")))?;
        let mut bytes = vec![0; count as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok((start, bytes.into()))
    }

    /// Where the chunks lie in a shard. An error if one lies outside of it.
    fn index(&self, index: &ShardIndex) -> Result<Vec<(u64, u64)>, StorageError> {
        let len = index.bytes();
        let range = match index.at_start {
            true => ByteRange::FromStart(0, Some(len)),
            false => ByteRange::Suffix(len),
        };
        let (_, bytes) = self.read(range)?;
        let number = |raw: &[u8; 8]| match index.big_endian {
            true => u64::from_be_bytes(*raw),
            false => u64::from_le_bytes(*raw),
        };
        let (numbers, _) = bytes[..(index.chunks * 16) as usize].as_chunks::<8>();
        let (pairs, _) = numbers.as_chunks::<2>();
        let chunks = pairs.iter().map(|[offset, len]| (number(offset), number(len)));
        // Skip chunks that were never written.
        let chunks: Vec<_> = chunks.filter(|pair| *pair != (u64::MAX, u64::MAX)).collect();
        let inside = |(offset, len): &(u64, u64)| {
            offset.checked_add(*len).is_some_and(|end| end <= self.len)
        };
        match chunks.iter().all(inside) {
            true => Ok(chunks),
            false => Err(refused("the index of a shard refers to chunks outside it")),
        }
    }
}

impl ReadableStorageTraits for ChunkFiles {
    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some(file) = self.open(key)? else { return Ok(None) };
        Ok(Some(Box::new(ranges.map(move |range| self.read(&file, range)))))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        Ok(self.open(key)?.map(|file| file.len))
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}

/// Runs `zarrs`. If a damaged file makes it panic in spite of all checks before, this becomes an
/// error about the file.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        Error::malformed("the array is damaged").with_remedy("copy it again, or write it again")
    })
}

/// The values of `subset`, native byte order.
pub(super) fn retrieve(array: &Array<ChunkFiles>, subset: &ArraySubset) -> Result<Vec<u8>> {
    // The caller decides how many threads read.
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
