//! Random access into arrays in host memory.

use std::ops::Range;

use hsipack_augment::array::Buffer;
use hsipack_augment::{Array, ElementType};
use hsipack_format::Ratio;
use hsipack_format::metadata::Role;

use super::access::window;
use super::array::ArrayRef;
use super::open::Dataset;
use crate::store::StoredFile;
use crate::{Error, Result};

impl Dataset {
    /// Rows × columns of some bands (all if `None`) of a sample's cube, decoded directly into a new
    /// array: (rows, columns, bands), as stored. The bands come in the order given.
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

    /// Rows × columns of a target of a sample, as stored: (rows, columns), or with channels (rows,
    /// columns, channels).
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
        let array = self.companion_array(self.stack_of(sample)?, Role::Target, name)?;
        let channels = array.chunks.has_bands().then(|| array.shape().bands);
        self.load(array, sample, &rows, &columns, channels)
    }

    /// The further image of a sample for rows × columns of its cube, as stored: (rows, columns,
    /// bands). If it has another resolution, so have these rows and columns.
    ///
    /// # Errors
    /// As [`load_mask`](Self::load_mask), and if it is coarser and the rows or columns do not begin
    /// and end with its pixels.
    pub fn load_further(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> Result<Array> {
        let array = self.companion_array(self.stack_of(sample)?, Role::Image, name)?;
        let ratio = array.chunks.ratio();
        let scaled = |axis: &str, range: &Range<usize>| {
            let ends = [range.start, range.end].map(|end| ratio.length(end));
            let [Some(start), Some(end)] = ends else {
                return Err(not_aligned(axis, range, name, ratio).at(self.path()));
            };
            Ok(start..end)
        };
        let (rows, columns) = (scaled("rows", &rows)?, scaled("columns", &columns)?);
        self.load(array, sample, &rows, &columns, Some(array.shape().bands))
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

fn not_aligned(axis: &str, range: &Range<usize>, name: &str, ratio: Ratio) -> Error {
    let step = ratio.coarser();
    Error::conflict(format!(
        "{axis} {}..{} do not begin and end with pixels of the further image {name:?}, which has one for {step} of the cube along each axis",
        range.start, range.end
    ))
    .with_remedy(format!("give multiples of {step}, or read without that image"))
}

/// Reads bytes of a file directly into a new array in host memory.
///
/// # Errors
/// If the number of bytes does not match the shape, they cannot be read, or there is not enough
/// memory for them.
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

/// The shape of a window's array. If the window does not fit, only the part that does, since
/// reading it is refused.
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
