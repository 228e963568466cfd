//! `.npz`: a zip archive of `.npy` arrays, of which one is the cube.

use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use hsipack_format::{Error, Result};
use hsipack_store::archive::Checked;
use hsipack_store::small;
use zip::{CompressionMethod, ZipArchive};

use super::header::{NpyHeader, read_header};
use crate::flat::{FileBytes, FlatSource, StreamBytes};
use crate::variables::{self, Candidate};
use crate::{CubeInfo, OpenOptions, Source, band_lists};

/// No archive has more arrays. The header of each is read, and all may lie in the same place.
const MOST_MEMBERS: usize = 20_000;
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
    let mut members = members(path).map_err(|error| error.at(path))?;
    let candidates: Vec<Candidate> = members.iter().map(Member::candidate).collect();
    let chosen = members.swap_remove(variables::choose(path, options, &candidates)?);
    let name = |error: Error| error.within(format_args!("'{}'", chosen.name)).at(path);
    let (header, place) = chosen.array.map_err(name)?;
    let (shape, mut layout, len) = header.cube(options).map_err(name)?;
    if place.size != len {
        return Err(name(
            Error::malformed(format!(
                "with the header, {} make {len} bytes, but the zip archive says {}",
                header.text(),
                place.size
            ))
            .with_remedy("copy the file again; it is damaged"),
        ));
    }
    let mut info = CubeInfo::new("NumPy .npz", shape, header.dtype, path);
    if !options.mask {
        describe(&mut info, &members)?;
    }
    if place.deflated {
        let bytes = StreamBytes::new(path, move || place.stream());
        return Ok(Box::new(FlatSource::new(info, layout, bytes)));
    }
    layout.offset += place.start;
    Ok(Box::new(FlatSource::new(info, layout, FileBytes::open(path)?)))
}

/// Reads wavelengths and other lists of bands from the vectors beside the cube.
fn describe(info: &mut CubeInfo, members: &[Member]) -> Result<()> {
    let path = info.files[0].clone();
    let vectors: Vec<(&Member, (String, usize))> =
        members.iter().filter_map(|member| Some((member, member.vector()?))).collect();
    let names: Vec<(String, usize)> = vectors.iter().map(|(_, vector)| vector.clone()).collect();
    band_lists::describe(info, &names, |index| {
        let (member, (name, length)) = &vectors[index];
        let Ok((header, place)) = &member.array else { return Ok(Vec::new()) };
        let mut bytes = vec![0; header.data_offset + length * header.dtype.size()];
        place.stream()?.read_exact(&mut bytes).map_err(|error| {
            Error::malformed(format!("cannot read '{name}': {error}"))
                .at(&path)
                .with_remedy("copy the file again; it is damaged")
        })?;
        Ok(variables::to_f64(&bytes[header.data_offset..], header.dtype, header.big_endian))
    })
}

/// Where a member of a zip archive lies.
#[derive(Clone, Debug)]
struct Place {
    path: PathBuf,
    start: u64,
    compressed: u64,
    size: u64,
    crc: u32,
    deflated: bool,
}

impl Place {
    /// The member's content from its start; its checksum is compared when the last byte is read.
    fn stream(&self) -> Result<Box<dyn Read + Send>> {
        let fail = |error| Error::io(&self.path, "cannot read", error);
        let mut file = small::window(&self.path)?;
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
    array: Result<(NpyHeader, Place)>,
}

impl Member {
    fn candidate(&self) -> Candidate {
        match &self.array {
            Ok((header, _)) => Candidate::numbers(&self.name, &header.shape, header.dtype),
            Err(error) => Candidate::other(&self.name, error.what()),
        }
    }

    /// The length of the array, if it has one axis and is complete.
    fn vector(&self) -> Option<(String, usize)> {
        match &self.array {
            Ok((header, place)) => match header.shape[..] {
                [length] if place.size == vector_len(header, length)? => {
                    Some((self.name.clone(), length))
                }
                _ => None,
            },
            Err(_) => None,
        }
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
    let file = small::window(path)?;
    let len = file.len();
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(bad_archive)?;
    if archive.len() > MOST_MEMBERS {
        return Err(Error::unsupported(format!("the archive has {} files", archive.len()))
            .with_remedy("save the cube in a separate file"));
    }
    let mut found = Vec::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(bad_archive)?;
        let raw_name = String::from_utf8_lossy(member.name_raw()).into_owned();
        let Some(name) = raw_name.strip_suffix(".npy") else { continue };
        let array = place(path, len, &member).and_then(|place| {
            let header = read_header(&mut *place.stream()?)?;
            Ok((header, place))
        });
        found.push(Member { name: name.to_owned(), array });
    }
    Ok(found)
}

fn place<R: Read>(path: &Path, file_len: u64, member: &zip::read::ZipFile<'_, R>) -> Result<Place> {
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
    Ok(Place { path: path.to_owned(), start, compressed, size, crc: member.crc32(), deflated })
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
        assert_eq!(archive(MOST_MEMBERS + 1).err().unwrap().kind(), ErrorKind::Unsupported);
    }
}
