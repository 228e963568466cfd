//! HTC `.blosc`: a pickled header and Blosc-1 frames, as htc's `compress_file` writes them.
//!
//! ```text
//! pickle of (shape, dtype)                  one frame to the end of the file
//! pickle of {name: (shape, dtype, bytes)}   a frame for each, in this order
//! ```
//!
//! [`pickle`] reads the pickle and executes nothing. A frame is held in memory compressed, and
//! decoded when rows are read.

mod blosc_frame;
#[doc(hidden)]
pub mod pickle;

use std::ops::Range;
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use self::blosc_frame::{FrameHeader, FrameInFile};
use self::pickle::{Array, Header};
use crate::axes::cube_axes::cube_axes;
use crate::container::variables::{self, Candidate};
use crate::container::{ArrayEntry, Entries, Visitor};
use crate::flat::tivita;
use crate::flat::{ByteSource, FileBytes, FlatLayout, FlatSource};
use crate::{Access, Axis, CubeInfo, OpenOptions, RowBuffer, Source};

/// A header has only a name and a shape per array, so it never comes near this.
const LONGEST_HEADER: u64 = 1 << 20;

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("blosc"));
    named || pickle::parse(head).is_ok()
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    open_located(path, options).map_err(|error| error.at(path))
}

/// Shows the file at `path` as a container.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    let entry = |path: String, array: Array| ArrayEntry {
        path,
        lengths: array.lengths,
        dtype: array.dtype.ok(),
    };
    let entries = match read_header(path).map_err(|error| error.at(path))?.0 {
        Header::Single(array) => vec![entry(String::new(), array)],
        Header::Named(arrays) => {
            let named = arrays.into_iter();
            named.map(|(name, array, _)| entry(format!("/{name}"), array)).collect()
        }
    };
    visitor(&Entries(entries))
}

fn open_located(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let bytes = FileBytes::open(path)?;
    let (header, header_len) = read_header(path)?;
    let frames = match header {
        Header::Single(array) => {
            variables::refuse_variable(path, options)?;
            let len = bytes.len().saturating_sub(header_len);
            Located { name: None, array, offset: header_len, len }
        }
        Header::Named(arrays) => choose(path, options, arrays, header_len, bytes.len())?,
    };
    frames.open(path, options, &bytes)
}

fn read_header(path: &Path) -> Result<(Header, u64)> {
    let head = bounded_read::head(path, LONGEST_HEADER)?;
    let (header, len) = pickle::parse(&head)?;
    Ok((header, len as u64))
}

fn choose(
    path: &Path,
    options: &OpenOptions,
    arrays: Vec<(String, Array, u64)>,
    header_len: u64,
    file_len: u64,
) -> Result<Located> {
    let mut end = header_len;
    let mut located = Vec::with_capacity(arrays.len());
    let mut candidates = Vec::with_capacity(arrays.len());
    for (name, array, len) in arrays {
        candidates.push(candidate(&name, &array));
        located.push(Located { name: Some(name), array, offset: end, len });
        end = end.saturating_add(len);
    }
    if end != file_len {
        return Err(Error::malformed(format!(
            "the frames should end at byte {end}, the file has {file_len} bytes"
        ))
        .with_remedy("copy the file again; it is cut short or damaged"));
    }
    Ok(located.swap_remove(variables::choose(path, options, &candidates)?))
}

fn candidate(name: &str, array: &Array) -> Candidate {
    match &array.dtype {
        Ok(dtype) => Candidate::numbers(name, &array.lengths, *dtype),
        Err(reason) => {
            let lengths = crate::axes::lengths::lengths_text(&array.lengths);
            Candidate::other(name, format!("{lengths}, {reason}"))
        }
    }
}

/// An array and where its frame lies.
struct Located {
    /// Its name in a dictionary of arrays.
    name: Option<String>,
    array: Array,
    offset: u64,
    len: u64,
}

impl Located {
    fn open(
        self,
        path: &Path,
        options: &OpenOptions,
        bytes: &FileBytes,
    ) -> Result<Box<dyn Source>> {
        let dtype = self.array.dtype.clone().map_err(|reason| {
            Error::unsupported(reason).with_remedy("save the cube as an array of real numbers")
        })?;
        let (shape, order) =
            cube_axes(&self.array.lengths, options).map_err(|error| match &self.name {
                Some(name) => error.within(format_args!("'{name}'")),
                None => error,
            })?;
        let frame = self.frame_header(bytes)?;
        if FlatSource::data_len(shape, dtype) != Some(frame.decoded_len()) {
            return Err(Error::malformed(format!(
                "the header states {} of {dtype}, the Blosc frame holds {} bytes",
                crate::axes::lengths::lengths_text(&self.array.lengths),
                frame.decoded_len()
            ))
            .with_remedy("copy the file again; it is damaged"));
        }
        let mut info = CubeInfo::new("HTC blosc", shape, dtype, path);
        if !options.mask {
            describe(&mut info);
        }
        let layout = FlatLayout {
            offset: 0,
            order,
            big_endian: self.array.big_endian,
            rows_reversed: false,
        };
        let rows_first = order.position(Axis::Row) == 0;
        let block_rows = frame.block_len().div_ceil(shape.row_values() * dtype.size());
        let frame = FrameInFile::new(path, self.offset, &frame);
        let flat = FlatSource::new(info, layout, frame);
        Ok(Box::new(HtcSource { flat, block_rows: rows_first.then_some(block_rows) }))
    }

    fn frame_header(&self, bytes: &FileBytes) -> Result<FrameHeader> {
        let mut raw = [0; blosc_frame::HEADER];
        if self.len < raw.len() as u64 {
            return Err(Error::malformed("the file ends before its Blosc frame")
                .with_remedy("copy the file again; it is cut short"));
        }
        bytes.read_at(self.offset, &mut raw)?;
        let frame = FrameHeader::parse(&raw)?;
        if frame.encoded_len() != self.len {
            return Err(Error::malformed(format!(
                "the Blosc frame should have {} bytes, but it has {}",
                frame.encoded_len(),
                self.len
            ))
            .with_remedy("copy the file again; it is cut short or damaged"));
        }
        Ok(frame)
    }
}

/// HTC files have no wavelengths, but those of the Tivita sensor are known.
fn describe(info: &mut CubeInfo) {
    info.wavelength = tivita::sensor_wavelengths(info.shape.bands);
    info.notes.push(
        match info.wavelength {
            Some(_) => {
                "the file states no wavelengths; with 100 bands, it is assumed to be a Tivita cube of 500 to 1000 nm"
            }
            None => "the file states no wavelengths",
        }
        .to_owned(),
    );
}

struct HtcSource {
    flat: FlatSource,
    /// Image rows that one block of the frame spans, if rows are contiguous.
    block_rows: Option<usize>,
}

impl Source for HtcSource {
    fn info(&self) -> &CubeInfo {
        self.flat.info()
    }

    fn access(&self) -> Access {
        self.flat.access()
    }

    /// A block is decoded as a whole even if only one row of it is needed. If several blocks are
    /// read at once, it matters little that the blocks at both ends are decoded twice.
    fn preferred_rows(&self, budget: usize) -> usize {
        const BLOCKS: usize = 8;
        let info = self.flat.info();
        let Some(block_rows) = self.block_rows else { return self.flat.preferred_rows(budget) };
        let affordable = (budget / 2 / info.row_bytes()).clamp(1, info.shape.rows);
        block_rows.saturating_mul(BLOCKS).min(affordable)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.flat.read_rows(rows, out)
    }
}
