//! `.npy`: the stored bytes after
//! [NumPy's header](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).

use std::path::Path;

use hsipack_format::metadata::Scaling;
use hsipack_format::{CubeShape, DType, Result};

use super::Written;
use super::raster::Raster;
use crate::staged::Staged;

/// Writes the file.
pub(super) fn write(raster: &Raster<'_>, path: &Path) -> Result<Written> {
    let (dtype, scaling) = (raster.dtype, raster.scaling);
    let mut file = Staged::create(path)?;
    file.write(&header(raster.shape, dtype, raster.flat))?;
    (raster.rows)(&mut |bytes| file.write(bytes))?;
    file.commit()?;
    let Scaling { factor, offset, missing } = scaling;
    let mut notes = match (factor, offset) {
        (1.0, 0.0) => Vec::new(),
        (_, 0.0) => vec![format!(
            "multiply by {factor} to get physical values; .npy cannot store the factor"
        )],
        _ => vec![format!(
            "multiply by {factor} and add {offset} to get physical values; .npy cannot store these numbers"
        )],
    };
    notes.extend(missing.map(|number| format!("{number} marks missing values")));
    Ok((dtype, scaling, notes))
}

fn header(shape: CubeShape, dtype: DType, flat: bool) -> Vec<u8> {
    let kind = match dtype {
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I16 => "<i2",
        DType::F32 => "<f4",
        _ => "<f2",
    };
    let CubeShape { rows, columns, bands } = shape;
    let axes =
        if flat { format!("{rows}, {columns}") } else { format!("{rows}, {columns}, {bands}") };
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({axes}), }}");
    // Magic, version and length take 10 bytes; the data start at a multiple of 64.
    let padded = (10 + text.len() + 1).next_multiple_of(64) - 10;
    text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_start_at_a_multiple_of_64() {
        for rows in [1, 10, 123_456_789] {
            let header = header(CubeShape::new(rows, 7, 100), DType::F16, false);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(header.last(), Some(&b'\n'));
        }
    }
}
