//! NumPy `.npy` and `.npz`.
//!
//! A `.npy` file is a magic, a version, the length of a Python dictionary, the dictionary and the
//! values ([the format](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)):
//!
//! ```text
//! \x93NUMPY  major minor  u16 or u32 length
//! {'descr': '<f4', 'fortran_order': False, 'shape': (480, 640, 100), }      \n
//! ```
//!
//! The dictionary is parsed by hand; nothing in it is executed. A `.npz` file is a zip archive of
//! such files, one per array. Stored members are read in place. Deflated members are read as a
//! stream, whose checksum is compared when its last value is read. Nothing is ever inflated as a
//! whole.

pub mod header;
mod npz;

use std::io::{BufReader, Read};
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use self::header::{MAGIC, read_header};
use crate::container::variables;
use crate::container::{ArrayEntry, Entries, Value, Visitor};
use crate::flat::{FileBytes, FlatSource};
use crate::meaning::place_alone;
use crate::{CubeInfo, OpenOptions, Source};

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    head.starts_with(MAGIC) || npz::recognises(path, head)
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let is_npy = bounded_read::head(path, MAGIC.len() as u64)? == MAGIC;
    if is_npy { open_npy(path, options) } else { npz::open(path, options) }
}

/// Shows the file at `path` as a container.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    if bounded_read::head(path, MAGIC.len() as u64)? != MAGIC {
        return npz::visit(path, visitor);
    }
    let file = bounded_read::window(path)?;
    let header = read_header(&mut BufReader::new(file)).map_err(|error| error.at(path))?;
    let (lengths, dtype) = (header.shape, Some(header.dtype));
    visitor(&Entries(vec![ArrayEntry { path: String::new(), lengths, dtype }]))
}

/// The numbers of an `.npy` file, if it holds a short list or a single number.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn numbers_in(path: &Path) -> Result<Option<Value>> {
    numbers(path, true)
}

/// The numbers of an `.npy` file, if it holds a short list.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn list_in(path: &Path) -> Result<Option<Vec<f64>>> {
    Ok(numbers(path, false)?.and_then(|value| Some(value.numbers()?.0)))
}

fn numbers(path: &Path, may_be_single: bool) -> Result<Option<Value>> {
    let mut file = BufReader::new(bounded_read::window(path)?);
    let header = read_header(&mut file)?;
    let long = header.shape.iter().filter(|length| **length != 1).count();
    let count = header.file_len()?.saturating_sub(header.data_offset as u64);
    let is_single = header.shape.is_empty();
    if long > 1 || is_single && !may_be_single || count > npz::LONGEST_LIST as u64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let fail = |error| Error::io(path, "cannot read", error);
    file.take(count).read_to_end(&mut bytes).map_err(fail)?;
    Ok(Some(variables::to_value(&bytes, header.dtype, header.big_endian)))
}

fn open_npy(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    variables::refuse_variable(path, options)?;
    let bytes = FileBytes::open(path)?;
    let file = bounded_read::window(path)?;
    let header = read_header(&mut BufReader::new(file)).map_err(|error| error.at(path))?;
    let len = header.file_len().map_err(|error| error.at(path))?;
    if bytes.len() != len {
        let (verb, remedy) = if bytes.len() < len {
            ("ends before its last value", "copy the file again; it is cut short")
        } else {
            (
                "goes on after its last value",
                "save one array per .npy file, or several in one .npz file",
            )
        };
        return Err(Error::malformed(format!(
            "the file {verb}: with the header, {} make {len} bytes, but the file has {}",
            header.text(),
            bytes.len()
        ))
        .at(path)
        .with_remedy(remedy));
    }
    let mut notes = Vec::new();
    let placed = place_alone(&header.shape, options, &mut notes).map_err(|error| error.at(path))?;
    let layout = header.layout(placed.order);
    let mut info = CubeInfo::new("NumPy .npy", placed.shape(), header.dtype, path);
    info.notes = notes;
    let samples = header.samples(&placed);
    Ok(Box::new(FlatSource::new(info, layout, bytes).of_sample(samples)))
}
