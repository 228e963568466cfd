//! One object on a server: its version, spans of its bytes, and retries.

use std::ops::Range;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use hsipack_format::{Error, Result};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};

use super::client::Client;
use super::failure::Failure;
use super::network;
use super::retry::RetryClock;
use super::url::Address;
use crate::throttle::Wire;
use crate::{memory, pages};

/// Distinguishes an object from earlier or later objects at the same URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Its length in bytes.
    pub(crate) len: u64,
    tag: Option<String>,
    /// When it was written, in ms since 1970.
    modified: i64,
}

impl Version {
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let modified = meta.last_modified.timestamp_millis();
        Self { len: meta.size, tag: meta.e_tag.clone(), modified }
    }

    /// Whether it is the same object. Times are compared only if a server gives no tags, because
    /// two machines of the server may report different times.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.len == other.len
            && match (&self.tag, &other.tag) {
                (Some(tag), Some(other)) => tag == other,
                _ => self.modified == other.modified,
            }
    }
}

/// The version and all bytes of an object.
pub(crate) type Whole = (Version, Vec<u8>);

/// An object on a server.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(super) url: PathBuf,
    pub(super) key: Key,
    pub(super) client: Client,
}

impl Object {
    /// The object at `url`, with this process's client.
    ///
    /// # Errors
    /// If it is not a URL, or no client can be created with its options.
    pub(crate) fn at(url: &Path) -> Result<Self> {
        let address = Address::of(url)?;
        let client = network::client(&address).map_err(|error| error.at(url))?;
        Ok(Self { url: url.to_owned(), key: address.key, client })
    }

    /// The current version.
    pub(crate) async fn version(&self) -> Result<Version, Failure> {
        let meta = self.client.objects.head(&self.key).await;
        meta.map(|meta| Version::of(&meta)).map_err(|error| Failure::from_library(&error))
    }

    /// The current version and up to `len` of the last bytes, from one request if the server
    /// supports it. Otherwise, the bytes are empty.
    pub(crate) async fn tail(&self, len: u64) -> Result<(Version, Vec<u8>), Failure> {
        // Azure does not support ranges from the end, an empty object has none, and some servers send other ranges.
        let options = GetOptions { range: Some(GetRange::Suffix(len)), ..GetOptions::default() };
        let got = match self.client.objects.get_opts(&self.key, options).await {
            Ok(got) => got,
            Err(error) => match Failure::from_library(&error) {
                Failure::NoRanges | Failure::Replaced | Failure::Other(_) => {
                    return Ok((self.version().await?, Vec::new()));
                }
                failure => return Err(failure),
            },
        };
        let version = Version::of(&got.meta);
        let is_tail = got.range.end == version.len;
        match got.bytes().await {
            Ok(bytes) if is_tail => Ok((version, bytes.to_vec())),
            // The bytes are requested again when they are needed.
            _ => Ok((version, Vec::new())),
        }
    }

    /// All bytes, if there are at most `most`.
    pub(crate) async fn whole(&self, most: u64) -> Result<Vec<u8>> {
        Ok(self.whole_with_version(most).await?.1)
    }

    /// Like `whole`, with the version of the object.
    pub(crate) async fn whole_with_version(&self, most: u64) -> Result<Whole> {
        let failed = |failure: Failure| failure.of(&self.url);
        let mut tries = RetryClock::default();
        loop {
            let broken = match self.try_whole(most).await? {
                Ok(whole) => return Ok(whole),
                Err(failure) => failure,
            };
            tries.again(broken).await.map_err(failed)?;
        }
    }

    async fn try_whole(&self, most: u64) -> Result<Result<Whole, Failure>> {
        let got = match self.client.objects.get_opts(&self.key, GetOptions::default()).await {
            Ok(got) => got,
            Err(error) => return Err(Failure::from_library(&error).of(&self.url)),
        };
        let (len, version) = (got.meta.size, Version::of(&got.meta));
        if len > most {
            return Err(Error::malformed(format!(
                "the file has {len} bytes; such a file has at most {most}"
            ))
            .at(&self.url)
            .with_remedy("find out what wrote it, and restore the file from a copy"));
        }
        memory::check(len, "reading this file").map_err(|error| error.at(&self.url))?;
        let reserved = memory::reserved(len as usize, "this file");
        let mut bytes: Vec<u8> = reserved.map_err(|error| error.at(&self.url))?;
        let mut stream = got.into_stream();
        while let Some(part) = stream.next().await {
            match part {
                Ok(part) if (bytes.len() + part.len()) as u64 <= len => {
                    bytes.extend_from_slice(&part)
                }
                Ok(_) => return Ok(Err(Failure::Cut)),
                Err(_) => return Ok(Err(Failure::Cut)),
            }
        }
        Ok(if bytes.len() as u64 == len { Ok((version, bytes)) } else { Err(Failure::Cut) })
    }

    /// Names of the subfolders, if the object's URL is seen as a folder.
    pub(super) async fn folders(&self) -> Result<Vec<String>, Failure> {
        let listed = self.client.objects.list_with_delimiter(Some(&self.key)).await;
        let listed = listed.map_err(|error| Failure::from_library(&error))?;
        let names = listed.common_prefixes.iter().filter_map(Key::filename);
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads `span` into `out` and fills it. It is an error if the object no longer has `version`.
    pub(crate) async fn span(
        &self,
        span: Range<u64>,
        version: &Version,
        out: &mut [u8],
        wire: &Wire,
    ) -> Result<(), Failure> {
        let (mut done, mut tries) = (0, RetryClock::default());
        loop {
            // Bytes that arrived before the connection broke are not requested again.
            let missing = span.start + done as u64..span.end;
            let (came, result) = self.part(missing, version, &mut out[done..], wire).await;
            match result {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    done += came;
                    if came > 0 {
                        tries = RetryClock::default();
                    }
                    tries.again(failure).await?;
                }
            }
        }
    }

    /// Makes one request. Also returns how many bytes arrived.
    async fn part(
        &self,
        span: Range<u64>,
        version: &Version,
        out: &mut [u8],
        wire: &Wire,
    ) -> (usize, Result<(), Failure>) {
        wire.ask().await;
        let options = GetOptions { range: Some(GetRange::Bounded(span)), ..GetOptions::default() };
        let response = self.client.objects.get_opts(&self.key, options);
        let provided = async {
            // After other requests were sent, while the server has not answered yet.
            tokio::task::yield_now().await;
            pages::provide(out);
        };
        let got = match futures_util::future::join(response, provided).await.0 {
            Ok(got) => got,
            Err(error) => return (0, Err(Failure::from_library(&error))),
        };
        if !Version::of(&got.meta).is(version) {
            return (0, Err(Failure::Replaced));
        }
        let (mut done, mut stream) = (0, got.into_stream());
        while let Some(part) = stream.next().await {
            let Ok(part) = part else { return (done, Err(Failure::Cut)) };
            let Some(room) = out.get_mut(done..done + part.len()) else {
                return (0, Err(Failure::Cut));
            };
            room.copy_from_slice(&part);
            done += part.len();
            wire.take(part.len()).await;
        }
        (done, if done == out.len() { Ok(()) } else { Err(Failure::Cut) })
    }
}
