//! Records which objects and members were fetched into their files, which are pinned, and which to
//! drop.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, ErrorKind, Result};

use super::mirrored_archive::MirroredArchive;
use super::pins::pins;
use crate::remote::{self, Version};

/// Size of one request in bytes. Several requests run at the same time.
const PIECE: u64 = 8 << 20;

/// Remedy if there is no room for temporary files.
pub(super) const ROOM: &str = "files from servers and archives are stored as temporary files: set TMPDIR to a folder with enough space";

/// The state of the files.
#[derive(Debug)]
pub(super) struct FetchedFiles {
    pub root: PathBuf,
    /// Maximum number of bytes that fetched files may take up, unless pinned files need more. If
    /// `None`, half of the free disk space.
    limit: Option<u64>,
    state: Mutex<State>,
    /// Signals that a file was fetched, or could not be fetched.
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub files: HashMap<PathBuf, Known>,
    /// Counts how often files were opened.
    pub clock: u64,
    /// Total size in bytes of the files that were fetched completely.
    pub held: u64,
}

/// The object or member that a file stands for.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    Object { url: PathBuf, version: Version },
    Member { archive: Arc<MirroredArchive>, number: usize },
}

#[derive(Debug)]
pub(super) struct Known {
    pub origin: Origin,
    pub len: u64,
    pub presence: Presence,
    /// Whether the checksum of a member that is read in place was compared.
    pub is_verified: bool,
    pub pins: usize,
    /// When the file was last opened.
    pub opened: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// This many bytes from the beginning.
    Head(u64),
    /// The file is being fetched.
    Coming,
    Whole,
}

impl FetchedFiles {
    pub(super) fn new(root: &Path) -> Self {
        Self::with_limit(root, None)
    }

    /// A table with this limit.
    pub(super) fn with_limit(root: &Path, limit: Option<u64>) -> Self {
        Self { root: root.to_owned(), limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// The maximum number of bytes that may be held now; `held` bytes are held already.
    pub(super) fn most(&self, held: u64) -> Result<u64> {
        if let Some(limit) = self.limit {
            return Ok(limit);
        }
        // Files that are about to be fetched are included in `held`, but do not yet take up disk space.
        Ok(free_bytes(&self.root)?.saturating_add(held) / 2)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, path: &Path, url: &Path, version: Version) {
        let len = version.len;
        self.add_known(path, Origin::Object { url: url.to_owned(), version }, len);
    }

    pub(super) fn add_member(&self, path: &Path, archive: &Arc<MirroredArchive>, number: usize) {
        let len = archive.archive.members()[number].size;
        self.add_known(path, Origin::Member { archive: archive.clone(), number }, len);
    }

    fn add_known(&self, path: &Path, origin: Origin, len: u64) {
        let presence = if len == 0 { Presence::Whole } else { Presence::Head(0) };
        let entry = Known { origin, len, presence, is_verified: false, pins: 0, opened: 0 };
        self.lock().files.insert(path.to_owned(), entry);
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.lock().files.keys().cloned().collect()
    }

    pub(super) fn unpin(&self, path: &Path) {
        if let Some(entry) = self.lock().files.get_mut(path) {
            entry.pins -= 1;
        }
    }

    /// Waits until a file is not being fetched, and returns how much of it is there. `None` if the
    /// file stands for nothing.
    fn presence<'a>(&'a self, path: &Path) -> Option<(MutexGuard<'a, State>, Presence)> {
        let mut state = self.lock();
        loop {
            match state.files.get(path)?.presence {
                Presence::Coming => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                presence => return Some((state, presence)),
            }
        }
    }

    /// Fetches a whole file, unless it is there already.
    pub(super) fn fetch(&self, path: &Path) -> Result<()> {
        let member = self.member(path);
        let streamed = member.as_ref().filter(|(archive, _)| archive.archive.is_stream());
        let mut stream = None;
        let Some((mut state, mut presence)) = self.presence(path) else { return Ok(()) };
        if presence != Presence::Whole
            && let Some((archive, _)) = streamed
        {
            // Only one thread at a time reads a stream. While this thread waits, another one may fetch the file on its way.
            drop(state);
            stream = Some(archive.archive.stream());
            let Some(now) = self.presence(path) else { return Ok(()) };
            (state, presence) = now;
        }
        let pin = pins(path);
        state.clock += 1;
        let clock = state.clock;
        let Some(entry) = state.files.get_mut(path) else { return Ok(()) };
        entry.opened = clock;
        entry.pins += usize::from(pin);
        if presence == Presence::Whole {
            return Ok(());
        }
        entry.presence = Presence::Coming;
        let (origin, len) = (entry.origin.clone(), entry.len);
        state.held += len;
        let fetched = self.make_room(&mut state);
        drop(state);
        let fetched = fetched.and_then(|()| match (&origin, &mut stream) {
            (Origin::Object { url, version }, _) => self.bring(path, clock, &mut |file| {
                remote::fetch(url, version, PIECE, &mut |at, bytes| {
                    file.write_all_at(bytes, at).map_err(|error| cannot_write(path, error))
                })
            }),
            (Origin::Member { archive, number }, Some(stream)) => {
                self.check_disk(archive, *number)?;
                self.bring_on_the_way(archive, *number, stream)
            }
            (Origin::Member { archive, number }, None) => {
                self.check_disk(archive, *number)?;
                self.bring(path, clock, &mut |file| {
                    archive.archive.copy(*number, &mut |bytes| {
                        write_piece(file, bytes).map_err(|error| cannot_write(path, error))
                    })
                })
            }
        });
        self.settle(path, len, fetched.is_ok());
        fetched
    }

    /// Records that a file was fetched, or could not be fetched.
    pub(super) fn settle(&self, path: &Path, len: u64, is_there: bool) {
        let mut state = self.lock();
        if !is_there {
            state.held -= len;
        }
        if let Some(entry) = state.files.get_mut(path) {
            entry.presence = if is_there { Presence::Whole } else { Presence::Head(0) };
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Fetches the first bytes of a file, unless they are there already.
    pub(super) fn fetch_head(&self, path: &Path, len: u64) -> Result<()> {
        let Some((mut state, presence)) = self.presence(path) else { return Ok(()) };
        let Some(entry) = state.files.get_mut(path) else { return Ok(()) };
        let len = len.min(entry.len);
        match presence {
            Presence::Head(have) if have < len => {}
            _ => return Ok(()),
        }
        let origin = entry.origin.clone();
        entry.presence = Presence::Coming;
        drop(state);
        let head = match &origin {
            Origin::Object { url, version } => remote::span(url, 0..len, version).map(Some),
            Origin::Member { archive, number } => archive.archive.head(*number, len),
        };
        let is_dear = matches!(head, Ok(None));
        let written = head.and_then(|head| {
            let file = File::options().write(true).open(path);
            let written = file.and_then(|file| file.write_all_at(&head.unwrap_or_default(), 0));
            written.map_err(|error| cannot_write(path, error))
        });
        if let Some(entry) = self.lock().files.get_mut(path) {
            entry.presence = Presence::Head(if written.is_ok() && !is_dear { len } else { 0 });
        }
        self.changed.notify_all();
        if is_dear { self.fetch(path) } else { written }
    }

    /// Calls `fill` to write the whole file under a temporary name made from `clock`, the number of
    /// this opening. Then renames it to replace the empty file. A reader that has the old file open
    /// keeps it.
    pub(super) fn bring(
        &self,
        path: &Path,
        clock: u64,
        fill: &mut dyn FnMut(&File) -> Result<()>,
    ) -> Result<()> {
        let fail = |error| cannot_write(path, error);
        let temporary = self.root.join(format!(".{clock}"));
        let mut bring = || {
            let file = File::create_new(&temporary).map_err(fail)?;
            fill(&file)?;
            fs::rename(&temporary, path).map_err(fail)
        };
        bring().inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Empties the files that were opened longest ago, until the held bytes are within the limit.
    fn make_room(&self, state: &mut State) -> Result<()> {
        while state.held > self.most(state.held)? {
            let idle = state.files.iter().filter(|(_, entry)| {
                entry.presence == Presence::Whole && entry.pins == 0 && entry.len > 0
            });
            let oldest = idle.min_by_key(|(_, entry)| entry.opened).map(|(path, _)| path.clone());
            let Some(path) = oldest else {
                // All files are in use. If the disk is full, writing fails.
                return Ok(());
            };
            let Some(entry) = state.files.get_mut(&path) else { return Ok(()) };
            let len = entry.len;
            fs::remove_file(&path).map_err(|error| cannot_write(&path, error))?;
            empty(&path, len)?;
            entry.presence = Presence::Head(0);
            state.held -= len;
        }
        Ok(())
    }
}

pub(super) fn write_piece(mut file: &File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)
}

pub(super) fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    Error::io(path, "cannot write", error).with_remedy(ROOM)
}

/// The number of bytes that are free for this user on the disk of `folder`.
pub(super) fn free_bytes(folder: &Path) -> Result<u64> {
    let disk = rustix::fs::statvfs(folder);
    let disk = disk.map_err(|error| Error::io(folder, "cannot read", error.into()))?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Creates a file of this length without content.
pub(super) fn empty(path: &Path, len: u64) -> Result<()> {
    let file = File::create_new(path).and_then(|file| file.set_len(len));
    match file {
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Error::new(ErrorKind::Unsupported, "an object and a folder have the same name")
                .at(path))
        }
        other => other.map_err(|error| cannot_write(path, error)),
    }
}

// Miri does not support sockets.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Read;

    use hsipack_testing::bucket::Bucket;

    use super::*;
    use crate::mirror::{pinning, session};

    /// A table with files for objects of 1000 bytes each. Every byte of an object is its number.
    fn table(name: &str, root: &Path, count: u8) -> (Bucket, FetchedFiles, Vec<PathBuf>) {
        let bucket = Bucket::start(name);
        remote::set_options(&bucket.url(""), bucket.options()).unwrap();
        let table = FetchedFiles::with_limit(root, Some(2500));
        let paths = (0..count).map(|number| {
            bucket.put(&number.to_string(), vec![number; 1000]);
            let (url, path) = (bucket.url(&number.to_string()), root.join(number.to_string()));
            empty(&path, 1000).unwrap();
            table.add(&path, &url, remote::version(&url).unwrap());
            path
        });
        let paths = paths.collect();
        (bucket, table, paths)
    }

    fn on_disk(paths: &[PathBuf]) -> usize {
        paths.iter().filter(|path| fs::read(path).unwrap().iter().any(|byte| *byte != 0)).count()
    }

    #[test]
    fn least_recently_opened_file_is_dropped_and_open_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (_bucket, table, paths) = table("mirror", folder.path(), 6);
        let mut held = None;
        for round in 1..3 {
            for (number, path) in paths.iter().enumerate().skip(1) {
                table.fetch(path).unwrap();
                assert!(fs::read(path).unwrap() == vec![number as u8; 1000], "{round}: {number}");
                assert!(on_disk(&paths) <= 2);
                // A reader keeps the open file when it is dropped from the mirror.
                held.get_or_insert_with(|| File::open(path).unwrap());
            }
        }
        let mut bytes = Vec::new();
        held.unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [1; 1000]);
        assert!(fs::read(&paths[1]).unwrap().iter().all(|byte| *byte == 0));
        assert_eq!(fs::metadata(&paths[1]).unwrap().len(), 1000);
    }

    #[test]
    fn pinned_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (_bucket, table, paths) = table("mirror-pins", folder.path(), 6);
        let _session = session();
        let (_, pin) = pinning(|| table.fetch(&paths[0]).unwrap());
        assert!(!pin.is_empty());
        paths[1..].iter().for_each(|path| table.fetch(path).unwrap());
        assert_eq!(fs::read(&paths[0]).unwrap(), [0; 1000]);
        assert_eq!(table.lock().files[&paths[0]].presence, Presence::Whole);
        table.unpin(&paths[0]);
        table.fetch(&paths[1]).unwrap();
        table.fetch(&paths[2]).unwrap();
        assert_ne!(table.lock().files[&paths[0]].presence, Presence::Whole);
    }

    #[test]
    fn only_the_beginning_is_fetched_where_no_more_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let (bucket, table, paths) = table("mirror-heads", folder.path(), 3);
        for _ in 0..2 {
            table.fetch_head(&paths[2], 10).unwrap();
            table.fetch_head(&paths[2], 4).unwrap();
        }
        let read = fs::read(&paths[2]).unwrap();
        assert_eq!((&read[..10], &read[10..]), (&[2; 10][..], &[0; 990][..]));
        assert_eq!(bucket.requests().iter().filter(|request| request.method == "GET").count(), 1);
        // Meanwhile, the object was replaced.
        bucket.put("2", vec![7; 1000]);
        let error = table.fetch(&paths[2]).unwrap_err();
        assert!(error.what().contains("replaced"), "{error}");
        assert_eq!(table.lock().held, 0);
        assert!(table.fetch(Path::new("/somewhere/else")).is_ok());
    }

    #[test]
    fn files_that_are_fetched_at_the_same_time_are_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let (_bucket, mut table, paths) = table("mirror-beside-one-another", folder.path(), 64);
        table.limit = None;
        for paths in paths.chunks(8) {
            let together = std::sync::Barrier::new(paths.len());
            std::thread::scope(|scope| {
                for path in paths {
                    scope.spawn(|| {
                        together.wait();
                        table.fetch(path).unwrap();
                    });
                }
            });
        }
        assert_eq!(on_disk(&paths[1..]), 63);
    }

    #[test]
    fn many_threads_fetch_a_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let (bucket, table, paths) = table("mirror-threads", folder.path(), 2);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    table.fetch(&paths[1]).unwrap();
                    assert_eq!(fs::read(&paths[1]).unwrap(), [1; 1000]);
                });
            }
        });
        assert_eq!(bucket.requests().iter().filter(|request| request.method == "GET").count(), 1);
    }
}
