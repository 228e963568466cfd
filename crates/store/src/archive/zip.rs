//! The members of a `.zip`, from its central directory, which is read one entry at a time and
//! checked against the file.
//!
//! The `zip` crate allocates memory for as many members as an archive claims to have, and keeps
//! only one of several members with the same name. So the directory is read here, following the
//! specification ([APPNOTE](https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT) 4.3.12 to
//! 4.3.16, 4.5.3).

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use hsipack_format::{Error, Result};

use super::{DAMAGED, Listing, MemberLocation, Tally, names, special};

/// Deflate cannot compress data by more than this factor.
const BEST_RATIO: u64 = 1032;
/// Size in bytes of the header before a member, without its name and extra fields.
const LOCAL_HEADER: u64 = 30;
/// Size in bytes of an entry of the directory, without its variable fields.
const ENTRY: usize = 46;
/// Size in bytes of the record at the end, without its comment, which has at most 65535 bytes.
const END: usize = 22;
/// Size in bytes of the locator, which precedes that record in large archives and points to a
/// record with larger numbers.
const LOCATOR: usize = 20;
/// Size in bytes of the record with larger numbers.
const END_64: usize = 56;

/// How a member's bytes are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
    /// An unsupported method, by name.
    Other(String),
}

/// A member of a zip archive.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Where the header before its bytes begins.
    pub header: u64,
    /// Number of bytes in the archive.
    pub compressed: u64,
    /// CRC-32 of the decompressed bytes.
    pub crc: u32,
    pub method: Method,
}

/// Where the directory is.
struct Directory {
    start: u64,
    len: u64,
    entries: u64,
    /// Number of bytes before the archive, such as a self-extracting program. Positions are counted
    /// from the end of these bytes.
    before: u64,
}

/// The members of the archive in `file`, which has `len` bytes.
///
/// # Errors
/// If its directory is damaged, or it has a kind of member that no archive of cubes has.
pub(super) fn list(mut file: impl Read + Seek, len: u64) -> Result<Listing> {
    let directory = find_directory(&mut file, len)?;
    file.seek(SeekFrom::Start(directory.start)).map_err(cannot_read)?;
    let mut bytes = file.take(directory.len);
    let (mut listing, mut tally) = (Listing::default(), Tally::default());
    for _ in 0..directory.entries {
        let mut fixed = [0; ENTRY];
        bytes.read_exact(&mut fixed).map_err(cannot_read)?;
        if !fixed.starts_with(b"PK\x01\x02") {
            return Err(unsound("its directory lists fewer files than it declares"));
        }
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(&fixed, at)));
        tally.count(lengths[0])?;
        // Each is at most 64 KiB long.
        let mut texts = vec![0; lengths.iter().sum()];
        bytes.read_exact(&mut texts).map_err(cannot_read)?;
        let (raw, tail) = texts.split_at(lengths[0]);
        let name = names::checked(raw)?;
        let within = |error: Error| error.within(format_args!("'{name}'"));
        check_kind(&fixed).map_err(within)?;
        if raw.ends_with(b"/") {
            listing.folders.push(name);
            continue;
        }
        let (entry, size) = entry(&fixed, &tail[..lengths[1]], &directory, len).map_err(within)?;
        listing.add(name, size, MemberLocation::Zip(entry));
    }
    if bytes.limit() > 0 {
        return Err(unsound("its directory goes on after the last file"));
    }
    Ok(listing)
}

/// The entry whose fixed part is `fixed`, and the size of its member.
fn entry(
    fixed: &[u8; ENTRY],
    extra: &[u8],
    directory: &Directory,
    file_len: u64,
) -> Result<(Entry, u64)> {
    let mut large = extra_of_large(extra);
    let mut number = |at: usize| match u32_at(fixed, at) {
        u32::MAX => large.next().ok_or_else(contradict),
        number => Ok(u64::from(number)),
    };
    let size = number(24)?;
    let compressed = number(20)?;
    let header = number(42)?.checked_add(directory.before).ok_or_else(contradict)?;
    let is_encrypted = u16_at(fixed, 8) & 1 != 0;
    let method = match u16_at(fixed, 10) {
        _ if is_encrypted => Method::Other("encrypted".to_owned()),
        0 => Method::Stored,
        8 => Method::Deflated,
        number => Method::Other(format!("compressed by {}", method_name(number))),
    };
    let end = header.checked_add(LOCAL_HEADER).and_then(|start| start.checked_add(compressed));
    let is_possible = match method {
        Method::Stored => size == compressed,
        Method::Deflated => size / BEST_RATIO <= compressed,
        Method::Other(_) => true,
    };
    if end.is_none_or(|end| end > file_len) || !is_possible {
        return Err(contradict());
    }
    Ok((Entry { header, compressed, crc: u32_at(fixed, 16), method }, size))
}

/// The 8-byte numbers in an entry's extra fields, which replace numbers that do not fit into 4
/// bytes.
fn extra_of_large(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    const LARGE: u16 = 1;
    let mut found: &[u8] = &[];
    while let Some((head, tail)) = extra.split_at_checked(4) {
        let Some((field, after)) = tail.split_at_checked(usize::from(u16_at(head, 2))) else {
            break;
        };
        if u16_at(head, 0) == LARGE {
            found = field;
            break;
        }
        extra = after;
    }
    found.chunks_exact(8).map(|bytes| u64_at(bytes, 0))
}

/// Refuses entries that are neither files nor folders. Archives that were not made on Unix do not
/// record this.
fn check_kind(fixed: &[u8; ENTRY]) -> Result<()> {
    const UNIX: u8 = 3;
    const MACOS: u8 = 19;
    const KIND: u32 = 0o170_000;
    let mode = if matches!(fixed[5], UNIX | MACOS) { u32_at(fixed, 38) >> 16 } else { 0 };
    match mode & KIND {
        0 | 0o100_000 | 0o040_000 => Ok(()),
        0o120_000 => Err(special("a symbolic link")),
        _ => Err(special("a device, a pipe or a socket")),
    }
}

fn method_name(number: u16) -> String {
    match number {
        9 => "Deflate64".to_owned(),
        12 => "bzip2".to_owned(),
        14 => "LZMA".to_owned(),
        93 => "Zstandard".to_owned(),
        95 => "XZ".to_owned(),
        number => format!("method {number}"),
    }
}

/// Finds the directory by the records at the end of the file.
fn find_directory(file: &mut (impl Read + Seek), len: u64) -> Result<Directory> {
    let tail = len.min((END + usize::from(u16::MAX) + LOCATOR + END_64) as u64);
    let tail_start = len - tail;
    let tail = bytes_at(file, tail_start, tail as usize)?;
    let is_end = |at: &usize| {
        let record = &tail[*at..];
        record.starts_with(b"PK\x05\x06")
            && record.len() >= END
            && END + usize::from(u16_at(record, 20)) <= record.len()
    };
    let at = (0..tail.len().saturating_sub(END - 1)).rev().find(is_end);
    let at = at.ok_or_else(|| unsound("it has no directory at its end"))?;
    let record = &tail[at..];
    let mut end = tail_start + at as u64;
    let (mut entries, mut size, mut offset) = (
        u64::from(u16_at(record, 10)),
        u64::from(u32_at(record, 12)),
        u64::from(u32_at(record, 16)),
    );
    let mut disks = [u32::from(u16_at(record, 4)), u32::from(u16_at(record, 6))];
    let locator = at.checked_sub(LOCATOR).map(|at| &tail[at..]);
    if let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
        // If other bytes precede the archive, the position in the locator is not the position in the file.
        let places = [Some(u64_at(locator, 8)), end.checked_sub((LOCATOR + END_64) as u64)];
        let mut records = places.into_iter().flatten().filter_map(|position| {
            let inside = position.checked_add(END_64 as u64).is_some_and(|end| end <= len);
            let record = inside.then(|| bytes_at(file, position, END_64).ok()).flatten()?;
            record.starts_with(b"PK\x06\x06").then_some((position, record))
        });
        let found = records.next();
        let (position, record) = found.ok_or_else(|| unsound("a record at its end is missing"))?;
        end = position;
        disks = [u32_at(&record, 16), u32_at(&record, 20)];
        (entries, size, offset) = (u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48));
    }
    if disks != [0, 0] {
        return Err(Error::unsupported("a part of an archive that was split")
            .with_remedy("put its parts together, or unpack it, and give the folder"));
    }
    if entries > size / ENTRY as u64 {
        return Err(unsound("its directory is too small for its files"));
    }
    let start = end.checked_sub(size).ok_or_else(|| unsound("its directory is cut short"))?;
    let is_at = |file: &mut _, position: u64| {
        bytes_at(file, position, 4).is_ok_and(|sign| sign == b"PK\x01\x02")
    };
    if entries == 0 || offset == start || !is_at(file, offset) {
        let before = start.checked_sub(offset);
        let before = before.ok_or_else(|| unsound("its directory lies before its start"))?;
        return Ok(Directory { start, len: size, entries, before });
    }
    Ok(Directory { start: offset, len: size, entries, before: 0 })
}

/// The `count` bytes at `position`.
fn bytes_at(file: &mut (impl Read + Seek), position: u64, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    file.seek(SeekFrom::Start(position)).map_err(cannot_read)?;
    file.read_exact(&mut bytes).map_err(cannot_read)?;
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl Entry {
    /// The position in `file` (of `len` bytes) where the member's bytes begin.
    ///
    /// # Errors
    /// If there is no header, or the bytes are not inside the file.
    pub fn data_start(&self, file: &File, len: u64) -> Result<u64> {
        let damaged = |what: &str| Err(Error::malformed(what).with_remedy(DAMAGED));
        let mut header = [0; LOCAL_HEADER as usize];
        if file.read_exact_at(&mut header, self.header).is_err()
            || !header.starts_with(b"PK\x03\x04")
        {
            return damaged("there is no header at the position that the zip archive gives");
        }
        let length = |at: usize| u64::from(u16_at(&header, at));
        // When the archive was listed, this was compared with the length of the file, so it cannot overflow.
        let start = self.header + LOCAL_HEADER + length(26) + length(28);
        match start.checked_add(self.compressed) {
            Some(end) if end <= len => Ok(start),
            _ => damaged("it goes on after the end of the zip archive"),
        }
    }

    /// Refuses a member that is encrypted, or compressed with an unsupported method.
    ///
    /// # Errors
    /// If it is.
    pub fn check_readable(&self) -> Result<()> {
        match &self.method {
            Method::Other(how) => Err(Error::unsupported(format!("{how} in the archive"))
                .with_remedy("unpack the archive, and give the folder")),
            _ => Ok(()),
        }
    }
}

fn contradict() -> Error {
    Error::malformed("its sizes in the zip archive contradict the file").with_remedy(DAMAGED)
}

fn unsound(what: &str) -> Error {
    Error::malformed(format!("not a sound zip archive: {what}")).with_remedy(DAMAGED)
}

fn cannot_read(error: std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => unsound("it ends within its directory").caused_by(error),
        _ => Error::new(hsipack_format::ErrorKind::Io, format!("cannot read: {error}"))
            .caused_by(error),
    }
}
