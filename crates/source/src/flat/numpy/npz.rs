//! `.npz`: a zip archive of `.npy` arrays, of which one is the cube.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use hsipack_format::{Error, Result};
use hsipack_store::archive::Checked;
use hsipack_store::bounded_read;
use zip::{CompressionMethod, ZipArchive};

use super::header::{NpyHeader, read_header, read_text_header};
use crate::container::variables::{self, Candidate};
use crate::container::{
    ArrayEntry, Attributes, Container, NoAttributes, Value, Visitor, name_of, parent,
};
use crate::flat::{FileBytes, FlatSource, StreamBytes};
use crate::meaning::{Known, Subject};
use crate::recent::{MANY_ARRAYS, Recent};
use crate::{CubeInfo, OpenOptions, Source};

/// No archive has more arrays. The header of each is read, and all may lie in the same place.
const MAX_MEMBERS: usize = 20_000;
/// Longer lists beside a cube are not read.
pub(super) const LONGEST_LIST: usize = 1 << 20;
/// Deflate cannot shrink data by more than this.
const BEST_RATIO: u64 = 1032;

/// Whether this is a zip archive named `.npz`, or one whose first member is named `.npy`.
pub(super) fn recognises(path: &Path, head: &[u8]) -> bool {
    const LOCAL_HEADER: usize = 30;
    if !(head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")) {
        return false;
    }
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz"));
    let first_member = head.get(26..28).and_then(|length| {
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        head.get(LOCAL_HEADER..LOCAL_HEADER + length)
    });
    named || first_member.is_some_and(|name| name.ends_with(b".npy"))
}

pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let members = known_members(path)?;
    let candidates: Vec<Candidate> = members.iter().map(Member::candidate).collect();
    let index = variables::choose(path, options, &candidates)?;
    let chosen = &members[index];
    let archive = Archive { path, members: &members, chosen: &chosen.name };
    let name = |error: Error| error.within(format_args!("'{}'", chosen.name)).at(path);
    let entry = chosen.entry();
    let (header, location) = match &chosen.array {
        Ok((header, location)) => (header.clone(), location.clone()),
        Err(_) => self::members(path)?.swap_remove(index).array.map_err(name)?,
    };
    let len = header.file_len().map_err(name)?;
    if location.size != len {
        return Err(name(
            Error::malformed(format!(
                "with the header, {} make {len} bytes, but the zip archive says {}",
                header.text(),
                location.size
            ))
            .with_remedy("copy the file again; it is damaged"),
        ));
    }
    let subject = Subject { container: &archive, entry: &entry, layout: None, options };
    let mut notes = Vec::new();
    let placed = subject.place(&mut notes).map_err(name)?;
    let mut layout = header.layout(placed.order);
    let samples = header.samples(&placed);
    let mut info = CubeInfo::new("NumPy .npz", placed.shape(), header.dtype, path);
    info.notes = notes;
    let reading = subject.describe(&placed, Known::default(), &mut info)?;
    if location.deflated {
        let bytes = StreamBytes::new(path, location.start, move || location.stream());
        let source = FlatSource::new(info, layout, bytes).of_sample(samples);
        return Ok(reading.apply(Box::new(source)));
    }
    layout.offset += location.start;
    let source = FlatSource::new(info, layout, FileBytes::open(path)?).of_sample(samples);
    Ok(reading.apply(Box::new(source)))
}

/// Shows the file at `path` as a container.
///
/// # Errors
/// If it is not a sound archive.
pub(super) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    visitor(&Archive { path, members: &known_members(path)?, chosen: "" })
}

fn known_members(path: &Path) -> Result<Arc<Vec<Member>>> {
    static RECENT: Recent<Vec<Member>> = Recent::new();
    let is_long = |members: &Vec<Member>| members.len() >= MANY_ARRAYS;
    RECENT.get(path, is_long, || members(path).map_err(|error| error.at(path)))
}

/// The arrays of an archive, except for the cube.
struct Archive<'a> {
    path: &'a Path,
    members: &'a [Member],
    /// The name of the cube; empty if there is none.
    chosen: &'a str,
}

impl Container for Archive<'_> {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let mut found = self.arrays_anywhere(wanted);
        found.retain(|entry| parent(&entry.path) == group);
        found
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let of_name =
            |member: &&Member| member.name != self.chosen && wanted(name_of(&member.name));
        self.members.iter().filter(of_name).map(Member::entry).collect()
    }

    fn attributes(&self, _path: &str) -> Box<dyn Attributes + '_> {
        Box::new(NoAttributes)
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        Vec::new()
    }

    fn values(&self, path: &str) -> Result<Option<Value>> {
        let found =
            self.members.iter().find(|member| path.strip_prefix('/') == Some(&*member.name));
        let (name, header, location, are_texts) = match found {
            Some(Member { name, array: Ok((header, location)), .. }) => {
                (name, header, location, false)
            }
            Some(Member { name, texts: Some((header, location)), .. }) => {
                (name, header, location, true)
            }
            _ => return Ok(None),
        };
        let length = header.shape.iter().try_fold(1usize, |all, length| all.checked_mul(*length));
        let Some(length) = length.filter(|length| {
            *length <= LONGEST_LIST && Some(location.size) == vector_len(header, *length)
        }) else {
            return Ok(None);
        };
        let mut bytes = vec![0; header.data_offset + length * header.dtype.size()];
        location.stream()?.read_exact(&mut bytes).map_err(|error| {
            Error::malformed(format!("cannot read '{name}': {error}"))
                .at(self.path)
                .with_remedy("copy the file again; it is damaged")
        })?;
        let bytes = &bytes[header.data_offset..];
        if !are_texts {
            return Ok(Some(variables::to_value(bytes, header.dtype, header.big_endian)));
        }
        let values = variables::to_f64(bytes, header.dtype, header.big_endian);
        let letters = header.shape.last().copied().unwrap_or_default().max(1);
        let text = |letters: &[f64]| {
            let text: String =
                letters.iter().filter_map(|letter| char::from_u32(*letter as u32)).collect();
            text.trim_end_matches('\0').to_owned()
        };
        Ok(Some(Value::Texts(values.chunks(letters).map(text).collect())))
    }
}

/// Where a member of a zip archive lies.
#[derive(Clone, Debug)]
struct MemberLocation {
    path: PathBuf,
    start: u64,
    compressed: u64,
    size: u64,
    crc: u32,
    deflated: bool,
}

impl MemberLocation {
    /// The member's content from its start; its checksum is compared when the last byte is read.
    fn stream(&self) -> Result<Box<dyn Read + Send>> {
        let fail = |error| Error::io(&self.path, "cannot read", error);
        let mut file = bounded_read::window(&self.path)?;
        file.seek(SeekFrom::Start(self.start)).map_err(fail)?;
        let raw = BufReader::new(file).take(self.compressed);
        let inner: Box<dyn Read + Send> =
            if self.deflated { Box::new(DeflateDecoder::new(raw)) } else { Box::new(raw) };
        Ok(Box::new(Checked::new(inner, self.size, self.crc)))
    }
}

/// A member of an archive: the header of its array, or why it is not an array.
struct Member {
    name: String,
    array: Result<(NpyHeader, MemberLocation)>,
    /// Its texts, if it is an array of texts.
    texts: Option<(NpyHeader, MemberLocation)>,
}

impl Member {
    fn candidate(&self) -> Candidate {
        match &self.array {
            Ok((header, _)) => Candidate::numbers(&self.name, &header.shape, header.dtype),
            Err(error) => Candidate::other(&self.name, error.what()),
        }
    }

    fn entry(&self) -> ArrayEntry {
        let (lengths, dtype) = match (&self.array, &self.texts) {
            (Ok((header, _)), _) => (header.shape.clone(), Some(header.dtype)),
            (Err(_), Some((header, _))) => {
                (header.shape[..header.shape.len().saturating_sub(1)].to_vec(), None)
            }
            (Err(_), None) => (Vec::new(), None),
        };
        ArrayEntry { path: format!("/{}", self.name), lengths, dtype }
    }
}

fn vector_len(header: &NpyHeader, length: usize) -> Option<u64> {
    let bytes = length.checked_mul(header.dtype.size())?.checked_add(header.data_offset)?;
    u64::try_from(bytes).ok()
}

fn bad_archive(error: zip::result::ZipError) -> Error {
    Error::malformed(format!("not a sound zip archive: {error}"))
        .with_remedy("copy the file again; it is cut short or damaged")
        .caused_by(error)
}

/// The arrays in an archive. Members that are not `.npy` files are skipped.
fn members(path: &Path) -> Result<Vec<Member>> {
    let file = bounded_read::window(path)?;
    let len = file.len();
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(bad_archive)?;
    if archive.len() > MAX_MEMBERS {
        return Err(Error::unsupported(format!("the archive has {} files", archive.len()))
            .with_remedy("save the cube in a separate file"));
    }
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(bad_archive)?;
        let raw_name = String::from_utf8_lossy(member.name_raw()).into_owned();
        let Some(name) = raw_name.strip_suffix(".npy") else { continue };
        let array = place(path, len, &member).and_then(|location| {
            let header = read_header(&mut *location.stream()?)?;
            Ok((header, location))
        });
        let texts = match &array {
            Ok(_) => None,
            Err(_) => texts(path, len, &member),
        };
        found.push(Member { name: name.to_owned(), array, texts });
    }
    Ok(found)
}

/// The header of a member that is an array of texts.
fn texts<R: Read>(
    path: &Path,
    file_len: u64,
    member: &zip::read::ZipFile<'_, R>,
) -> Option<(NpyHeader, MemberLocation)> {
    let location = place(path, file_len, member).ok()?;
    let header = read_text_header(&mut *location.stream().ok()?)?;
    Some((header, location))
}

fn place<R: Read>(
    path: &Path,
    file_len: u64,
    member: &zip::read::ZipFile<'_, R>,
) -> Result<MemberLocation> {
    if member.encrypted() {
        return Err(Error::unsupported("encrypted").with_remedy("save it without a password"));
    }
    let deflated = match member.compression() {
        CompressionMethod::Stored => false,
        CompressionMethod::Deflated => true,
        other => {
            return Err(Error::unsupported(format!("compressed by {other}"))
                .with_remedy("save it with numpy.savez or numpy.savez_compressed"));
        }
    };
    let (compressed, size) = (member.compressed_size(), member.size());
    let start = member.data_start().ok_or_else(|| {
        Error::malformed("its position is unknown")
            .with_remedy("copy the file again; it is damaged")
    })?;
    let inside = start.checked_add(compressed).is_some_and(|end| end <= file_len);
    let possible = if deflated { size / BEST_RATIO <= compressed } else { size == compressed };
    if !inside || !possible {
        return Err(Error::malformed("its sizes in the zip archive contradict the file")
            .with_remedy("copy the file again; it is cut short or damaged"));
    }
    Ok(MemberLocation {
        path: path.to_owned(),
        start,
        compressed,
        size,
        crc: member.crc32(),
        deflated,
    })
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;

    use super::*;

    #[test]
    fn archives_of_very_many_files_are_refused() {
        let archive = |count: usize| {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = zip::ZipWriter::new(std::io::BufWriter::new(file.reopen().unwrap()));
            let stored = zip::write::SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored);
            (0..count).for_each(|index| writer.start_file(format!("{index}"), stored).unwrap());
            writer.finish().unwrap();
            members(file.path())
        };
        assert_eq!(archive(100).unwrap().len(), 0);
        assert_eq!(archive(MAX_MEMBERS + 1).err().unwrap().kind(), ErrorKind::Unsupported);
    }
}
