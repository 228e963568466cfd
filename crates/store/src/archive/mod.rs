//! Archives: the members of a `.zip`, `.tar`, `.tar.gz` or `.tgz`, and their bytes.
//!
//! An archive is listed once: a zip by its directory, a tar by its headers without reading the
//! bytes between them, and a compressed tar by decompressing all of it. Uncompressed members are
//! read in place ([`Archive::in_place`]). Others are copied out ([`Archive::copy`], or
//! [`Archive::copy_on_the_way`] if the archive is one compressed stream). [`mirror`](crate::mirror)
//! makes them available as files.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | an archive: its kind, its members, their bytes |
//! | `listing.rs` | the members found in an archive, and the limits for them |
//! | `names.rs` | which names members may have |
//! | `zip.rs` | the directory of a zip archive |
//! | `tar.rs` | the headers of a tar archive |
//! | `streamed.rs` | a compressed tar archive as a stream |
//! | `checked.rs` | comparing bytes with the checksum in a zip archive |
//!
//! The content of an archive is not trusted: names that lead out of it, links, devices, two members
//! with the same name, more than [`MAX_MEMBERS`] members and impossible sizes are errors. Only the
//! archive's directory is held in memory.

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
use crate::window::Window;

pub use self::checked::Checked;
pub use self::listing::MAX_MEMBERS;

/// Number of bytes copied at a time.
const PIECE: usize = 1 << 20;
/// Number of bytes read from an archive at a time if only the beginning of a member is needed.
const SHORT: usize = 8 << 10;

/// Remedy for a damaged file.
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
    /// The kind of archive that a file is, by its name. Upper and lower case do not matter.
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
    /// Its path in the archive.
    pub name: String,
    /// Its length in bytes, as the archive says.
    pub size: u64,
    location: MemberLocation,
    /// Its first bytes, if they were kept.
    head: Box<[u8]>,
}

#[derive(Clone, Debug)]
enum MemberLocation {
    Zip(zip::Entry),
    /// Where its bytes begin in the archive, or in the decompressed stream.
    Tar {
        start: u64,
    },
}

/// The members of the archive `bytes`; for fuzzing.
///
/// # Errors
/// Those of [`Archive::open`].
#[doc(hidden)]
pub fn list_bytes(kind: Kind, bytes: &[u8]) -> Result<Vec<Member>> {
    let (file, len) = (Cursor::new(bytes), bytes.len() as u64);
    match kind {
        Kind::Zip => zip::list(file, len)?.members(),
        Kind::Tar | Kind::TarGz => tar::list(&mut tar::Seeking::new(file, len))?.members(),
    }
}

/// Identifies the file that was listed, to detect a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    len: u64,
    /// Device, inode and time of change. `None` for a file that stands for an object, because such
    /// a file may be fetched again.
    on_disk: Option<(u64, u64, i64, i64)>,
}

impl Identity {
    fn of(file: &File, len: u64, is_object: bool, shown_path: &Path) -> Result<Self> {
        let meta = file.metadata().map_err(|error| Error::io(shown_path, "cannot read", error))?;
        let on_disk = (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec());
        Ok(Self { len, on_disk: (!is_object).then_some(on_disk) })
    }
}

/// Opens the file of an archive, and returns it with its length.
pub(crate) type OpenFile = fn(&Path) -> Result<(File, u64)>;

/// An archive that was listed.
#[derive(Debug)]
pub struct Archive {
    /// The file.
    path: PathBuf,
    /// The name that users know.
    shown_path: PathBuf,
    kind: Kind,
    open: OpenFile,
    identity: Identity,
    members: Vec<Member>,
    /// The compressed stream at its current position, so that later members can be read without
    /// starting again.
    stream: Mutex<Option<Stream>>,
}

impl Archive {
    /// Lists the archive at `path`, which `open` opens. Users know it as `shown_path`. If
    /// `is_object`, the file stands for an object.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or contains something that no archive of cubes contains:
    /// names that lead out of it, links, devices, several members with the same name, too many
    /// members.
    pub(crate) fn open(
        path: &Path,
        shown_path: &Path,
        open: OpenFile,
        is_object: bool,
    ) -> Result<Self> {
        let kind = Kind::of(path).ok_or_else(|| Error::bug("no archive").at(shown_path))?;
        let list = || {
            let (file, len) = open(path)?;
            let identity = Identity::of(&file, len, is_object, shown_path)?;
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
        let (identity, members) = list().map_err(|error: Error| error.at(shown_path))?;
        let (path, shown_path) = (path.to_owned(), shown_path.to_owned());
        Ok(Self { path, shown_path, kind, open, identity, members, stream: Mutex::default() })
    }

    /// The name that users know.
    pub fn shown_path(&self) -> &Path {
        &self.shown_path
    }

    /// Its files, in archive order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether its members are in one compressed stream and can only be read in order.
    pub fn is_stream(&self) -> bool {
        self.kind == Kind::TarGz
    }

    /// The place of member `number` in the archive, if it is stored uncompressed; `None` if it has
    /// to be copied out.
    ///
    /// # Errors
    /// If the archive cannot be read, was replaced, or is damaged.
    pub fn in_place(&self, number: usize) -> Result<Option<Window>> {
        let member = &self.members[number];
        let window = |(file, len, start): (File, u64, u64)| {
            let whole = start.checked_add(member.size).is_some_and(|end| end <= len);
            whole.then(|| Window::new(file, start, member.size))
        };
        let placed = match &member.location {
            MemberLocation::Tar { start } if self.kind == Kind::Tar => {
                let (file, len) = self.file()?;
                (file, len, *start)
            }
            MemberLocation::Zip(entry) if entry.method == Method::Stored => {
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

    /// The first `len` bytes of member `number`, or the whole member if it is shorter. `None` if
    /// reading them would take as long as copying the member out.
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

    /// Passes the bytes of member `number` to `sink`, piece by piece. Not for members of a stream.
    ///
    /// # Errors
    /// If they cannot be read or do not match the archive's checksum, or if `sink` fails.
    pub fn copy(&self, number: usize, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut reader = self.reader(number, PIECE)?;
        self.pour(&mut reader, number, sink)
    }

    /// Reads a member that is stored uncompressed in a zip archive, and compares its checksum. Tar
    /// archives have no checksums.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn verify(&self, number: usize) -> Result<()> {
        match &self.members[number].location {
            MemberLocation::Zip(_) => self.copy(number, &mut |_| Ok(())),
            MemberLocation::Tar { .. } => Ok(()),
        }
    }

    /// The stream of a compressed archive, for one reader at a time.
    pub fn stream(&self) -> StreamGuard<'_> {
        StreamGuard(self.stream.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the stream on to member `number`, or from the start if the stream is already past it.
    /// Calls `visit` for each member on the way and for the member itself, with a reader for its
    /// bytes. `visit` need not read them.
    ///
    /// # Errors
    /// If the stream cannot be read, or `visit` fails.
    pub fn copy_on_the_way(
        &self,
        stream: &mut StreamGuard<'_>,
        number: usize,
        visit: &mut dyn FnMut(usize, &mut MemberBytes<'_>) -> Result<()>,
    ) -> Result<()> {
        let start_of = |number: usize| match self.members[number].location {
            MemberLocation::Tar { start } => start,
            MemberLocation::Zip(_) => 0,
        };
        // If anything goes wrong, the next call starts again.
        let mut bytes = match stream.0.take() {
            Some(bytes) if bytes.position() <= start_of(number) => bytes,
            _ => Stream::new(Window::whole(self.file()?.0, self.identity.len)),
        };
        // Members are sorted by position.
        let next = self.members.partition_point(|member| match member.location {
            MemberLocation::Tar { start } => start < bytes.position(),
            MemberLocation::Zip(_) => true,
        });
        for number in next..=number {
            let gap = start_of(number) - bytes.position();
            bytes.skip(gap).map_err(|error| self.bad_member(error, number))?;
            let (archive, remaining) = (self, self.members[number].size);
            let mut member = MemberBytes { bytes: &mut bytes, archive, number, remaining };
            visit(number, &mut member)?;
            member.pass()?;
        }
        *stream.0 = Some(bytes);
        Ok(())
    }

    /// A reader for a member that is not in a stream. For a zip archive, it compares the checksum
    /// at the end.
    fn reader(&self, number: usize, buffer: usize) -> Result<Box<dyn Read>> {
        let member = &self.members[number];
        let MemberLocation::Zip(entry) = &member.location else {
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
        let mut remaining = size;
        while remaining > 0 {
            let most = piece.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
            match reader.read(&mut piece[..most]) {
                Ok(0) => return Err(self.bad_member(ErrorKind::UnexpectedEof.into(), number)),
                Ok(read) => {
                    remaining -= read as u64;
                    sink(&piece[..read])?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.bad_member(error, number)),
            }
        }
        Ok(())
    }

    /// Opens the archive, if it is still the one that was listed.
    fn file(&self) -> Result<(File, u64)> {
        let (file, len) = (self.open)(&self.path)?;
        let identity = Identity::of(&file, len, self.identity.on_disk.is_none(), &self.shown_path)?;
        match identity == self.identity {
            true => Ok((file, identity.len)),
            false => Err(Error::damaged("the archive was replaced or changed while it was read")
                .at(&self.shown_path)
                .with_remedy("run the command again when no other program is writing the archive")),
        }
    }

    fn of_member(&self, error: Error, number: usize) -> Error {
        error.at(self.shown_path.join(&self.members[number].name))
    }

    fn bad_member(&self, error: std::io::Error, number: usize) -> Error {
        let wrong = match error.kind() {
            ErrorKind::UnexpectedEof => Error::malformed("it is shorter than the archive says"),
            ErrorKind::InvalidData | ErrorKind::InvalidInput => {
                Error::malformed(format!("damaged in the archive: {error}"))
            }
            _ => {
                return Error::io(
                    self.shown_path.join(&self.members[number].name),
                    "cannot read",
                    error,
                );
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
    remaining: u64,
}

impl MemberBytes<'_> {
    /// Passes the member's bytes to `sink`, piece by piece.
    ///
    /// # Errors
    /// If they cannot be read, or `sink` fails.
    pub fn copy(&mut self, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (archive, number) = (self.archive, self.number);
        archive.pour(self, number, sink)
    }

    /// Skips the bytes that were not read.
    fn pass(&mut self) -> Result<()> {
        let remaining = std::mem::take(&mut self.remaining);
        self.bytes.skip(remaining).map_err(|error| self.archive.bad_member(error, self.number))
    }
}

impl Read for MemberBytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(out.len());
        let count = self.bytes.read(&mut out[..most])?;
        self.remaining -= count as u64;
        Ok(count)
    }
}

fn bad_stream(error: &std::io::Error) -> Error {
    Error::malformed(format!("the compressed data are damaged: {error}")).with_remedy(DAMAGED)
}

#[cfg(test)]
mod tests;
