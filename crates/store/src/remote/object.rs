//! One object on a server: what tells its version from others, spans of its bytes, and trying again.

use std::ops::Range;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use hsipack_format::{Error, Result};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStoreExt};

use super::failure::Failure;
use super::network::{self, Client};
use super::tries::Tries;
use super::url::Address;
use crate::memory;
use crate::stores::Wire;

/// What tells an object from others that lay, or may lie, in its place.
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

    /// Whether it is the same object. Times count only where a server gives no tags: two of its machines may differ.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.len == other.len
            && match (&self.tag, &other.tag) {
                (Some(one), Some(other)) => one == other,
                _ => self.modified == other.modified,
            }
    }
}

/// All bytes of an object, and what lay there.
pub(crate) type Whole = (Version, Vec<u8>);

/// An object on a server.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(super) url: PathBuf,
    pub(super) key: Key,
    pub(super) client: Client,
}

impl Object {
    /// The object at `url`, with a client of this process.
    ///
    /// # Errors
    /// If it is no URL, or its options allow no client.
    pub(crate) fn at(url: &Path) -> Result<Self> {
        let address = Address::of(url)?;
        let client = network::client(&address).map_err(|error| error.at(url))?;
        Ok(Self { url: url.to_owned(), key: address.key, client })
    }

    /// What lies there now.
    pub(crate) async fn version(&self) -> Result<Version, Failure> {
        let meta = self.client.objects.head(&self.key).await;
        meta.map(|meta| Version::of(&meta)).map_err(|error| Failure::from_library(&error))
    }

    /// What lies there now, and its last bytes, at most `len`; the server says both at once, where it can.
    pub(crate) async fn tail(&self, len: u64) -> Result<(Version, Vec<u8>), Failure> {
        // Azure knows no ranges from the end, and of an empty object there are none; some servers give others.
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
            // It is asked for again where it is wanted.
            _ => Ok((version, Vec::new())),
        }
    }

    /// All of it, if it has at most `most` bytes.
    pub(crate) async fn whole(&self, most: u64) -> Result<Vec<u8>> {
        Ok(self.whole_with_version(most).await?.1)
    }

    /// The same, and what lay there.
    pub(crate) async fn whole_with_version(&self, most: u64) -> Result<Whole> {
        let failed = |failure: Failure| failure.of(&self.url);
        let mut tries = Tries::default();
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
            .with_remedy("look what wrote it; restore the file from a copy"));
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

    /// Names of what lies in it as in a folder, and has more below.
    pub(super) async fn folders(&self) -> Result<Vec<String>, Failure> {
        let listed = self.client.objects.list_with_delimiter(Some(&self.key)).await;
        let listed = listed.map_err(|error| Failure::from_library(&error))?;
        let names = listed.common_prefixes.iter().filter_map(Key::filename);
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads `span` into `out`, which it fills. The object is still `version`, or it is an error.
    pub(crate) async fn span(
        &self,
        span: Range<u64>,
        version: &Version,
        out: &mut [u8],
        wire: &Wire,
    ) -> Result<(), Failure> {
        let (mut done, mut tries) = (0, Tries::default());
        loop {
            // What came before a body broke off is not asked for again.
            let rest = span.start + done as u64..span.end;
            let (came, result) = self.part(rest, version, &mut out[done..], wire).await;
            match result {
                Ok(()) => return Ok(()),
                Err(failure) => {
                    done += came;
                    if came > 0 {
                        tries = Tries::default();
                    }
                    tries.again(failure).await?;
                }
            }
        }
    }

    /// One request; how many bytes came.
    async fn part(
        &self,
        span: Range<u64>,
        version: &Version,
        out: &mut [u8],
        wire: &Wire,
    ) -> (usize, Result<(), Failure>) {
        wire.ask().await;
        let options = GetOptions { range: Some(GetRange::Bounded(span)), ..GetOptions::default() };
        let got = match self.client.objects.get_opts(&self.key, options).await {
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
