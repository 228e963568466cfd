//! The trait that every reader of cubes implements.

use std::ops::Range;

use hsipack_format::Result;

use crate::buffer::RowBuffer;
use crate::cube_info::CubeInfo;

/// In which order rows can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any rows at any time, from several threads at once.
    Random,
    /// Reading rows from first to last is cheap; going back starts over (a compressed stream).
    /// Other orders and several threads are still correct, only slow.
    Sequential,
}

/// A cube in a file.
pub trait Source: Send + Sync {
    /// Description of the cube in its file.
    fn info(&self) -> &CubeInfo;

    /// In which order to read rows.
    fn access(&self) -> Access;

    /// How many rows to read at a time so that reading is cheap, if one read may use about `budget`
    /// bytes (for its output and its working memory). At least 1, at most the number of rows.
    /// Reading fewer or more rows must work, too.
    fn preferred_rows(&self, budget: usize) -> usize {
        let _ = budget;
        1
    }

    /// Reads image rows `rows` into `out`, in (row, column, band) order, native byte order, as
    /// [`CubeInfo::dtype`]. `rows` lies within the cube.
    ///
    /// # Errors
    /// If the file cannot be read, or turns out to be malformed.
    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()>;

    /// Whether a pixel is outside the picture that was brought to this grid, so that it has no
    /// value.
    fn lies_outside(&self, row: usize, column: usize) -> bool {
        let _ = (row, column);
        false
    }

    /// Whether [`read_band`](Self::read_band) reads little more than the requested values: the
    /// values of a band, or of a line of a band, are contiguous in the file, and any offset is
    /// cheap to read.
    fn has_cheap_bands(&self) -> bool {
        false
    }

    /// Reads rows `rows` of only the band `band` into `out`, in (row, column) order; otherwise like
    /// [`read_rows`](Self::read_rows).
    ///
    /// # Errors
    /// Those of [`read_rows`](Self::read_rows).
    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        read_band_of_rows(self, band, rows, out)
    }
}

/// A cube as its format reads it, with another description: that of its product, or of a file
/// beside it.
pub(crate) struct Described {
    /// The description.
    pub info: CubeInfo,
    /// The cube.
    pub source: Box<dyn Source>,
}

/// A cube with another description of its bands, values or place than its file gives.
pub fn described(source: Box<dyn Source>, info: CubeInfo) -> Box<dyn Source> {
    Box::new(Described { info, source })
}

impl Source for Described {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        self.source.preferred_rows(budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.source.read_rows(rows, out)
    }

    fn has_cheap_bands(&self) -> bool {
        self.source.has_cheap_bands()
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.source.read_band(band, rows, out)
    }
}

/// [`Source::read_band`], by reading rows of all bands.
pub(crate) fn read_band_of_rows<S: Source + ?Sized>(
    source: &S,
    band: usize,
    rows: Range<usize>,
    out: &mut RowBuffer,
) -> Result<()> {
    let CubeInfo { shape, dtype, .. } = source.info();
    let (step, size) = (shape.bands * dtype.size(), dtype.size());
    let mut all = RowBuffer::new();
    source.read_rows(rows, &mut all)?;
    let spectra = all.bytes().chunks_exact(step);
    let to = out.reset(*dtype, spectra.len()).chunks_exact_mut(size);
    for (value, spectrum) in to.zip(spectra) {
        value.copy_from_slice(&spectrum[band * size..][..size]);
    }
    Ok(())
}

/// How many rows to read at once if `together` rows lie in the same chunks: at least `wanted`, in
/// whole runs of `together`, as far as `affordable` allows. All three are at least 1, and so is the
/// result.
pub(crate) fn whole_runs(wanted: usize, together: usize, affordable: usize) -> usize {
    let rows = wanted.next_multiple_of(together).min(affordable);
    if rows > together { rows - rows % together } else { rows }
}
