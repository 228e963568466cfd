//! Archives: what lies in a `.zip`, a `.tar`, a `.tar.gz` or a `.tgz`, and the bytes of each member.
//!
//! An archive is listed once: a zip by its directory, a tar by its headers, between which nothing is read, a compressed tar
//! by decompressing all of it. Members that lie there as they are, uncompressed, are read in their place
//! ([`Archive::in_place`]); others are copied out ([`Archive::copy`], and [`Archive::copy_on_the_way`] where the archive is
//! one compressed stream). [`mirror`](crate::mirror) makes files of them.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs` | an archive: which kind, its members, their bytes |
//! | `listing.rs` | what is found in an archive, and how much that may be |
//! | `names.rs` | which names members may have |
//! | `zip.rs` | the directory of a zip archive |
//! | `tar.rs` | the headers of a tar archive |
//! | `streamed.rs` | a compressed tar archive as a stream |
//! | `checked.rs` | bytes held against the checksum of a zip archive |
//!
//! Nothing in an archive is believed: names that lead out of it, links, devices, two members of one name, more members than
//! [`MOST_MEMBERS`] and sizes that cannot be are errors. No more than its directory is held in memory.

mod checked;
mod listing;
mod names;
mod streamed;
mod tar;
mod zip;

use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::read::DeflateDecoder;
use hsipack_format::{Error, Result};

use self::listing::{Listing, Tally, special};
use self::streamed::Stream;
use self::tar::Forward;
use self::zip::Method;
use crate::small;
use crate::window::Window;

pub use self::checked::Checked;
pub use self::listing::MOST_MEMBERS;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// Bytes that are read of an archive at once where no more than a member's beginning is wanted.
const SHORT: usize = 8 << 10;

/// What to do with a file that is not what its maker wrote.
const DAMAGED: &str = "copy the file again; it is cut short or damaged";

/// How an archive is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `.zip`
    Zip,
    /// `.tar`
    Tar,
    /// `.tar.gz`, `.tgz`
    TarGz,
}

impl Kind {
    /// Which kind of archive a file is, by its name; capital and small letters count as the same.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let endings = [
            (".zip", Self::Zip),
            (".tar", Self::Tar),
            (".tar.gz", Self::TarGz),
            (".tgz", Self::TarGz),
        ];
        endings
            .into_iter()
            .find(|(ending, _)| name.len() > ending.len() && name.ends_with(ending))
            .map(|(_, kind)| kind)
    }
}

/// A file in an archive.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its path below the archive.
    pub name: String,
    /// Its length in bytes, as the archive says.
    pub size: u64,
    place: Place,
    /// Its first bytes, where they were kept.
    head: Box<[u8]>,
}

#[derive(Clone, Debug)]
enum Place {
    Zip(zip::Entry),
    /// Where its bytes begin in the archive, or in what comes out of it.
    Tar {
        start: u64,
    },
}

/// The members of an archive that is `bytes`; for fuzzing.
///
/// # Errors
/// As [`Archive::open`].
#[doc(hidden)]
pub fn list_bytes(kind: Kind, bytes: &[u8]) -> Result<Vec<Member>> {
    let (file, len) = (Cursor::new(bytes), bytes.len() as u64);
    match kind {
        Kind::Zip => zip::list(file, len)?.members(),
        Kind::Tar | Kind::TarGz => tar::list(&mut tar::Seeking::new(file, len))?.members(),
    }
}

/// What tells that a file is still the one that was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    len: u64,
    /// Device, inode, and when it was changed; `None` for a file that stands for an object, which is fetched anew at times.
    on_disk: Option<(u64, u64, i64, i64)>,
}

/// An archive whose members are known.
#[derive(Debug)]
pub struct Archive {
    /// The file.
    path: PathBuf,
    /// What users know it by.
    told: PathBuf,
    kind: Kind,
    identity: Identity,
    members: Vec<Member>,
    /// Where the compressed stream is, so that what comes next needs no beginning anew.
    stream: Mutex<Option<Stream>>,
}

impl Archive {
    /// Lists the archive at `path`, which users know as `told`.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or holds what no archive of cubes holds: names that lead out of it, links, devices,
    /// several members of one name, too many of them.
    pub fn open(path: &Path, told: &Path) -> Result<Self> {
        let kind = Kind::of(path).ok_or_else(|| Error::bug("no archive").at(told))?;
        let list = || {
            let (file, identity) = identified(path, told)?;
            let len = identity.len;
            let window = Window::whole(file, len);
            let members = match kind {
                Kind::Zip => zip::list(BufReader::new(window), len)?.members()?,
                Kind::Tar => {
                    tar::list(&mut tar::Seeking::new(BufReader::new(window), len))?.members()?
                }
                Kind::TarGz => {
                    let mut stream = Stream::new(window);
                    let members = tar::list(&mut stream)?.members()?;
                    stream.finish().map_err(|error| bad_stream(&error).caused_by(error))?;
                    members
                }
            };
            Ok((identity, members))
        };
        let (identity, members) = list().map_err(|error: Error| error.at(told))?;
        let (path, told) = (path.to_owned(), told.to_owned());
        Ok(Self { path, told, kind, identity, members, stream: Mutex::default() })
    }

    /// What users know it by.
    pub fn told(&self) -> &Path {
        &self.told
    }

    /// Its files, in the order of the archive.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether its members come out of one stream, in their order only.
    pub fn is_stream(&self) -> bool {
        self.kind == Kind::TarGz
    }

    /// Where member `number` lies uncompressed in the archive; `None` if it has to be copied out.
    ///
    /// # Errors
    /// If the archive cannot be read, is another one by now, or is damaged.
    pub fn in_place(&self, number: usize) -> Result<Option<Window>> {
        let member = &self.members[number];
        let window = |(file, len, start): (File, u64, u64)| {
            let whole = start.checked_add(member.size).is_some_and(|end| end <= len);
            whole.then(|| Window::new(file, start, member.size))
        };
        let placed = match &member.place {
            Place::Tar { start } if self.kind == Kind::Tar => {
                let (file, len) = self.file()?;
                (file, len, *start)
            }
            Place::Zip(entry) if entry.method == Method::Stored => {
                let (file, len) = self.file()?;
                let start = entry.data_start(&file, len).map_err(|e| self.of_member(e, number))?;
                (file, len, start)
            }
            _ => return Ok(None),
        };
        match window(placed) {
            Some(window) => Ok(Some(window)),
            None => Err(self.of_member(
                Error::malformed("it goes on after the end of the archive").with_remedy(DAMAGED),
                number,
            )),
        }
    }

    /// The first `len` bytes of member `number`, or all of it if it has no more; `None` if getting them takes as long as
    /// copying it out.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn head(&self, number: usize, len: u64) -> Result<Option<Vec<u8>>> {
        let member = &self.members[number];
        let len = len.min(member.size) as usize;
        if self.is_stream() {
            return Ok(member.head.get(..len).map(<[u8]>::to_vec));
        }
        let mut head = Vec::new();
        let read = self.reader(number, SHORT)?.take(len as u64).read_to_end(&mut head);
        match read {
            Ok(read) if read == len => Ok(Some(head)),
            Ok(_) => Err(self.bad_member(ErrorKind::UnexpectedEof.into(), number)),
            Err(error) => Err(self.bad_member(error, number)),
        }
    }

    /// Gives the bytes of member `number` to `sink`, piece by piece, where they are in no stream.
    ///
    /// # Errors
    /// If they cannot be read, are not what the archive says, or `sink` fails.
    pub fn copy(&self, number: usize, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut reader = self.reader(number, PIECE)?;
        self.pour(&mut reader, number, sink)
    }

    /// Reads a member that lies in a zip archive as it is, and compares its checksum. Tar archives have none.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn verify(&self, number: usize) -> Result<()> {
        match &self.members[number].place {
            Place::Zip(_) => self.copy(number, &mut |_| Ok(())),
            Place::Tar { .. } => Ok(()),
        }
    }

    /// The stream of a compressed archive, for one reader at a time.
    pub fn stream(&self) -> StreamGuard<'_> {
        StreamGuard(self.stream.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes on in the stream to member `number`, from the start if that was passed. `visit` is given that member, and those
    /// that come before it, with what reads their bytes; it need not read them.
    ///
    /// # Errors
    /// If the stream cannot be read, or `visit` fails.
    pub fn copy_on_the_way(
        &self,
        stream: &mut StreamGuard<'_>,
        number: usize,
        visit: &mut dyn FnMut(usize, &mut MemberBytes<'_>) -> Result<()>,
    ) -> Result<()> {
        let start_of = |number: usize| match self.members[number].place {
            Place::Tar { start } => start,
            Place::Zip(_) => 0,
        };
        // Whatever goes wrong, the next one begins anew.
        let mut bytes = match stream.0.take() {
            Some(bytes) if bytes.position() <= start_of(number) => bytes,
            _ => Stream::new(Window::whole(self.file()?.0, self.identity.len)),
        };
        // Members are in the order of their places.
        let next = self.members.partition_point(|member| match member.place {
            Place::Tar { start } => start < bytes.position(),
            Place::Zip(_) => true,
        });
        for number in next..=number {
            let gap = start_of(number) - bytes.position();
            bytes.skip(gap).map_err(|error| self.bad_member(error, number))?;
            let (archive, left) = (self, self.members[number].size);
            let mut member = MemberBytes { bytes: &mut bytes, archive, number, left };
            visit(number, &mut member)?;
            member.pass()?;
        }
        *stream.0 = Some(bytes);
        Ok(())
    }

    /// The bytes of a member that is in no stream; at their end, they are compared with the checksum of a zip archive.
    fn reader(&self, number: usize, buffer: usize) -> Result<Box<dyn Read>> {
        let member = &self.members[number];
        let Place::Zip(entry) = &member.place else {
            let window = self.in_place(number)?;
            let window = window.ok_or_else(|| Error::bug("a stream has no places"))?;
            return Ok(Box::new(window));
        };
        entry.check_readable().map_err(|error| self.of_member(error, number))?;
        let (file, len) = self.file()?;
        let start = entry.data_start(&file, len).map_err(|error| self.of_member(error, number))?;
        let raw = BufReader::with_capacity(buffer, Window::new(file, start, entry.compressed));
        Ok(match entry.method {
            Method::Deflated => {
                Box::new(Checked::new(DeflateDecoder::new(raw), member.size, entry.crc))
            }
            _ => Box::new(Checked::new(raw, member.size, entry.crc)),
        })
    }

    fn pour(
        &self,
        reader: &mut dyn Read,
        number: usize,
        sink: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let size = self.members[number].size;
        let mut piece = vec![0; PIECE.min(size as usize)];
        let mut left = size;
        while left > 0 {
            let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match reader.read(&mut piece[..most]) {
                Ok(0) => return Err(self.bad_member(ErrorKind::UnexpectedEof.into(), number)),
                Ok(read) => {
                    left -= read as u64;
                    sink(&piece[..read])?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.bad_member(error, number)),
            }
        }
        Ok(())
    }

    /// The archive, if it is still the one that was listed.
    fn file(&self) -> Result<(File, u64)> {
        let (file, identity) = identified(&self.path, &self.told)?;
        match identity == self.identity {
            true => Ok((file, identity.len)),
            false => Err(Error::damaged("the archive was replaced or changed while it was read")
                .at(&self.told)
                .with_remedy("run the command again, once nobody writes the archive")),
        }
    }

    fn of_member(&self, error: Error, number: usize) -> Error {
        error.at(self.told.join(&self.members[number].name))
    }

    fn bad_member(&self, error: std::io::Error, number: usize) -> Error {
        let wrong = match error.kind() {
            ErrorKind::UnexpectedEof => {
                Error::malformed("it ends before the last byte that the archive says it has")
            }
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                Error::malformed(format!("damaged in the archive: {error}"))
            }
            _ => {
                return Error::io(self.told.join(&self.members[number].name), "cannot read", error);
            }
        };
        self.of_member(wrong.with_remedy(DAMAGED).caused_by(error), number)
    }
}

/// The right to read the stream of an archive.
#[derive(Debug)]
pub struct StreamGuard<'a>(MutexGuard<'a, Option<Stream>>);

/// A member in a stream.
#[derive(Debug)]
pub struct MemberBytes<'a> {
    bytes: &'a mut Stream,
    archive: &'a Archive,
    number: usize,
    left: u64,
}

impl MemberBytes<'_> {
    /// Gives the member's bytes to `sink`, piece by piece.
    ///
    /// # Errors
    /// If they cannot be read, or `sink` fails.
    pub fn copy(&mut self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (archive, number) = (self.archive, self.number);
        archive.pour(self, number, sink)
    }

    /// Passes over what was not read.
    fn pass(&mut self) -> Result<()> {
        let left = std::mem::take(&mut self.left);
        self.bytes.skip(left).map_err(|error| self.archive.bad_member(error, self.number))
    }
}

impl Read for MemberBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let count = self.bytes.read(&mut out[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

fn bad_stream(error: &std::io::Error) -> Error {
    Error::malformed(format!("the compressed data are damaged: {error}")).with_remedy(DAMAGED)
}

/// Opens the file of an archive, and says what tells it from another one.
fn identified(path: &Path, told: &Path) -> Result<(File, Identity)> {
    let (file, len) = small::open(path)?;
    let meta = file.metadata().map_err(|error| Error::io(told, "cannot read", error))?;
    let on_disk = (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec());
    let on_disk = crate::mirror::url_of(path).is_none().then_some(on_disk);
    Ok((file, Identity { len, on_disk }))
}

#[cfg(test)]
mod tests;
