//! Writes small objects, each in one request, so that a reader finds either the old or the new
//! object. Lists and deletes objects.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use hsipack_format::{Error, Result};
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::failure::Failure;
use super::network;
use super::object::Object;
use super::reading::below;
use super::retry::RetryClock;
use super::url::is_hub;
use crate::regular_file;

/// Writes `content` to `url` and replaces any object there.
///
/// # Errors
/// If the server does not accept it.
pub(crate) fn put(url: &Path, content: &[u8]) -> Result<()> {
    let payload = PutPayload::from(content.to_vec());
    network::wait(async {
        let object = to_write(url)?;
        object.put(payload, PutMode::Overwrite).await.map_err(|failure| failure.of_writing(url))
    })
}

/// Writes `content` to `url` unless an object exists there. Returns whether `content` is there now.
///
/// If the answer is lost, the request is repeated, and the repeat may be refused because the first
/// try succeeded. So after a refusal, the existing object is read and compared. `content` should be
/// something that no other process writes (with a random number in it); otherwise success and
/// conflict look the same.
///
/// # Errors
/// If the server does not accept it.
pub(crate) fn put_new(url: &Path, content: &[u8]) -> Result<bool> {
    let payload = PutPayload::from(content.to_vec());
    network::wait(async {
        let object = to_write(url)?;
        match object.put(payload, PutMode::Create).await {
            Ok(()) => Ok(true),
            // A longer object is not ours.
            Err(Failure::Exists) => match object.whole(content.len() as u64).await {
                Ok(stored) => Ok(stored == content),
                Err(error) if error.kind() == hsipack_format::ErrorKind::Malformed => Ok(false),
                // An object of another process was there, and was deleted meanwhile.
                Err(error) if regular_file::is_missing(&error) => Ok(false),
                Err(error) => Err(error),
            },
            Err(failure) => Err(failure.of_writing(url)),
        }
    })
}

/// Whether there is an object at `url`.
///
/// # Errors
/// If the server does not answer.
pub(crate) fn exists(url: &Path) -> Result<bool> {
    network::wait(async {
        match Object::at(url)?.version().await {
            Ok(_) => Ok(true),
            Err(Failure::Missing) => Ok(false),
            Err(failure) => Err(failure.of(url)),
        }
    })
}

/// Deletes the object at `url`, if there is one.
///
/// # Errors
/// If the server refuses.
pub(crate) fn delete(url: &Path) -> Result<()> {
    network::wait(async {
        let object = to_write(url)?;
        object.delete(&object.key).await.map_err(|failure| failure.of_writing(url))
    })
}

/// URLs of up to `most` objects below the URL `folder`, sorted by name.
///
/// # Errors
/// If the server does not list names.
pub(crate) fn list(folder: &Path, most: usize) -> Result<Vec<PathBuf>> {
    network::wait(async {
        let object = Object::at(folder)?;
        let keys = object.below(most).await.map_err(|failure| failure.of(folder))?;
        Ok(keys.iter().filter_map(|key| below(folder, &object, key)).collect())
    })
}

/// Deletes all objects below the URL `folder`.
///
/// # Errors
/// If the server refuses.
pub(crate) fn delete_below(folder: &Path) -> Result<()> {
    network::wait(async {
        let object = to_write(folder)?;
        let failed = |failure: Failure| failure.of_writing(folder);
        let keys = object.below(usize::MAX).await.map_err(failed)?;
        let deleted = futures_util::stream::iter(keys).map(|key| {
            let object = &object;
            async move { object.delete(&key).await }
        });
        deleted
            .buffer_unordered(PARALLEL_REQUESTS)
            .try_collect::<Vec<()>>()
            .await
            .map_err(failed)?;
        Ok(())
    })
}

/// Number of parallel requests.
const PARALLEL_REQUESTS: usize = 16;

/// The object at `url`, on a server that accepts objects.
///
/// # Errors
/// If it is a plain web server; see [`Object::at`].
pub(super) fn to_write(url: &Path) -> Result<Object> {
    let object = Object::at(url)?;
    match object.client.parts {
        Some(_) => Ok(object),
        None if is_hub(url) => Err(Error::unsupported("hsipack does not write to the Hugging Face Hub")
            .at(url)
            .with_remedy("write to a folder on this machine, and upload it with `hf upload`, as the page on publishing shows")),
        None => Err(Error::unsupported("plain web servers do not accept files")
            .at(url)
            .with_remedy("write to a folder or an object store (s3://, gs://, az://), from which the server serves")),
    }
}

impl Object {
    pub(super) async fn put(&self, payload: PutPayload, mode: PutMode) -> Result<(), Failure> {
        let mut tries = RetryClock::default();
        loop {
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            match self.client.objects.put_opts(&self.key, payload.clone(), options).await {
                Ok(_) => return Ok(()),
                Err(error) => tries.again(Failure::from_library(&error)).await?,
            }
        }
    }

    /// Deletes the object named `key` in the same bucket.
    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let mut tries = RetryClock::default();
        loop {
            match self
                .client
                .objects
                .delete(key)
                .await
                .map_err(|error| Failure::from_library(&error))
            {
                Ok(()) | Err(Failure::Missing) => return Ok(()),
                Err(failure) => tries.again(failure).await?,
            }
        }
    }

    /// Names of up to `most` objects below this one.
    async fn below(&self, most: usize) -> Result<Vec<Key>, Failure> {
        let mut tries = RetryClock::default();
        loop {
            let listed = self.client.objects.list(Some(&self.key)).take(most);
            let listed = listed.map_ok(|meta| meta.location).try_collect::<Vec<Key>>().await;
            match listed {
                Ok(mut keys) => {
                    keys.sort_unstable();
                    return Ok(keys);
                }
                Err(error) => tries.again(Failure::from_library(&error)).await?,
            }
        }
    }
}
