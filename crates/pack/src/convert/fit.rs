//! Brings companions of another resolution to the grid of their cubes (`--fit`).

use std::ops::Range;

use hsipack_format::{CubeShape, DType, Ratio, Result};
use hsipack_source::{Access, CubeInfo, RowBuffer, Scaling, Source};

use super::options::FitMethod;
use super::transform::{Scratch, Transform};

/// A companion on the grid of its cube.
struct Fitted {
    info: CubeInfo,
    source: Box<dyn Source>,
    ratio: Ratio,
    /// The physical values of the source, if means of them are computed.
    means: Option<Transform>,
}

/// The companion in `source`, of this ratio to its cube, on the grid of the cube; and whether its
/// values are means.
pub(super) fn fitted(
    source: Box<dyn Source>,
    method: FitMethod,
    ratio: Ratio,
) -> (Box<dyn Source>, bool) {
    let info = source.info();
    let length = |length: usize| length * ratio.coarser() as usize / ratio.finer() as usize;
    let CubeShape { rows, columns, bands } = info.shape;
    let shape = CubeShape::new(length(rows), length(columns), bands);
    let is_mean = method == FitMethod::Mean && ratio.finer() > 1;
    let means = is_mean.then(|| Transform::physical(info, None));
    let info = match is_mean {
        false => CubeInfo { shape, ..info.clone() },
        true => CubeInfo {
            shape,
            dtype: DType::F64,
            ignore_value: None,
            scaling: Scaling::NONE,
            band_scaling: None,
            empty_bands: Vec::new(),
            ..info.clone()
        },
    };
    (Box::new(Fitted { info, source, ratio, means }), is_mean)
}

impl Fitted {
    /// Rows of the source that rows of the cube are made of.
    fn rows_of(&self, rows: &Range<usize>) -> Range<usize> {
        self.ratio.cover(rows.clone(), self.source.info().shape.rows)
    }

    /// The row or column of the source at the centre of a row or column of the cube.
    fn centre(&self, at: usize) -> usize {
        let (finer, coarser) = (self.ratio.finer() as usize, self.ratio.coarser() as usize);
        if coarser > 1 { at / coarser } else { at * finer + finer / 2 }
    }

    fn nearest(&self, first: usize, from: &RowBuffer, rows: Range<usize>, out: &mut RowBuffer) {
        let (inner, shape) = (self.source.info(), self.info.shape);
        let pixel = inner.shape.bands * inner.dtype.size();
        let out = out.reset(inner.dtype, rows.len() * shape.row_values());
        let (row_bytes, pixels) = (inner.shape.columns * pixel, shape.columns);
        for (row, out) in rows.zip(out.chunks_exact_mut(pixels * pixel)) {
            let from = &from.bytes()[(self.centre(row) - first) * row_bytes..][..row_bytes];
            for (column, out) in out.chunks_exact_mut(pixel).enumerate() {
                out.copy_from_slice(&from[self.centre(column) * pixel..][..pixel]);
            }
        }
    }

    fn means(
        &self,
        transform: &Transform,
        first: usize,
        from: &RowBuffer,
        rows: Range<usize>,
        out: &mut RowBuffer,
    ) -> Result<()> {
        let (columns, bands) = (self.info.shape.columns, self.info.shape.bands);
        let step = self.ratio.finer() as usize;
        let mut sums = vec![(0.0, 0u32); rows.len() * columns * bands];
        transform.apply_f64(from, first, &mut Scratch::default(), &mut |place, values| {
            let start = place.row * columns * step + place.column;
            for (pixel, spectrum) in values.chunks_exact(bands).enumerate() {
                let at = start + pixel;
                let (row, column) = (at / (columns * step) / step, at % (columns * step) / step);
                let cell = ((row - rows.start) * columns + column) * bands;
                for ((sum, count), value) in sums[cell..cell + bands].iter_mut().zip(spectrum) {
                    if !value.is_nan() {
                        *sum += value;
                        *count += 1;
                    }
                }
            }
            Ok(())
        })?;
        let out = out.reset(DType::F64, sums.len());
        for (out, (sum, count)) in out.chunks_exact_mut(8).zip(sums) {
            // 0 / 0 is NaN: all values are missing.
            out.copy_from_slice(&(sum / f64::from(count)).to_ne_bytes());
        }
        Ok(())
    }
}

impl Source for Fitted {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.source.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let rows = self.source.preferred_rows(budget / 2);
        let (finer, coarser) = (self.ratio.finer() as usize, self.ratio.coarser() as usize);
        (rows / finer * coarser).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let needed = self.rows_of(&rows);
        let first = needed.start;
        let mut from = RowBuffer::new();
        self.source.read_rows(needed, &mut from)?;
        match &self.means {
            None => self.nearest(first, &from, rows, out),
            Some(transform) => self.means(transform, first, &from, rows, out)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of numbers: 2 bands, and a missing value.
    struct Numbers(CubeInfo);

    impl Numbers {
        fn value(row: usize, column: usize, band: usize) -> u16 {
            if (row, column, band) == (1, 1, 0) {
                9999
            } else {
                (row * 100 + column * 10 + band) as u16
            }
        }
    }

    impl Source for Numbers {
        fn info(&self) -> &CubeInfo {
            &self.0
        }

        fn access(&self) -> Access {
            Access::Random
        }

        fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
            let CubeShape { columns, bands, .. } = self.0.shape;
            let values = rows.flat_map(|row| {
                (0..columns * bands).map(move |at| Self::value(row, at / bands, at % bands))
            });
            let values: Vec<u16> = values.collect();
            let out = out.reset(DType::U16, values.len());
            out.copy_from_slice(bytemuck::cast_slice(&values));
            Ok(())
        }
    }

    fn of(
        rows: usize,
        columns: usize,
        ratio: [u32; 2],
        method: FitMethod,
    ) -> (Box<dyn Source>, bool) {
        let shape = CubeShape::new(rows, columns, 2);
        let info = CubeInfo {
            ignore_value: Some(9999.0),
            scaling: Scaling { divide: 10.0, ..Scaling::NONE },
            ..CubeInfo::new("numbers", shape, DType::U16, "numbers")
        };
        fitted(Box::new(Numbers(info)), method, Ratio::new(ratio[0], ratio[1]).unwrap())
    }

    fn numbers(source: &dyn Source, rows: Range<usize>) -> Vec<f64> {
        let mut out = RowBuffer::new();
        source.read_rows(rows, &mut out).unwrap();
        (0..out.len()).map(|at| out.number(at)).collect()
    }

    #[test]
    fn finer_images_give_the_value_at_the_centre_or_the_mean_without_missing_values() {
        let (nearest, is_mean) = of(6, 9, [3, 1], FitMethod::Nearest);
        assert!(!is_mean);
        assert_eq!(nearest.info().shape, CubeShape::new(2, 3, 2));
        assert_eq!(numbers(&*nearest, 1..2), [410.0, 411.0, 440.0, 441.0, 470.0, 471.0]);
        let (means, is_mean) = of(4, 4, [2, 1], FitMethod::Mean);
        assert!(is_mean && means.info().dtype == DType::F64 && means.info().scaling.is_none());
        // (0 + 10 + 100) / 3 without the missing value, and (1 + 11 + 101 + 111) / 4, each divided by 10.
        let all = numbers(&*means, 0..2);
        assert!((all[0] - 11.0 / 3.0).abs() < 1e-12 && (all[1] - 5.6).abs() < 1e-12, "{all:?}");
        assert_eq!(numbers(&*means, 1..2), all[4..]);
    }

    #[test]
    fn coarser_images_are_repeated() {
        for method in FitMethod::ALL {
            let (source, is_mean) = of(2, 2, [1, 2], method);
            assert!(!is_mean);
            assert_eq!(source.info().shape, CubeShape::new(4, 4, 2));
            assert_eq!(numbers(&*source, 1..2), [0.0, 1.0, 0.0, 1.0, 10.0, 11.0, 10.0, 11.0]);
            assert_eq!(numbers(&*source, 3..4)[..2], [100.0, 101.0]);
        }
    }
}
