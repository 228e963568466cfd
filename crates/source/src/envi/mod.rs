//! ENVI: a text header (`.hdr`) beside a flat data file, plain or gzip.
//!
//! The user may give either file. The other one is found by name. If several files match, the one whose
//! size agrees with the header is used:
//!
//! ```text
//! header given:  x.hdr → x, x.img, x.dat, x.raw, …;  else any x.* of exactly the right size
//! data given:    x.img → x.img.hdr, x.hdr
//! ```
//!
//! The size of a plain data file is checked before anything is read. For a gzip file, only an upper limit
//! is known at that point. If such a file ends early or its checksum is wrong, reading its last row fails.

mod bands;
mod esri;
mod fields;
pub mod header;
mod map_info;
mod search;

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use hsipack_format::{CubeShape, Error, Opt, Result, remedy};
use hsipack_store::{mirror, small};

pub(super) use self::fields::{Fields, decode, tokens};
use self::header::{Header, Interleave, Kind};
use self::search::{file_name, find_data, has_suffix, header_names};
use crate::flat::{FileBytes, FlatLayout, FlatSource, StreamBytes};
use crate::{CubeInfo, OpenOptions, Scaling, Source};

/// Headers with thousands of bands take some 100 KB.
const LARGEST_HEADER: u64 = 4 << 20;
/// How many bytes of a file are read to see whether it is a header.
const HEAD: u64 = 4096;
/// Deflate needs at least two bits for 258 bytes.
const BEST_DEFLATE_RATIO: u64 = 1032;
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Suffixes of raw cubes. If such a file has no header, the error says so.
const RAW_SUFFIXES: [&str; 8] = ["img", "dat", "raw", "bin", "hyspex", "bsq", "bil", "bip"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format: it is a header, by content or
/// name, has a header beside it, or is named like a data file.
pub(super) fn recognises(path: &Path, head: &[u8]) -> bool {
    let is_folder = head.is_empty();
    !is_folder
        && (header::kind(head) != Kind::Other
            || has_suffix(path, "hdr")
            || RAW_SUFFIXES.iter().any(|suffix| has_suffix(path, suffix))
            || header_names(path).iter().any(|header| kind_of(header) != Kind::Other))
}

/// Opens the cube in `path`, a header or a data file.
///
/// # Errors
/// If one of the two files is missing, cannot be read, is malformed, or holds no image of real numbers.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if let Some(variable) = &options.variable {
        return Err(Error::unsupported(format!("an ENVI file has no variable '{variable}' in it"))
            .at(path)
            .with_remedy(format!("leave out ::{variable}")));
    }
    let pair = match kind_of(path) {
        Kind::Envi => Pair::from_header(path)?,
        Kind::Esri => return Err(refuse_esri(path)),
        // This says what is wrong with the header.
        Kind::Other if has_suffix(path, "hdr") => Pair::from_header(path)?,
        Kind::Other => Pair::from_data(path)?,
    };
    pair.open(options)
}

/// A header and its data file.
struct Pair {
    header: Header,
    header_path: PathBuf,
    data_path: PathBuf,
    data: DataFile,
}

impl Pair {
    fn from_header(path: &Path) -> Result<Pair> {
        let header = read_header(path)?;
        let (data_path, data) = find_data(path, &header)?;
        Ok(Pair { header, header_path: path.to_owned(), data_path, data })
    }

    fn from_data(path: &Path) -> Result<Pair> {
        let names = header_names(path);
        let of_kind = |kind| names.iter().filter(move |name| kind_of(name) == kind);
        let mut pairs: Vec<Result<Pair>> = of_kind(Kind::Envi)
            .map(|name| {
                let header = read_header(name)?;
                let data = DataFile::measure(path)?;
                Ok(Pair { header, header_path: name.clone(), data_path: path.to_owned(), data })
            })
            .collect();
        if pairs.is_empty() {
            return Err(match of_kind(Kind::Esri).next() {
                Some(esri) => refuse_esri(esri),
                None => match names.iter().find(|name| name.is_file()) {
                    Some(other) => {
                        Error::malformed("not an ENVI header: its first line is not ENVI")
                            .at(other)
                            .with_remedy("correct the header")
                    }
                    None => no_header(path, &names),
                },
            });
        }
        let fits = |pair: &Result<Pair>| pair.as_ref().is_ok_and(Pair::fits);
        let best = pairs.iter().position(fits);
        let best = best.or_else(|| pairs.iter().position(Result::is_ok)).unwrap_or(0);
        let pair = pairs.swap_remove(best)?;
        pair.refuse_if_of_another_file()?;
        Ok(pair)
    }

    /// Whether the size of the file agrees with the header, as far as that is known.
    fn fits(&self) -> bool {
        self.data.fits_plain(&self.header) || self.data.is_gzip_for(&self.header)
    }

    /// Refuses a data file if the header belongs to another one: `x.hdr` may describe `x.img` while the
    /// user gave `x.log`.
    fn refuse_if_of_another_file(&self) -> Result<()> {
        if self.fits() {
            return Ok(());
        }
        match find_data(&self.header_path, &self.header) {
            Ok((other, data)) if data.fits_plain(&self.header) => Err(Error::malformed(format!(
                "{} describes {}, which has exactly the size it says, not this file",
                self.header_path.display(),
                other.display()
            ))
            .at(&self.data_path)
            .with_remedy(format!("give {}", other.display()))),
            _ => Ok(()),
        }
    }

    fn open(mut self, options: &OpenOptions) -> Result<Box<dyn Source>> {
        if self.header.classification && !options.mask {
            return Err(Error::unsupported("this is an ENVI classification map, not a cube")
                .at(&self.header_path)
                .with_remedy(remedy!["use it as labels, with ", Opt::Mask]));
        }
        let gzip = self.data.is_gzip_for(&self.header);
        let checked = if gzip { self.check_compressed_size() } else { self.check_size() };
        checked.map_err(|error| error.at(&self.data_path))?;
        if let Some(axes) = &options.axes {
            self.header.notes.push(format!(
                "axes {axes} are not used: the header says {}",
                self.header.interleave.name()
            ));
        }
        let layout = FlatLayout {
            offset: self.header.offset,
            order: self.header.interleave.order(),
            big_endian: self.header.big_endian,
            rows_reversed: false,
        };
        let (end, line) = (self.header.file_len(), self.line());
        let data_path = self.data_path.clone();
        let info = self.into_info(gzip);
        Ok(Box::new(if gzip {
            FlatSource::new(info, layout, gzip_bytes(data_path, end, line))
        } else {
            FlatSource::new(info, layout, FileBytes::open(&data_path)?)
        }))
    }

    /// Checks the size of a plain data file.
    fn check_size(&mut self) -> Result<()> {
        let (len, expected) = (self.data.len, self.header.file_len());
        if self.header.compressed && len != expected {
            return Err(Error::malformed(
                "the header says gzip (file compression = 1), but it is not",
            )
            .with_remedy("correct `file compression`, or copy the file again"));
        }
        if len < expected {
            return Err(Error::malformed(format!(
                "has {len} bytes, but {} requires {expected}: {}",
                self.header_path.display(),
                self.header.describe_len()
            ))
            .with_remedy(self.remedy_for_short_data()));
        }
        if self.header.compressed {
            self.note("the header says gzip, but the data are not compressed");
        }
        if len > expected {
            self.check_surplus(len, expected)?;
        }
        Ok(())
    }

    /// Bytes of a line of the image.
    fn line(&self) -> u64 {
        let Header { shape, dtype, .. } = self.header;
        FlatSource::data_len(CubeShape { rows: 1, ..shape }, dtype).unwrap_or(u64::MAX)
    }

    /// Accepts a few bytes of padding after the cube. A line or more means that the header belongs to
    /// another cube.
    fn check_surplus(&mut self, len: u64, expected: u64) -> Result<()> {
        if len - expected >= self.line() {
            return Err(Error::malformed(format!(
                "has {len} bytes, but {} requires only {expected}: {}",
                self.header_path.display(),
                self.header.describe_len()
            ))
            .with_remedy(
                "correct samples, lines, bands, data type or header offset in the header",
            ));
        }
        self.note(format!("{} bytes after the cube are not used", len - expected));
        Ok(())
    }

    /// A recording that was stopped early holds fewer lines than its header says.
    fn remedy_for_short_data(&self) -> String {
        let advice = "copy the file again, it may be cut short, or correct the header";
        let Header { shape, dtype, offset, interleave, .. } = self.header;
        let line = FlatSource::data_len(CubeShape { rows: 1, ..shape }, dtype);
        let lines = line.and_then(|line| self.data.len.checked_sub(offset)?.checked_div(line));
        match lines {
            Some(lines) if lines > 0 && interleave != Interleave::Bsq => {
                format!("{advice}: it holds {lines} whole lines")
            }
            _ => advice.to_owned(),
        }
    }

    /// Checks what is known about a gzip file before it is read.
    fn check_compressed_size(&mut self) -> Result<()> {
        let expected = self.header.file_len();
        if self.data.len.saturating_mul(BEST_DEFLATE_RATIO) < expected {
            return Err(Error::malformed(format!(
                "{} bytes of gzip cannot hold the {expected} bytes that {} requires: {}",
                self.data.len,
                self.header_path.display(),
                self.header.describe_len()
            ))
            .with_remedy("copy the file again, it may be cut short, or correct the header"));
        }
        if !self.header.compressed {
            self.note("the data are gzip, though the header does not say so");
        }
        Ok(())
    }

    fn note(&mut self, note: impl Into<String>) {
        self.header.notes.push(note.into());
    }

    fn into_info(self, gzip: bool) -> CubeInfo {
        let header = self.header;
        let name = header.interleave.name().to_uppercase();
        let format = format!("ENVI {name}{}", if gzip { ", gzip" } else { "" });
        CubeInfo {
            wavelength: header.wavelength,
            fwhm: header.fwhm,
            good_bands: header.good_bands,
            band_names: header.band_names,
            ignore_value: header.ignore_value,
            scaling: Scaling { divide: header.divide, ..Scaling::NONE },
            exposure: header.exposure,
            class_names: header.class_names,
            geo: header.geo,
            notes: header.notes,
            files: vec![self.data_path.clone(), self.header_path],
            ..CubeInfo::new(format, header.shape, header.dtype, self.data_path)
        }
    }
}

/// What is known about a data file without its header.
#[derive(Clone, Copy)]
struct DataFile {
    len: u64,
    gzip: bool,
    /// Device and inode: two names of the same file are not two candidates.
    identity: (u64, u64),
}

impl DataFile {
    fn measure(path: &Path) -> Result<DataFile> {
        let fail = |error| Error::io(path, "cannot read", error);
        let metadata = path.metadata().map_err(fail)?;
        let gzip = small::head(path, 3)? == GZIP_MAGIC;
        Ok(DataFile { len: metadata.len(), gzip, identity: (metadata.dev(), metadata.ino()) })
    }

    /// Whether this is exactly the plain data of `header`.
    fn fits_plain(&self, header: &Header) -> bool {
        self.len == header.file_len() && !self.is_gzip_for(header)
    }

    /// Whether this is a gzip file of the data of `header`. Plain data may start with the magic number by
    /// chance. In that case the size is exact and the header does not mention compression.
    fn is_gzip_for(&self, header: &Header) -> bool {
        self.gzip && (header.compressed || self.len != header.file_len())
    }
}

/// The content of a gzip file that holds an array up to `end`, and fewer than `line` bytes after it.
fn gzip_bytes(path: PathBuf, end: u64, line: u64) -> StreamBytes {
    let file = path.clone();
    StreamBytes::new(path, move || {
        let input = small::window(&file)?;
        let stream = MultiGzDecoder::new(BufReader::with_capacity(256 << 10, input));
        Ok(Box::new(Verified { stream, left: end, line }))
    })
}

/// A gzip stream that is read to its end when the array ends, because the decoder compares the checksum
/// only there. As with plain data, a line or more after the array means that the header belongs to another
/// cube.
struct Verified<R> {
    stream: R,
    left: u64,
    line: u64,
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(out)?;
        if self.left > 0 {
            self.left = self.left.saturating_sub(read as u64);
            if self.left == 0 {
                let behind = (&mut self.stream).take(self.line);
                if std::io::copy(&mut { behind }, &mut std::io::sink())? == self.line {
                    return Err(std::io::Error::new(
                        std::io::ErrorKind::InvalidData,
                        "the data are longer than the header says",
                    ));
                }
            }
        }
        Ok(read)
    }
}

/// Whether there is a file at `path`, which may represent an object on a server.
fn is_there(path: &Path) -> bool {
    // A file that a server does not report counts as missing. Opening the other file of the pair shows why.
    mirror::look(path).is_ok() && path.is_file()
}

/// The kind of the file at `path`; [`Kind::Other`] if there is none.
fn kind_of(path: &Path) -> Kind {
    if !is_there(path) {
        return Kind::Other;
    }
    small::head(path, HEAD).map_or(Kind::Other, |head| header::kind(&head))
}

fn read_header_text(path: &Path) -> Result<Vec<u8>> {
    small::read(path, LARGEST_HEADER)
}

fn read_header(path: &Path) -> Result<Header> {
    header::parse(&read_header_text(path)?).map_err(|error| error.at(path))
}

fn refuse_esri(path: &Path) -> Error {
    match read_header_text(path) {
        Ok(text) => esri::refusal(&text).at(path),
        Err(error) => error,
    }
}

fn no_header(path: &Path, names: &[PathBuf]) -> Error {
    let names: BTreeSet<String> = names.iter().map(|name| file_name(name)).collect();
    let names: Vec<String> = names.into_iter().filter(|name| name.ends_with("hdr")).collect();
    Error::malformed(format!(
        "raw data without an ENVI header: there is no {} beside it",
        names.join(" or ")
    ))
    .at(path)
    .with_remedy("put the header beside it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gzip_checksum_is_compared_at_the_end_of_the_array() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(0));
        encoder.write_all(b"spectrum").unwrap();
        let mut bytes = encoder.finish().unwrap();
        let read = |bytes: &[u8]| {
            let mut stream = Verified { stream: MultiGzDecoder::new(bytes), left: 8, line: 8 };
            stream.read_exact(&mut [0; 8])
        };
        assert!(read(&bytes).is_ok());
        let place = bytes.windows(8).position(|window| window == b"spectrum").unwrap();
        bytes[place] = b'S';
        assert!(read(&bytes).is_err());
    }
}
