//! Writes shards: the chunks in order, then the index.

use std::path::PathBuf;

use hsipack_format::codec::CHECKSUM_LEN;
use hsipack_format::shard::{ChunkSpan, ShardIndex};
use hsipack_format::{Command, Result, remedy};
use hsipack_store::output::{Output, Written};
use hsipack_store::shard::ShardFile;
use sha2::{Digest, Sha256};

/// A shard that is being written.
pub struct ShardWriter {
    output: Output,
    index: ShardIndex,
    offset: u64,
    checksums: Sha256,
}

/// A shard that has been written completely, but is not committed yet.
pub struct FinishedFile {
    /// The file.
    pub file: Written,
    /// Its size in bytes.
    pub bytes: u64,
    /// SHA-256 over the checksums of its chunks, in their order, and its index.
    pub sha256: String,
}

impl ShardWriter {
    /// Creates the shard at `path`, a file or a URL, with room for `chunks` chunks of `chunk_bytes`
    /// uncompressed bytes.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: PathBuf, chunks: usize, chunk_bytes: usize) -> Result<Self> {
        // Compressed chunks are hardly ever larger than uncompressed ones, and each has an entry in the index.
        let most = chunks as u64 * (chunk_bytes as u64 + 64);
        let output = Output::create(path, most)?;
        let checksums = Sha256::new();
        Ok(Self { output, index: ShardIndex::empty(chunks), offset: 0, checksums })
    }

    /// Appends the stored bytes of chunk `chunk`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, chunk: usize, stored: &[u8]) -> Result<()> {
        self.output.write(stored)?;
        self.checksums.update(&stored[stored.len().saturating_sub(CHECKSUM_LEN)..]);
        let len = stored.len() as u64;
        self.index.0[chunk] = Some(ChunkSpan { offset: self.offset, len });
        self.offset += len;
        Ok(())
    }

    /// Copies the first `chunks` chunks of an existing shard unchanged.
    ///
    /// # Errors
    /// If a chunk cannot be read, is damaged, or cannot be written.
    pub fn carry(&mut self, from: &ShardFile, chunks: usize) -> Result<()> {
        for chunk in 0..chunks {
            from.with_stored(chunk, |stored| {
                hsipack_format::codec::verify(stored).map_err(|error| {
                    error.at(from.path()).with_remedy(remedy![
                        "first run ",
                        Command::Validate,
                        ", then ",
                        Command::Repair
                    ])
                })?;
                self.write(chunk, stored)
            })?;
        }
        Ok(())
    }

    /// Writes the index after the chunks.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<FinishedFile> {
        let index = self.index.encode();
        self.output.write(&index)?;
        self.checksums.update(&index);
        let sha256 = self.checksums.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = self.offset + index.len() as u64;
        Ok(FinishedFile { file: self.output.finish()?, bytes, sha256 })
    }
}
