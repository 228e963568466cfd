//! The metadata files of a dataset on a server, fetched together: one by one, each would cost the way there and back.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use futures_util::stream::{self, StreamExt};
use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::metadata::{FWHM, SAMPLES, WAVELENGTH};
use hsipack_format::{Error, Result};

use super::failure::Failure;
use super::network;
use super::object::Object;
use crate::small;

/// Requests at the same time.
const AT_ONCE: usize = 32;

/// Files of a dataset that were fetched, by their URLs.
#[derive(Debug)]
pub(crate) struct Fetched {
    root: PathBuf,
    /// Paths below the root that hold a `zarr.json`, in the words of `SHA256SUMS`; `None` where that is missing.
    listed: Option<Vec<String>>,
    /// `None` if there is no such file.
    files: Mutex<HashMap<PathBuf, Option<Vec<u8>>>>,
}

impl Fetched {
    /// Fetches what `SHA256SUMS` lists of the dataset at `root`, and the wavelengths beside it. Where there is no
    /// `SHA256SUMS`, files are fetched as they are asked for.
    ///
    /// # Errors
    /// If a file that is listed cannot be fetched.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let sums = root.join(SHA256SUMS);
        let mut files = HashMap::new();
        let text = if_there(super::read(&sums, small::SUMS))?;
        // What is wrong with it is told by those who open the dataset.
        let listed = text.as_ref().and_then(|text| checksums::parse(text).ok());
        files.insert(sums, text);
        let listed: Option<Vec<String>> =
            listed.map(|list| list.into_iter().map(|(file, _)| file).collect());
        for (file, content) in fetch_all(root, listed.iter().flatten())? {
            files.insert(file, content);
        }
        Ok(Self { root: root.to_owned(), listed, files: Mutex::new(files) })
    }

    /// A file below the root; `None` if there is none.
    pub(crate) fn get(&self, file: &Path, most: u64) -> Result<Option<Vec<u8>>> {
        let known = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(file).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let content = if_there(super::read(file, most))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.insert(file.to_owned(), content.clone());
        Ok(content)
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

fn if_there(read: Result<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    match read {
        Err(error) if small::is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// The files `listed` below `root`, and the one chunk of each list of wavelengths among them.
fn fetch_all<'a>(
    root: &Path,
    listed: impl Iterator<Item = &'a String>,
) -> Result<Vec<(PathBuf, Option<Vec<u8>>)>> {
    let chunks = |file: &str| {
        let array = file.strip_suffix("/zarr.json")?;
        let name = array.rsplit('/').next()?;
        [WAVELENGTH, FWHM].contains(&name).then(|| format!("{array}/c/0"))
    };
    let files: Vec<(PathBuf, u64)> = listed
        .flat_map(|file| [Some(file.clone()), chunks(file)].into_iter().flatten())
        .map(|file| {
            let most = if file == SAMPLES { small::SAMPLES } else { small::METADATA };
            (root.join(file), most)
        })
        .collect();
    network::wait(async {
        let fetched = files.into_iter().map(|(file, most)| async move {
            let content = async { Object::at(&file)?.whole(most).await }.await;
            if_there(content).map(|content| (file, content))
        });
        let fetched: Vec<_> = stream::iter(fetched).buffer_unordered(AT_ONCE).collect().await;
        fetched.into_iter().collect()
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
