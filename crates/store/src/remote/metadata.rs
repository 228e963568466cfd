//! The metadata files of a dataset on a server, fetched together: one by one, each would cost the way there and back.

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
use crate::folder::{DECIDED, DECIDED_METADATA, partial};
use crate::small;

/// How often a dataset is looked at anew while an append is being finished, which takes a second.
const TRIES: usize = 20;

/// Bytes of a `samples.jsonl` that is fetched with the rest, which costs no further way there and back where it is needed.
const SHORT_LIST: u64 = 256 << 10;

/// Requests at the same time.
const AT_ONCE: usize = 32;

/// Files of a dataset that were fetched, by their URLs.
#[derive(Debug)]
pub(crate) struct Fetched {
    root: PathBuf,
    /// Where metadata lie: there, or, while an append is being finished, beside it.
    place: PathBuf,
    /// What `SHA256SUMS` below the root was; `None` where that is missing.
    version: Option<Version>,
    /// Paths below the root that hold a `zarr.json`, in the words of `SHA256SUMS`; `None` where that is missing.
    listed: Option<Vec<String>>,
    /// `None` if there is no such file.
    files: Mutex<HashMap<PathBuf, Option<Vec<u8>>>>,
}

impl Fetched {
    /// Fetches what `SHA256SUMS` lists of the dataset at `root`, and the wavelengths and the index of the samples beside
    /// it. A long list of samples is fetched when it is asked for; so is everything where there is no `SHA256SUMS`.
    ///
    /// # Errors
    /// If a file that is listed cannot be fetched.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        for _ in 0..TRIES {
            let (sums, decided) = sums_and_decision(root)?;
            let (version, text) = sums.unzip();
            if !decided {
                return Self::of_sums(root, root, version, text);
            }
            // Metadata that are not in their places yet, or just came there: then they are looked for anew.
            let place = partial(root).join(DECIDED_METADATA);
            let text = if_there(super::read(&place.join(SHA256SUMS), small::SUMS))?;
            match text.map(|text| Self::of_sums(root, &place, version, Some(text))) {
                Some(Err(error)) if small::is_missing(&error) => {}
                None => {}
                Some(fetched) => return fetched,
            }
        }
        Err(Error::conflict("an append is being finished again and again")
            .at(root)
            .with_remedy("try again later"))
    }

    /// The dataset at `root` whose metadata lie below `place`, with this text of its `SHA256SUMS`; `version` is what has that
    /// name below the root.
    fn of_sums(
        root: &Path,
        place: &Path,
        version: Option<Version>,
        text: Option<Vec<u8>>,
    ) -> Result<Self> {
        let sums = root.join(SHA256SUMS);
        let mut files = HashMap::new();
        // What is wrong with it is told by those who open the dataset.
        let listed = text.as_ref().and_then(|text| checksums::parse(text).ok());
        files.insert(sums, text);
        let listed: Option<Vec<String>> =
            listed.map(|list| list.into_iter().map(|(file, _)| file).collect());
        for (file, content) in fetch_all(root, place, listed.iter().flatten())? {
            files.insert(file, content);
        }
        let (root, place) = (root.to_owned(), place.to_owned());
        Ok(Self { root, place, version, listed, files: Mutex::new(files) })
    }

    /// What `SHA256SUMS` below the root was, where there is one.
    pub(crate) fn version(&self) -> Option<Version> {
        self.version.clone()
    }

    /// A file below the root; `None` if there is none.
    pub(crate) fn get(&self, file: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let known = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(file).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let place = match file.strip_prefix(&self.root) {
            Ok(below) if below == Path::new(SAMPLES) => self.place.join(below),
            _ => file.to_owned(),
        };
        let content = if_there(super::read(&place, most))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(file.to_owned(), content.clone());
        Ok(content)
    }

    /// Where a file below the root may lie now, or later, when an append was finished.
    pub(crate) fn places(&self, file: &Path) -> Vec<PathBuf> {
        let mut places = vec![file.to_owned()];
        if let Some(below) = file.strip_prefix(&self.root).ok().filter(|_| self.place != self.root)
        {
            places.push(self.place.join(below));
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
        Err(error) if small::is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Where the metadata of the dataset at the URL `root` lie: there, or, from the decision of an append until they are in
/// their places, beside it.
///
/// # Errors
/// If the server does not say.
pub fn metadata_place(root: &Path) -> Result<PathBuf> {
    let (_, decided) = sums_and_decision(root)?;
    Ok(if decided { partial(root).join(DECIDED_METADATA) } else { root.to_owned() })
}

/// `SHA256SUMS` and its text, and whether an append is decided whose metadata are not all in their places; both asked for at
/// the same time.
fn sums_and_decision(root: &Path) -> Result<(Option<Whole>, bool)> {
    let (sums, decision) = (root.join(SHA256SUMS), partial(root).join(DECIDED));
    network::wait(async {
        let text = async { Object::at(&sums)?.whole_with_version(small::SUMS).await };
        let decided = async {
            let dataset = Object::at(root)?;
            // Nothing is written to plain web servers, and nothing lies beside a whole bucket.
            let may_be = dataset.client.parts.is_some() && !dataset.key.as_ref().is_empty();
            Ok::<_, Error>(may_be && Object::at(&decision)?.version().await.is_ok())
        };
        let (text, decided) = futures_util::join!(text, decided);
        // Who may not look beside the dataset does not see appends being finished.
        Ok((if_there(text)?, decided?))
    })
}

/// The files `listed`, which lie below `place`, by their paths below `root`, and the one chunk of each list of wavelengths
/// among them.
fn fetch_all<'a>(
    root: &Path,
    place: &Path,
    listed: impl Iterator<Item = &'a String>,
) -> Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
    let chunks = |file: &str| {
        let array = file.strip_suffix("/zarr.json")?;
        let name = array.rsplit('/').next()?;
        [WAVELENGTH, FWHM].contains(&name).then(|| format!("{array}/c/0"))
    };
    let files: Vec<(String, u64)> = listed
        .flat_map(|file| {
            let index = (file == SAMPLES).then(|| SAMPLES_INDEX.to_owned());
            [Some(file.clone()), chunks(file), index].into_iter().flatten()
        })
        .map(|file| {
            let most = match file.as_str() {
                SAMPLES => SHORT_LIST,
                SAMPLES_INDEX => small::SAMPLES,
                _ => small::METADATA,
            };
            (file, most)
        })
        .collect();
    network::wait(async {
        let fetched = files.into_iter().map(|(file, most)| async move {
            // Chunks of wavelengths are put in their places before an append is decided.
            let below = if file.ends_with("/c/0") { root } else { place };
            let content = async { Object::at(&below.join(&file))?.whole(most).await }.await;
            let content = match content {
                // Nobody needs it.
                Err(_) if file == SAMPLES_INDEX => None,
                // A long list: the server said so before it sent it.
                Err(error) if file == SAMPLES && error.kind() == ErrorKind::Malformed => {
                    return Ok(None);
                }
                // Listed, so it was there: it is being put elsewhere.
                Err(error) if small::is_missing(&error) && place != root => return Err(error),
                content => if_there(content)?,
            };
            Ok(Some((root.join(&file), content)))
        });
        let fetched: Vec<_> = stream::iter(fetched).buffer_unordered(AT_ONCE).collect().await;
        fetched.into_iter().filter_map(Result::transpose).collect()
    })
}

/// Names of the folders directly below the URL `folder`, as the server lists them.
///
/// # Errors
/// If it lists no names: plain web servers do not.
pub(crate) fn list(folder: &Path) -> Result<Vec<String>> {
    network::wait(async {
        let object = Object::at(folder)?;
        object.folders().await.map_err(|failure| match failure {
            Failure::Missing | Failure::Other(_) | Failure::Away(_) => {
                Error::unsupported("there is no SHA256SUMS, and the server lists no names").at(folder).with_remedy(
                    "check the URL; where a store of another library is read, use an object store, or copy it",
                )
            }
            failure => failure.of(folder),
        })
    })
}
