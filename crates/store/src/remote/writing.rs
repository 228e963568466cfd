//! Writing small objects: each at once, so that whoever reads finds the old one or the new one. Listing and deleting.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use hsipack_format::{Error, Result};
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::failure::Failure;
use super::network;
use super::object::Object;
use super::reading::below;
use super::tries::Tries;
use crate::small;

/// Puts `content` at `url`, whatever lies there.
///
/// # Errors
/// If the server does not take it.
pub(crate) fn put(url: &Path, content: &[u8]) -> Result<()> {
    let payload = PutPayload::from(content.to_vec());
    network::wait(async {
        let object = to_write(url)?;
        object.put(payload, PutMode::Overwrite).await.map_err(|failure| failure.of_writing(url))
    })
}

/// Puts `content` at `url` unless something lies there; whether `content` lies there now.
///
/// The answer may be lost, and the repeat be refused because of what was put the first time: so what lies there is looked
/// at. Contents that nobody else would write (with a random number in them) tell success from conflict.
///
/// # Errors
/// If the server does not take it.
pub(crate) fn put_new(url: &Path, content: &[u8]) -> Result<bool> {
    let payload = PutPayload::from(content.to_vec());
    network::wait(async {
        let object = to_write(url)?;
        match object.put(payload, PutMode::Create).await {
            Ok(()) => Ok(true),
            // Longer ones are not ours.
            Err(Failure::Exists) => match object.whole(content.len() as u64).await {
                Ok(there) => Ok(there == content),
                Err(error) if error.kind() == hsipack_format::ErrorKind::Malformed => Ok(false),
                // Somebody else's was there, and is gone by now.
                Err(error) if small::is_missing(&error) => Ok(false),
                Err(error) => Err(error),
            },
            Err(failure) => Err(failure.of_writing(url)),
        }
    })
}

/// Whether there is an object at `url`.
///
/// # Errors
/// If the server does not say.
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

/// URLs of up to `most` objects below the URL `folder`, in the order of their names.
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
        deleted.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map_err(failed)?;
        Ok(())
    })
}

/// Requests at the same time.
const AT_ONCE: usize = 16;

/// The object at `url`, on a server that takes objects.
///
/// # Errors
/// If it is a plain web server; see [`Object::at`].
pub(super) fn to_write(url: &Path) -> Result<Object> {
    let object = Object::at(url)?;
    match object.client.parts {
        Some(_) => Ok(object),
        None => Err(Error::unsupported("plain web servers take no files")
            .at(url)
            .with_remedy("write to a folder or an object store (s3://, gs://, az://), from which the server serves")),
    }
}

impl Object {
    pub(super) async fn put(&self, payload: PutPayload, mode: PutMode) -> Result<(), Failure> {
        let mut tries = Tries::default();
        loop {
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            match self.client.objects.put_opts(&self.key, payload.clone(), options).await {
                Ok(_) => return Ok(()),
                Err(error) => tries.again(Failure::from_library(&error)).await?,
            }
        }
    }

    /// Deletes the object named `key` of the same bucket.
    async fn delete(&self, key: &Key) -> Result<(), Failure> {
        let mut tries = Tries::default();
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
        let mut tries = Tries::default();
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
