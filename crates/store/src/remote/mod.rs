//! Datasets on servers: S3, Google Cloud Storage, Azure Blob Storage and plain HTTP.
//!
//! A URL may stand wherever the path of a dataset does: `Path::new("s3://bucket/tissue.hsipack")`. What opens files
//! asks [`is_url`] and comes here. Nothing of the network is started before the first URL.
//!
//! | file | what it knows |
//! |---|---|
//! | `url.rs` | which paths are URLs; the server and the object that one names |
//! | `options.rs` | `storage_options`: credentials and endpoints, by URL |
//! | `profile.rs` | the profile that the AWS tools would take |
//! | `network.rs` | the threads and connections of this process |
//! | `object.rs` | one object: its version, spans of its bytes; trying again |
//! | `failure.rs` | what went wrong, as an error without secrets |
//! | `tries.rs` | trying again |
//! | `metadata.rs` | the metadata files of a dataset, fetched together |
//! | `reading.rs` | names with versions, whole objects piece by piece |
//! | `writing.rs`, `upload.rs` | small objects, at once; large ones in parts |
//!
//! The store for loaders, which reads ahead, is [`RemoteStore`](crate::stores::RemoteStore).

mod failure;
mod metadata;
mod network;
mod object;
mod options;
mod profile;
mod reading;
mod tries;
mod upload;
mod url;
mod writing;

use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};

use crate::small;
use crate::stores::Wire;

pub use metadata::metadata_place;
pub use options::set_options;
pub use url::is_url;

pub(crate) use failure::Failure;
pub(crate) use metadata::Fetched;
pub(crate) use network::{spawn, wait};
pub(crate) use object::{Object, Version};
pub(crate) use reading::{fetch, is_plain, list_folder, list_versions, span};
pub(crate) use upload::Upload;
pub(crate) use writing::{delete, delete_below, exists, list, put, put_new};

/// The bytes of the object at `url`, which has at most `most`.
///
/// # Errors
/// If it cannot be fetched or is larger; if there is no memory for it.
pub fn read(url: &Path, most: u64) -> Result<Vec<u8>> {
    network::wait(async { Object::at(url)?.whole(most).await }).map_err(|error| of(error, url))
}

/// What tells the object at `url` from what may lie there later.
///
/// # Errors
/// If there is none, or the server does not answer.
pub(crate) fn version(url: &Path) -> Result<Version> {
    network::wait(async {
        let object = Object::at(url)?;
        object.version().await.map_err(|failure| failure.of(url))
    })
    .map_err(|error| of(error, url))
}

/// As [`version`], with the object's last bytes, at most `len` of them, where they can be had at once.
///
/// # Errors
/// As [`version`].
pub(crate) fn tail(url: &Path, len: u64, wire: &Wire) -> Result<(Version, Vec<u8>)> {
    network::wait(async {
        wire.come_late().await;
        let object = Object::at(url)?;
        object.tail(len).await.map_err(|failure| failure.of(url))
    })
    .map_err(|error| of(error, url))
}

/// Whether an error says that a server does not serve, or refuses: nothing is known of the object then.
pub fn is_away(error: &Error) -> bool {
    let of_server = error.path().is_some_and(is_url);
    of_server && error.kind() == ErrorKind::Io && !small::is_missing(error)
}

/// Names the object that an error is of, where it names none.
fn of(error: Error, url: &Path) -> Error {
    if error.path().is_some() { error } else { error.at(url) }
}

/// The error that there is no object at `url`.
pub(crate) fn missing(url: &Path) -> Error {
    Failure::Missing.of(url)
}

/// Refuses a URL that cannot be that of a dataset to be written: one that names a whole bucket, or a plain web server.
///
/// # Errors
/// If it is one of these, or no URL.
pub fn check_folder(url: &Path) -> Result<()> {
    let address = url::Address::of(url)?;
    if address.key.as_ref().is_empty() {
        return Err(Error::unsupported("a whole bucket cannot be a dataset")
            .at(url)
            .with_remedy("name a folder in it, such as s3://BUCKET/scans.hsipack"));
    }
    writing::to_write(url).map(drop)
}

/// Refuses a URL where only paths are taken.
///
/// # Errors
/// If it is a URL.
pub fn refuse(path: &Path, doing: &str) -> Result<()> {
    if !is_url(path) {
        return Ok(());
    }
    Err(Error::unsupported(format!("{doing} a URL is not possible")).at(path).with_remedy(
        "give a path on this machine; copy the dataset there first, if it lies on a server",
    ))
}
