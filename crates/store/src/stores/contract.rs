//! Tests the guarantees of all stores, for each store.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    DirectOptions, DirectStore, Limited, Link, MappedStore, PreadStore, ReadBuffer, RemoteStore,
    Store, StoreKind, StoredFile,
};
use hsipack_format::{Error, ErrorKind, Result};
use hsipack_testing::server::Server;

/// Three pages and a few bytes.
const LEN: usize = 3 * 4096 + 17;

fn content(seed: usize) -> Vec<u8> {
    (0..LEN).map(|at| ((at * 7 + seed * 13) % 251) as u8 + 1).collect()
}

/// The folder of the tests' files.
struct Folder {
    folder: tempfile::TempDir,
    /// The server of the files, for stores that read URLs.
    server: Option<Server>,
}

impl Folder {
    fn here() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), server: None }
    }

    fn served() -> Self {
        let folder = Self::here();
        Self { server: Some(Server::start(folder.folder.path())), ..folder }
    }

    /// Writes a file; returns its path or URL.
    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
        self.named(name)
    }

    fn named(&self, name: &str) -> PathBuf {
        match &self.server {
            Some(server) => server.url(name),
            None => self.folder.path().join(name),
        }
    }

    fn file(&self, seed: usize) -> PathBuf {
        self.write(&format!("file{seed}"), &content(seed))
    }
}

fn read(file: &dyn StoredFile, span: Range<u64>, buffer: &mut ReadBuffer) -> Result<Vec<u8>> {
    let mut got = None;
    file.with_bytes(span.clone(), buffer, &mut |bytes| {
        assert!(got.replace(bytes.to_vec()).is_none(), "`take` is called once");
        Ok(())
    })?;
    let got = got.expect("`take` is called");
    // Reading directly into the caller's memory gives the same bytes.
    let mut out = vec![0; got.len()];
    file.read_into(span.clone(), &mut out)?;
    assert_eq!(out, got, "{span:?}");
    let error = file.read_into(span, &mut vec![0; got.len() + 1]).unwrap_err();
    assert_eq!(error.path(), Some(file.path()));
    Ok(got)
}

fn read_new(file: &dyn StoredFile, span: Range<u64>) -> Result<Vec<u8>> {
    read(file, span, &mut ReadBuffer::new())
}

/// Offsets at and around every boundary.
fn boundaries() -> Vec<u64> {
    let pages = (0..=3u64).map(|page| page * 4096);
    let mut all: Vec<_> = pages.flat_map(|at| [at.saturating_sub(1), at, at + 1]).collect();
    all.extend([511, 512, 513, LEN as u64 - 1, LEN as u64]);
    all
}

/// Spans that are outside the file or invalid.
#[allow(clippy::reversed_empty_ranges)]
const NONSENSE: [Range<u64>; 6] = [
    0..LEN as u64 + 1,
    LEN as u64 + 1..LEN as u64 + 1,
    5..4,
    u64::MAX - 1..u64::MAX,
    0..u64::MAX,
    1 << 40..1 << 41,
];

fn a_whole_file_is_what_was_written(store: &dyn Store, folder: &Folder) {
    let path = folder.file(1);
    let file = store.open(&path).unwrap();
    assert_eq!((file.len(), file.is_empty(), file.path()), (LEN as u64, false, path.as_path()));
    assert_eq!(read_new(&*file, 0..LEN as u64).unwrap(), content(1));
}

fn every_span_at_a_boundary_is_right(store: &dyn Store, folder: &Folder) {
    let file = store.open(&folder.file(2)).unwrap();
    let (want, mut buffer) = (content(2), ReadBuffer::new());
    for start in boundaries() {
        for end in boundaries().into_iter().filter(|end| start <= *end) {
            if (start + end) % 3 == 0 {
                file.prefetch(start..end);
            }
            let got = read(&*file, start..end, &mut buffer).unwrap();
            assert_eq!(got, want[start as usize..end as usize], "{start}..{end}");
        }
    }
}

fn empty_spans_and_empty_files_are_empty(store: &dyn Store, folder: &Folder) {
    let file = store.open(&folder.file(1)).unwrap();
    for at in [0, 4096, LEN as u64] {
        assert!(read_new(&*file, at..at).unwrap().is_empty());
    }
    let empty = store.open(&folder.write("empty", &[])).unwrap();
    assert!(empty.is_empty());
    assert!(read_new(&*empty, 0..0).unwrap().is_empty());
    assert!(read_new(&*empty, 0..1).is_err());
}

fn spans_outside_the_file_are_errors_that_name_it(store: &dyn Store, folder: &Folder) {
    let path = folder.file(1);
    let file = store.open(&path).unwrap();
    for span in NONSENSE {
        let error = read_new(&*file, span.clone()).unwrap_err();
        assert_eq!(error.path(), Some(path.as_path()), "{span:?}");
        assert!(error.what().contains("were requested, but the file has 12305 bytes"), "{error}");
    }
}

fn a_file_cut_short_is_an_error_with_a_remedy(store: &dyn Store, folder: &Folder) {
    let path = folder.file(1);
    let file = store.open(&path).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    for span in [0..LEN as u64, 4096..4097, 8192..LEN as u64] {
        let error = read_new(&*file, span.clone()).expect_err(&format!("{span:?}"));
        assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(path.as_path())));
        assert!(error.what().contains("the file became shorter"), "{error}");
        assert!(error.to_string().contains("from a copy"), "{error}");
    }
}

fn missing_files_and_folders_are_named(store: &dyn Store, folder: &Folder) {
    let (missing, itself) = (folder.named("missing"), folder.named(""));
    for path in [missing.as_path(), itself.as_path()] {
        let error = store.open(path).unwrap_err();
        assert_eq!(error.path(), Some(path));
    }
    let error = store.open(&missing).unwrap_err();
    let check = if folder.server.is_some() { "check the URL" } else { "check the path" };
    assert_eq!(error.remedy(), Some(&check.into()));
    assert!(crate::bounded_read::is_missing(&error));
}

fn threads_read_at_the_same_time(store: &dyn Store, folder: &Folder) {
    let files: Vec<_> = (0..3).map(|seed| store.open(&folder.file(seed)).unwrap()).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let files = &files;
            scope.spawn(move || {
                let mut buffer = ReadBuffer::new();
                for round in 0..60u64 {
                    let seed = ((thread + round) % 3) as usize;
                    let start = (round * 997 + thread * 131) % (LEN as u64 - 1000);
                    let span = start..start + 1 + round * 16;
                    if round % 2 == 0 {
                        files[seed].prefetch(span.clone());
                    }
                    let got = read(&*files[seed], span.clone(), &mut buffer).unwrap();
                    assert!(got == content(seed)[span.start as usize..span.end as usize]);
                }
            });
        }
    });
}

fn one_buffer_serves_spans_and_files_of_any_size(store: &dyn Store, folder: &Folder) {
    let files: Vec<_> = (0..2).map(|seed| store.open(&folder.file(seed)).unwrap()).collect();
    let mut buffer = ReadBuffer::new();
    let mut capacity = None;
    for (seed, span) in [(0, 0..LEN as u64), (1, 5..6), (0, 4000..9000), (1, 0..LEN as u64)] {
        let got = read(&*files[seed], span.clone(), &mut buffer).unwrap();
        assert!(got == content(seed)[span.start as usize..span.end as usize]);
        assert_eq!(*capacity.get_or_insert(buffer.capacity()), buffer.capacity());
    }
}

fn the_caller_s_error_passes_through_and_does_no_harm(store: &dyn Store, folder: &Folder) {
    let file = store.open(&folder.file(1)).unwrap();
    for prefetch in [false, true] {
        if prefetch {
            file.prefetch(0..100);
        }
        let mut take = |bytes: &[u8]| Err(Error::damaged(format!("{} bytes of mine", bytes.len())));
        let error = file.with_bytes(0..100, &mut ReadBuffer::new(), &mut take).unwrap_err();
        assert_eq!(error.to_string(), "100 bytes of mine");
        assert_eq!(read_new(&*file, 0..100).unwrap(), content(1)[..100]);
    }
}

fn advice_is_never_wrong(store: &dyn Store, folder: &Folder) {
    let file = store.open(&folder.file(1)).unwrap();
    for span in NONSENSE.into_iter().chain([0..0, 0..LEN as u64, 0..LEN as u64, 1..2]) {
        file.prefetch(span);
    }
    for _ in 0..2 {
        assert_eq!(read_new(&*file, 0..LEN as u64).unwrap(), content(1));
        assert_eq!(read_new(&*file, 4000..5000).unwrap(), content(1)[4000..5000]);
        file.release();
    }
}

fn a_file_outlives_its_path_and_its_store(store: Box<dyn Store>) {
    let folder = Folder::here();
    let path = folder.file(1);
    let file = store.open(&path).unwrap();
    file.prefetch(0..LEN as u64);
    drop(store);
    std::fs::remove_file(path).unwrap();
    file.prefetch(0..LEN as u64);
    assert_eq!(read_new(&*file, 0..LEN as u64).unwrap(), content(1));
}

/// All tests for one store.
macro_rules! promises {
    ($module:ident, $store:expr) => {
        mod $module {
            use super::*;

            promises!(@all $store, Folder::here());
            promises!(@tests $store, Folder::here(); a_file_cut_short_is_an_error_with_a_remedy);

            #[test]
            fn a_file_outlives_its_path_and_its_store() {
                super::a_file_outlives_its_path_and_its_store(Box::new($store));
            }
        }
    };
    // Objects are not files: an object that was cut short counts as another object, and a deleted
    // object cannot be read any more.
    ($module:ident, $store:expr, of a server) => {
        mod $module {
            use super::*;

            promises!(@all $store, Folder::served());
        }
    };
    (@all $store:expr, $folder:expr) => {
        promises!(@tests $store, $folder;
            a_whole_file_is_what_was_written
            every_span_at_a_boundary_is_right
            empty_spans_and_empty_files_are_empty
            spans_outside_the_file_are_errors_that_name_it
            missing_files_and_folders_are_named
            threads_read_at_the_same_time
            one_buffer_serves_spans_and_files_of_any_size
            the_caller_s_error_passes_through_and_does_no_harm
            advice_is_never_wrong);
    };
    (@tests $store:expr, $folder:expr; $($test:ident)*) => {
        $(#[test]
        fn $test() {
            super::$test(&$store, &$folder);
        })*
    };
}

fn limited(kind: StoreKind) -> Limited {
    Limited::new(kind.store(), Link::of_rate(100 << 20), 1 << 20)
}

promises!(mapped, MappedStore::new());
promises!(pread, PreadStore::new());
promises!(direct, DirectStore::new(DirectOptions::default()));
promises!(direct_without_threads, DirectStore::new(DirectOptions { threads: 0, bytes: 1 << 20 }));
promises!(direct_with_one_buffer, DirectStore::new(DirectOptions { threads: 2, bytes: 256 << 10 }));
promises!(remote, RemoteStore::new(), of a server);
promises!(remote_without_memory, RemoteStore::with_bytes(0), of a server);
promises!(remote_with_little_memory, RemoteStore::with_bytes(20 << 10), of a server);
promises!(limited_mapped, limited(StoreKind::Mapped));
promises!(limited_pread, limited(StoreKind::Pread));
promises!(limited_direct, limited(StoreKind::Direct));

#[test]
fn stores_are_shared_between_threads() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<Arc<dyn Store>>();
    shared::<Arc<dyn StoredFile>>();
    assert!(StoreKind::ALL.iter().all(|kind| kind.store().open(Path::new("")).is_err()));
}
