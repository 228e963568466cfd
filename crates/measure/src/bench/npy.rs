//! float32 cubes as .npy files: the usual starting point.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::options::CubeSize;
use crate::{Error, Result};

/// Bytes before the values.
pub const HEADER: u64 = 128;

/// File of cube `number` in a folder.
pub fn path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("cube_{number:05}.npy"))
}

/// Writes values, (row, column, band), little-endian float32.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, shape: CubeSize, values: &[u8]) -> Result<()> {
    let put = || -> std::io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(&header(shape))?;
        file.write_all(values)
    };
    put().map_err(|error| Error::io(path, "cannot write", error))
}

/// The bytes of some rows, (row, column, band), of a file that [`write`] wrote.
///
/// # Errors
/// If the file cannot be read.
pub fn read(path: &Path, shape: CubeSize, rows: Range<usize>) -> Result<Vec<u8>> {
    let row = shape.columns * shape.bands * 4;
    let mut bytes = vec![0; rows.len() * row];
    let mut get =
        || File::open(path)?.read_exact_at(&mut bytes, HEADER + (rows.start * row) as u64);
    get().map_err(|error| Error::io(path, "cannot read", error))?;
    Ok(bytes)
}

fn header(shape: CubeSize) -> Vec<u8> {
    let CubeSize { rows, columns, bands } = shape;
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((HEADER as u16 - 10).to_le_bytes());
    let description = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}, {bands}), }}"
    );
    bytes.extend(description.as_bytes());
    bytes.resize(HEADER as usize - 1, b' ');
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_numpys() {
        let shape = CubeSize { rows: 480, columns: 640, bands: 100 };
        let header = header(shape);
        assert_eq!(header.len(), HEADER as usize);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        let text = String::from_utf8_lossy(&header[10..]).into_owned();
        assert!(text.contains("'shape': (480, 640, 100)") && text.ends_with(" \n"), "{text}");
    }
}
