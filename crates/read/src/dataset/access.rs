//! Random access: cubes, crops and masks by the number of their sample.

use std::ops::Range;

use hsipack_format::{CubeShape, DType, Error};
use hsipack_store::memory;
use ndarray::ArrayView3;

use super::array::ArrayRef;
use super::open::Dataset;
use crate::Result;
use crate::decode::{Decoder, Scratch};
use crate::plan::Window;
use crate::values::{self, Value};

/// Values of one sample: an image window or a mask window.
#[derive(Clone, Debug, PartialEq)]
pub struct Cube {
    /// (rows, columns, bands); a mask has one band.
    pub shape: CubeShape,
    /// Element type.
    pub dtype: DType,
    /// The values, aligned for every element type. The unused bytes of the last word are 0.
    words: Vec<u64>,
}

impl Dataset {
    /// The whole cube of a sample.
    ///
    /// # Errors
    /// If there is no such sample, or it cannot be read or is damaged.
    pub fn sample(&self, sample: usize) -> Result<Cube> {
        let shape = self.image(self.stack_of(sample)?).shape();
        self.crop(sample, 0..shape.rows, 0..shape.columns)
    }

    /// Rows × columns of a sample's cube, all bands.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image).
    pub fn crop(&self, sample: usize, rows: Range<usize>, columns: Range<usize>) -> Result<Cube> {
        self.crop_bands(sample, rows, columns, None)
    }

    /// Rows × columns of some bands of a sample's cube. The bands come in the order given.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image).
    pub fn crop_bands(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
    ) -> Result<Cube> {
        let array = self.image(self.stack_of(sample)?);
        let window = window(&rows, &columns);
        let count = bands.map_or(array.shape().bands, <[usize]>::len);
        let mut cube = Cube::zeros(array, window, count)?;
        self.read_image(sample, rows, columns, bands, cube.bytes_mut())?;
        Ok(cube)
    }

    /// Reads rows × columns of some bands (all if `None`) of a sample's cube into `out`, which they
    /// fill: (row, column, band), as stored. The bands come in the order given.
    ///
    /// # Errors
    /// If there is no such sample or there are no such rows, columns or bands; if `out` has another
    /// length; if the shard cannot be read or is damaged.
    pub fn read_image(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
        out: &mut [u8],
    ) -> Result<()> {
        let array = self.image(self.stack_of(sample)?);
        self.read(array, sample, window(&rows, &columns), bands, out)
    }

    /// The whole mask `name` of a sample: class ids, or bits of boolean layers.
    ///
    /// # Errors
    /// As [`read_mask`](Self::read_mask).
    pub fn mask(&self, sample: usize, name: &str) -> Result<Cube> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        let shape = array.shape();
        let mut cube =
            Cube::zeros(array, window(&(0..shape.rows), &(0..shape.columns)), shape.bands)?;
        self.read_mask(sample, name, 0..shape.rows, 0..shape.columns, cube.bytes_mut())?;
        Ok(cube)
    }

    /// Reads rows × columns of a mask into `out`, which they fill.
    ///
    /// # Errors
    /// If there is no such sample or mask or there are no such rows or columns; if `out` has
    /// another length; if the shard cannot be read or is damaged.
    pub fn read_mask(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        self.read(array, sample, window(&rows, &columns), None, out)
    }

    pub(super) fn read(
        &self,
        array: ArrayRef<'_>,
        sample: usize,
        window: Window,
        bands: Option<&[usize]>,
        out: &mut [u8],
    ) -> Result<()> {
        self.check_unchanged()?;
        let shape = array.shape();
        let is_empty = window.rows == 0 || window.columns == 0;
        if is_empty || !window.is_inside(shape.rows, shape.columns) {
            return Err(self.no_such(format!(
                "rows {}..{} and columns {}..{} of sample {sample}, which has {} rows and {} columns",
                window.row,
                i64::from(window.row) + i64::from(window.rows),
                window.column,
                i64::from(window.column) + i64::from(window.columns),
                shape.rows,
                shape.columns
            )));
        }
        if let Some(band) = bands.into_iter().flatten().find(|band| **band >= shape.bands) {
            return Err(self.no_such(format!(
                "band {band} of sample {sample}, which has {} bands",
                shape.bands
            )));
        }
        let pixels = window.rows as usize * window.columns as usize;
        let want = pixels * bands.map_or(shape.bands, <[usize]>::len) * array.dtype().size();
        if out.len() != want {
            return Err(Error::conflict(format!(
                "the window takes {want} bytes, but the buffer has {}",
                out.len()
            ))
            .at(self.path()));
        }
        let decoder =
            Decoder { dataset: self, bands, needed: None, cache: None, shuffle_buffer: None };
        decoder.window(array, sample, window, out, &mut Scratch::default())
    }

    fn no_such(&self, what: String) -> Error {
        Error::conflict(format!("there are no {what}")).at(self.path())
    }
}

impl Cube {
    /// The values, (row, column, band), little-endian.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len()]
    }

    /// The values as an array (rows, columns, bands); `None` if they are of another type.
    ///
    /// ```no_run
    /// use half::f16;
    /// use hsipack_read::Dataset;
    ///
    /// let cube = Dataset::open("tissue.hsipack")?.sample(0)?;
    /// let values = cube.values::<f16>().expect("packed as float16");
    /// let spectrum = values.slice(ndarray::s![10, 20, ..]);
    /// # let _ = spectrum;
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    pub fn values<T: Value>(&self) -> Option<ArrayView3<'_, T>> {
        let shape = (self.shape.rows, self.shape.columns, self.shape.bands);
        values::of_bytes(self.bytes(), self.dtype.into(), shape)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut bytemuck::cast_slice_mut(&mut self.words)[..len]
    }

    /// Bytes of the values.
    fn len(&self) -> usize {
        self.shape.values() * self.dtype.size()
    }

    fn zeros(array: ArrayRef<'_>, window: Window, bands: usize) -> Result<Self> {
        // A window that does not fit is refused before it is read, so no memory is allocated for what does
        // not fit.
        let shape = array.shape();
        let rows = (window.rows as usize).min(shape.rows);
        let columns = (window.columns as usize).min(shape.columns);
        let shape = CubeShape::new(rows, columns, bands);
        let bytes = shape.values() * array.dtype().size();
        let words = memory::zeroed(bytes.div_ceil(size_of::<u64>()), "a cube")?;
        Ok(Self { shape, dtype: array.dtype(), words })
    }
}

pub(super) fn window(rows: &Range<usize>, columns: &Range<usize>) -> Window {
    // A clamped window lies beyond every cube.
    let start = |range: &Range<usize>| i32::try_from(range.start).unwrap_or(i32::MAX);
    let length = |range: &Range<usize>| u32::try_from(range.len()).unwrap_or(u32::MAX);
    Window {
        row: start(rows),
        column: start(columns),
        rows: length(rows),
        columns: length(columns),
    }
}
