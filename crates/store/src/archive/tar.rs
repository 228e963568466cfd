//! The members of a `.tar`: their headers follow one another, each where the previous member ends.
//!
//! The `tar` crate parses the headers. The loop over them is our own, because long names are stored
//! in members of any size, which the crate would read completely.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use hsipack_format::{Error, Result};
use tar::{EntryType, Header, PaxExtensions};

use super::{DAMAGED, Listing, MemberLocation, Tally, names, special};

/// Size of a header in bytes. Members are padded to a multiple of it.
const BLOCK: u64 = 512;
/// Maximum size in bytes of a member that holds the name or other fields of the next member.
const LONGEST_EXTENSION: u64 = 1 << 20;

/// The type of a member that continues one from another part of the archive.
const CONTINUED: u8 = b'M';

/// Bytes that are read in order or skipped.
pub(super) trait Forward: Read {
    /// Skips the next `bytes` bytes. All of them must exist.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;

    /// Skips a member's `bytes` bytes. Returns the first of them if reading them later would be
    /// expensive.
    fn skip_member(&mut self, bytes: u64) -> io::Result<Box<[u8]>> {
        self.skip(bytes).map(|()| Box::default())
    }
}

/// A file, in which skipping costs nothing.
pub(super) struct Seeking<R> {
    file: R,
    len: u64,
    position: u64,
}

impl<R: Read + Seek> Seeking<R> {
    pub fn new(file: R, len: u64) -> Self {
        Self { file, len, position: 0 }
    }
}

impl<R: Read> Read for Seeking<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(out)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<R: Read + Seek> Forward for Seeking<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        match self.position.checked_add(bytes) {
            Some(position) if position <= self.len => {
                self.position = self.file.seek(SeekFrom::Start(position))?;
                Ok(())
            }
            _ => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Fields of a member that preceding members define.
#[derive(Default)]
struct Said {
    name: Option<Vec<u8>>,
    size: Option<u64>,
}

/// The members of the archive in `stream`.
///
/// # Errors
/// If it is damaged or cut short, or has a kind of member that no archive of cubes has.
pub(super) fn list(stream: &mut impl Forward) -> Result<Listing> {
    let (mut listing, mut tally) = (Listing::default(), Tally::default());
    let mut position = 0u64;
    let mut extended = Said::default();
    loop {
        let mut block = [0; BLOCK as usize];
        stream.read_exact(&mut block).map_err(|error| cut_short(error, &listing))?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(listing);
        }
        let header = Header::from_byte_slice(&block);
        check_sum(header, &block).map_err(|error| after(error, &listing))?;
        tally.count(0)?;
        let declared = header.entry_size().map_err(|error| after(malformed(&error), &listing))?;
        let kind = header.entry_type();
        let is_extension = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        let size = if is_extension { declared } else { extended.size.unwrap_or(declared) };
        let start = position + BLOCK;
        position = start
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(BLOCK))
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or_else(|| after(malformed(&"a size that no file has"), &listing))?;
        let padded = position - start;
        if is_extension {
            let text = extension(stream, size, padded).map_err(|error| after(error, &listing))?;
            take(&mut extended, kind, text).map_err(|error| after(error, &listing))?;
            continue;
        }
        let raw = extended.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
        extended = Said::default();
        tally.count(raw.len())?;
        let name = names::checked(&raw)?;
        check_kind(kind).map_err(|error| error.within(format_args!("'{name}'")))?;
        let is_folder = kind.is_dir() || raw.ends_with(b"/");
        if is_folder {
            stream.skip(padded).map_err(|error| cut_short(error, &listing))?;
            listing.folders.push(name);
            continue;
        }
        let head = skip(stream, size, padded)
            .map_err(|error| cut_short(error, &listing).within(format_args!("'{name}'")))?;
        listing.add(name, size, MemberLocation::Tar { start });
        if let Some(member) = listing.members.last_mut() {
            member.head = tally.keep(head);
        }
    }
}

fn skip(stream: &mut impl Forward, size: u64, padded: u64) -> io::Result<Box<[u8]>> {
    let head = stream.skip_member(size)?;
    stream.skip(padded - size)?;
    Ok(head)
}

/// The text of a member that describes the next one.
fn extension(stream: &mut impl Forward, size: u64, padded: u64) -> Result<Vec<u8>> {
    if size > LONGEST_EXTENSION {
        return Err(malformed(&"a name of more than 1 MiB"));
    }
    let mut text = vec![0; padded as usize];
    stream.read_exact(&mut text).map_err(|error| malformed(&error))?;
    text.truncate(size as usize);
    Ok(text)
}

/// Reads the fields of the next member from a text of this kind.
fn take(extended: &mut Said, kind: EntryType, mut text: Vec<u8>) -> Result<()> {
    if kind.is_gnu_longname() {
        while text.last() == Some(&0) {
            text.pop();
        }
        extended.name = Some(text);
    } else if kind.is_pax_local_extensions() {
        for field in PaxExtensions::new(&text) {
            let field = field.map_err(|error| malformed(&error))?;
            match field.key_bytes() {
                b"path" => extended.name = Some(field.value_bytes().to_vec()),
                b"size" => {
                    let size = field.value().ok().and_then(|text| text.parse().ok());
                    extended.size =
                        Some(size.ok_or_else(|| malformed(&"a size that is not a number"))?);
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(sparse()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn check_kind(kind: EntryType) -> Result<()> {
    let what = if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_hard_link() {
        "a link to another member"
    } else if kind.is_block_special() || kind.is_character_special() || kind.is_fifo() {
        "a device or a pipe"
    } else if kind.is_gnu_sparse() {
        return Err(sparse());
    } else if kind.as_byte() == CONTINUED {
        return Err(Error::unsupported("a part of an archive that was split")
            .with_remedy("put its parts together, or unpack it, and give the folder"));
    } else {
        // An unknown type counts as a file, as POSIX requires.
        return Ok(());
    };
    Err(special(what))
}

fn sparse() -> Error {
    Error::unsupported("a tar archive with a sparse file")
        .with_remedy("unpack it, and give the folder, or make an archive without sparse files")
}

/// Compares the checksum of a header. Some old programs counted bytes as signed.
fn check_sum(header: &Header, block: &[u8; BLOCK as usize]) -> Result<()> {
    let counted = |at: usize| if (148..156).contains(&at) { b' ' } else { block[at] };
    let unsigned: u32 = (0..block.len()).map(|at| u32::from(counted(at))).sum();
    let signed: i32 = (0..block.len()).map(|at| i32::from(counted(at) as i8)).sum();
    match header.cksum() {
        Ok(sum) if sum == unsigned || i32::try_from(sum) == Ok(signed) => Ok(()),
        _ => Err(malformed(&"a header with a wrong checksum")),
    }
}

fn malformed(what: &dyn std::fmt::Display) -> Error {
    Error::malformed(format!("not a sound tar archive: {what}")).with_remedy(DAMAGED)
}

/// Adds to an error after which member it occurred.
fn after(error: Error, listing: &Listing) -> Error {
    match listing.members.last() {
        Some(member) => error.within(format_args!("after '{}'", member.name)),
        None => error,
    }
}

fn cut_short(error: io::Error, listing: &Listing) -> Error {
    let error = match error.kind() {
        ErrorKind::UnexpectedEof => malformed(&"it ends before its end mark").caused_by(error),
        ErrorKind::InvalidData | ErrorKind::InvalidInput => {
            malformed(&format!("the compressed data are damaged: {error}")).caused_by(error)
        }
        _ => Error::new(hsipack_format::ErrorKind::Io, format!("cannot read: {error}"))
            .caused_by(error),
    };
    after(error, listing)
}
