//! A dataset in the cache, and its shards, for readers.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hsipack_format::checksums::sha256;
use hsipack_format::{Error, Result};

use super::LocalCache;
use super::blocks;
use super::claims::{Claim, Claims};
use super::folder::{self, CacheFolder};
use super::state::{CacheState, found};
use super::table::{BlockTable, ShardBlocks};
use super::use_plan::UsePlan;
use super::writer::Writer;
use crate::span_pool::SpanBytes;
use crate::stores::{FileMapper, raise_descriptor_limit};

/// Maximum number of blocks that are kept open. The pages of a file that stays mapped are available
/// at once in the next epoch.
const OPEN: usize = 8192;
/// The part of the local cache for one dataset.
#[derive(Debug)]
pub struct CachedDataset {
    shared: Arc<CacheState>,
    writer: Arc<Writer>,
}

/// How this process has used the cache since the dataset was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LocalCacheUse {
    /// The cache's folder.
    pub folder: PathBuf,
    /// Its maximum size in bytes.
    pub limit_bytes: u64,
    /// Its current size in bytes, for all datasets.
    pub total_bytes: u64,
    /// Bytes of chunks that were read from the cache, and of blocks that were needed again before
    /// they were written.
    pub read_bytes: u64,
    /// Bytes of blocks that were fetched and kept.
    pub kept_bytes: u64,
    /// Bytes of blocks that were fetched and not kept, mostly because the blocks in the cache are
    /// needed sooner.
    pub passed_bytes: u64,
    /// Bytes of blocks that were dropped to make room.
    pub dropped_bytes: u64,
    /// Number of damaged blocks.
    pub damaged: u64,
    /// The last problem, such as a full disk. Reading continues without the cache.
    pub problem: Option<String>,
}

/// A shard of a dataset that is cached.
#[derive(Clone, Debug)]
pub(crate) struct CachedShard {
    shared: Arc<CacheState>,
    writer: Arc<Writer>,
    number: u32,
    blocks: Arc<ShardBlocks>,
}

impl LocalCache {
    /// The part of the cache for the dataset at the URL `root` with this fingerprint.
    ///
    /// # Errors
    /// If the folder cannot be created or is not a cache, or if its disk does not support locks.
    pub fn dataset(&self, fingerprint: &str, root: &Path) -> Result<CachedDataset> {
        let cache = CacheFolder::create(&self.folder)?;
        let folder = cache.dataset(fingerprint);
        let others_read_it = folder.is_dir() && folder::lock_unused(&folder, false).is_none();
        let in_use = folder::use_dataset(&folder, root)?;
        let held = {
            let mut locked = cache.lock()?;
            cache.recount(&mut locked)?;
            locked.total()
        };
        let limit = match self.bytes {
            Some(bytes) => bytes,
            None => (free(cache.path())? + held) / 2,
        };
        let may_be_open = OPEN.min(raise_descriptor_limit() as usize / 4);
        let table = BlockTable::new(found(&folder), may_be_open);
        let claims = Claims::open(&folder);
        let shared = CacheState {
            cache,
            folder,
            root: root.to_owned(),
            limit,
            in_use: Mutex::new(Some(in_use)),
            claims,
            passes: AtomicBool::new(false),
            table: Mutex::new(table),
            files: FileMapper::default(),
            read: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        };
        if self.bytes.is_some() && held > limit {
            shared.shrink(others_read_it)?;
        }
        Ok(CachedDataset { shared: Arc::new(shared), writer: Arc::new(Writer::new()) })
    }
}

/// Free bytes on the disk of a folder.
fn free(folder: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(folder).map_err(|error| {
        Error::io(folder, "cannot find out how much space is free", error.into())
    })?;
    Ok(disk.f_bavail * disk.f_frsize)
}

impl CachedDataset {
    /// The shard at `path`. `chunks` are the positions of its chunks, `per_sample` for each cube.
    pub(crate) fn shard(
        &self,
        path: &Path,
        chunks: &[Option<Range<u64>>],
        per_sample: usize,
    ) -> CachedShard {
        let below = path.strip_prefix(&self.shared.root).unwrap_or(path);
        let shard = hash(below, chunks);
        let spans = blocks::cut(chunks, per_sample);
        let (number, blocks) = self.shared.lock().add_shard(shard, spans);
        CachedShard { shared: self.shared.clone(), writer: self.writer.clone(), number, blocks }
    }

    /// The URL of the dataset.
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Waits until all waiting blocks are written.
    pub fn flush(&self) {
        self.writer.flush(|block, bytes| self.shared.keep(block, bytes));
    }

    /// How the cache was used so far.
    pub fn used(&self) -> LocalCacheUse {
        let shared = &self.shared;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LocalCacheUse {
            folder: shared.cache.path().to_owned(),
            limit_bytes: shared.limit,
            total_bytes: shared.cache.lock().map_or(0, |locked| locked.total()),
            read_bytes: count(&shared.read),
            kept_bytes: count(&shared.kept),
            passed_bytes: count(&shared.passed),
            dropped_bytes: count(&shared.dropped),
            damaged: count(&shared.damaged),
            problem: shared.lock().problem.clone(),
        }
    }

    /// A plan with which a loader tells the cache what it will need.
    pub fn plan(&self) -> UsePlan {
        UsePlan::new(self.shared.clone())
    }
}

/// A hash that distinguishes a shard from shards with other names or contents.
fn hash(below: &Path, chunks: &[Option<Range<u64>>]) -> u64 {
    let mut bytes = below.to_string_lossy().into_owned().into_bytes();
    for span in chunks {
        let (start, end) =
            span.as_ref().map_or((u64::MAX, u64::MAX), |span| (span.start, span.end));
        bytes.extend(start.to_le_bytes());
        bytes.extend(end.to_le_bytes());
    }
    u64::from_str_radix(&sha256(&bytes)[..16], 16).expect("it is written in hexadecimal digits")
}

impl CachedShard {
    /// Its number in the dataset.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The block that contains `span`.
    pub(crate) fn block_of(&self, span: &Range<u64>) -> Option<Range<u64>> {
        let block = blocks::holding(&self.blocks.spans, span)?;
        Some(self.blocks.spans[block].clone())
    }

    /// A hint that `span` will be needed soon. Returns the blocks that have to be fetched for it.
    pub(crate) fn prefetch(&self, span: &Range<u64>) -> Vec<Range<u64>> {
        let touched = blocks::touched(&self.blocks.spans, span);
        let missing = touched.filter(|block| {
            let number = self.blocks.first + *block as u32;
            match self.shared.open(number) {
                Some(open) if open.is_deleted() => {
                    self.shared.lock().is_gone(number);
                    true
                }
                Some(open) => {
                    open.prefetch();
                    false
                }
                None => true,
            }
        });
        missing.map(|block| self.blocks.spans[block].clone()).collect()
    }

    /// Calls `take` with the bytes of `span` if they are in the cache. `None` if they are not, or
    /// if the block turned out to be damaged; then `take` may have been called with wrong bytes.
    pub(crate) fn with(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let index = blocks::holding(&self.blocks.spans, span)?;
        let block = self.blocks.first + index as u32;
        let open = self.shared.open(block)?;
        let start = self.blocks.spans[index].start;
        let taken = open.with(span.start - start..span.end - start, take);
        match taken.is_some() {
            true => drop(self.shared.read.fetch_add(span.end - span.start, Ordering::Relaxed)),
            false => self.shared.drop_block(block, Some(&open)),
        }
        taken
    }

    /// The bytes of a block that was fetched and not yet written.
    pub(crate) fn waiting(&self, span: &Range<u64>) -> Option<Arc<SpanBytes>> {
        let bytes = self.writer.waiting(self.number_of(span)?)?;
        self.shared.read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Some(bytes)
    }

    /// Claims a block that is about to be fetched. The claim lasts until [`CachedShard::keep`] has
    /// written the block or has passed it, or until [`CachedShard::release`].
    pub(crate) fn claim(&self, span: &Range<u64>) -> Claim {
        let Some(block) = self.number_of(span) else { return Claim::Free };
        let shared = &self.shared;
        let name = shared.name(block);
        if !shared.claims.claim(name) {
            return Claim::Other;
        }
        // After claiming: now nobody can be writing the block, so it is either in the folder or has to be fetched.
        let is_cached = File::open(shared.folder.join(name.file())).is_ok();
        if is_cached || shared.passes.load(Ordering::Relaxed) {
            shared.claims.release(name);
        }
        if is_cached { Claim::Cached } else { Claim::Free }
    }

    /// Ends the claim on a block that was not fetched.
    pub(crate) fn release(&self, span: &Range<u64>) {
        if let Some(block) = self.number_of(span) {
            self.shared.claims.release(self.shared.name(block));
        }
    }

    /// Keeps a fetched block, if there is room for it. It is written later, which also ends the
    /// claim on it.
    pub(crate) fn keep(&self, span: &Range<u64>, bytes: &Arc<SpanBytes>) {
        let Some(block) = self.number_of(span) else { return };
        if bytes.len() as u64 != span.end - span.start {
            return self.release(span);
        }
        let shared = self.shared.clone();
        if !self.writer.add(block, bytes, move |block, bytes| shared.keep(block, bytes)) {
            self.shared.passed.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.release(span);
        }
    }

    /// The number of the block at `span`.
    fn number_of(&self, span: &Range<u64>) -> Option<u32> {
        let index = blocks::holding(&self.blocks.spans, span)?;
        (self.blocks.spans[index] == *span).then(|| self.blocks.first + index as u32)
    }
}
