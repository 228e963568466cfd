//! The metadata files of a dataset on a server. They are fetched together, because each separate
//! request would cost a round trip.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures_util::stream::{self, StreamExt};
use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::metadata::{FWHM, SAMPLES, WAVELENGTH};
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::{Error, ErrorKind, Result};

use super::failure::Failure;
use super::network;
use super::object::{Object, Version, Whole};
use super::shard_tails::{self, ShardTails};
use crate::folder::{DECIDED, DECIDED_METADATA, partial};
use crate::regular_file;

/// How often the metadata are fetched again while an append is being finished, which takes a
/// second.
const TRIES: usize = 20;

/// Maximum size in bytes of a `samples.jsonl` that is fetched with the other files. This saves a
/// round trip if the list is needed.
const SHORT_LIST: u64 = 256 << 10;

/// Number of parallel requests.
const PARALLEL_REQUESTS: usize = 64;

/// The contents of files; `None` if the file does not exist.
type Contents = Vec<(PathBuf, Option<Vec<u8>>)>;

/// The fetched files of a dataset, by URL.
#[derive(Debug)]
pub(crate) struct Fetched {
    root: PathBuf,
    /// Where the metadata are: below the root, or beside it while an append is being finished.
    location: PathBuf,
    /// The version of `SHA256SUMS` below the root; `None` if it is missing.
    version: Option<Version>,
    /// The paths listed in `SHA256SUMS`, relative to the root; `None` if it is missing.
    listed: Option<Vec<String>>,
    /// The content of each file; `None` if the file does not exist.
    files: Mutex<HashMap<PathBuf, Option<Vec<u8>>>>,
    tails: Mutex<ShardTails>,
}

/// The objects that say what a dataset consists of.
struct Beginning {
    /// `SHA256SUMS`, if it exists.
    sums: Option<Whole>,
    /// Whether there is a decided append whose metadata are not all in their final places.
    decided: bool,
    /// `samples.index`, if it was requested and exists.
    index: Option<Vec<u8>>,
}

impl Fetched {
    /// Fetches the files that `SHA256SUMS` of the dataset at `root` lists, and also the wavelengths
    /// and the index of the samples. A long list of samples is fetched only when it is needed. If
    /// there is no `SHA256SUMS`, every file is fetched when it is needed. `with_tails` says whether
    /// the ends of the shards are fetched, too.
    ///
    /// # Errors
    /// If a listed file cannot be fetched.
    pub(crate) fn new(root: &Path, with_tails: bool) -> Result<Self> {
        for _ in 0..TRIES {
            let Beginning { sums, decided, index } = beginning(root, with_tails)?;
            let (version, text) = sums.unzip();
            if !decided {
                let tail_index = with_tails.then_some(index);
                return Self::of_sums(root, root, version, text, tail_index);
            }
            // The metadata are not in their final places yet. If they are moved there just now, look again.
            let location = partial(root).join(DECIDED_METADATA);
            let text = if_there(super::read(&location.join(SHA256SUMS), regular_file::SUMS))?;
            match text.map(|text| Self::of_sums(root, &location, version, Some(text), None)) {
                Some(Err(error)) if regular_file::is_missing(&error) => {}
                None => {}
                Some(fetched) => return fetched,
            }
        }
        Err(Error::conflict("the dataset changed several times while it was being opened")
            .at(root)
            .with_remedy("try again later"))
    }

    /// Fetches the dataset at `root`, whose metadata are below `location`. `text` is the content of
    /// its `SHA256SUMS`; `version` is the version of the `SHA256SUMS` below the root. `index` is
    /// `samples.index`, if it was already asked for; then the ends of the shards are fetched as
    /// well.
    fn of_sums(
        root: &Path,
        location: &Path,
        version: Option<Version>,
        text: Option<Vec<u8>>,
        index: Option<Option<Vec<u8>>>,
    ) -> Result<Self> {
        let sums = root.join(SHA256SUMS);
        let mut files = HashMap::new();
        // Any problem with `SHA256SUMS` is reported when the dataset is opened.
        let listed = text.as_ref().and_then(|text| checksums::parse(text).ok());
        files.insert(sums, text);
        let listed: Option<Vec<String>> =
            listed.map(|list| list.into_iter().map(|(file, _)| file).collect());
        let all = listed.as_deref().unwrap_or_default();
        let (fetched, tails) = fetch_all(root, location, all, index.as_ref())?;
        files.extend(fetched);
        if let Some(index) = index {
            files.insert(root.join(SAMPLES_INDEX), index);
        }
        let (root, location) = (root.to_owned(), location.to_owned());
        let (files, tails) = (Mutex::new(files), Mutex::new(tails));
        Ok(Self { root, location, version, listed, files, tails })
    }

    /// The version of `SHA256SUMS` below the root, if it exists.
    pub(crate) fn version(&self) -> Option<Version> {
        self.version.clone()
    }

    /// The ends of shards that were fetched. They are given only once.
    pub(crate) fn take_tails(&self) -> ShardTails {
        std::mem::take(&mut *self.tails.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file below the root; `None` if it does not exist.
    pub(crate) fn get(&self, file: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let cached = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(file).cloned();
        if let Some(bytes) = cached {
            return Ok(bytes);
        }
        if self.is_unlisted(file) {
            return Ok(None);
        }
        let location = match file.strip_prefix(&self.root) {
            Ok(below) if below == Path::new(SAMPLES) => self.location.join(below),
            _ => file.to_owned(),
        };
        let content = if_there(super::read(&location, most))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(file.to_owned(), content.clone());
        Ok(content)
    }

    /// Whether `SHA256SUMS` lists no such file, although it lists every `zarr.json` of a dataset.
    /// Asking the server would cost a round trip for each array that a stack may have, but need
    /// not.
    fn is_unlisted(&self, file: &Path) -> bool {
        let Some(listed) = &self.listed else { return false };
        file.ends_with("zarr.json")
            && file
                .strip_prefix(&self.root)
                .is_ok_and(|below| !listed.iter().any(|listed| below == Path::new(listed)))
    }

    /// The places where a file below the root may be now, or later when an append was finished.
    pub(crate) fn places(&self, file: &Path) -> Vec<PathBuf> {
        let mut places = vec![file.to_owned()];
        if let Some(below) =
            file.strip_prefix(&self.root).ok().filter(|_| self.location != self.root)
        {
            places.push(self.location.join(below));
        }
        places
    }

    /// Names of the folders directly below `folder`.
    ///
    /// # Errors
    /// If the dataset has no `SHA256SUMS`, and the server does not list names.
    pub(crate) fn folders(&self, folder: &Path) -> Result<Vec<String>> {
        let Some(listed) = &self.listed else { return list(folder) };
        let below = folder.strip_prefix(&self.root).unwrap_or(folder).to_string_lossy();
        let prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
        let names: BTreeSet<&str> = listed
            .iter()
            .filter_map(|file| file.strip_prefix(&prefix)?.split_once('/').map(|(name, _)| name))
            .collect();
        Ok(names.into_iter().map(str::to_owned).collect())
    }
}

fn if_there<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if regular_file::is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// The place of the metadata of the dataset at the URL `root`. They are below `root`, but from the
/// decision of an append until they were moved to their final places, they are beside it.
///
/// # Errors
/// If the server does not answer.
pub fn metadata_place(root: &Path) -> Result<PathBuf> {
    let decided = beginning(root, false)?.decided;
    Ok(if decided { partial(root).join(DECIDED_METADATA) } else { root.to_owned() })
}

/// The objects that have to be known first. All are requested at the same time. `samples.index` is
/// requested only `with_index`.
fn beginning(root: &Path, with_index: bool) -> Result<Beginning> {
    let (sums, decision) = (root.join(SHA256SUMS), partial(root).join(DECIDED));
    network::wait(async {
        let text = async { Object::at(&sums)?.whole_with_version(regular_file::SUMS).await };
        let decided = async {
            let dataset = Object::at(root)?;
            // Plain web servers cannot be written to, and there is nothing beside a whole bucket.
            let may_be = dataset.client.parts.is_some() && !dataset.key.as_ref().is_empty();
            Ok::<_, Error>(may_be && Object::at(&decision)?.version().await.is_ok())
        };
        let index = async {
            if !with_index {
                return None;
            }
            // The index is optional.
            Object::at(&root.join(SAMPLES_INDEX)).ok()?.whole(regular_file::SAMPLES).await.ok()
        };
        let (text, decided, index) = futures_util::join!(text, decided, index);
        // Without permission to read beside the dataset, an append that is being finished is not noticed.
        Ok(Beginning { sums: if_there(text)?, decided: decided?, index })
    })
}

/// Fetches the files `listed` from below `location`, and the only chunk of each wavelength array
/// among them. Returns them by their paths below `root`. If `samples.index` is already known, the
/// ends of the shards are fetched instead of it.
fn fetch_all(
    root: &Path,
    location: &Path,
    listed: &[String],
    index: Option<&Option<Vec<u8>>>,
) -> Result<(Contents, ShardTails)> {
    let chunks = |file: &str| {
        let array = file.strip_suffix("/zarr.json")?;
        let name = array.rsplit('/').next()?;
        [WAVELENGTH, FWHM].contains(&name).then(|| format!("{array}/c/0"))
    };
    let files: Vec<(String, u64)> = listed
        .iter()
        .flat_map(|file| {
            let wants_index = file == SAMPLES && index.is_none();
            let index = wants_index.then(|| SAMPLES_INDEX.to_owned());
            [Some(file.clone()), chunks(file), index].into_iter().flatten()
        })
        .map(|file| {
            let most = match file.as_str() {
                SAMPLES => SHORT_LIST,
                SAMPLES_INDEX => regular_file::SAMPLES,
                _ => regular_file::METADATA,
            };
            (file, most)
        })
        .collect();
    network::wait(async {
        let fetched = files.into_iter().map(|(file, most)| async move {
            // Chunks of wavelengths are in their final places before an append is decided.
            let below = if file.ends_with("/c/0") { root } else { location };
            let content = async { Object::at(&below.join(&file))?.whole(most).await }.await;
            let content = match content {
                // The index is optional.
                Err(_) if file == SAMPLES_INDEX => None,
                // The list is long. The server announced its length, so it was not fetched.
                Err(error) if file == SAMPLES && error.kind() == ErrorKind::Malformed => {
                    return Ok(None);
                }
                // The file is listed, so it existed: it is just being moved.
                Err(error) if regular_file::is_missing(&error) && location != root => {
                    return Err(error);
                }
                content => if_there(content)?,
            };
            Ok(Some((root.join(&file), content)))
        });
        let fetched = stream::iter(fetched).buffer_unordered(PARALLEL_REQUESTS).collect::<Vec<_>>();
        let tails = async {
            match index {
                Some(index) => shard_tails::fetch(root, listed, index.as_deref()).await,
                None => ShardTails::default(),
            }
        };
        let (fetched, tails) = futures_util::join!(fetched, tails);
        let fetched: Result<Contents> = fetched.into_iter().filter_map(Result::transpose).collect();
        Ok((fetched?, tails))
    })
}

/// Names of the folders directly below the URL `folder`, listed by the server.
///
/// # Errors
/// If the server does not list names, as plain web servers do not.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>> {
    network::wait(async {
        let object = Object::at(folder)?;
        object.folders().await.map_err(|failure| match failure {
            Failure::Missing | Failure::Other(_) | Failure::Away(_) => {
                Error::unsupported("there is no SHA256SUMS, and the server lists no names").at(folder).with_remedy(
                    "check the URL; to read a store that another library wrote, use an object store, or copy it",
                )
            }
            failure => failure.of(folder),
        })
    })
}
