//! The largest cubes that are read.

use hsipack_format::{CubeShape, DType, Error, Result};

use crate::CubeInfo;

/// The most bytes that a row of a cube may take, because at least one row is read at a time. Only
/// damaged or crafted files declare more.
pub(crate) const MAX_ROW: u64 = 2 << 30;

/// Refuses cubes with too many values to count, or with rows too large for memory. Readers call
/// this if they must know it before they finish opening a file.
pub(crate) fn check_size(shape: CubeShape, dtype: DType) -> Result<()> {
    match shape.checked_values().is_some() && row_fits(shape, dtype) {
        true => Ok(()),
        false => Err(Error::unsupported(format!("a cube of {shape} {dtype} values is too large"))),
    }
}

fn row_fits(shape: CubeShape, dtype: DType) -> bool {
    let values = shape.columns.checked_mul(shape.bands);
    let row = values.and_then(|values| values.checked_mul(dtype.size()));
    row.is_some_and(|row| row as u64 <= MAX_ROW)
}

/// Refuses rows larger than `MAX_ROW`, which even a valid file can hold in a few MB of compressed
/// data.
pub(crate) fn check_row(info: &CubeInfo) -> Result<()> {
    let CubeShape { columns, bands, .. } = info.shape;
    match row_fits(info.shape, info.dtype) {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "a row of {columns} columns x {bands} bands takes more than 2 GiB"
        ))
        .with_remedy(
            "check that the file is what it should be, or cut the cube into smaller ones",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_no_memory_holds_are_refused() {
        let check = |columns, bands| {
            let shape = CubeShape::new(1, columns, bands);
            check_row(&CubeInfo::new("test", shape, DType::F64, "a"))
        };
        assert!(check(1 << 20, 256).is_ok());
        assert!(check(1 << 20, 257).is_err());
        assert!(check(usize::MAX, 2).is_err());
    }
}
