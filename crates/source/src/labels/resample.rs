//! Masks on another grid than their cube.
//!
//! The place of a cube's pixel in the mask follows from where both lie on Earth, or from a whole
//! ratio of their sizes. The results are those of GDAL's warper: `nearest` takes the pixel of the
//! mask in which the centre of the cube's pixel lies, and `majority` (GDAL's mode) the most
//! frequent value among the mask's pixels that the cube's pixel covers. Of several that are equally
//! frequent, it is the value that reached this number first, row by row.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use hsipack_format::{CubeShape, DType, Error, Geo, Result};
use serde::{Deserialize, Serialize};

use super::LabelOptions;
use super::crs::Conversion;
use crate::{Access, CubeInfo, RowBuffer, Source};

/// How a mask on another grid becomes one on the grid of its cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resampling {
    /// The value at the centre of the cube's pixel.
    Nearest,
    /// The most frequent value in the cube's pixel.
    Majority,
}

hsipack_format::option_names!(Resampling, "resampling", {
    Nearest => "nearest",
    Majority => "majority",
});

/// Positions this close to the edge of a pixel count as the edge, as in GDAL.
const EDGE: f64 = 1e-10;
/// The most values of a mask that are in memory at once.
const MAX_VALUES: usize = 1 << 28;

/// A mask on the grid of its cube.
struct Resampled {
    info: CubeInfo,
    source: Box<dyn Source>,
    resampling: Resampling,
    placement: Placement,
    /// Rows of the mask that were read last, because the next ones often need them again.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    rows: Range<usize>,
    values: Vec<f64>,
}

/// How positions in the cube, (column, row), become positions in the mask.
enum Placement {
    /// The mask has so many times the rows and columns.
    Ratio([f64; 2]),
    /// Both lie on Earth.
    OnEarth { cube: Geo, mask: [f64; 6], conversion: Option<Box<Conversion>> },
}

/// The mask in `source` on the grid of the cube.
///
/// # Errors
/// If neither georeferencing nor a whole ratio of sizes says where the cube's pixels are in the
/// mask.
pub(super) fn onto(
    source: Box<dyn Source>,
    options: &LabelOptions<'_>,
    resampling: Resampling,
) -> Result<Box<dyn Source>> {
    let info = source.info();
    let CubeShape { rows, columns, bands } = info.shape;
    let size = [rows, columns];
    let same_place = match (options.geo, &info.geo) {
        (Some(cube), Some(mask)) => cube.transform == mask.transform && cube.crs == mask.crs,
        _ => true,
    };
    if size == options.image && same_place {
        return Ok(source);
    }
    let file = info.files[0].clone();
    let placement = place(info, options).map_err(|error| error.at(&file))?;
    let [rows, columns] = options.image;
    let info = CubeInfo {
        shape: CubeShape::new(rows, columns, bands),
        // Pixels of the cube outside the mask have no value.
        dtype: DType::F64,
        geo: options.geo.cloned(),
        ..info.clone()
    };
    let mut mask = Resampled { info, source, resampling, placement, kept: Mutex::default() };
    mask.info.misses_cube =
        (0..rows).all(|row| (0..columns).all(|column| mask.lies_outside(row, column)));
    Ok(Box::new(mask))
}

fn place(mask: &CubeInfo, options: &LabelOptions<'_>) -> Result<Placement> {
    let [rows, columns] = options.image;
    if let (Some(cube), Some(geo)) = (options.geo, &mask.geo) {
        let conversion =
            Conversion::between(cube.crs.as_deref(), geo.crs.as_deref())?.map(Box::new);
        return Ok(Placement::OnEarth {
            cube: cube.clone(),
            mask: inverse(geo.transform),
            conversion,
        });
    }
    let ratio = |mask: usize, cube: usize| {
        let is_whole = mask.is_multiple_of(cube) || cube.is_multiple_of(mask);
        is_whole.then_some(mask as f64 / cube as f64)
    };
    let shape = mask.shape;
    match (ratio(shape.columns, columns), ratio(shape.rows, rows)) {
        (Some(across), Some(down)) if (across >= 1.0) == (down >= 1.0) || across == 1.0 || down == 1.0 => {
            Ok(Placement::Ratio([across, down]))
        }
        _ => Err(Error::conflict(format!(
            "the mask has {}x{} pixels and its cube {rows}x{columns}, which is not a whole ratio, and not both of them are georeferenced",
            shape.rows, shape.columns
        ))
        .with_remedy("give a mask of a whole ratio of sizes, or a mask and a cube that are georeferenced")),
    }
}

/// The transform from positions on Earth to pixels, as GDAL inverts it.
pub(super) fn inverse([x, a, b, y, d, e]: [f64; 6]) -> [f64; 6] {
    if b == 0.0 && d == 0.0 {
        return [-x / a, 1.0 / a, 0.0, -y / e, 0.0, 1.0 / e];
    }
    let inverse = 1.0 / (a * e - b * d);
    [
        (b * y - x * e) * inverse,
        e * inverse,
        -b * inverse,
        (-a * y + x * d) * inverse,
        -d * inverse,
        a * inverse,
    ]
}

/// A position, transformed.
pub(super) fn apply([x, a, b, y, d, e]: [f64; 6], [east, north]: [f64; 2]) -> [f64; 2] {
    [x + a * east + b * north, y + d * east + e * north]
}

impl Placement {
    /// The position in the mask, (column, row), of a position in the cube. NaN if there is none.
    fn of(&self, column: f64, row: f64) -> [f64; 2] {
        match self {
            Self::Ratio([across, down]) => [column * across, row * down],
            Self::OnEarth { cube, mask, conversion } => {
                let at = cube.at(column, row);
                let at = match conversion {
                    Some(conversion) => conversion.point(at).unwrap_or([f64::NAN; 2]),
                    None => at,
                };
                apply(*mask, at)
            }
        }
    }
}

/// Pixels from `low` to `high` of an axis with `len` pixels.
fn covered(low: f64, high: f64, len: usize) -> Range<usize> {
    let (low, high) = (low.min(high), low.max(high));
    // NaN becomes 0 here.
    if low.is_nan() || high.is_nan() || high < 0.0 || low > len as f64 {
        return 0..0;
    }
    let first = (low + EDGE).floor().max(0.0) as usize;
    let end = ((high - EDGE).ceil().max(0.0) as usize).min(len);
    if first == end && end < len { first..end + 1 } else { first..end.max(first) }
}

impl Resampled {
    /// Rows and columns of the mask that the pixel of the cube covers.
    fn window(&self, row: usize, column: usize) -> [Range<usize>; 2] {
        let CubeShape { rows, columns, .. } = self.source.info().shape;
        let (row, column) = (row as f64, column as f64);
        match self.resampling {
            Resampling::Nearest => {
                let [x, y] = self.placement.of(column + 0.5, row + 0.5);
                let pixel = |at: f64, len: usize| {
                    let at = (at + EDGE).floor();
                    if at >= 0.0 && at < len as f64 { at as usize..at as usize + 1 } else { 0..0 }
                };
                [pixel(y, rows), pixel(x, columns)]
            }
            Resampling::Majority => {
                let [left, top] = self.placement.of(column, row);
                let [right, bottom] = self.placement.of(column + 1.0, row + 1.0);
                [covered(top, bottom, rows), covered(left, right, columns)]
            }
        }
    }

    /// Rows of the mask that rows of the cube cover.
    fn rows_of(&self, rows: Range<usize>) -> Range<usize> {
        let columns = self.info.shape.columns;
        let mut all: Option<Range<usize>> = None;
        for row in rows {
            for column in 0..columns {
                let [row_range, _] = self.window(row, column);
                if !row_range.is_empty() {
                    let range = all.get_or_insert(row_range.clone());
                    *range = range.start.min(row_range.start)..range.end.max(row_range.end);
                }
            }
        }
        all.unwrap_or(0..0)
    }

    /// Reads rows of the mask, of which some may be kept.
    fn read(&self, rows: &Range<usize>, kept: &mut Kept) -> Result<()> {
        let width = self.source.info().shape.row_values();
        if rows.len().saturating_mul(width) > MAX_VALUES {
            return Err(Error::unsupported("the grids of the mask and of its cube are turned against each other, and the mask is too large for memory")
                .at(&self.info.files[0])
                .with_remedy("resample the mask to the grid of its cube with gdalwarp"));
        }
        if rows.start >= kept.rows.start && rows.start < kept.rows.end {
            kept.values.drain(..(rows.start - kept.rows.start) * width);
            kept.rows.start = rows.start;
        } else {
            *kept = Kept { rows: rows.start..rows.start, values: Vec::new() };
        }
        let mut buffer = RowBuffer::new();
        let step = self.source.preferred_rows(16 << 20).max(1);
        while kept.rows.end < rows.end {
            let next = kept.rows.end..rows.end.min(kept.rows.end + step);
            self.source.read_rows(next.clone(), &mut buffer)?;
            kept.values.extend((0..buffer.len()).map(|at| buffer.number(at)));
            kept.rows.end = next.end;
        }
        Ok(())
    }

    /// The value of a band in a window; NaN if all values are missing.
    fn value(
        &self,
        window: &[Range<usize>; 2],
        band: usize,
        kept: &Kept,
        counts: &mut Counts,
    ) -> f64 {
        let CubeShape { columns, bands, .. } = self.source.info().shape;
        let [rows, across] = window;
        counts.clear();
        for row in rows.clone() {
            for column in across.clone() {
                let at = ((row - kept.rows.start) * columns + column) * bands + band;
                let value = kept.values[at];
                if self.resampling == Resampling::Nearest {
                    return value;
                }
                // Class 0 says itself that there is no class, so it is one, declared as missing or not.
                let is_missing = value != 0.0 && Some(value) == self.info.ignore_value;
                if !is_missing && !value.is_nan() {
                    counts.add(value);
                }
            }
        }
        counts.most.map_or(f64::NAN, |(value, _)| value)
    }
}

/// How often each value occurred.
#[derive(Default)]
struct Counts {
    all: Vec<(f64, u32)>,
    most: Option<(f64, u32)>,
}

impl Counts {
    fn clear(&mut self) {
        self.all.clear();
        self.most = None;
    }

    fn add(&mut self, value: f64) {
        let count = match self.all.iter_mut().find(|(counted, _)| *counted == value) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.all.push((value, 1));
                1
            }
        };
        if self.most.is_none_or(|(_, most)| count > most) {
            self.most = Some((value, count));
        }
    }
}

impl Source for Resampled {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let row = self.source.info().shape.row_values() * size_of::<f64>();
        let scale = self.source.info().shape.rows.div_ceil(self.info.shape.rows.max(1)).max(1);
        (budget / (row * scale).max(1)).clamp(1, self.info.shape.rows)
    }

    fn lies_outside(&self, row: usize, column: usize) -> bool {
        self.window(row, column).iter().any(Range::is_empty)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let CubeShape { columns, bands, .. } = self.info.shape;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        out.reset(DType::F64, rows.len() * columns * bands);
        let values = out.values_mut::<f64>();
        let mut counts = Counts::default();
        // A few rows at a time bound what is read of the mask.
        let step = self.preferred_rows(16 << 20);
        for first in rows.clone().step_by(step) {
            let block = first..rows.end.min(first + step);
            self.read(&self.rows_of(block.clone()), &mut kept)?;
            for row in block {
                let row_values =
                    &mut values[(row - rows.start) * columns * bands..][..columns * bands];
                for (column, pixel) in row_values.chunks_exact_mut(bands).enumerate() {
                    let window = self.window(row, column);
                    for (band, value) in pixel.iter_mut().enumerate() {
                        *value = self.value(&window, band, &kept, &mut counts);
                    }
                }
            }
        }
        Ok(())
    }
}
