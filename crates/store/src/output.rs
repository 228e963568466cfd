//! Writing files and objects: they appear complete, or not at all.
//!
//! A file is written under a temporary name, flushed to the disk, and then renamed. An object on a
//! server appears when the server has answered the last request of the upload. Code that writes a
//! dataset uses a path here and need not know whether it is a file or an object. Several processes,
//! also on other machines, may write the same file at the same time: each uses a temporary name of
//! its own.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_format::{Error, Opt, Result, remedy};
use walkdir::WalkDir;

use crate::regular_file;
use crate::remote::{self, Upload, is_url};
use crate::writeback::Writeback;

/// A file or an object being written. If it is dropped before it is complete, nothing remains.
#[derive(Debug)]
pub struct Output(Kind);

#[derive(Debug)]
enum Kind {
    // Chunks are large; the buffer is for datasets of many small cubes.
    File { file: BufWriter<Sent>, temporary: Temporary, path: PathBuf },
    Object(Upload),
}

/// A file whose bytes the system begins to flush to the disk while more are written.
#[derive(Debug)]
struct Sent {
    file: File,
    written: u64,
    writeback: Writeback,
}

impl Write for Sent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        self.writeback.written(&self.file, self.written);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// A file or an object that was completely written, but is not yet known to be on the disk or the
/// server.
#[derive(Debug)]
pub struct Written(WrittenKind);

#[derive(Debug)]
enum WrittenKind {
    File { file: File, temporary: Temporary, path: PathBuf },
    Object(Upload),
}

/// A file under a unique temporary name. On drop the file is removed, unless it was renamed.
#[derive(Debug)]
struct Temporary {
    file: PathBuf,
    renamed: bool,
}

impl Temporary {
    /// A temporary name in the folder of `path`.
    fn beside(path: &Path) -> Self {
        static PROCESS: OnceLock<u64> = OnceLock::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Processes on two machines may have the same id, and a forked process has the same random number as its parent.
        let random = PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
        let process = std::process::id();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().expect("files have a name").to_string_lossy();
        let name = format!(".{name}.{random:016x}-{process}-{number}{TEMPORARY}");
        Self { file: path.with_file_name(name), renamed: false }
    }

    fn rename(mut self, path: &Path) -> std::io::Result<()> {
        fs::rename(&self.file, path)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = fs::remove_file(&self.file);
        }
    }
}

/// The end of temporary names.
const TEMPORARY: &str = ".tmp";

impl Output {
    /// Begins to write the file or object at `path`. For a file, missing folders are created.
    /// `most` is its approximate maximum size in bytes, which servers need to know.
    ///
    /// # Errors
    /// If the file cannot be created; if the server does not accept objects.
    pub fn create(path: PathBuf, most: u64) -> Result<Self> {
        if is_url(&path) {
            return Ok(Self(Kind::Object(Upload::new(&path, most)?)));
        }
        make_folder_of(&path)?;
        let temporary = Temporary::beside(&path);
        let file = File::create(&temporary.file)
            .map_err(|error| Error::io(&temporary.file, "cannot create", error))?;
        let file = Sent { file, written: 0, writeback: Writeback::default() };
        let file = BufWriter::with_capacity(1 << 20, file);
        Ok(Self(Kind::File { file, temporary, path }))
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.0 {
            Kind::File { file, path, .. } => {
                file.write_all(bytes).map_err(|error| Error::io(&*path, "cannot write", error))
            }
            Kind::Object(upload) => upload.write(bytes),
        }
    }

    /// Ends writing: all bytes were given.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn finish(self) -> Result<Written> {
        Ok(Written(match self.0 {
            Kind::Object(upload) => WrittenKind::Object(upload),
            Kind::File { file, temporary, path } => match file.into_inner() {
                Ok(sent) => WrittenKind::File { file: sent.file, temporary, path },
                Err(error) => return Err(Error::io(&path, "cannot write", error.into_error())),
            },
        }))
    }
}

impl Written {
    /// Waits until the bytes are on the disk or the server, and gives the file or object its name.
    ///
    /// # Errors
    /// If the disk or the server reports an error.
    pub fn commit(self) -> Result<()> {
        match self.0 {
            WrittenKind::Object(upload) => upload.finish(),
            WrittenKind::File { file, temporary, path } => {
                file.sync_all().map_err(|error| Error::io(&path, "cannot write", error))?;
                temporary
                    .rename(&path)
                    .map_err(|error| Error::io(&path, "cannot rename to", error))?;
                sync_folder(path.parent().expect("files lie in a folder"))
            }
        }
    }
}

/// Writes a complete small file or object. It replaces an existing one.
///
/// # Errors
/// If it cannot be written.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    if is_url(path) {
        return remote::put(path, content);
    }
    make_folder_of(path)?;
    let temporary = Temporary::beside(path);
    let write = || {
        let mut file = File::create(&temporary.file)?;
        file.write_all(content)?;
        file.sync_all()?;
        temporary.rename(path)
    };
    write().map_err(|error| Error::io(path, "cannot write", error))
}

/// Writes a small object unless one exists already. Returns whether the object now has this
/// `content`. If two processes do this at the same time with different contents, one gets `true`
/// and the other `false`, even if an answer of the server is lost.
///
/// # Errors
/// If the server does not accept it, or `url` is not a URL.
pub fn create_object(url: &Path, content: &[u8]) -> Result<bool> {
    remote::put_new(url, content)
}

/// Makes the names in a folder durable.
///
/// # Errors
/// If the disk reports an error.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| Error::io(folder, "cannot write", error))
}

/// Whether anything exists at `path`; on a server, whether an object with that name exists.
///
/// # Errors
/// If a server does not answer.
pub fn exists(path: &Path) -> Result<bool> {
    if is_url(path) { remote::exists(path) } else { Ok(path.symlink_metadata().is_ok()) }
}

/// Refuses to replace a device, a pipe or a socket.
///
/// # Errors
/// If one of these exists at `path`, or `path` is a link to it.
pub fn check_kind(path: &Path) -> Result<()> {
    let found = path.metadata().ok().filter(|found| !is_url(path) && !found.is_dir());
    match found.and_then(|found| regular_file::other_kind(found.file_type())) {
        Some(what) => Err(Error::conflict(format!("this is {what}, which is not replaced"))
            .at(path)
            .with_remedy(remedy!["choose another ", Opt::Output])),
        None => Ok(()),
    }
}

/// Refuses to write files that exist already, unless `force` is set, and files in place of devices,
/// pipes and sockets.
///
/// # Errors
/// If one of them exists (the error names it), or the server does not answer.
pub fn check_absent(files: &[PathBuf], force: bool) -> Result<()> {
    for file in files {
        check_kind(file)?;
        if !force && exists(file)? {
            return Err(Error::conflict("the file exists").at(file).with_remedy(remedy![
                "choose another ",
                Opt::Output,
                ", or pass ",
                Opt::Force,
                " to overwrite it"
            ]));
        }
    }
    Ok(())
}

/// Whether the folder at `path` is empty or does not exist.
///
/// # Errors
/// If the folder cannot be read, or the server does not list names.
pub fn is_empty(path: &Path) -> Result<bool> {
    if is_url(path) {
        return Ok(remote::list(path, 1)?.is_empty());
    }
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io(path, "cannot read", error)),
    }
}

/// URLs of all objects below the URL `folder`.
///
/// # Errors
/// If the server does not list names.
pub fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    remote::list(folder, usize::MAX)
}

/// Removes the file or object at `path`, if there is one.
///
/// # Errors
/// If it cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    if is_url(path) {
        return remote::delete(path);
    }
    gone(path, fs::remove_file(path))
}

/// Removes the folder at `path` with its content, if it exists; on a server, all objects below that
/// name.
///
/// # Errors
/// If it cannot be removed.
pub fn remove_all(path: &Path) -> Result<()> {
    if is_url(path) {
        return remote::delete_below(path);
    }
    gone(path, fs::remove_dir_all(path))
}

/// Whether a file is an unfinished one of this name, which a killed process left.
pub fn is_temporary_of(name: &str, file: &Path) -> bool {
    let file_name = file.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    file_name.starts_with(&format!(".{name}.")) && file_name.ends_with(TEMPORARY)
}

/// Removes the unfinished files that killed processes left in `folder`. Call it only if no other
/// process is writing there. On servers there are no such files.
///
/// # Errors
/// If a file cannot be removed.
pub fn remove_temporaries(folder: &Path) -> Result<()> {
    if is_url(folder) {
        return Ok(());
    }
    let is_temporary = |name: &str| name.starts_with('.') && name.ends_with(TEMPORARY);
    let entries = WalkDir::new(folder).into_iter().filter_map(std::result::Result::ok);
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_temporary))
        .try_for_each(|entry| remove(entry.path()))
}

fn gone(path: &Path, removed: std::io::Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::io(path, "cannot remove", error))
        }
        _ => Ok(()),
    }
}

fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().expect("files lie in a folder");
    fs::create_dir_all(folder).map_err(|error| Error::io(folder, "cannot create", error))
}

// Miri does not support sockets.
#[cfg(all(test, not(miri)))]
mod tests {
    use hsipack_testing::bucket::{Bucket, BucketFault};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn bucket(name: &str) -> Bucket {
        let bucket = Bucket::start(name);
        remote::set_options(&bucket.url(""), bucket.options()).unwrap();
        bucket
    }

    /// Bytes without repeating parts.
    fn noise(len: usize) -> Vec<u8> {
        let mut random = hsipack_format::random::Random::from_key(len as u64);
        (0..len).map(|_| random.bits() as u8).collect()
    }

    fn write(path: &Path, bytes: &[u8], piece: usize) -> Result<()> {
        let mut output = Output::create(path.to_owned(), bytes.len() as u64)?;
        bytes.chunks(piece).try_for_each(|piece| output.write(piece))?;
        output.finish()?.commit()
    }

    #[test]
    fn files_and_objects_hold_what_was_written() {
        let (bucket, folder) = (bucket("output"), tempfile::tempdir().unwrap());
        // One part has 8 MiB.
        for len in [0, 1, 5_000_000, 8 << 20, (8 << 20) + 1, 20_000_000] {
            let bytes = noise(len);
            for piece in [1_000_001, 9 << 20] {
                let key = format!("d/{len}-{piece}");
                write(&bucket.url(&key), &bytes, piece).unwrap();
                assert!(bucket.get(&key).unwrap() == bytes, "{key}");
            }
            let file = folder.path().join(format!("d/{len}"));
            write(&file, &bytes, 1_000_001).unwrap();
            assert!(fs::read(&file).unwrap() == bytes);
        }
        assert_eq!(bucket.open_uploads(), 0);
        let listed = list(&bucket.url("d")).unwrap();
        assert_eq!(listed.len(), 12);
        assert!(listed.contains(&bucket.url("d/0-1000001")));
        remove(&listed[0]).unwrap();
        remove(&listed[0]).unwrap();
        assert!(!exists(&listed[0]).unwrap() && exists(&listed[1]).unwrap());
        remove_all(&bucket.url("d")).unwrap();
        assert!(is_empty(&bucket.url("d")).unwrap() && bucket.keys().is_empty());
        assert!(!is_empty(&folder.path().join("d")).unwrap());
    }

    #[test]
    fn a_file_that_several_write_is_whole_and_what_is_given_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c/0");
        let mut first = Output::create(path.clone(), 3).unwrap();
        let mut second = Output::create(path.clone(), 3).unwrap();
        first.write(b"abc").unwrap();
        first.finish().unwrap().commit().unwrap();
        second.write(b"ab").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        drop(second);
        let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!(names(&folder.path().join("c")), 1);
        // This leaves the file as a killed process would.
        std::mem::forget(Output::create(path.clone(), 3).unwrap());
        assert_eq!(names(&folder.path().join("c")), 2);
        remove_temporaries(folder.path()).unwrap();
        assert_eq!(names(&folder.path().join("c")), 1);
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..50).for_each(|_| write_whole(&path, b"abcd").unwrap()));
            }
        });
        assert_eq!(
            (fs::read(&path).unwrap(), names(&folder.path().join("c"))),
            (b"abcd".to_vec(), 1)
        );
    }

    #[test]
    fn an_upload_that_is_given_up_leaves_nothing() {
        let bucket = bucket("given-up");
        let mut output = Output::create(bucket.url("a"), 20_000_000).unwrap();
        output.write(&noise(20_000_000)).unwrap();
        assert_eq!(bucket.open_uploads(), 1);
        drop(output);
        assert_eq!((bucket.open_uploads(), bucket.keys().len()), (0, 0));
    }

    #[test]
    fn whatever_request_fails_once_or_loses_its_answer_the_object_is_there() {
        let faults = [BucketFault::LostAnswer, BucketFault::Status(500), BucketFault::Status(503)];
        let bytes = &noise(17_000_000);
        let check = &|fault: BucketFault| {
            let bucket = bucket(&format!("once-{fault:?}").replace(['(', ')'], "-"));
            write(&bucket.url("a"), bytes, 3_000_000).unwrap();
            let requests = bucket.requests().len();
            assert!(requests >= 5, "{requests}");
            for number in 0..requests {
                bucket.clear();
                let requests = AtomicUsize::new(0);
                bucket.set_faults(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
                    this if this == number => fault,
                    _ => BucketFault::None,
                });
                write(&bucket.url("a"), bytes, 3_000_000).unwrap();
                assert!(bucket.get("a").unwrap() == *bytes, "{fault:?} of request {number}");
            }
        };
        // Most of the time is spent in pauses between tries.
        std::thread::scope(|scope| {
            for fault in faults {
                scope.spawn(move || check(fault));
            }
        });
    }

    #[test]
    fn of_two_who_create_an_object_one_is_told_so_also_when_answers_are_lost() {
        let bucket = bucket("two");
        let url = bucket.url("a");
        bucket.set_faults(|request| match request.number {
            0 => BucketFault::LostAnswer,
            _ => BucketFault::None,
        });
        assert!(create_object(&url, b"mine").unwrap());
        assert!(!create_object(&url, b"yours").unwrap());
        assert!(!create_object(&url, b"and yours, which is longer").unwrap());
        assert!(create_object(&url, b"mine").unwrap());
        assert_eq!(bucket.get("a").unwrap(), b"mine");
        // The object was found, but is deleted before it is read.
        bucket.set_faults(|request| match request.method.as_str() {
            "GET" => BucketFault::Status(404),
            _ => BucketFault::None,
        });
        assert!(!create_object(&url, b"yours").unwrap());
    }

    #[test]
    fn refused_writes_name_the_url_without_secrets() {
        let bucket = bucket("refused");
        bucket.set_faults(|_| BucketFault::Status(403));
        for error in [
            write(&bucket.url("a"), b"1", 1).unwrap_err(),
            write(&bucket.url("a"), &noise(20_000_000), 1 << 20).unwrap_err(),
            write_whole(&bucket.url("a"), b"1").unwrap_err(),
            create_object(&bucket.url("a"), b"1").unwrap_err(),
        ] {
            let text = format!("{error} {error:?}");
            assert!(text.contains("refuses") && text.contains("s3://refused/a"), "{text}");
            assert!(!text.contains("planted"), "{text}");
        }
        let error = write(Path::new("http://localhost:1/a"), b"1", 1).unwrap_err();
        assert!(error.what().contains("plain web servers"), "{error}");
    }
}
