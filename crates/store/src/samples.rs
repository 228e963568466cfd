//! The list of samples of a dataset, from `samples.index` if that belongs to the `samples.jsonl`
//! beside it, otherwise from the text.
//!
//! The index is used if its checksum is correct, if it names the checksum that `SHA256SUMS` has for
//! `samples.jsonl`, and if that file has the length that the index says and is not newer. If
//! `samples.jsonl` is newer than the index, it may have been changed, so it is hashed. If anything
//! else is wrong with the index, it is ignored and the text is read.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::checksums::{self, Hasher};
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::Lines;
use hsipack_format::samples::index::{Bytes, Index, Origin, SAMPLES_INDEX};
use hsipack_format::{Command, Error, Result, remedy};

use crate::mapping::Mapping;
use crate::metadata::MetadataFiles;
use crate::{bounded_read, remote};

/// The source of a list of samples.
pub(crate) enum Source {
    /// An index, and the source of the lines.
    Index(Index, Arc<dyn Lines>),
    /// The text.
    Text(Vec<u8>),
}

impl Source {
    /// The source for the dataset at `path`; `sum` is the checksum of `samples.jsonl` in
    /// `SHA256SUMS`.
    ///
    /// # Errors
    /// If no index can be used, and the text cannot be read or has another checksum.
    pub fn of(files: &MetadataFiles, path: &Path, sum: &str) -> Result<Self> {
        let indexed = match files {
            MetadataFiles::Folder => of_folder(path, sum)?,
            MetadataFiles::Server(_) => of_server(files, path, sum),
        };
        match indexed {
            Some((index, lines)) => Ok(Self::Index(index, lines)),
            None => text(files, path, sum).map(Self::Text),
        }
    }
}

/// The text of `samples.jsonl`, which must have this checksum.
///
/// # Errors
/// If it cannot be read, or has another checksum.
pub(crate) fn text(files: &MetadataFiles, path: &Path, sum: &str) -> Result<Vec<u8>> {
    let file = path.join(SAMPLES);
    let text = files.read(&file, bounded_read::SAMPLES)?;
    if checksums::sha256(&text) == sum { Ok(text) } else { Err(wrong_sum(file)) }
}

/// The error if a metadata file differs from what was written.
pub(crate) fn wrong_sum(file: PathBuf) -> Error {
    Error::damaged("the file does not match SHA256SUMS").at(file).with_remedy(remedy![
        "run ",
        Command::Validate,
        "; restore the file from a copy"
    ])
}

type Indexed = (Index, Arc<dyn Lines>);

/// The index in a local folder, if it can be used.
///
/// # Errors
/// If `samples.jsonl` is newer, and its checksum differs from the one in `SHA256SUMS`.
fn of_folder(path: &Path, sum: &str) -> Result<Option<Indexed>> {
    let (file, text) = (path.join(SAMPLES_INDEX), path.join(SAMPLES));
    let (Ok(index), Ok(text)) = (Mapping::open(&file), Mapping::open(&text)) else {
        return Ok(None);
    };
    let is_of_it = |origin: &Origin| origin.len == text.len() && origin.sum() == sum;
    if !Origin::of(index.bytes()).as_ref().is_some_and(is_of_it) {
        return Ok(None);
    }
    let index = Arc::new(index);
    let Ok(read) = Index::read(index.clone()) else { return Ok(None) };
    // Checking read all of it, but most of it may not be needed again.
    index.release();
    if is_newer(text.path(), &file) && sum_of(&text)? != sum {
        return Err(wrong_sum(text.path().to_owned()));
    }
    Ok(Some((read, Arc::new(text))))
}

/// Whether `file` was changed after `other`, or this is not known.
fn is_newer(file: &Path, other: &Path) -> bool {
    let time = |file: &Path| fs::metadata(file).and_then(|metadata| metadata.modified());
    match (time(file), time(other)) {
        (Ok(file), Ok(other)) => file > other,
        _ => true,
    }
}

/// Number of bytes hashed at a time.
const PIECE: u64 = 4 << 20;

/// The SHA-256 of a file, read once without keeping it in memory.
fn sum_of(file: &Mapping) -> Result<String> {
    let mut hasher = Hasher::default();
    for start in (0..file.len()).step_by(PIECE as usize) {
        let piece = start..file.len().min(start + PIECE);
        file.with(piece, |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        file.release();
    }
    Ok(hasher.finish())
}

impl Bytes for Mapping {
    fn bytes(&self) -> &[u8] {
        Self::bytes(self)
    }

    fn were_read(&self) -> bool {
        Self::were_read(self)
    }
}

impl Lines for Mapping {
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        Self::with(self, span, |bytes| {
            take(bytes);
            Ok(())
        })
    }

    fn locate(&self, error: Error) -> Error {
        error.at(self.path()).with_remedy(remedy![
            "run ",
            Command::Validate,
            "; restore the file from a copy"
        ])
    }
}

/// The index on a server, if it can be used. The text is fetched only when a line is needed.
fn of_server(files: &MetadataFiles, path: &Path, sum: &str) -> Option<Indexed> {
    let bytes = files.read(&path.join(SAMPLES_INDEX), bounded_read::SAMPLES).ok()?;
    let origin = Origin::of(&bytes).filter(|origin| origin.sum() == sum)?;
    let index = Index::read(Arc::new(bytes)).ok()?;
    let places = files.places(&path.join(SAMPLES));
    let lines = RemoteText { places, len: origin.len, sum: sum.to_owned(), text: Mutex::default() };
    Some((index, Arc::new(lines)))
}

/// The text of `samples.jsonl` on a server, fetched when a line is needed.
struct RemoteText {
    /// Where the text may be: an append that is being finished moves it.
    places: Vec<PathBuf>,
    len: u64,
    sum: String,
    text: Mutex<Option<Arc<Vec<u8>>>>,
}

impl RemoteText {
    fn fetched(&self) -> Result<Arc<Vec<u8>>> {
        let mut cached = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(text) = &*cached {
            return Ok(text.clone());
        }
        let mut failed = None;
        for path in &self.places {
            match self.fetch(path) {
                Ok(text) => {
                    let text = Arc::new(text);
                    *cached = Some(text.clone());
                    return Ok(text);
                }
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| Error::bug("a dataset without a place")))
    }

    fn fetch(&self, path: &Path) -> Result<Vec<u8>> {
        let mut text = remote::read(path, bounded_read::SAMPLES)?;
        // Samples may have been appended since. The earlier lines do not change.
        text.truncate(usize::try_from(self.len).unwrap_or(usize::MAX));
        if checksums::sha256(&text) == self.sum { Ok(text) } else { Err(wrong_sum(path.into())) }
    }
}

impl Lines for RemoteText {
    fn with(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.fetched()?.with(span, take).map_err(|error| self.locate(error))
    }

    fn locate(&self, error: Error) -> Error {
        let path = self.places.first().cloned().unwrap_or_default();
        error.at(path).with_remedy(remedy!["run ", Command::Validate])
    }
}

// Miri does not support memory maps.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use hsipack_format::samples::Samples;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const LINES: &str = r#"{"id":0,"name":"a","stack":"s","index":0,"split":"train","nan":0,"inf":0,"range":null,"source":{"path":"a","bytes":0,"fingerprint":"","format":""}}
{"id":1,"name":"b","stack":"s","index":1,"nan":0,"inf":0,"range":null,"source":{"path":"b","bytes":0,"fingerprint":"","format":""}}
"#;

    /// A folder with a list of samples and its index; returns the checksum of the list.
    fn written() -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let samples = Samples::decode(LINES.into(), &["s"]).unwrap();
        let sum = checksums::digest(LINES.as_bytes());
        fs::write(folder.path().join(SAMPLES), LINES).unwrap();
        let index = hsipack_format::samples::index_of(&samples, sum);
        fs::write(folder.path().join(SAMPLES_INDEX), index).unwrap();
        (folder, checksums::hex(&sum))
    }

    #[test]
    fn a_list_stands_on_mapped_files() {
        let (folder, sum) = written();
        let Source::Index(index, lines) =
            Source::of(&MetadataFiles::Folder, folder.path(), &sum).unwrap()
        else {
            panic!("the text was read")
        };
        let samples = Samples::new(index, lines, &["s"]).unwrap();
        assert_eq!(samples.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(samples.get(1).unwrap().source.path, "b");
        assert_eq!(samples.text().unwrap(), LINES.as_bytes());
        // The index does not belong to this other list, and the text has another checksum.
        let other = checksums::sha256(b"");
        let error = Source::of(&MetadataFiles::Folder, folder.path(), &other).err().unwrap();
        assert_eq!(error.path(), Some(folder.path().join(SAMPLES).as_path()));
    }

    #[test]
    fn files_that_are_cut_short_give_no_wrong_answers() {
        let (folder, sum) = written();
        let source = Source::of(&MetadataFiles::Folder, folder.path(), &sum).unwrap();
        let Source::Index(index, lines) = source else { panic!("the text was read") };
        let samples = Samples::new(index, lines, &["s"]).unwrap();
        for file in [SAMPLES, SAMPLES_INDEX] {
            fs::File::create(folder.path().join(file)).unwrap();
            let outcome = catch_unwind(AssertUnwindSafe(|| samples.get(0).is_err()));
            assert!(outcome.unwrap_or(true), "{file}");
        }
        let name = AssertUnwindSafe(|| samples.name(0).to_owned());
        let panic = catch_unwind(name).unwrap_err();
        let text = panic.downcast_ref::<&str>().unwrap();
        assert!(text.contains("samples.index of an open dataset was changed"), "{text}");
    }

    #[test]
    fn a_newer_list_is_hashed() {
        let (folder, sum) = written();
        let file = folder.path().join(SAMPLES);
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        let set = || fs::File::options().write(true).open(&file).unwrap().set_modified(later);
        set().unwrap();
        let source = Source::of(&MetadataFiles::Folder, folder.path(), &sum).unwrap();
        assert!(matches!(source, Source::Index(..)));
        fs::write(&file, LINES.replace("train", "trial")).unwrap();
        set().unwrap();
        let error = Source::of(&MetadataFiles::Folder, folder.path(), &sum).err().unwrap();
        assert!(error.what().contains("does not match SHA256SUMS"), "{error}");
    }
}
