//! Shards being written: in chunk order, the index last.

use std::path::PathBuf;

use hsipack_format::codec::CHECKSUM_LEN;
use hsipack_format::shard::{ChunkSpan, ShardIndex};
use hsipack_format::{Command, Result, remedy};
use hsipack_store::output::{Output, Written};
use hsipack_store::shard::ShardFile;
use sha2::{Digest, Sha256};

/// One shard being written.
pub struct ShardWriter {
    output: Output,
    index: ShardIndex,
    offset: u64,
    checksums: Sha256,
}

/// A shard of which all bytes were handed over.
pub struct FinishedFile {
    /// The file.
    pub file: Written,
    /// Its bytes.
    pub bytes: u64,
    /// SHA-256 over the checksums of its chunks, in their order, and its index.
    pub sha256: String,
}

impl ShardWriter {
    /// Starts the shard at `path`, a file or a URL, with room for `chunks` chunks of `chunk_bytes` bytes uncompressed.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: PathBuf, chunks: usize, chunk_bytes: usize) -> Result<Self> {
        // Compressed chunks are hardly ever larger, and each has a place in the index.
        let most = chunks as u64 * (chunk_bytes as u64 + 64);
        let output = Output::create(path, most)?;
        let checksums = Sha256::new();
        Ok(Self { output, index: ShardIndex::empty(chunks), offset: 0, checksums })
    }

    /// Appends stored chunk `chunk`.
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

    /// Copies the first `chunks` chunks of an existing shard as they are.
    ///
    /// # Errors
    /// If one cannot be read, is damaged, or cannot be written.
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

    /// Writes the index behind the chunks.
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
