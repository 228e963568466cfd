//! The blocks of a dataset on the disk: opens them, keeps new ones, makes room.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hsipack_format::crc::crc32c;
use hsipack_format::{Error, Result};

use super::block::{OpenBlock, date_back};
use super::claims::Claims;
use super::folder::{self, BlockName, CacheFolder, Locked};
use super::table::BlockTable;
use crate::stores::FileMapper;
use crate::{regular_file, writeback};

/// How long nothing is written after a disk error.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// If there is no room, the folder is searched for changes by other processes at most this often.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(5);

/// State that the readers and the writer of a dataset in the cache share.
#[derive(Debug)]
pub(super) struct CacheState {
    pub cache: CacheFolder,
    /// The dataset's folder in the cache.
    pub folder: PathBuf,
    /// The URL of the dataset.
    pub root: PathBuf,
    pub limit: u64,
    /// This file is locked while the dataset is open.
    pub in_use: Mutex<Option<File>>,
    pub claims: Claims,
    /// Whether the last block was not kept. Then the next blocks are not claimed: others would wait
    /// for them in vain.
    pub passes: AtomicBool,
    pub table: Mutex<BlockTable>,
    pub files: FileMapper,
    pub read: AtomicU64,
    pub kept: AtomicU64,
    pub passed: AtomicU64,
    pub dropped: AtomicU64,
    pub damaged: AtomicU64,
}

impl CacheState {
    pub(super) fn lock(&self) -> MutexGuard<'_, BlockTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn name(&self, block: u32) -> BlockName {
        self.lock().names[block as usize]
    }

    /// Opens a block, if it exists.
    pub(super) fn open(&self, block: u32) -> Option<Arc<OpenBlock>> {
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

    /// Drops a damaged block. Only the file that was read is deleted, not one that was written
    /// since.
    pub(super) fn drop_block(&self, block: u32, read: Option<&Arc<OpenBlock>>) {
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
    pub(super) fn keep(&self, block: u32, bytes: &[u8]) {
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
            Err(error) if regular_file::is_missing(&error) => {
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

    pub(super) fn refused(&self, error: &Error) {
        let mut table = self.lock();
        table.rest_until = Some(Instant::now() + RETRY_DELAY);
        table.problem = Some(error.to_string());
    }

    pub(super) fn make_again(&self) -> Result<()> {
        let cache = CacheFolder::create(self.cache.path())?;
        let in_use = folder::use_dataset(&self.folder, &self.root)?;
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(in_use);
        self.claims.open_again(&self.folder);
        self.lock().all_gone();
        cache.recount(&mut cache.lock()?)
    }

    pub(super) fn try_keep(&self, block: u32, bytes: &[u8]) -> Result<bool> {
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
    pub(super) fn make_room(
        &self,
        locked: &mut Locked,
        block: u32,
        name: BlockName,
    ) -> Result<bool> {
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

    /// Makes room for `need` bytes, and some more, by dropping blocks of datasets that no process
    /// reads any more, starting with the dataset that was opened longest ago. `false` if there are
    /// no such blocks, or there were none a moment ago.
    pub(super) fn drop_unread(&self, locked: &mut Locked, need: u64) -> Result<bool> {
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

    /// Drops blocks until the cache is no larger than its limit: first those of datasets that no
    /// process reads, then those of this dataset unless other processes read it, too.
    pub(super) fn shrink(&self, others_read_it: bool) -> Result<()> {
        let mut locked = self.cache.lock()?;
        while locked.total() > self.limit && self.drop_unread(&mut locked, 0)? {}
        for name in found(&self.folder).into_iter().filter(|_| !others_read_it) {
            if locked.total() <= self.limit {
                break;
            }
            let freed = folder::remove(&self.folder.join(name.file()), name, &mut locked)?;
            self.dropped.fetch_add(freed, Ordering::Relaxed);
        }
        self.lock().are_there(found(&self.folder));
        Ok(())
    }

    /// Looks for changes by others: blocks of this dataset that other processes wrote, files that
    /// the user deleted. `false` if it did so a moment ago.
    pub(super) fn look(&self, locked: &mut Locked) -> Result<bool> {
        if !self.is_due(|table| &mut table.looked) {
            return Ok(false);
        }
        // Files that the user deleted must no longer be counted.
        self.cache.recount(locked)?;
        let present = found(&self.folder);
        self.lock().are_there(present);
        Ok(true)
    }

    /// Whether something was not done for a while. If so, it is noted as done now.
    pub(super) fn is_due(
        &self,
        when: impl FnOnce(&mut BlockTable) -> &mut Option<Instant>,
    ) -> bool {
        let mut table = self.lock();
        let when = when(&mut table);
        let is_due = when.is_none_or(|when| when.elapsed() >= RECOUNT_INTERVAL);
        if is_due {
            *when = Some(Instant::now());
        }
        is_due
    }
}

pub(super) fn found(folder: &Path) -> HashSet<BlockName> {
    let blocks = folder::blocks_in(folder).into_iter();
    blocks.filter(|(_, is_part)| !is_part).map(|(block, _)| block.name).collect()
}
