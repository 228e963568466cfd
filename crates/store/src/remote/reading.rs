//! Lists objects below a URL, and reads whole objects piece by piece.

use std::ops::Range;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt};
use hsipack_format::Result;
use object_store::path::Path as Key;

use super::failure::Failure;
use super::network;
use super::object::{Object, Version};
use super::retry::RetryClock;
use crate::throttle::Wire;

/// Number of parallel requests.
const PARALLEL_REQUESTS: usize = 4;

/// URLs of objects with their versions.
type Versions = Vec<(PathBuf, Version)>;

/// The bytes `span` of an object, which must still have `version`.
///
/// # Errors
/// If they cannot be fetched, or another object is there.
pub(crate) fn span(url: &Path, span: Range<u64>, version: &Version) -> Result<Vec<u8>> {
    network::wait(async {
        let object = Object::at(url)?;
        piece(&object, span, version).await.map_err(|failure| failure.of(url))
    })
}

/// Passes a whole object to `take` in pieces of `piece_bytes` bytes, in order. Several pieces are
/// fetched at the same time. `take` gets the offset of the piece and its bytes.
///
/// # Errors
/// If it cannot be fetched, another object is there, or `take` fails.
pub(crate) fn fetch(
    url: &Path,
    version: &Version,
    piece_bytes: u64,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    network::wait(async {
        let object = Object::at(url)?;
        let starts = (0..version.len.div_ceil(piece_bytes)).map(|number| number * piece_bytes);
        let pieces = starts.map(|start| {
            let (object, end) = (&object, version.len.min(start + piece_bytes));
            async move { piece(object, start..end, version).await.map(|bytes| (start, bytes)) }
        });
        let mut pieces = futures_util::stream::iter(pieces).buffered(PARALLEL_REQUESTS);
        while let Some(piece) = pieces.next().await {
            let (start, bytes) = piece.map_err(|failure| failure.of(url))?;
            take(start, &bytes)?;
        }
        Ok(())
    })
}

async fn piece(object: &Object, span: Range<u64>, version: &Version) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; (span.end - span.start) as usize];
    object.span(span, version, &mut bytes, &Wire::default()).await.map(|()| bytes)
}

/// Whether `url` is on a plain web server, which cannot list or accept objects.
///
/// # Errors
/// If it is not a URL.
pub(crate) fn is_plain(url: &Path) -> Result<bool> {
    Ok(Object::at(url)?.client.parts.is_none())
}

/// All objects below the URL `folder`. For a plain web server, the list is empty.
///
/// # Errors
/// If the server refuses or does not answer.
pub(crate) fn list_versions(folder: &Path) -> Result<Versions> {
    network::wait(async {
        let object = Object::at(folder)?;
        if object.client.parts.is_none() {
            // Plain web servers cannot list objects.
            return Ok(Vec::new());
        }
        let mut tries = RetryClock::default();
        loop {
            let listed =
                object.client.objects.list(Some(&object.key)).try_collect::<Vec<_>>().await;
            match listed {
                Ok(metas) => {
                    let named = metas.iter().filter_map(|meta| {
                        Some((below(folder, &object, &meta.location)?, Version::of(meta)))
                    });
                    return Ok(named.collect());
                }
                Err(error) => {
                    let again = tries.again(Failure::from_library(&error)).await;
                    again.map_err(|failure| failure.of(folder))?;
                }
            }
        }
    })
}

/// The objects directly in the URL `folder`, and its subfolders.
///
/// # Errors
/// If the server does not list names.
pub(crate) fn list_folder(folder: &Path) -> Result<(Versions, Vec<PathBuf>)> {
    network::wait(async {
        let object = Object::at(folder)?;
        let listed = object.client.objects.list_with_delimiter(Some(&object.key)).await;
        let listed = listed.map_err(|error| Failure::from_library(&error).of(folder))?;
        let objects = listed
            .objects
            .iter()
            .filter_map(|meta| Some((below(folder, &object, &meta.location)?, Version::of(meta))));
        let folders = listed.common_prefixes.iter().filter_map(|key| below(folder, &object, key));
        Ok((objects.collect(), folders.collect()))
    })
}

/// The URL of a key below `folder`. The spelling of `folder` is kept.
pub(super) fn below(folder: &Path, object: &Object, key: &Key) -> Option<PathBuf> {
    let parts = key.prefix_match(&object.key)?;
    Some(parts.fold(folder.to_owned(), |path, part| path.join(part.as_ref())))
}
