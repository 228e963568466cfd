//! What was fetched of the objects that have files, what is pinned, and what gives way.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, ErrorKind, Result};

use super::pins;
use crate::remote::{self, Version};

/// Bytes of one request. Several run at the same time.
const PIECE: u64 = 8 << 20;

/// What is known of the files.
#[derive(Debug)]
pub(super) struct Table {
    root: PathBuf,
    /// Most bytes that are held of what is not in use; half of what the disk has if `None`.
    limit: Option<u64>,
    state: Mutex<State>,
    /// A file was fetched, or could not be.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<PathBuf, Known>,
    /// Counts openings.
    clock: u64,
    /// Bytes of all that was fetched whole.
    held: u64,
}

#[derive(Debug)]
struct Known {
    url: PathBuf,
    version: Version,
    there: There,
    pins: usize,
    /// When it was opened last.
    opened: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    /// So many bytes of its beginning.
    Head(u64),
    /// Somebody fetches it.
    Coming,
    Whole,
}

impl Table {
    pub(super) fn new(root: &Path) -> Self {
        Self::with_limit(root, None)
    }

    fn with_limit(root: &Path, limit: Option<u64>) -> Self {
        Self { root: root.to_owned(), limit, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Most bytes that may be held now, of which `held` are.
    fn most(&self, held: u64) -> Result<u64> {
        if let Some(limit) = self.limit {
            return Ok(limit);
        }
        let disk = rustix::fs::statvfs(&self.root);
        let disk = disk.map_err(|error| Error::io(&self.root, "cannot read", error.into()))?;
        // What is about to be fetched is counted as held, and not yet taken from the disk.
        Ok((disk.f_bavail.saturating_mul(disk.f_frsize) + held) / 2)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, path: &Path, url: &Path, version: Version) {
        let there = if version.len == 0 { There::Whole } else { There::Head(0) };
        let known = Known { url: url.to_owned(), version, there, pins: 0, opened: 0 };
        self.lock().files.insert(path.to_owned(), known);
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.lock().files.keys().cloned().collect()
    }

    pub(super) fn unpin(&self, path: &Path) {
        if let Some(known) = self.lock().files.get_mut(path) {
            known.pins -= 1;
        }
    }

    /// Waits until nobody fetches a file, and says what is there of it; `None` if it stands for no object.
    fn there<'a>(&'a self, path: &Path) -> Option<(MutexGuard<'a, State>, There)> {
        let mut state = self.lock();
        loop {
            match state.files.get(path)?.there {
                There::Coming => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                there => return Some((state, there)),
            }
        }
    }

    /// Fetches the whole of a file, unless it is there.
    pub(super) fn fetch(&self, path: &Path) -> Result<()> {
        let Some((mut state, there)) = self.there(path) else { return Ok(()) };
        let pin = pins(path);
        state.clock += 1;
        let clock = state.clock;
        let Some(known) = state.files.get_mut(path) else { return Ok(()) };
        known.opened = clock;
        known.pins += usize::from(pin);
        if there == There::Whole {
            return Ok(());
        }
        known.there = There::Coming;
        let (url, version) = (known.url.clone(), known.version.clone());
        state.held += version.len;
        let fetched = self.make_room(&mut state);
        drop(state);
        let fetched = fetched.and_then(|()| self.bring(path, &url, &version, clock));
        let mut state = self.lock();
        if fetched.is_err() {
            state.held -= version.len;
        }
        if let Some(known) = state.files.get_mut(path) {
            known.there = if fetched.is_ok() { There::Whole } else { There::Head(0) };
        }
        drop(state);
        self.changed.notify_all();
        fetched
    }

    /// Fetches the first bytes of a file, unless they are there.
    pub(super) fn fetch_head(&self, path: &Path, len: u64) -> Result<()> {
        let Some((mut state, there)) = self.there(path) else { return Ok(()) };
        let Some(known) = state.files.get_mut(path) else { return Ok(()) };
        let len = len.min(known.version.len);
        match there {
            There::Head(have) if have < len => {}
            _ => return Ok(()),
        }
        known.there = There::Coming;
        let (url, version) = (known.url.clone(), known.version.clone());
        drop(state);
        let head = remote::span(&url, 0..len, &version);
        let written = head.and_then(|head| {
            let file = File::options().write(true).open(path);
            let written = file.and_then(|file| file.write_all_at(&head, 0));
            written.map_err(|error| cannot_write(path, error))
        });
        if let Some(known) = self.lock().files.get_mut(path) {
            known.there = There::Head(if written.is_ok() { len } else { 0 });
        }
        self.changed.notify_all();
        written
    }

    /// Brings a whole object under a name of its own, `clock` of its opening, and puts that in the place of the empty
    /// file: whoever has that open goes on with it.
    fn bring(&self, path: &Path, url: &Path, version: &Version, clock: u64) -> Result<()> {
        let fail = |error| cannot_write(path, error);
        let temporary = self.root.join(format!(".{clock}"));
        let bring = || {
            let file = File::create_new(&temporary).map_err(fail)?;
            remote::fetch(url, version, PIECE, &mut |at, bytes| {
                file.write_all_at(bytes, at).map_err(fail)
            })?;
            fs::rename(&temporary, path).map_err(fail)
        };
        bring().inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Empties files that were opened longest ago, until what is held is at most half of what the disk has for it.
    fn make_room(&self, state: &mut State) -> Result<()> {
        while state.held > self.most(state.held)? {
            let idle = state.files.iter().filter(|(_, known)| {
                known.there == There::Whole && known.pins == 0 && known.version.len > 0
            });
            let oldest = idle.min_by_key(|(_, known)| known.opened).map(|(path, _)| path.clone());
            let Some(path) = oldest else {
                // All of it is in use; the disk says when it is full.
                return Ok(());
            };
            let Some(known) = state.files.get_mut(&path) else { return Ok(()) };
            let len = known.version.len;
            fs::remove_file(&path).map_err(|error| cannot_write(&path, error))?;
            empty(&path, len)?;
            known.there = There::Head(0);
            state.held -= len;
        }
        Ok(())
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    Error::io(path, "cannot write", error).with_remedy(
        "files of servers are put among the temporary files: let TMPDIR name a folder with room",
    )
}

/// A file of that length, of which nothing is there.
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

// Miri knows no sockets.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Read;

    use hsipack_testing::bucket::Bucket;

    use super::*;
    use crate::mirror::{pinning, session};

    /// A table with files for objects of 1000 bytes each, which are their numbers.
    fn table(name: &str, root: &Path, count: u8) -> (Bucket, Table, Vec<PathBuf>) {
        let bucket = Bucket::start(name);
        remote::set_options(&bucket.url(""), bucket.options()).unwrap();
        let table = Table::with_limit(root, Some(2500));
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
    fn what_was_opened_longest_ago_gives_way_and_what_is_open_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (_bucket, table, paths) = table("mirror", folder.path(), 6);
        let mut held = None;
        for round in 1..3 {
            for (number, path) in paths.iter().enumerate().skip(1) {
                table.fetch(path).unwrap();
                assert!(fs::read(path).unwrap() == vec![number as u8; 1000], "{round}: {number}");
                assert!(on_disk(&paths) <= 2);
                // Whoever has one open goes on with it when it gives way.
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
        assert_eq!(table.lock().files[&paths[0]].there, There::Whole);
        table.unpin(&paths[0]);
        table.fetch(&paths[1]).unwrap();
        table.fetch(&paths[2]).unwrap();
        assert_ne!(table.lock().files[&paths[0]].there, There::Whole);
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
        // Another object lies there meanwhile.
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
