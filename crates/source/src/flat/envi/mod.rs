//! ENVI: a text header (`.hdr`) beside a flat data file, plain or gzip.
//!
//! The user may give either file. The other one is found by name. If several files match, the one
//! whose size agrees with the header is used:
//!
//! ```text
//! header given:  x.hdr → x, x.img, x.dat, x.raw, …;  else any x.* of exactly the right size
//! data given:    x.img → x.img.hdr, x.hdr
//! ```
//!
//! ESRI's headers (`esri.rs`) are read as well. A header may also describe a TIFF file beside it
//! (`tiff.rs`).
//!
//! The size of a plain data file is checked before anything is read. For a gzip file, only an upper
//! limit is known at that point. If such a file ends early or its checksum is wrong, reading its
//! last row fails.

mod bands;
mod esri;
mod fields;
pub mod header;
mod kind;
mod map_info;
mod parse;
mod search;
mod tiff;

use std::collections::BTreeSet;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use hsipack_format::{CubeShape, Error, Opt, Result, remedy};
use hsipack_store::{bounded_read, mirror};

pub(crate) use self::fields::{Fields, tokens};
use self::header::{Header, Interleave};
use self::kind::{Kind, kind};
#[doc(hidden)]
pub use self::parse::parse;
use self::search::{file_name, find_data, has_suffix, header_names};
use crate::flat::{FileBytes, FlatLayout, FlatSource, StreamBytes};
use crate::{CubeInfo, OpenOptions, Source, side_file};

pub(crate) use self::tiff::{describe_tiff, tiff_of};

/// Headers with thousands of bands take some 100 KB.
const LARGEST_HEADER: u64 = 4 << 20;
/// How many bytes of a file are read to see whether it is a header.
const HEAD: u64 = 4096;
/// Deflate needs at least two bits for 258 bytes.
const BEST_DEFLATE_RATIO: u64 = 1032;
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Suffixes of raw cubes. If such a file has no header, the error says so.
const RAW_SUFFIXES: [&str; 8] = ["img", "dat", "raw", "bin", "hyspex", "bsq", "bil", "bip"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format: it is a header, by
/// content or name, has a header beside it, or is named like a data file.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    let is_folder = head.is_empty();
    !is_folder
        && (kind(head) != Kind::Other
            || has_suffix(path, "hdr")
            || RAW_SUFFIXES.iter().any(|suffix| has_suffix(path, suffix))
            || header_names(path).iter().any(|header| kind_of(header) != Kind::Other))
}

/// Opens the cube in `path`, a header or a data file.
///
/// # Errors
/// If one of the two files is missing, cannot be read, is malformed, or holds no image of real
/// numbers.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if let Some(variable) = &options.variable {
        return Err(Error::unsupported(format!("an ENVI file has no variable '{variable}' in it"))
            .at(path)
            .with_remedy(format!("leave out ::{variable}")));
    }
    let is_header = kind_of(path) != Kind::Other || has_suffix(path, "hdr");
    if !is_header {
        return Pair::from_data(path)?.open(options);
    }
    // If this is no header, the error says what is wrong with it.
    Pair::from_header(path, read_header(path)?)?.open(options)
}

/// The file that holds the values of the cube which the file at `path` describes; `None` if `path`
/// is not a header, or its data file is missing.
pub(crate) fn data_of(path: &Path) -> Option<PathBuf> {
    let is_header = has_suffix(path, "hdr") && kind_of(path) != Kind::Other;
    let header = is_header.then(|| read_header(path).ok())??;
    tiff::image_of(path, &header).or_else(|| Some(find_data(path, &header).ok()?.0))
}

/// Centres of bands and, if they are known, full widths at half maximum, in nm.
pub(crate) type Bands = (Vec<f64>, Option<Vec<f64>>);

/// The bands in the text of an ENVI header; `None` if it is not a header.
///
/// # Errors
/// If the header is malformed, or has no wavelengths.
pub(crate) fn bands_in(text: &[u8]) -> Result<Option<Bands>> {
    if kind(text) != Kind::Envi {
        return Ok(None);
    }
    let header = parse(text)?;
    let bands = header.wavelength.map(|wavelengths| (wavelengths, header.fwhm));
    bands.map(Some).ok_or_else(|| {
        Error::conflict("the header has no wavelengths").with_remedy("give another file")
    })
}

/// Opens raw data at `path` that the header at `header` describes, which may be that of many files.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_with_header(
    path: &Path,
    header_path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>> {
    let header = read_header(header_path)?;
    let data = DataFile::measure(path)?;
    let (header_path, data_path) = (header_path.to_owned(), path.to_owned());
    Pair { header, header_path, data_path, data }.open(options)
}

/// Whether the file at `path` is exactly the raw data that the header at `header` describes.
pub(crate) fn is_described_by(path: &Path, header: &Path) -> bool {
    let fits = |header: &Header| DataFile::measure(path).is_ok_and(|data| data.fits_plain(header));
    kind_of(header) != Kind::Other && read_header(header).is_ok_and(|header| fits(&header))
}

/// Whether the file at `path` is the header of a spectral library.
pub(crate) fn is_spectral_library(path: &Path) -> bool {
    kind_of(path) == Kind::Envi
        && read_header_text(path).is_ok_and(|text| parse::is_spectral_library(&text))
}

/// Whether there is a header of raw data beside the file at `path`.
pub(crate) fn has_header(path: &Path) -> bool {
    header_names(path).iter().any(|header| kind_of(header) != Kind::Other)
}

/// A header and its data file.
struct Pair {
    header: Header,
    header_path: PathBuf,
    data_path: PathBuf,
    data: DataFile,
}

impl Pair {
    fn from_header(path: &Path, header: Header) -> Result<Pair> {
        let (data_path, data) = find_data(path, &header)?;
        Ok(Pair { header, header_path: path.to_owned(), data_path, data })
    }

    fn from_data(path: &Path) -> Result<Pair> {
        let names = header_names(path);
        let of_kind = |kind| names.iter().filter(move |name| kind_of(name) == kind);
        let mut pairs: Vec<Result<Pair>> = of_kind(Kind::Envi)
            .chain(of_kind(Kind::Esri))
            .map(|name| {
                let header = read_header(name)?;
                let data = DataFile::measure(path)?;
                Ok(Pair { header, header_path: name.clone(), data_path: path.to_owned(), data })
            })
            .collect();
        if pairs.is_empty() {
            return Err(match names.iter().find(|name| name.is_file()) {
                Some(other) => Error::malformed("not an ENVI header: its first line is not ENVI")
                    .at(other)
                    .with_remedy("correct the header"),
                None => no_header(path, &names),
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

    /// Refuses a data file if the header belongs to another one: `x.hdr` may describe `x.img` while
    /// the user gave `x.log`.
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
        let (end, most) = (self.header.file_len(), self.most_surplus());
        let data_path = self.data_path.clone();
        let mut info = self.into_info(gzip);
        complete(&mut info);
        side_file::describe(&data_path, &mut info);
        Ok(Box::new(if gzip {
            FlatSource::new(info, layout, gzip_bytes(data_path, end, most))
        } else {
            FlatSource::new(info, layout, FileBytes::open(&data_path)?)
        }))
    }

    /// Checks the size of a plain data file.
    fn check_size(&mut self) -> Result<()> {
        let (len, expected) = (self.data.len, self.header.file_len());
        if let Some(padding) = self.header.padding.take_if(|_| len != expected) {
            return Err(Error::unsupported(format!(
                "{} says that there are bytes between the rows or bands ({padding})",
                self.header_path.display()
            ))
            .with_remedy("convert it: gdal_translate -of ENVI IN OUT"));
        }
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

    /// Other bytes may follow the cube, such as lines of a recording that went on. But as many
    /// bytes as the cube has mean that the header belongs to another cube, or has another data
    /// type.
    fn most_surplus(&self) -> u64 {
        self.header.file_len() - self.header.offset
    }

    fn check_surplus(&mut self, len: u64, expected: u64) -> Result<()> {
        let surplus = len - expected;
        if surplus >= self.most_surplus() {
            return Err(Error::malformed(format!(
                "has {len} bytes, but {} requires only {expected}: {}",
                self.header_path.display(),
                self.header.describe_len()
            ))
            .with_remedy(
                "correct samples, lines, bands, data type or header offset in the header",
            ));
        }
        let Header { shape, dtype, .. } = self.header;
        let line = FlatSource::data_len(CubeShape { rows: 1, ..shape }, dtype).unwrap_or(1);
        let lines = match (surplus % line, surplus / line) {
            (0, 1) => " (a whole line)".to_owned(),
            (0, lines) => format!(" ({lines} whole lines)"),
            _ => String::new(),
        };
        self.note(format!("{surplus} bytes{lines} after the cube are not used"));
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
        let name = self.header.interleave.name().to_uppercase();
        let format = format!("{} {name}{}", self.header.format, if gzip { ", gzip" } else { "" });
        let mut info = self.header.into_info(format, &self.data_path);
        info.files.push(self.header_path);
        info
    }
}

/// Fills in what another header of the same data says about the bands. Some cameras write `x.hdr`,
/// and other programs add `x.img.hdr`.
fn complete(info: &mut CubeInfo) {
    let (data, header) = (info.files[0].clone(), info.files[1].clone());
    let names = header_names(&data);
    let others =
        names.iter().filter(|name| name.file_name() != header.file_name() && is_there(name));
    for other in others.filter(|name| kind_of(name) == Kind::Envi) {
        let Ok(header) = read_header(other) else { continue };
        if header.shape != info.shape {
            continue;
        }
        let added = info.complete(header.into_info(String::new(), &data));
        if !added.is_empty() {
            info.notes.push(format!("{} taken from {}", added.join(", "), file_name(other)));
            info.files.push(other.clone());
        }
    }
}

/// Facts about a data file without its header.
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
        let gzip = bounded_read::head(path, 3)? == GZIP_MAGIC;
        Ok(DataFile { len: metadata.len(), gzip, identity: (metadata.dev(), metadata.ino()) })
    }

    /// Whether this is exactly the plain data of `header`.
    fn fits_plain(&self, header: &Header) -> bool {
        self.len == header.file_len() && !self.is_gzip_for(header)
    }

    /// Whether this is a gzip file of the data of `header`. Plain data may start with the magic
    /// number by chance. In that case the size is exact and the header does not mention
    /// compression.
    fn is_gzip_for(&self, header: &Header) -> bool {
        self.gzip && (header.compressed || self.len != header.file_len())
    }
}

/// The content of a gzip file that holds an array up to `end`, and fewer than `most` bytes after
/// it.
fn gzip_bytes(path: PathBuf, end: u64, most: u64) -> StreamBytes {
    let file = path.clone();
    StreamBytes::new(path, 0, move || {
        let input = bounded_read::window(&file)?;
        let stream = MultiGzDecoder::new(BufReader::with_capacity(256 << 10, input));
        Ok(Box::new(Verified { stream, remaining: end, most }))
    })
}

/// A gzip stream that is read to its end when the array ends, because the decoder compares the
/// checksum only there. As with plain data, too many bytes after the array mean that the header
/// belongs to another cube.
struct Verified<R> {
    stream: R,
    remaining: u64,
    most: u64,
}

impl<R: Read> Read for Verified<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(out)?;
        if self.remaining > 0 {
            self.remaining = self.remaining.saturating_sub(read as u64);
            if self.remaining == 0 {
                let trailing = (&mut self.stream).take(self.most);
                if std::io::copy(&mut { trailing }, &mut std::io::sink())? == self.most {
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
    bounded_read::head(path, HEAD).map_or(Kind::Other, |head| kind(&head))
}

fn read_header_text(path: &Path) -> Result<Vec<u8>> {
    bounded_read::read(path, LARGEST_HEADER)
}

fn read_header(path: &Path) -> Result<Header> {
    let text = read_header_text(path)?;
    let read = || {
        if kind(&text) != Kind::Esri {
            return parse(&text);
        }
        let mut header = esri::parse(&text)?;
        esri::add_reference_system(&mut header, path);
        Ok(header)
    };
    read().map_err(|error| error.at(path))
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
            let mut stream = Verified { stream: MultiGzDecoder::new(bytes), remaining: 8, most: 8 };
            stream.read_exact(&mut [0; 8])
        };
        assert!(read(&bytes).is_ok());
        let position = bytes.windows(8).position(|window| window == b"spectrum").unwrap();
        bytes[position] = b'S';
        assert!(read(&bytes).is_err());
    }
}
