//! Random access into tensors on the CPU.

use std::ops::Range;

use tch::Tensor;

use super::array::ArrayRef;
use super::{Dataset, window};
use crate::Result;
use crate::device::stored_kind;
use crate::torch::written;

impl Dataset {
    /// Rows × columns of some bands (all if `None`), in the order given, of the cube of a sample, decoded straight into
    /// a new tensor: (rows, columns, bands), as stored.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image), and if there is no memory for it.
    pub fn image_tensor(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
    ) -> Result<Tensor> {
        let array = self.image(self.stack_of(sample)?);
        let count = bands.map_or(array.shape().bands, <[usize]>::len);
        let shape = room(array, &rows, &columns, Some(count));
        written(&shape, stored_kind(array.dtype()), |bytes| {
            self.read(array, sample, window(&rows, &columns), bands, bytes)
        })
    }

    /// Rows × columns of a mask of a sample: (rows, columns). Unsigned integers beyond 8 bits come as signed ones with the
    /// same bits, since libtorch barely computes with them; see [`DlPack::of`](crate::DlPack::of).
    ///
    /// # Errors
    /// As [`read_mask`](Self::read_mask), and if there is no memory for it.
    pub fn mask_tensor(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> Result<Tensor> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        let shape = room(array, &rows, &columns, None);
        written(&shape, stored_kind(array.dtype()), |bytes| {
            self.read(array, sample, window(&rows, &columns), None, bytes)
        })
    }
}

/// Shape of a window's tensor; of one that does not fit, only what does, since reading it is refused.
fn room(
    array: ArrayRef<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    bands: Option<usize>,
) -> Vec<i64> {
    let fits = |range: &Range<usize>, axis: usize| range.len().min(axis) as i64;
    let mut shape = vec![fits(rows, array.shape().rows), fits(columns, array.shape().columns)];
    shape.extend(bands.map(|bands| bands as i64));
    shape
}
