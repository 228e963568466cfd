//! The blocks of one dataset on the disk: reads them, keeps new ones, makes room.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hsipack_format::checksums::sha256;
use hsipack_format::crc::crc32c;
use hsipack_format::{Error, Result};

use super::LocalCache;
use super::block::{OpenBlock, date_back};
use super::blocks;
use super::claims::{Claim, Claims};
use super::folder::{self, BlockName, CacheFolder, Locked};
use super::plan::Plan;
use super::table::{ShardBlocks, Table};
use super::writer::Writer;
use crate::stores::{MappedStore, SpanBytes, raise_descriptor_limit};
use crate::{small, writeback};

/// Maximum number of blocks that are kept open. The pages of a file that stays mapped are available at once in the next
/// epoch.
const OPEN: usize = 8192;
/// How long nothing is written after a disk error.
const REST: Duration = Duration::from_secs(30);
/// If there is no room, the folder is searched for changes by other processes at most this often.
const LOOK: Duration = Duration::from_secs(5);

/// The part of the local cache for one dataset.
#[derive(Debug)]
pub struct CachedDataset {
    shared: Arc<Shared>,
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
    /// Bytes of chunks that were read from the cache, and of blocks that were needed again before they were written.
    pub read_bytes: u64,
    /// Bytes of blocks that were fetched and kept.
    pub kept_bytes: u64,
    /// Bytes of blocks that were fetched and not kept, mostly because the blocks in the cache are needed sooner.
    pub passed_bytes: u64,
    /// Bytes of blocks that were dropped to make room.
    pub dropped_bytes: u64,
    /// Number of damaged blocks.
    pub damaged: u64,
    /// The last problem, such as a full disk. Reading continues without the cache.
    pub problem: Option<String>,
}

#[derive(Debug)]
pub(super) struct Shared {
    cache: CacheFolder,
    /// The dataset's folder in the cache.
    folder: PathBuf,
    /// The URL of the dataset.
    root: PathBuf,
    limit: u64,
    /// This file is locked while the dataset is open.
    in_use: Mutex<Option<File>>,
    claims: Claims,
    /// Whether the last block was not kept. Then the next blocks are not claimed: others would wait for them in vain.
    passes: AtomicBool,
    table: Mutex<Table>,
    files: MappedStore,
    read: AtomicU64,
    kept: AtomicU64,
    passed: AtomicU64,
    dropped: AtomicU64,
    damaged: AtomicU64,
}

/// A shard of a dataset that is cached.
#[derive(Clone, Debug)]
pub(crate) struct CachedShard {
    shared: Arc<Shared>,
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
        let table = Table::new(found(&folder), may_be_open);
        let claims = Claims::open(&folder);
        let shared = Shared {
            cache,
            folder,
            root: root.to_owned(),
            limit,
            in_use: Mutex::new(Some(in_use)),
            claims,
            passes: AtomicBool::new(false),
            table: Mutex::new(table),
            files: MappedStore::new(),
            read: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        };
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

fn found(folder: &Path) -> HashSet<BlockName> {
    let blocks = folder::blocks_in(folder).into_iter();
    blocks.filter(|(_, is_part)| !is_part).map(|(block, _)| block.name).collect()
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
    pub fn plan(&self) -> Plan {
        Plan::new(self.shared.clone())
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

    /// Calls `take` with the bytes of `span` if they are in the cache. `None` if they are not, or if the block turned out to
    /// be damaged; then `take` may have been called with wrong bytes.
    pub(crate) fn with(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let place = blocks::holding(&self.blocks.spans, span)?;
        let block = self.blocks.first + place as u32;
        let open = self.shared.open(block)?;
        let start = self.blocks.spans[place].start;
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

    /// Claims a block that is about to be fetched. The claim lasts until [`CachedShard::keep`] has written the block or has
    /// passed it, or until [`CachedShard::release`].
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

    /// Keeps a fetched block, if there is room for it. It is written later, which also ends the claim on it.
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
        let place = blocks::holding(&self.blocks.spans, span)?;
        (self.blocks.spans[place] == *span).then(|| self.blocks.first + place as u32)
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, block: u32) -> BlockName {
        self.lock().names[block as usize]
    }

    /// Opens a block, if it exists.
    fn open(&self, block: u32) -> Option<Arc<OpenBlock>> {
        let name = {
            let table = self.lock();
            if let Some(open) = &table.open[block as usize] {
                return Some(open.clone());
            }
            table.names[block as usize]
        };
        let path = self.folder.join(name.file());
        let open = match OpenBlock::open(&self.files, &path, name) {
            Ok(Some(open)) => Arc::new(open),
            Ok(None) => {
                self.drop_block(block, None);
                return None;
            }
            Err(_) => {
                self.lock().is_gone(block);
                return None;
            }
        };
        self.lock().is_open(block, &open);
        Some(open)
    }

    /// Drops a damaged block. Only the file that was read is deleted, not one that was written since.
    fn drop_block(&self, block: u32, read: Option<&Arc<OpenBlock>>) {
        let name = {
            let mut table = self.lock();
            let is_other = matches!((&table.open[block as usize], read), (Some(open), Some(read)) if !Arc::ptr_eq(open, read));
            if is_other || (read.is_some() && !table.present[block as usize]) {
                return;
            }
            table.is_gone(block);
            table.names[block as usize]
        };
        self.damaged.fetch_add(1, Ordering::Relaxed);
        let dropped = self.cache.lock().and_then(|mut locked| {
            folder::remove(&self.folder.join(name.file()), name, &mut locked)
        });
        if let Err(error) = dropped {
            self.refused(&error);
        }
    }

    /// Writes a block if there is room for it, and ends the claim on it.
    fn keep(&self, block: u32, bytes: &[u8]) {
        let resting = {
            let mut table = self.lock();
            let resting = table.rest_until.is_some_and(|until| Instant::now() < until);
            if !resting {
                table.rest_until = None;
            }
            resting
        };
        let kept = if resting { Ok(false) } else { self.try_keep(block, bytes) };
        let kept = match kept {
            // The whole folder was deleted. Create it again.
            Err(error) if small::is_missing(&error) => {
                self.make_again().and_then(|()| self.try_keep(block, bytes))
            }
            kept => kept,
        };
        self.passes.store(!matches!(kept, Ok(true)), Ordering::Relaxed);
        self.claims.release(self.name(block));
        let count = match kept {
            Ok(true) => &self.kept,
            Ok(false) => &self.passed,
            Err(error) => {
                self.refused(&error);
                &self.passed
            }
        };
        count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }

    fn refused(&self, error: &Error) {
        let mut table = self.lock();
        table.rest_until = Some(Instant::now() + REST);
        table.problem = Some(error.to_string());
    }

    fn make_again(&self) -> Result<()> {
        let cache = CacheFolder::create(self.cache.path())?;
        let in_use = folder::use_dataset(&self.folder, &self.root)?;
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_use);
        self.claims.open_again(&self.folder);
        self.lock().all_gone();
        cache.recount(&mut cache.lock()?)
    }

    fn try_keep(&self, block: u32, bytes: &[u8]) -> Result<bool> {
        let name = self.name(block);
        let path = self.folder.join(name.file());
        let part = folder::part_of(&self.folder, name);
        let cannot = |error| Error::io(&path, "cannot write", error);
        let mut file = {
            let mut locked = self.cache.lock()?;
            if path.exists() {
                self.lock().is_there(block);
                return Ok(true);
            }
            if !self.make_room(&mut locked, block, name)? {
                return Ok(false);
            }
            let file = match File::options().write(true).create_new(true).open(&part) {
                // Another loader of this process is writing it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    return Ok(false);
                }
                file => file.map_err(cannot)?,
            };
            file.try_lock().map_err(|error| cannot(error.into()))?;
            locked.set(locked.total() + name.file_bytes())?;
            file
        };
        let written = file
            .write_all(bytes)
            .and_then(|()| file.write_all(&crc32c(bytes).to_le_bytes()))
            .and_then(|()| date_back(&file));
        writeback::begin_all(&file, name.file_bytes());
        let mut locked = self.cache.lock()?;
        let written = written.and_then(|()| fs::rename(&part, &path));
        match written.map_err(cannot) {
            Ok(()) => {
                drop(locked);
                self.lock().is_there(block);
                // Check it here, so that no reader has to wait for the check.
                if let Some(open) = self.open(block)
                    && !open.is_good()
                {
                    self.drop_block(block, Some(&open));
                }
                Ok(true)
            }
            Err(error) => {
                let _ = fs::remove_file(&part);
                locked.set(locked.total().saturating_sub(name.file_bytes()))?;
                Err(error)
            }
        }
    }

    /// Makes room for a block. Returns `false` if all existing blocks are needed sooner.
    fn make_room(&self, locked: &mut Locked, block: u32, name: BlockName) -> Result<bool> {
        let need = name.file_bytes();
        if need > self.limit {
            return Ok(false);
        }
        let mut looked = false;
        while locked.total() + need > self.limit {
            if self.drop_unread(locked, need)? {
                continue;
            }
            let victim = self.lock().victim(block);
            if let Some((victim, name)) = victim {
                let path = self.folder.join(name.file());
                let freed = folder::remove(&path, name, locked)?;
                self.lock().is_gone(victim);
                self.dropped.fetch_add(freed, Ordering::Relaxed);
                continue;
            }
            if looked || !self.look(locked)? {
                return Ok(false);
            }
            looked = true;
        }
        Ok(true)
    }

    /// Makes room for `need` bytes, and some more, by dropping blocks of datasets that no process reads any more, starting with
    /// the dataset that was opened longest ago. `false` if there are no such blocks, or there were none a moment ago.
    fn drop_unread(&self, locked: &mut Locked, need: u64) -> Result<bool> {
        if !self.is_due(|table| &mut table.swept) {
            return Ok(false);
        }
        let mut others: Vec<PathBuf> = self.cache.folders()?;
        others.retain(|folder| *folder != self.folder);
        others.sort_by_key(|folder| folder::used(folder));
        let mut freed_any = false;
        // Some at a time: listing a folder takes longer than deleting a file.
        let enough = self.limit - need.max(self.limit / 16);
        for other in others {
            if locked.total() <= enough {
                break;
            }
            let Some(_alone) = folder::lock_unused(&other, false) else { continue };
            for (block, _) in folder::blocks_in(&other).iter().filter(|(_, is_part)| !is_part) {
                if locked.total() <= enough {
                    break;
                }
                let freed = folder::remove(&other.join(&block.file), block.name, locked)?;
                self.dropped.fetch_add(freed, Ordering::Relaxed);
                freed_any |= freed > 0;
            }
            if folder::blocks_in(&other).is_empty() {
                folder::forget(&other);
            }
        }
        if freed_any {
            // There may be more to drop.
            self.lock().swept = None;
        }
        Ok(freed_any)
    }

    /// Looks for changes by others: blocks of this dataset that other processes wrote, files that the user deleted. `false` if
    /// it did so a moment ago.
    fn look(&self, locked: &mut Locked) -> Result<bool> {
        if !self.is_due(|table| &mut table.looked) {
            return Ok(false);
        }
        // Files that the user deleted must no longer be counted.
        self.cache.recount(locked)?;
        let there = found(&self.folder);
        self.lock().are_there(there);
        Ok(true)
    }

    /// Whether something was not done for a while. If so, it is noted as done now.
    fn is_due(&self, when: impl FnOnce(&mut Table) -> &mut Option<Instant>) -> bool {
        let mut table = self.lock();
        let when = when(&mut table);
        let is_due = when.is_none_or(|when| when.elapsed() >= LOOK);
        if is_due {
            *when = Some(Instant::now());
        }
        is_due
    }
}
