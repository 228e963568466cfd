//! Wavelengths and statistics of values, for both reports.

use std::ops::Range;

use hsipack_format::metadata::Scaling as StoredScaling;
use hsipack_format::{DType, Result};
use hsipack_source::{Access, RowBuffer, Source};
use hsipack_store::threads;
use serde::Serialize;

use crate::convert::stats::BandStats;
use crate::physical::{self, BUDGET, readers};

/// Shape in JSON: rows, columns, bands.
pub(super) type Shape = [usize; 3];

/// Wavelengths of the bands. Bands at 0 nm, which a sensor does not use, are included only in
/// `count`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wavelengths {
    /// Number of bands.
    pub count: usize,
    /// Least, in nm.
    pub min_nm: f64,
    /// Greatest, in nm.
    pub max_nm: f64,
    /// `ascending`, `descending` or `unordered`.
    pub order: &'static str,
    /// Least and greatest full width at half maximum in nm.
    pub fwhm_nm: Option<[f64; 2]>,
}

/// Statistics of all values, in physical units (masked and scaled).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Values {
    /// Least finite value.
    pub min: Option<f64>,
    /// Greatest finite value.
    pub max: Option<f64>,
    /// NaN values in the file.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Values equal to the ignore value, and values of bands without data.
    pub ignored: u64,
}

/// Numbers of bands that are not good.
pub(super) fn bad_bands(good: &[bool]) -> Vec<usize> {
    (0..good.len()).filter(|band| !good[*band]).collect()
}

impl Wavelengths {
    /// Skips bands at 0 nm: makers mark unused bands of a sensor in this way.
    pub(super) fn of(nm: Option<&[f64]>, fwhm: Option<&[f64]>) -> Option<Self> {
        let all = nm.filter(|nm| !nm.is_empty())?;
        let is_band = |band: &usize| all[*band] != 0.0 || all.iter().all(|nm| *nm == 0.0);
        let of_bands = |list: &[f64]| -> Vec<f64> {
            (0..all.len()).filter(is_band).filter_map(|band| list.get(band).copied()).collect()
        };
        let (nm, fwhm) = (of_bands(all), fwhm.map(of_bands));
        let [min_nm, max_nm] = extremes(&nm);
        Some(Self {
            count: all.len(),
            min_nm,
            max_nm,
            order: match () {
                () if nm.is_sorted() => "ascending",
                () if nm.is_sorted_by(|a, b| a >= b) => "descending",
                () => "unordered",
            },
            fwhm_nm: fwhm.filter(|fwhm| !fwhm.is_empty()).map(|fwhm| extremes(&fwhm)),
        })
    }
}

fn extremes(values: &[f64]) -> [f64; 2] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    [least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
}

impl Values {
    const NONE: Values = Values { min: None, max: None, nan: 0, inf: 0, ignored: 0 };

    /// Reads every value of a cube, some rows at a time.
    pub(super) fn read(source: &dyn Source) -> Result<Self> {
        let rows = source.info().shape.rows;
        let row_bytes = source.info().row_bytes();
        // Very small reads cost more than their bytes alone.
        let worthwhile = (1 << 20) / row_bytes.max(1);
        let step = source.preferred_rows(BUDGET).max(worthwhile).clamp(1, rows);
        let reads = (0..rows.div_ceil(step)).map(|read| read * step..rows.min((read + 1) * step));
        let threads = if source.access() == Access::Sequential { 1 } else { readers() };
        let read = |buffer: &mut RowBuffer, rows| Self::of_rows(source, rows, buffer);
        let parts = threads::in_turn(threads, "info", reads, RowBuffer::new, read)?;
        let mut values = Self::NONE;
        parts.iter().for_each(|part| values.merge(part));
        Ok(values)
    }

    fn of_rows(source: &dyn Source, rows: Range<usize>, buffer: &mut RowBuffer) -> Result<Self> {
        source.read_rows(rows.clone(), buffer)?;
        let mut values = Self::NONE;
        physical::physical(source, buffer, rows.start, &mut |_, _, pixels| {
            values.add(pixels);
            Ok(())
        })?;
        // A value that is missing after masking, but was not NaN in the file, is the ignore value or belongs to an
        // empty band.
        values.nan = count_nan(buffer);
        values.ignored = values.ignored.saturating_sub(values.nan);
        Ok(values)
    }

    fn merge(&mut self, other: &Values) {
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(of(a, b)),
            (a, b) => a.or(b),
        };
        self.min = both(self.min, other.min, f64::min);
        self.max = both(self.max, other.max, f64::max);
        self.nan += other.nan;
        self.inf += other.inf;
        self.ignored += other.ignored;
    }

    fn add(&mut self, values: &[f64]) {
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            if value.is_finite() {
                min = min.min(*value);
                max = max.max(*value);
            } else if value.is_nan() {
                self.ignored += 1;
            } else {
                self.inf += 1;
            }
        }
        if min <= max {
            self.min = Some(self.min.map_or(min, |least| least.min(min)));
            self.max = Some(self.max.map_or(max, |most| most.max(max)));
        }
    }

    pub(super) fn of_stats(stats: &BandStats, scaling: StoredScaling) -> Self {
        let summary = stats.summary();
        let scaled =
            summary.range.map(|range| extremes(&range.map(|value| scaling.physical(value))));
        Self {
            min: scaled.map(|range| range[0]),
            max: scaled.map(|range| range[1]),
            nan: summary.nan,
            inf: summary.inf,
            ignored: 0,
        }
    }
}

fn count_nan(buffer: &RowBuffer) -> u64 {
    let count = match buffer.dtype() {
        DType::F16 => buffer.as_slice::<half::f16>().iter().filter(|value| value.is_nan()).count(),
        DType::F32 => buffer.as_slice::<f32>().iter().filter(|value| value.is_nan()).count(),
        DType::F64 => buffer.as_slice::<f64>().iter().filter(|value| value.is_nan()).count(),
        _ => 0,
    };
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_wavelengths_is_told() {
        let order = |nm: &[f64]| Wavelengths::of(Some(nm), None).unwrap().order;
        assert_eq!(order(&[1.0, 2.0]), "ascending");
        assert_eq!(order(&[2.0, 1.0]), "descending");
        assert_eq!(order(&[2.0, 1.0, 3.0]), "unordered");
        assert_eq!(Wavelengths::of(Some(&[]), None), None);
    }

    #[test]
    fn ranges_leave_out_what_is_not_finite() {
        let mut values = Values::NONE;
        values.add(&[f64::NAN, f64::INFINITY]);
        assert_eq!((values.min, values.max, values.inf), (None, None, 1));
        values.add(&[-1.0, 2.0]);
        assert_eq!((values.min, values.max), (Some(-1.0), Some(2.0)));
    }

    #[test]
    fn values_of_parts_make_those_of_the_whole() {
        let mut values = Values::NONE;
        values.merge(&Values::NONE);
        assert_eq!((values.min, values.max), (None, None));
        let part = Values { min: Some(-1.0), max: Some(2.0), nan: 1, inf: 2, ignored: 3 };
        values.merge(&part);
        values.merge(&Values { min: Some(0.0), max: Some(5.0), ..part });
        values.merge(&Values::NONE);
        assert_eq!((values.min, values.max), (Some(-1.0), Some(5.0)));
        assert_eq!((values.nan, values.inf, values.ignored), (2, 4, 6));
    }
}
