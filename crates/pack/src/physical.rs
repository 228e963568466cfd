//! Physical values of any cube, from a file or a dataset, a few rows at a time.
//!
//! Missing values (NaN, and the file's ignore value) become NaN. The file's scaling and the
//! dataset's `scale_factor` and `add_offset` are applied. The values are the same as those that
//! training code gets.

use std::ops::Range;
use std::sync::Arc;

use hsipack_format::{Command, CubeShape, DType, Error, Result, Sample, remedy};
use hsipack_source::{Access, CubeInfo, RowBuffer, Source};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, Stack};

use crate::convert::{PackedType, ValueOptions, integers, plan, references};

/// Memory for one read from a source.
pub(crate) const BUDGET: usize = 64 << 20;
/// The most threads that read a cube at once: each needs memory for one read.
const READERS: usize = 4;

/// The number of threads that read a cube if the user does not choose it.
pub(crate) fn readers() -> usize {
    hsipack_store::threads::cores().min(READERS)
}

/// A cube to read physical values from.
pub struct Cube<'a> {
    /// Rows × columns × bands.
    pub shape: CubeShape,
    /// The stored format and type, as text for users.
    pub format: String,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
    /// Bad-band list; `true` is good.
    pub good_bands: Option<Vec<bool>>,
    values: Values<'a>,
}

enum Values<'a> {
    Source(&'a dyn Source),
    Packed { array: &'a ChunkArray, index: usize },
}

/// Receives a run of whole pixels: the row, the column of the first pixel, and the values with the
/// band fastest.
pub type Each<'e> = dyn FnMut(usize, usize, &[f64]) -> Result<()> + 'e;

impl<'a> Cube<'a> {
    /// A cube in a file.
    pub fn of_source(source: &'a dyn Source) -> Self {
        let info = source.info();
        Self {
            shape: info.shape,
            format: format!("{}, {}", info.format, info.dtype),
            wavelength: info.wavelength.clone(),
            good_bands: info.good_bands.clone(),
            values: Values::Source(source),
        }
    }

    /// A sample of a dataset.
    ///
    /// # Errors
    /// If its image is not of a type that datasets hold.
    pub fn of_sample(dataset: &'a Dataset, sample: &Sample) -> Result<Self> {
        let missing = || Error::damaged(format!("there is no stack {}", sample.stack));
        let stack = dataset.stack(&sample.stack).ok_or_else(missing)?;
        let dtype = image_type(stack)?;
        Ok(Self {
            shape: stack.image.shape(),
            format: format!("packed from {}, {dtype}", sample.source.format),
            wavelength: stack.wavelength.clone(),
            good_bands: stack.image.meta().band_notes().good_bands,
            values: Values::Packed { array: &stack.image, index: sample.index },
        })
    }

    /// A target or a further image of the sample with this place in its stack. The bands of a
    /// target are its channels.
    ///
    /// # Errors
    /// If it is not of a type that datasets hold.
    pub fn of_companion(array: &'a ChunkArray, index: usize) -> Result<Self> {
        let dtype = packed_type(array)?;
        Ok(Self {
            shape: array.shape(),
            format: format!("packed, {dtype}"),
            wavelength: array.meta().companion_meaning().and_then(|meaning| meaning.wavelength),
            good_bands: None,
            values: Values::Packed { array, index },
        })
    }

    /// The number of rows that are efficient to read at a time, within a memory limit.
    pub fn block_rows(&self) -> usize {
        match &self.values {
            Values::Source(source) => source.preferred_rows(BUDGET),
            Values::Packed { array, .. } => array.grid().tile().rows,
        }
    }

    /// Whether rows are efficient to read only from first to last, and therefore by one thread.
    pub fn is_stream(&self) -> bool {
        match &self.values {
            Values::Source(source) => source.access() == Access::Sequential,
            Values::Packed { .. } => false,
        }
    }

    /// Whether [`read_band`](Self::read_band) reads little more than that band.
    pub fn has_cheap_bands(&self) -> bool {
        match &self.values {
            // A camera's calibration of each column and band is applied to whole rows.
            Values::Source(source) => {
                source.has_cheap_bands() && source.info().radiometry.is_none()
            }
            Values::Packed { .. } => false,
        }
    }

    /// Passes the pixels of rows `rows` to `each` as [`read_rows`](Self::read_rows) does, but only
    /// their values in band `band`.
    ///
    /// # Errors
    /// The same as those of [`read_rows`](Self::read_rows).
    pub fn read_band(&self, band: usize, rows: Range<usize>, each: &mut Each) -> Result<()> {
        if let Values::Source(source) = &self.values
            && self.has_cheap_bands()
        {
            return read_source(&OneBand::new(*source, band), rows, each);
        }
        let bands = self.shape.bands;
        let mut values = Vec::new();
        self.read_rows(rows, &mut |row, column, pixels| {
            values.clear();
            values.extend(pixels.chunks_exact(bands).map(|pixel| pixel[band]));
            each(row, column, &values)
        })
    }

    /// Passes the pixels of rows `rows` to `each`.
    ///
    /// # Errors
    /// If the rows cannot be read, or `each` fails.
    pub fn read_rows(&self, rows: Range<usize>, each: &mut Each) -> Result<()> {
        match &self.values {
            Values::Source(source) => read_source(*source, rows, each),
            Values::Packed { array, index } => read_packed(array, *index, rows, each),
        }
    }
}

/// One band of a cube, presented as a cube.
struct OneBand<'a> {
    source: &'a dyn Source,
    band: usize,
    info: CubeInfo,
}

impl<'a> OneBand<'a> {
    fn new(source: &'a dyn Source, band: usize) -> Self {
        let all = source.info();
        let shape = CubeShape { bands: 1, ..all.shape };
        let file = all.files[0].clone();
        let info = CubeInfo {
            ignore_value: all.ignore_value,
            scaling: all.scaling_of(band),
            empty_bands: if all.empty_bands.contains(&band) { vec![0] } else { Vec::new() },
            ..CubeInfo::new(all.format.clone(), shape, all.dtype, file)
        };
        Self { source, band, info }
    }
}

impl Source for OneBand<'_> {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.source.read_band(self.band, rows, out)
    }
}

fn read_source(source: &dyn Source, rows: Range<usize>, each: &mut Each) -> Result<()> {
    let mut buffer = RowBuffer::new();
    source.read_rows(rows.clone(), &mut buffer)?;
    physical(source, &buffer, rows.start, each)
}

/// Passes the pixels in `buffer`, whose first row is `first_row`, to `each`. They are masked and
/// scaled as packing would do it.
///
/// # Errors
/// If the camera's calibration in the file cannot be read, or `each` fails.
pub fn physical(
    source: &dyn Source,
    buffer: &RowBuffer,
    first_row: usize,
    each: &mut Each,
) -> Result<()> {
    let info = source.info();
    let CubeShape { columns, bands, .. } = info.shape;
    let calibration = references::of_camera(info, None)?.map(Arc::new);
    let transform = plan::with_calibration(info, None, &ValueOptions::default(), 1.0, calibration);
    let mut scratch = Default::default();
    let mut by_row = |start: usize, values: &[f64]| {
        let (mut at, mut remaining) = (start, values);
        while !remaining.is_empty() {
            let (row, column) = (at / columns, at % columns);
            let pixels = (columns - column).min(remaining.len() / bands);
            let (run, after) = remaining.split_at(pixels * bands);
            each(row, column, run)?;
            (at, remaining) = (at + pixels, after);
        }
        Ok(())
    };
    transform
        .apply_f64(buffer, first_row, &mut scratch, &mut |position, values| {
            by_row(position.row * columns + position.column, values)
        })
        .map_err(|error| error.at(&info.files[0]))
}

fn read_packed(
    array: &ChunkArray,
    index: usize,
    rows: Range<usize>,
    each: &mut Each,
) -> Result<()> {
    let (scaling, dtype) = (array.scaling(), array.meta().dtype);
    let row_bytes = array.shape().row_values() * dtype.size();
    let mut values = Vec::new();
    array.each_slab(index, rows, &mut |rows, bytes| {
        for (row, bytes) in rows.zip(bytes.chunks_exact(row_bytes)) {
            integers::read(bytes, dtype, &mut values);
            values.iter_mut().for_each(|value| *value = scaling.physical(*value));
            each(row, 0, &values)?;
        }
        Ok(())
    })
}

/// The type of a stack's images: float16, float32, or that of integers.
///
/// # Errors
/// If it is another type.
pub(crate) fn image_type(stack: &Stack) -> Result<DType> {
    packed_type(&stack.image)
}

/// The type of an array's values: float16, float32, or that of integers.
///
/// # Errors
/// If it is another type.
fn packed_type(array: &ChunkArray) -> Result<DType> {
    match array.meta().dtype {
        dtype if PackedType::of(dtype).is_some() => Ok(dtype),
        other => {
            Err(Error::unsupported(format!("the {} array has the type {other}", array.name()))
                .at(array.folder())
                .with_remedy(remedy!["pack the cubes with ", Command::Convert]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_source::flat::{FlatLayout, FlatSource, MemoryBytes};
    use hsipack_source::{AxisOrder, Scaling};

    #[test]
    fn a_band_alone_has_the_values_that_it_has_among_all() {
        let shape = CubeShape::new(4, 3, 5);
        for order in [AxisOrder::BSQ, AxisOrder::BIL, AxisOrder::BIP] {
            let mut info = CubeInfo::new("test", shape, DType::U8, "a");
            info.ignore_value = Some(7.0);
            info.empty_bands = vec![3];
            let scaling = |band| Scaling { multiply: f64::from(band) + 1.0, ..Scaling::NONE };
            info.scale_bands((0..5).map(scaling).collect());
            let layout = FlatLayout { offset: 0, order, big_endian: false, rows_reversed: false };
            let source = FlatSource::new(info, layout, MemoryBytes((0..60).collect()));
            let cube = Cube::of_source(&source);
            assert_eq!(cube.has_cheap_bands(), order != AxisOrder::BIP);
            for band in 0..5 {
                let (mut alone, mut among) = (Vec::new(), Vec::new());
                cube.read_band(band, 1..3, &mut |row, column, values| {
                    let at = values.iter().enumerate();
                    alone.extend(at.map(|(at, value)| (row, column + at, value.to_bits())));
                    Ok(())
                })
                .unwrap();
                cube.read_rows(1..3, &mut |row, column, values| {
                    let at = values.chunks_exact(5).enumerate();
                    among.extend(at.map(|(at, pixel)| (row, column + at, pixel[band].to_bits())));
                    Ok(())
                })
                .unwrap();
                assert_eq!(alone, among, "{order} {band}");
                assert_eq!(alone.len(), 6);
            }
        }
    }
}
