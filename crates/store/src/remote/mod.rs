//! Datasets on servers: S3, Google Cloud Storage, Azure Blob Storage, the Hugging Face Hub and
//! plain HTTP.
//!
//! A URL can be used wherever a dataset's path can: `Path::new("s3://bucket/tissue.hsipack")`. Code
//! that opens files calls [`is_url`] and then uses this module. No network threads are started
//! before the first URL is used.
//!
//! | file | contents |
//! |---|---|
//! | `url.rs` | which paths are URLs; the server and the object that a URL names |
//! | `options.rs` | `storage_options`: credentials and endpoints for URLs |
//! | `auth.rs` | looking up credentials, and what to say if there are none |
//! | `cloud.rs` | the clouds, and where their clients find credentials |
//! | `profile.rs` | the profile that the AWS tools would use |
//! | `hub/` | the Hugging Face Hub: its addresses, tokens and commits |
//! | `client.rs`, `clients.rs` | clients of servers, and how they are made from options and the environment |
//! | `network.rs` | the threads and connections of this process |
//! | `object.rs` | one object: its version, spans of its bytes; retries |
//! | `failure.rs` | failures, as errors without secrets |
//! | `retry.rs` | retries |
//! | `metadata.rs` | the metadata files of a dataset, fetched together |
//! | `shard_tails.rs` | the ends of its shards, fetched beside them |
//! | `reading.rs` | listing names with versions; whole objects piece by piece |
//! | `writing.rs`, `upload.rs` | writing small objects in one request, large ones in parts |
//!
//! The store for loaders, which reads ahead, is [`RemoteStore`](crate::stores::RemoteStore).

mod auth;
mod client;
mod clients;
mod cloud;
mod failure;
mod hub;
mod metadata;
mod network;
mod object;
mod options;
mod profile;
mod reading;
mod retry;
mod shard_tails;
mod upload;
mod url;
mod writing;

use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};
use tokio::task::JoinHandle;

use crate::regular_file;
use crate::throttle::Wire;

pub use hub::pinned;
pub use metadata::metadata_place;
pub use network::set_options;
pub use shard_tails::ShardTails;
pub use url::{is_of_web_server, is_url};

pub(crate) use failure::Failure;
pub(crate) use metadata::Fetched;
pub(crate) use network::{spawn, wait};
pub(crate) use object::{Object, Version};
pub(crate) use reading::{fetch, is_plain, list_folder, list_versions, span};
pub(crate) use shard_tails::TAIL_BYTES;
pub(crate) use upload::Upload;
pub(crate) use writing::{delete, delete_below, exists, list, put, put_new};

/// The bytes of the object at `url`, which may have at most `most`.
///
/// # Errors
/// If it cannot be fetched or is larger; if there is not enough memory.
pub fn read(url: &Path, most: u64) -> Result<Vec<u8>> {
    network::wait(async { Object::at(url)?.whole(most).await }).map_err(|error| of(error, url))
}

/// The version of the object at `url`. It distinguishes the object from any later one at this URL.
///
/// # Errors
/// If there is no object, or the server does not answer.
pub(crate) fn version(url: &Path) -> Result<Version> {
    network::wait(async {
        let object = Object::at(url)?;
        object.version().await.map_err(|failure| failure.of(url))
    })
    .map_err(|error| of(error, url))
}

/// Requests the version of the object at `url` in the background.
///
/// # Errors
/// If the network's threads cannot be started.
pub(crate) fn ask_version(url: &Path) -> Result<JoinHandle<Result<Version>>> {
    let url = url.to_owned();
    spawn(async move {
        let object = Object::at(&url)?;
        object.version().await.map_err(|failure| failure.of(&url))
    })
}

/// Like [`version`], with up to `len` of the object's last bytes, if the server can send both in
/// one request.
///
/// # Errors
/// Those of [`version`].
pub(crate) fn tail(url: &Path, len: u64, wire: &Wire) -> Result<(Version, Vec<u8>)> {
    network::wait(async {
        wire.come_late().await;
        let object = Object::at(url)?;
        object.tail(len).await.map_err(|failure| failure.of(url))
    })
    .map_err(|error| of(error, url))
}

/// Whether an error says that a server is unavailable, refuses, or sends no ranges. Then nothing is
/// known about the object.
pub fn is_away(error: &Error) -> bool {
    let of_server = error.path().is_some_and(is_url);
    let is_refusal = matches!(error.kind(), ErrorKind::Io | ErrorKind::Unsupported);
    of_server && is_refusal && !regular_file::is_missing(error)
}

/// Adds the object's URL to an error that names none.
fn of(error: Error, url: &Path) -> Error {
    if error.path().is_some() { error } else { error.at(url) }
}

/// The error that the object at `url` does not exist.
pub(crate) fn missing(url: &Path) -> Error {
    Failure::Missing.of(url)
}

/// Refuses a URL to which no dataset can be written: one that names a whole bucket or a plain web
/// server.
///
/// # Errors
/// If it is one of these, or not a URL.
pub fn check_folder(url: &Path) -> Result<()> {
    let address = url::Address::of(url)?;
    if address.key.as_ref().is_empty() && !url::is_hub(url) {
        return Err(Error::unsupported("a whole bucket cannot be a dataset")
            .at(url)
            .with_remedy("name a folder in it, such as s3://BUCKET/scans.hsipack"));
    }
    writing::to_write(url).map(drop)
}

/// Refuses a URL where only local paths are accepted.
///
/// # Errors
/// If it is a URL.
pub fn refuse(path: &Path, doing: &str) -> Result<()> {
    if !is_url(path) {
        return Ok(());
    }
    Err(Error::unsupported(format!("{doing} a URL is not possible")).at(path).with_remedy(
        "give a path on this machine; copy the dataset there first, if it is on a server",
    ))
}
