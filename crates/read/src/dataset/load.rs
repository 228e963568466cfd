//! Random access into arrays in host memory.

use std::ops::Range;

use hsipack_augment::array::Buffer;
use hsipack_augment::{Array, ElementType};

use super::access::window;
use super::array::ArrayRef;
use super::open::Dataset;
use crate::Result;
use crate::store::StoredFile;

impl Dataset {
    /// Rows × columns of some bands (all if `None`) of a sample's cube, decoded directly into a new array: (rows,
    /// columns, bands), as stored. The bands come in the order given.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image), and if there is not enough memory.
    pub fn load_image(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
    ) -> Result<Array> {
        let array = self.image(self.stack_of(sample)?);
        let count = bands.map_or(array.shape().bands, <[usize]>::len);
        let shape = room(array, &rows, &columns, Some(count));
        let element = ElementType::from(array.dtype());
        let mut buffer = self.memory().buffer(bytes_of(&shape, element))?;
        self.read(array, sample, window(&rows, &columns), bands, buffer.bytes_mut())?;
        buffer.array(&shape, element)
    }

    /// Rows × columns of a mask of a sample: (rows, columns), as stored.
    ///
    /// # Errors
    /// As [`read_mask`](Self::read_mask), and if there is not enough memory.
    pub fn load_mask(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> Result<Array> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        self.load(array, sample, &rows, &columns, None)
    }

    /// Rows × columns of a target of a sample, as stored: (rows, columns), or with channels (rows, columns, channels).
    ///
    /// # Errors
    /// As [`load_mask`](Self::load_mask).
    pub fn load_target(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> Result<Array> {
        let array = self.target_array(self.stack_of(sample)?, name)?;
        let channels = array.chunks.has_bands().then(|| array.shape().bands);
        self.load(array, sample, &rows, &columns, channels)
    }

    fn load(
        &self,
        array: ArrayRef<'_>,
        sample: usize,
        rows: &Range<usize>,
        columns: &Range<usize>,
        bands: Option<usize>,
    ) -> Result<Array> {
        let shape = room(array, rows, columns, bands);
        written(&shape, ElementType::from(array.dtype()), |bytes| {
            self.read(array, sample, window(rows, columns), None, bytes)
        })
    }
}

/// Reads bytes of a file directly into a new array in host memory.
///
/// # Errors
/// If the number of bytes does not match the shape, they cannot be read, or there is not enough memory for them.
pub fn read_array(
    file: &dyn StoredFile,
    span: Range<u64>,
    shape: &[usize],
    element: ElementType,
) -> Result<Array> {
    written(shape, element, |bytes| file.read_into(span, bytes))
}

/// A new array, whose memory `write` fills.
fn written(
    shape: &[usize],
    element: ElementType,
    write: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Array> {
    let mut buffer = Buffer::zeroed(bytes_of(shape, element))?;
    write(buffer.bytes_mut())?;
    buffer.array(shape, element)
}

fn bytes_of(shape: &[usize], element: ElementType) -> usize {
    shape.iter().fold(element.size(), |bytes, length| bytes.saturating_mul(*length))
}

/// The shape of a window's array. If the window does not fit, only the part that does, since reading it is refused.
fn room(
    array: ArrayRef<'_>,
    rows: &Range<usize>,
    columns: &Range<usize>,
    bands: Option<usize>,
) -> Vec<usize> {
    let fits = |range: &Range<usize>, axis: usize| range.len().min(axis);
    let mut shape = vec![fits(rows, array.shape().rows), fits(columns, array.shape().columns)];
    shape.extend(bands);
    shape
}
