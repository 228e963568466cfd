//! The folder of a cache: its names, lock and total size; listing, checking and clearing.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use hsipack_format::codec::CHECKSUM_LEN;
use hsipack_format::crc::crc32c;
use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

use crate::{bounded_read, remote};

/// Tells backup programs to skip this folder (<https://bford.info/cachedir/>), and tells hsipack
/// that the folder is a cache of this layout.
const TAG: &str = "CACHEDIR.TAG";
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # A local cache of hsipack, layout 1: copies of what lies on servers. All of it may be deleted at any time.\n";
const TOTAL: &str = "total";
const DATASETS: &str = "datasets";
const IN_USE: &str = "in-use";
const ABOUT: &str = "about.json";
const CLAIMS: &str = "claims";
const PART: &str = "part";
/// How long a process waits for the lock of the total. Others hold it for some ms, or for seconds
/// while they look through a large cache; but a process that was stopped may hold it for ever.
const MAX_LOCK_WAIT: Duration = Duration::from_secs(30);
/// Number of digits of the total.
const DIGITS: usize = 20;

/// The name of a block: its shard and its range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct BlockName {
    /// Hash of the shard's name and index.
    pub(super) shard: u64,
    pub(super) offset: u64,
    /// Length in the object in bytes. The file also contains the checksum.
    pub(super) len: u64,
}

impl BlockName {
    /// Size of the file in bytes.
    pub(super) fn file_bytes(self) -> u64 {
        self.len + CHECKSUM_LEN as u64
    }

    pub(super) fn file(self) -> String {
        format!("{:016x}-{:x}-{:x}", self.shard, self.offset, self.len)
    }

    /// The block that a file name stands for, and whether it is being written.
    fn parse(name: &str) -> Option<(Self, bool)> {
        let (name, suffix) = name.split_once('.').unwrap_or((name, ""));
        let mut numbers = name.split('-').map(|digits| u64::from_str_radix(digits, 16).ok());
        let mut next = || numbers.next().flatten();
        let block = Self { shard: next()?, offset: next()?, len: next()? };
        (block.file() == name).then_some((block, !suffix.is_empty()))
    }
}

/// The folder of a cache on the local disk.
#[derive(Clone, Debug)]
pub struct CacheFolder {
    path: PathBuf,
}

/// Information about one dataset in a cache.
#[derive(Clone, Debug)]
pub struct CachedInfo {
    /// The dataset's fingerprint.
    pub fingerprint: String,
    /// Where it was read from, if known.
    pub url: Option<String>,
    /// Number of blocks.
    pub blocks: u64,
    /// Their size on the disk in bytes.
    pub bytes: u64,
    /// When the dataset was last opened, if the system reports it.
    pub used: Option<SystemTime>,
    /// Whether a process is reading it now.
    pub in_use: bool,
}

/// Result of [`CacheFolder::check`].
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Number of intact blocks.
    pub good: u64,
    /// Damaged blocks. They were deleted.
    pub damaged: Vec<PathBuf>,
}

/// The total size, with its file locked.
#[derive(Debug)]
pub(super) struct Locked {
    file: File,
    path: PathBuf,
    total: u64,
}

impl CacheFolder {
    /// The cache at `path`. It is created if the folder is empty or does not exist.
    ///
    /// # Errors
    /// If it cannot be created, or the folder contains other files.
    pub fn create(path: &Path) -> Result<Self> {
        if remote::is_url(path) {
            return Err(Error::unsupported("a local cache cannot be on a server")
                .at(path)
                .with_remedy("give a folder on this machine, preferably on a fast disk"));
        }
        let cannot = |error| Error::io(path, "cannot create the local cache", error);
        fs::create_dir_all(path).map_err(cannot)?;
        let path = fs::canonicalize(path).map_err(cannot)?;
        let cache = Self { path };
        if !cache.is_tagged()? {
            // Another process may be creating the cache now, or was killed while creating it.
            let is_other = |entry: &fs::DirEntry| !is_unfinished(entry);
            let entries = fs::read_dir(&cache.path).map_err(cannot)?.flatten();
            if entries.filter(is_other).count() > 0 && !cache.is_tagged()? {
                return Err(cache.foreign());
            }
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let part = cache.path.join(format!("{TAG}.{}.{number}", std::process::id()));
            fs::write(&part, TAG_TEXT)
                .and_then(|()| fs::rename(&part, cache.path.join(TAG)))
                .map_err(cannot)?;
        }
        fs::create_dir_all(cache.path.join(DATASETS)).map_err(cannot)?;
        Ok(cache)
    }

    /// The existing cache at `path`.
    ///
    /// # Errors
    /// If the folder is not a cache.
    pub fn open(path: &Path) -> Result<Self> {
        remote::refuse(path, "looking for a local cache at")?;
        let cannot = |error| Error::io(path, "cannot open", error);
        let cache = Self { path: fs::canonicalize(path).map_err(cannot)? };
        match cache.is_tagged()? {
            true => Ok(cache),
            false => Err(cache.foreign()),
        }
    }

    fn is_tagged(&self) -> Result<bool> {
        let tag = bounded_read::read_if_there(&self.path.join(TAG), 4096)?;
        Ok(tag.is_some_and(|tag| tag == TAG_TEXT.as_bytes()))
    }

    fn foreign(&self) -> Error {
        Error::conflict("the folder is not a local cache of this version of hsipack")
            .at(&self.path)
            .with_remedy(remedy!["give an empty folder, or a new one, as ", Opt::LocalCache])
    }

    /// The path of the cache.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a dataset.
    pub(super) fn dataset(&self, fingerprint: &str) -> PathBuf {
        self.path.join(DATASETS).join(fingerprint)
    }

    /// Locks the total. Waits if another process holds the lock, which is not for long unless that
    /// process was stopped.
    ///
    /// # Errors
    /// If the folder no longer exists, its disk does not support locks, or another process keeps
    /// the lock.
    pub(super) fn lock(&self) -> Result<Locked> {
        self.lock_within(MAX_LOCK_WAIT)
    }

    fn lock_within(&self, most: Duration) -> Result<Locked> {
        let path = self.path.join(TOTAL);
        let cannot = |error| Error::io(&path, "cannot lock", error);
        let begun = Instant::now();
        let mut pause = Duration::from_micros(250);
        loop {
            let file =
                File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(cannot)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if begun.elapsed() < most => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(Duration::from_millis(8));
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Err(is_held(&path, most)),
                Err(TryLockError::Error(error)) => return Err(cannot(error)),
            }
            // Clearing the cache, or the user, may have deleted the file meanwhile.
            if !is_at(&file, &path) {
                continue;
            }
            let mut digits = [0; DIGITS];
            let read = file.read_exact_at(&mut digits, 0).ok();
            let total = read.and_then(|()| std::str::from_utf8(&digits).ok()?.trim().parse().ok());
            let mut locked = Locked { file, path, total: total.unwrap_or(0) };
            if total.is_none() {
                self.recount(&mut locked)?;
            }
            return Ok(locked);
        }
    }

    /// Counts the bytes of all blocks again, and deletes unfinished files of killed processes.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(super) fn recount(&self, locked: &mut Locked) -> Result<()> {
        let mut total = 0;
        for dataset in self.folders()? {
            for (block, is_part) in blocks_in(&dataset) {
                let path = dataset.join(&block.file);
                if is_part && is_left_behind(&path) {
                    let _ = fs::remove_file(&path);
                } else {
                    total += block.name.file_bytes();
                }
            }
        }
        locked.set(total)
    }

    /// The folders of all datasets.
    pub(super) fn folders(&self) -> Result<Vec<PathBuf>> {
        let path = self.path.join(DATASETS);
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| Error::io(&path, "cannot list", error))?,
        };
        Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
    }

    /// Information about each dataset; the most recently opened is first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> Result<Vec<CachedInfo>> {
        let mut list: Vec<CachedInfo> = self.folders()?.iter().map(|folder| info(folder)).collect();
        list.sort_by_key(|info| std::cmp::Reverse(info.used));
        Ok(list)
    }

    /// Compares every block with its checksum, and deletes damaged blocks.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn check(&self) -> Result<Checked> {
        let mut checked = Checked::default();
        for folder in self.folders()? {
            for (block, _) in blocks_in(&folder).into_iter().filter(|(_, is_part)| !is_part) {
                let path = folder.join(&block.file);
                let is_whole = match bounded_read::read_if_there(&path, block.name.file_bytes()) {
                    // The block was dropped meanwhile.
                    Ok(None) => continue,
                    Ok(Some(bytes)) => is_whole(&bytes, block.name),
                    // The file is too long.
                    Err(error) if error.kind() == ErrorKind::Malformed => false,
                    Err(error) => return Err(error),
                };
                if is_whole {
                    checked.good += 1;
                    continue;
                }
                let mut locked = self.lock()?;
                remove(&path, block.name, &mut locked)?;
                checked.damaged.push(path);
            }
        }
        Ok(checked)
    }

    /// Deletes the blocks of all datasets that no process is reading. With `also_in_use`, deletes
    /// the blocks of all datasets; their readers fetch the data again. Returns the number of
    /// deleted bytes.
    ///
    /// # Errors
    /// If a file cannot be deleted.
    pub fn clear(&self, also_in_use: bool) -> Result<u64> {
        let mut deleted = 0;
        for folder in self.folders()? {
            let Some(_alone) = lock_unused(&folder, also_in_use) else { continue };
            let mut locked = self.lock()?;
            for (block, is_part) in blocks_in(&folder) {
                if !is_part {
                    deleted += remove(&folder.join(&block.file), block.name, &mut locked)?;
                }
            }
            if !also_in_use {
                forget(&folder);
            }
        }
        let mut locked = self.lock()?;
        self.recount(&mut locked)?;
        Ok(deleted)
    }
}

impl Locked {
    /// Bytes of all blocks, including those that are being written.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// # Errors
    /// If it cannot be written.
    pub(super) fn set(&mut self, total: u64) -> Result<()> {
        let text = format!("{total:>width$}", width = DIGITS);
        let written = self.file.write_all_at(text.as_bytes(), 0);
        written.map_err(|error| Error::io(&self.path, "cannot write", error))?;
        self.total = total;
        Ok(())
    }
}

/// Another process keeps the lock at `path`.
fn is_held(path: &Path, waited: Duration) -> Error {
    let seconds = waited.as_secs();
    Error::conflict(format!("another process has kept it locked for {seconds} s"))
        .at(path)
        .with_remedy("continue or end the process that uses this local cache and was stopped")
}

/// Whether an entry of a folder without a tag is a part of a cache that is being created. If a
/// cache was deleted and is created again, processes that used it before may lock its total before
/// it has a tag.
fn is_unfinished(entry: &fs::DirEntry) -> bool {
    let name = entry.file_name();
    let is_total = |file: fs::Metadata| file.is_file() && [0, DIGITS as u64].contains(&file.len());
    name.to_string_lossy().starts_with(TAG)
        || (name == TOTAL && entry.metadata().is_ok_and(is_total))
}

/// Whether an open file is still at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(at_path)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (at_path.dev(), at_path.ino())
}

/// A block's file in a dataset's folder.
pub(super) struct BlockFile {
    pub(super) name: BlockName,
    pub(super) file: String,
}

/// The blocks in a dataset's folder, and whether each is being written.
pub(super) fn blocks_in(folder: &Path) -> Vec<(BlockFile, bool)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let block = |entry: fs::DirEntry| {
        let file = entry.file_name().into_string().ok()?;
        let (name, is_part) = BlockName::parse(&file)?;
        Some((BlockFile { name, file }, is_part))
    };
    entries.filter_map(block).collect()
}

/// The file in which process `process` writes a block.
pub(super) fn part_of(folder: &Path, block: BlockName) -> PathBuf {
    folder.join(format!("{}.{PART}{}", block.file(), std::process::id()))
}

/// Whether no process is writing this file any more.
fn is_left_behind(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Whether a file's bytes are an intact block.
pub(super) fn is_whole(bytes: &[u8], block: BlockName) -> bool {
    let Some((content, sum)) = bytes.split_last_chunk::<CHECKSUM_LEN>() else { return false };
    content.len() as u64 == block.len && crc32c(content).to_le_bytes() == *sum
}

/// Deletes a block and subtracts it from the total. Returns its size in bytes, or 0 if it was
/// already deleted.
///
/// # Errors
/// If it cannot be deleted.
pub(super) fn remove(path: &Path, block: BlockName, locked: &mut Locked) -> Result<u64> {
    match fs::remove_file(path) {
        Ok(()) => {
            locked.set(locked.total().saturating_sub(block.file_bytes()))?;
            Ok(block.file_bytes())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io(path, "cannot delete", error)),
    }
}

/// Marks a dataset as being read by this process, as long as the returned file is open.
///
/// # Errors
/// If the folder cannot be created, or its disk does not support locks.
pub(super) fn use_dataset(folder: &Path, url: &Path) -> Result<File> {
    let path = folder.join(IN_USE);
    let cannot = |error| Error::io(&path, "cannot lock", error);
    loop {
        fs::create_dir_all(folder).map_err(cannot)?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = match file {
            // The cache is being cleared at this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(cannot)?,
        };
        file.lock_shared().map_err(cannot)?;
        if !is_at(&file, &path) {
            continue;
        }
        // Records when the dataset was last opened.
        let _ = file.set_modified(SystemTime::now());
        let about = serde_json::json!({ "url": url.display().to_string() });
        // For human readers only.
        let _ = fs::write(folder.join(ABOUT), about.to_string());
        return Ok(file);
    }
}

/// The file in which processes claim blocks of a dataset; `None` if it cannot be opened.
pub(super) fn open_claims(folder: &Path) -> Option<File> {
    let path = folder.join(CLAIMS);
    File::options().read(true).write(true).create(true).truncate(false).open(path).ok()
}

/// Locks a dataset that no process is reading; `None` if one is. With `also_in_use`, it accepts any
/// dataset and does not lock.
pub(super) fn lock_unused(folder: &Path, also_in_use: bool) -> Option<Option<File>> {
    if also_in_use {
        return Some(None);
    }
    let path = folder.join(IN_USE);
    let file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).ok()?;
    file.try_lock().ok()?;
    is_at(&file, &path).then_some(Some(file))
}

/// Removes the rest of a dataset's folder after its blocks were deleted.
pub(super) fn forget(folder: &Path) {
    let _ = fs::remove_file(folder.join(ABOUT));
    let _ = fs::remove_file(folder.join(CLAIMS));
    let _ = fs::remove_file(folder.join(IN_USE));
    let _ = fs::remove_dir(folder);
}

/// When a dataset was last opened.
pub(super) fn used(folder: &Path) -> Option<SystemTime> {
    fs::metadata(folder.join(IN_USE)).and_then(|file| file.modified()).ok()
}

fn info(folder: &Path) -> CachedInfo {
    let blocks = blocks_in(folder);
    let whole = blocks.iter().filter(|(_, is_part)| !is_part).map(|(block, _)| block.name);
    let about = bounded_read::read_if_there(&folder.join(ABOUT), 1 << 16).ok().flatten();
    let about: Option<serde_json::Value> =
        about.and_then(|text| serde_json::from_slice(&text).ok());
    let url = about.and_then(|about| about.get("url")?.as_str().map(str::to_owned));
    let in_use = File::open(folder.join(IN_USE))
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    CachedInfo {
        fingerprint: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        url,
        blocks: whole.clone().count() as u64,
        bytes: whole.map(BlockName::file_bytes).sum(),
        used: used(folder),
        in_use,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_files_and_nothing_else_passes_for_one() {
        let block = BlockName { shard: 0x0123_4567_89ab_cdef, offset: 4096, len: 77 };
        assert_eq!(block.file(), "0123456789abcdef-1000-4d");
        assert_eq!(BlockName::parse(&block.file()), Some((block, false)));
        let part = part_of(Path::new("x"), block);
        let name = part.file_name().unwrap().to_str().unwrap();
        assert_eq!(BlockName::parse(name), Some((block, true)));
        for other in [
            "in-use",
            "about.json",
            "",
            "1-2-3",
            "0123456789abcdef-1000",
            "0123456789ABCDEF-1000-4d",
        ] {
            assert_eq!(BlockName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
        for opened in [CacheFolder::create(folder.path()), CacheFolder::open(folder.path())] {
            let error = opened.unwrap_err().to_string();
            assert!(
                error.contains("not a local cache") && error.contains("empty folder"),
                "{error}"
            );
        }
        let cache = folder.path().join("cache/of/mine");
        CacheFolder::create(&cache).unwrap();
        CacheFolder::create(&cache).unwrap();
        assert!(CacheFolder::open(&cache).unwrap().list().unwrap().is_empty());
    }

    #[test]
    fn many_may_make_it_at_the_same_time() {
        for _ in 0..50 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("cache");
            // What a process leaves behind if it is killed while creating the folder.
            fs::create_dir(&path).unwrap();
            fs::write(path.join(format!("{TAG}.1")), "").unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| CacheFolder::create(&path).unwrap());
                }
            });
        }
    }

    #[test]
    fn a_deleted_cache_can_be_created_again_while_others_lock_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let cache = CacheFolder::create(&path).unwrap();
        fs::remove_dir_all(&path).unwrap();
        // Another process has just created the folder again, but not yet its tag.
        fs::create_dir(&path).unwrap();
        drop(cache.lock().unwrap());
        CacheFolder::create(&path).unwrap();
        // A total of something else is not touched.
        fs::remove_dir_all(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::write(path.join(TOTAL), "42 kg").unwrap();
        CacheFolder::create(&path).unwrap_err();
    }

    #[test]
    fn a_stopped_process_that_holds_the_lock_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFolder::create(folder.path()).unwrap();
        let held = cache.lock().unwrap();
        let error = cache.lock_within(Duration::from_millis(20)).unwrap_err().to_string();
        assert!(error.contains("total") && error.contains("was stopped"), "{error}");
        drop(held);
        cache.lock_within(Duration::ZERO).unwrap();
    }

    #[test]
    fn leftovers_of_killed_processes_are_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFolder::create(&folder.path().join("cache")).unwrap();
        let dataset = cache.dataset("f1");
        drop(use_dataset(&dataset, Path::new("s3://b/d")).unwrap());
        let block = BlockName { shard: 1, offset: 0, len: 10 };
        fs::write(part_of(&dataset, block), "half").unwrap();
        fs::write(dataset.join(BlockName { offset: 10, ..block }.file()), "0123456789abcd")
            .unwrap();
        let mut locked = cache.lock().unwrap();
        locked.set(1_000_000).unwrap();
        cache.recount(&mut locked).unwrap();
        assert_eq!(locked.total(), 14);
        drop(locked);
        assert!(!part_of(&dataset, block).exists());
        assert_eq!(cache.lock().unwrap().total(), 14);
        // One block is damaged.
        let checked = cache.check().unwrap();
        assert_eq!((checked.good, checked.damaged.len()), (0, 1));
        assert_eq!(cache.lock().unwrap().total(), 0);
    }

    #[test]
    fn only_what_nobody_reads_is_cleared_unless_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheFolder::create(folder.path()).unwrap();
        let block = BlockName { shard: 1, offset: 0, len: 0 };
        let mut open = Vec::new();
        for (name, read) in [("f1", true), ("f2", false)] {
            let dataset = cache.dataset(name);
            open.extend(
                Some(use_dataset(&dataset, Path::new("s3://b/d")).unwrap()).filter(|_| read),
            );
            fs::write(dataset.join(block.file()), "\0\0\0\0").unwrap();
        }
        let list = || {
            cache
                .list()
                .unwrap()
                .into_iter()
                .map(|info| (info.fingerprint, info.in_use, info.blocks))
        };
        let mut before: Vec<_> = list().collect();
        before.sort();
        assert_eq!(before, [("f1".to_owned(), true, 1), ("f2".to_owned(), false, 1)]);
        assert_eq!(cache.clear(false).unwrap(), 4);
        assert_eq!(list().collect::<Vec<_>>(), [("f1".to_owned(), true, 1)]);
        assert_eq!(cache.clear(true).unwrap(), 4);
        assert_eq!(list().collect::<Vec<_>>(), [("f1".to_owned(), true, 0)]);
    }
}
