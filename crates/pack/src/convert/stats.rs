//! Per-band statistics of packed values, and of the error that packing caused.

use std::collections::BTreeMap;

use half::f16;
use hsipack_format::Result;
use hsipack_format::metadata::{SPLIT_STATS, STATS};
use hsipack_format::statistics::{self, BandStatistics};
use hsipack_format::zarr::ArrayMeta;
use serde_json::{Map, Value, json};

/// Statistics of one band's values. All are in stored units; multiply by `scale_factor` for
/// physical values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Finite values.
    pub count: u64,
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least finite value; +∞ if there is none.
    pub min: f64,
    /// Greatest finite value; −∞ if there is none.
    pub max: f64,
    /// Mean of the finite values.
    pub mean: f64,
    /// Sum of squared deviations from the mean.
    pub m2: f64,
    /// Greatest |packed − value| of the finite values.
    pub max_abs_error: f64,
    /// Greatest |packed − value| / |value|.
    pub max_rel_error: f64,
    /// Sum of |packed − value| / |value|.
    pub sum_rel_error: f64,
    /// Finite values that are not 0, before packing.
    pub nonzero: u64,
    /// Those of them that packing made 0.
    pub vanished: u64,
}

impl Band {
    const EMPTY: Band = Band {
        count: 0,
        nan: 0,
        inf: 0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        mean: 0.0,
        m2: 0.0,
        max_abs_error: 0.0,
        max_rel_error: 0.0,
        sum_rel_error: 0.0,
        nonzero: 0,
        vanished: 0,
    };

    /// Standard deviation of the finite values (dividing by their number).
    pub fn std(&self) -> f64 {
        (self.m2 / self.count as f64).sqrt()
    }

    /// Adds the values of `other` (Chan's formula). Because of rounding, the result depends
    /// slightly on the order of merging. Conversions merge in a fixed order, so their results are
    /// reproducible.
    fn merge(&mut self, other: &Band) {
        self.nan += other.nan;
        self.inf += other.inf;
        if other.count == 0 {
            return;
        }
        let total = (self.count + other.count) as f64;
        let delta = other.mean - self.mean;
        self.m2 += other.m2 + delta * delta * (self.count as f64 * other.count as f64 / total);
        self.mean += delta * (other.count as f64 / total);
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.max_abs_error = self.max_abs_error.max(other.max_abs_error);
        self.max_rel_error = self.max_rel_error.max(other.max_rel_error);
        self.sum_rel_error += other.sum_rel_error;
        self.nonzero += other.nonzero;
        self.vanished += other.vanished;
    }
}

/// Statistics of every band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandStats(pub Vec<Band>);

/// NaN count, infinity count and range over all bands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least and greatest finite value.
    pub range: Option<[f64; 2]>,
}

/// Most of the values of a cube, or of a band, became 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vanished {
    /// The band; `None` for the whole cube.
    pub band: Option<usize>,
    /// The part of the values other than 0 that became 0.
    pub part: f64,
}

impl BandStats {
    /// No values yet.
    pub fn new(bands: usize) -> Self {
        Self(vec![Band::EMPTY; bands])
    }

    /// Adds the values of `other`, which come after those added so far.
    pub fn merge(&mut self, other: &BandStats) {
        for (band, other) in self.0.iter_mut().zip(&other.0) {
            band.merge(other);
        }
    }

    /// Statistics over all bands together.
    pub fn summary(&self) -> Summary {
        let min = self.0.iter().map(|band| band.min).fold(f64::INFINITY, f64::min);
        let max = self.0.iter().map(|band| band.max).fold(f64::NEG_INFINITY, f64::max);
        Summary {
            nan: self.0.iter().map(|band| band.nan).sum(),
            inf: self.0.iter().map(|band| band.inf).sum(),
            range: (min <= max).then_some([min, max]),
        }
    }

    /// The greatest relative error, and the first band that has it; `None` if no band has a finite
    /// value.
    pub fn worst_relative(&self) -> Option<(usize, f64)> {
        self.worst(|band| band.max_rel_error)
    }

    /// The greatest absolute error, and the first band that has it; `None` if no band has a finite
    /// value.
    pub fn worst_absolute(&self) -> Option<(usize, f64)> {
        self.worst(|band| band.max_abs_error)
    }

    /// The part of the values other than 0 that packing made 0, in the whole cube or in the band
    /// that lost most of them; `None` if it is less than half in each.
    pub fn vanished(&self) -> Option<Vanished> {
        let part = |nonzero: u64, vanished: u64| {
            (vanished > 0 && 2 * vanished >= nonzero).then(|| vanished as f64 / nonzero as f64)
        };
        let sum = |count: fn(&Band) -> u64| self.0.iter().map(count).sum();
        if let Some(part) = part(sum(|band| band.nonzero), sum(|band| band.vanished)) {
            return Some(Vanished { band: None, part });
        }
        let bands = self.0.iter().enumerate();
        let bands = bands.filter_map(|(number, band)| {
            Some(Vanished { band: Some(number), part: part(band.nonzero, band.vanished)? })
        });
        bands.reduce(|worst, next| if next.part > worst.part { next } else { worst })
    }

    fn worst(&self, error: impl Fn(&Band) -> f64) -> Option<(usize, f64)> {
        let bands = self.0.iter().enumerate().filter(|(_, band)| band.count > 0);
        bands
            .map(|(index, band)| (index, error(band)))
            .reduce(|worst, next| if next.1 > worst.1 { next } else { worst })
    }

    /// The `stats` and `quantisation` attributes of an image array. Each key has a list with one
    /// entry for each band; an entry is `null` if the band has no finite value.
    pub fn to_attributes(&self) -> Map<String, Value> {
        let quantisation = json!({
            "max_abs": self.finite(|band| band.max_abs_error),
            "max_rel": self.finite(|band| band.max_rel_error),
            "mean_rel": self.finite(|band| band.sum_rel_error / band.count as f64),
        });
        Map::from_iter([
            (STATS.to_owned(), self.to_stats()),
            ("quantisation".to_owned(), quantisation),
        ])
    }

    /// Only the `stats` attribute, which is also recorded for splits.
    pub fn to_stats(&self) -> Value {
        json!({
            "count": self.list(|band| json!(band.count)),
            "nan": self.list(|band| json!(band.nan)),
            "inf": self.list(|band| json!(band.inf)),
            "min": self.finite(|band| band.min),
            "max": self.finite(|band| band.max),
            "mean": self.finite(|band| band.mean),
            "std": self.finite(Band::std),
        })
    }

    fn list(&self, value: impl Fn(&Band) -> Value) -> Value {
        Value::Array(self.0.iter().map(value).collect())
    }

    fn finite(&self, value: impl Fn(&Band) -> f64) -> Value {
        self.list(|band| if band.count == 0 { Value::Null } else { json!(value(band)) })
    }

    /// Reads the attributes that [`to_attributes`](Self::to_attributes) wrote to an image array.
    ///
    /// # Errors
    /// If a list is missing or has another length.
    pub fn of(image: &ArrayMeta) -> Result<Self> {
        let mut all = Self::from(&image.statistics()?);
        let errors = image.own().and_then(|attributes| attributes.get("quantisation"));
        let list = |key: &str| statistics::list(errors, key, all.0.len());
        let (max_abs, max_rel, mean_rel) = (list("max_abs")?, list("max_rel")?, list("mean_rel")?);
        for (index, band) in all.0.iter_mut().enumerate() {
            let real = |list: &[Value]| list[index].as_f64().unwrap_or(0.0);
            band.max_abs_error = real(max_abs);
            band.max_rel_error = real(max_rel);
            band.sum_rel_error = real(mean_rel) * band.count as f64;
        }
        Ok(all)
    }

    /// All numbers, bit for bit, for the state of an unfinished conversion.
    pub(crate) fn to_state(&self) -> Value {
        let band = |band: &Band| {
            let reals = [
                band.min,
                band.max,
                band.mean,
                band.m2,
                band.max_abs_error,
                band.max_rel_error,
                band.sum_rel_error,
            ];
            let reals = reals.map(f64::to_bits);
            json!([band.count, band.nan, band.inf, reals, band.nonzero, band.vanished])
        };
        Value::Array(self.0.iter().map(band).collect())
    }

    /// Reads the state that [`to_state`](Self::to_state) wrote.
    pub(crate) fn from_state(state: &Value) -> Option<Self> {
        let band = |state: &Value| {
            let reals: Vec<f64> = state[3]
                .as_array()?
                .iter()
                .map(|bits| bits.as_u64().map(f64::from_bits))
                .collect::<Option<_>>()?;
            let [min, max, mean, m2, max_abs_error, max_rel_error, sum_rel_error] =
                reals.try_into().ok()?;
            let (count, nan, inf) = (state[0].as_u64()?, state[1].as_u64()?, state[2].as_u64()?);
            Some(Band {
                count,
                nan,
                inf,
                min,
                max,
                mean,
                m2,
                max_abs_error,
                max_rel_error,
                sum_rel_error,
                // Earlier versions did not count these.
                nonzero: state[4].as_u64().unwrap_or(0),
                vanished: state[5].as_u64().unwrap_or(0),
            })
        };
        state.as_array()?.iter().map(band).collect::<Option<_>>().map(Self)
    }
}

/// Recorded statistics, which do not include errors.
impl From<&BandStatistics> for BandStats {
    fn from(stats: &BandStatistics) -> Self {
        let bands = (0..stats.count.len()).map(|band| {
            let count = stats.count[band];
            // A band without finite values has no statistics.
            let real = |list: &[f64], none: f64| {
                if list[band].is_nan() { none } else { list[band] }
            };
            Band {
                count,
                nan: stats.nan[band],
                inf: stats.inf[band],
                min: real(&stats.min, f64::INFINITY),
                max: real(&stats.max, f64::NEG_INFINITY),
                mean: real(&stats.mean, 0.0),
                m2: real(&stats.std, 0.0).powi(2) * count as f64,
                ..Band::EMPTY
            }
        });
        Self(bands.collect())
    }
}

/// Statistics of a stack's values, and of the values of each split.
#[derive(Clone, Debug, PartialEq)]
pub struct StackStats {
    /// Statistics of all samples.
    pub all: BandStats,
    /// Statistics of the samples of each split. Samples without a split are in none.
    pub splits: BTreeMap<String, BandStats>,
}

impl StackStats {
    /// No values yet.
    pub fn new(bands: usize) -> Self {
        Self { all: BandStats::new(bands), splits: BTreeMap::new() }
    }

    /// Adds the statistics of a sample.
    pub fn add_sample(&mut self, sample: &BandStats, split: Option<&str>) {
        self.all.merge(sample);
        if let Some(split) = split {
            let empty = || BandStats::new(sample.0.len());
            self.splits.entry(split.to_owned()).or_insert_with(empty).merge(sample);
        }
    }

    /// Adds the statistics of further samples.
    pub fn merge(&mut self, other: &StackStats) {
        self.all.merge(&other.all);
        for (split, stats) in &other.splits {
            let empty = || BandStats::new(stats.0.len());
            self.splits.entry(split.clone()).or_insert_with(empty).merge(stats);
        }
    }

    /// The attributes of an image array: those of [`BandStats::to_attributes`], and `split_stats`
    /// if any sample has a split.
    pub fn to_attributes(&self) -> Map<String, Value> {
        let mut attributes = self.all.to_attributes();
        attributes.extend(self.split_attributes());
        attributes
    }

    /// The attribute `split_stats`, if any sample has a split.
    pub fn split_attributes(&self) -> Map<String, Value> {
        let mut attributes = Map::new();
        if !self.splits.is_empty() {
            let splits = self.splits.iter().map(|(split, stats)| (split.clone(), stats.to_stats()));
            attributes.insert(SPLIT_STATS.to_owned(), Value::Object(splits.collect()));
        }
        attributes
    }

    /// Reads the attributes that [`to_attributes`](Self::to_attributes) wrote to an image array.
    /// Older datasets have no splits there.
    ///
    /// # Errors
    /// If a list is missing or has another length.
    pub fn of(image: &ArrayMeta) -> Result<Self> {
        let splits = image.split_statistics()?.into_iter();
        let splits = splits.map(|(split, stats)| (split, BandStats::from(&stats))).collect();
        Ok(Self { all: BandStats::of(image)?, splits })
    }

    /// All numbers, bit for bit, for the state of an unfinished conversion.
    pub(crate) fn to_state(&self) -> Value {
        let splits: Map<String, Value> =
            self.splits.iter().map(|(split, stats)| (split.clone(), stats.to_state())).collect();
        json!({ "all": self.all.to_state(), "splits": splits })
    }

    /// Reads the state that [`to_state`](Self::to_state) wrote.
    pub(crate) fn from_state(state: &Value) -> Option<Self> {
        let split = |(split, stats): (&String, &Value)| {
            Some((split.clone(), BandStats::from_state(stats)?))
        };
        Some(Self {
            all: BandStats::from_state(state.get("all")?)?,
            splits: state.get("splits")?.as_object()?.iter().map(split).collect::<Option<_>>()?,
        })
    }
}

/// The number of pixels after which single-precision sums are added to double-precision sums.
const PIXELS: usize = 32;

/// Collects statistics of one slab, tile by tile.
#[derive(Debug)]
pub struct Gatherer {
    bands: Vec<Sums>,
    tile: TileSums,
    /// A typical value of each band. Differences from it are summed. If the values themselves were
    /// summed, rounding would hide a spread that is small compared with the mean.
    pivots: Option<Vec<f32>>,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    count: u64,
    nan: u64,
    inf: u64,
    min: f32,
    max: f32,
    max_abs: f32,
    max_rel: f32,
    sum: f64,
    squares: f64,
    sum_rel: f64,
    nonzero: u64,
    vanished: u64,
}

const NO_SUMS: Sums = Sums {
    count: 0,
    nan: 0,
    inf: 0,
    min: f32::INFINITY,
    max: f32::NEG_INFINITY,
    max_abs: 0.0,
    max_rel: 0.0,
    sum: 0.0,
    squares: 0.0,
    sum_rel: 0.0,
    nonzero: 0,
    vanished: 0,
};

impl Sums {
    fn add(&mut self, x: f32, y: f32, pivot: f32) {
        if y.is_nan() {
            self.nan += 1;
        } else if y.is_infinite() {
            self.inf += 1;
        } else {
            let (abs, rel) = errors(x, y);
            self.count += 1;
            self.min = self.min.min(y);
            self.max = self.max.max(y);
            self.max_abs = self.max_abs.max(abs);
            self.max_rel = self.max_rel.max(rel);
            let difference = f64::from(y) - f64::from(pivot);
            self.sum += difference;
            self.squares += difference * difference;
            self.sum_rel += f64::from(rel);
            self.count_zeros(x, y);
        }
    }

    /// Counts a finite value.
    fn count_zeros(&mut self, x: f32, y: f32) {
        self.nonzero += u64::from(x != 0.0);
        self.vanished += u64::from(x != 0.0 && y == 0.0);
    }
}

/// Absolute and relative error of `y`, packed from `x`.
fn errors(x: f32, y: f32) -> (f32, f32) {
    let abs = (y - x).abs();
    // Zeros are packed unchanged; 0 / 0 would be NaN.
    (abs, if abs == 0.0 { 0.0 } else { abs / x.abs() })
}

/// Sums over a few pixels in single precision, with a list for each quantity. They are computed in
/// plain loops over bands, which the compiler vectorises.
#[derive(Debug)]
struct TileSums {
    min: Vec<f32>,
    max: Vec<f32>,
    max_abs: Vec<f32>,
    max_rel: Vec<f32>,
    sum: Vec<f32>,
    squares: Vec<f32>,
    sum_rel: Vec<f32>,
}

impl TileSums {
    fn new(bands: usize) -> Self {
        let list = || vec![0.0; bands];
        let mut sums = Self {
            min: list(),
            max: list(),
            max_abs: list(),
            max_rel: list(),
            sum: list(),
            squares: list(),
            sum_rel: list(),
        };
        sums.clear();
        sums
    }

    fn clear(&mut self) {
        self.min.fill(f32::INFINITY);
        self.max.fill(f32::NEG_INFINITY);
        for list in [
            &mut self.max_abs,
            &mut self.max_rel,
            &mut self.sum,
            &mut self.squares,
            &mut self.sum_rel,
        ] {
            list.fill(0.0);
        }
    }

    /// Adds one pixel of finite values. Without `ERRORS`, their errors are not computed.
    fn add<const ERRORS: bool>(&mut self, values: &[f32], packed: &[f32], pivots: &[f32]) {
        // If all slices have one known length, the compiler can drop every bounds check.
        let bands = values.len();
        let (packed, pivots) = (&packed[..bands], &pivots[..bands]);
        let (min, max) = (&mut self.min[..bands], &mut self.max[..bands]);
        let (max_abs, max_rel) = (&mut self.max_abs[..bands], &mut self.max_rel[..bands]);
        let (sum, squares, sum_rel) =
            (&mut self.sum[..bands], &mut self.squares[..bands], &mut self.sum_rel[..bands]);
        for band in 0..bands {
            let y = packed[band];
            // `f32::min` would have to handle NaN; a comparison is one instruction.
            min[band] = if y < min[band] { y } else { min[band] };
            max[band] = if y > max[band] { y } else { max[band] };
            let difference = y - pivots[band];
            sum[band] += difference;
            squares[band] += difference * difference;
            if ERRORS {
                let (abs, rel) = errors(values[band], y);
                max_abs[band] = if abs > max_abs[band] { abs } else { max_abs[band] };
                max_rel[band] = if rel > max_rel[band] { rel } else { max_rel[band] };
                sum_rel[band] += rel;
            }
        }
    }

    /// Whether a value may have become 0: its relative error is 1.
    fn may_have_vanished(&self) -> bool {
        self.max_rel.iter().any(|rel| *rel >= 1.0)
    }

    /// Counts values other than 0, if none became 0. To save time, zeros are found only where all
    /// of the `pixels` pixels are 0 in a band, as in the margins of a scene.
    fn count_nonzero(&self, pixels: u64, bands: &mut [Sums]) {
        for (band, sums) in bands.iter_mut().enumerate() {
            sums.nonzero += if self.min[band] == 0.0 && self.max[band] == 0.0 { 0 } else { pixels };
        }
    }

    /// Adds the sums over `pixels` pixels to those of the bands, and resets the sums.
    fn flush(&mut self, pixels: u64, bands: &mut [Sums]) {
        for (band, sums) in bands.iter_mut().enumerate() {
            sums.count += pixels;
            sums.min = sums.min.min(self.min[band]);
            sums.max = sums.max.max(self.max[band]);
            sums.max_abs = sums.max_abs.max(self.max_abs[band]);
            sums.max_rel = sums.max_rel.max(self.max_rel[band]);
            sums.sum += f64::from(self.sum[band]);
            sums.squares += f64::from(self.squares[band]);
            sums.sum_rel += f64::from(self.sum_rel[band]);
        }
        self.clear();
    }
}

impl Gatherer {
    /// A gatherer for cubes of `bands` bands.
    pub fn new(bands: usize) -> Self {
        Self { bands: vec![NO_SUMS; bands], tile: TileSums::new(bands), pivots: None }
    }

    /// Adds whole pixels, band fastest: `values` before the cast, and `packed` after the cast,
    /// widened again. `finite` says that no packed value is NaN or infinite.
    pub fn add(&mut self, values: &[f32], packed: &[f32], finite: bool) {
        self.gather::<true>(values, packed, finite);
    }

    /// Like [`add`](Self::add), for values whose errors are not known. All errors are 0.
    pub fn add_packed(&mut self, packed: &[f32], finite: bool) {
        self.gather::<false>(packed, packed, finite);
    }

    fn gather<const ERRORS: bool>(&mut self, values: &[f32], packed: &[f32], finite: bool) {
        let bands = self.bands.len();
        let pivots = self.pivots.get_or_insert_with(|| first_mean(packed, bands));
        if !finite {
            for (x, y) in values.chunks_exact(bands).zip(packed.chunks_exact(bands)) {
                for (band, sums) in self.bands.iter_mut().enumerate() {
                    sums.add(x[band], y[band], pivots[band]);
                }
            }
            return;
        }
        for (values, packed) in values.chunks(bands * PIXELS).zip(packed.chunks(bands * PIXELS)) {
            for (x, y) in values.chunks_exact(bands).zip(packed.chunks_exact(bands)) {
                self.tile.add::<ERRORS>(x, y, pivots);
            }
            let pixels = (values.len() / bands) as u64;
            if ERRORS && self.tile.may_have_vanished() {
                for (x, y) in values.chunks_exact(bands).zip(packed.chunks_exact(bands)) {
                    for (band, sums) in self.bands.iter_mut().enumerate() {
                        sums.count_zeros(x[band], y[band]);
                    }
                }
            } else {
                self.tile.count_nonzero(pixels, &mut self.bands);
            }
            self.tile.flush(pixels, &mut self.bands);
        }
    }

    /// Returns the statistics so far, and starts over.
    pub fn take(&mut self) -> BandStats {
        let pivots = self.pivots.take().unwrap_or_else(|| vec![0.0; self.bands.len()]);
        let bands = self.bands.iter().zip(pivots).map(|(sums, pivot)| {
            let shift = if sums.count == 0 { 0.0 } else { sums.sum / sums.count as f64 };
            let mean = if sums.count == 0 { 0.0 } else { f64::from(pivot) + shift };
            Band {
                count: sums.count,
                nan: sums.nan,
                inf: sums.inf,
                min: sums.min.into(),
                max: sums.max.into(),
                mean,
                m2: (sums.squares - sums.sum * shift).max(0.0),
                max_abs_error: sums.max_abs.into(),
                max_rel_error: sums.max_rel.into(),
                sum_rel_error: sums.sum_rel,
                nonzero: sums.nonzero,
                vanished: sums.vanished,
            }
        });
        let stats = BandStats(bands.collect());
        self.bands.fill(NO_SUMS);
        stats
    }
}

/// The mean of the finite values of each band over the first pixels; 0 if there are none.
fn first_mean(values: &[f32], bands: usize) -> Vec<f32> {
    let mean = |band: usize| {
        let first =
            values.iter().skip(band).step_by(bands).take(PIXELS).filter(|value| value.is_finite());
        let (sum, count) =
            first.fold((0.0, 0.0), |(sum, count), value| (sum + f64::from(*value), count + 1.0));
        if count == 0.0 { 0.0 } else { (sum / count) as f32 }
    };
    (0..bands).map(mean).collect()
}

/// Whether all of `values` are finite.
pub fn all_finite(values: &[f16]) -> bool {
    const EXPONENT: u16 = 0x7C00;
    let bits: &[u16] = bytemuck::cast_slice(values);
    !bits
        .chunks(1024)
        .any(|chunk| chunk.iter().fold(false, |any, bits| any | (bits & EXPONENT == EXPONENT)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::DType;
    use hsipack_format::zarr::{ChunkCodecs, OWN};

    /// Computes the definitions in double precision.
    fn oracle(bands: usize, values: &[f32], packed: &[f32]) -> Vec<Band> {
        (0..bands)
            .map(|band| {
                let pairs: Vec<(f64, f64)> = values
                    .iter()
                    .zip(packed)
                    .skip(band)
                    .step_by(bands)
                    .map(|(x, y)| (f64::from(*x), f64::from(*y)))
                    .collect();
                let finite: Vec<(f64, f64)> =
                    pairs.iter().copied().filter(|(_, y)| y.is_finite()).collect();
                let n = finite.len() as f64;
                let mean = finite.iter().map(|(_, y)| y).sum::<f64>() / n;
                let rel = |(x, y): &(f64, f64)| if x == y { 0.0 } else { (y - x).abs() / x.abs() };
                Band {
                    count: finite.len() as u64,
                    nan: pairs.iter().filter(|(_, y)| y.is_nan()).count() as u64,
                    inf: pairs.iter().filter(|(_, y)| y.is_infinite()).count() as u64,
                    min: finite.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min),
                    max: finite.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max),
                    mean,
                    m2: finite.iter().map(|(_, y)| (y - mean).powi(2)).sum(),
                    max_abs_error: finite.iter().map(|(x, y)| (y - x).abs()).fold(0.0, f64::max),
                    max_rel_error: finite.iter().map(rel).fold(0.0, f64::max),
                    sum_rel_error: finite.iter().map(rel).sum(),
                    nonzero: finite.iter().filter(|(x, _)| *x != 0.0).count() as u64,
                    vanished: finite.iter().filter(|(x, y)| *x != 0.0 && *y == 0.0).count() as u64,
                }
            })
            .collect()
    }

    fn check(bands: usize, values: &[f32]) {
        let packed16: Vec<f16> = values.iter().map(|x| f16::from_f32(*x)).collect();
        let packed: Vec<f32> = packed16.iter().map(|y| y.to_f32()).collect();
        let mut gatherer = Gatherer::new(bands);
        let half = values.len() / bands / 2 * bands;
        let mut stats = BandStats::new(bands);
        for part in [0..half, half..values.len()] {
            gatherer.add(&values[part.clone()], &packed[part.clone()], all_finite(&packed16[part]));
            stats.merge(&gatherer.take());
        }
        for (got, want) in stats.0.iter().zip(oracle(bands, values, &packed)) {
            assert_eq!((got.count, got.nan, got.inf), (want.count, want.nan, want.inf));
            assert_eq!((got.nonzero, got.vanished), (want.nonzero, want.vanished));
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * b.abs().max(1e-6);
            assert_eq!((got.min, got.max), (want.min, want.max));
            assert!(close(got.mean, want.mean), "{got:?} {want:?}");
            assert!(
                (got.std() - want.std()).abs() <= 1e-5 * want.mean.abs().max(want.std()),
                "{got:?} {want:?}"
            );
            assert!(close(got.max_abs_error, want.max_abs_error), "{got:?} {want:?}");
            assert!(close(got.max_rel_error, want.max_rel_error), "{got:?} {want:?}");
            assert!(close(got.sum_rel_error, want.sum_rel_error), "{got:?} {want:?}");
        }
        let attributes = stats.to_attributes();
        let back = BandStats::of(&image(attributes, bands)).unwrap();
        assert_eq!(back.0[0].count, stats.0[0].count);
        assert_eq!(BandStats::from_state(&stats.to_state()), Some(stats));
    }

    /// An image array with these hsipack attributes.
    fn image(attributes: Map<String, Value>, bands: usize) -> ArrayMeta {
        ArrayMeta {
            shape: vec![1, 1, 1, bands as u64],
            dtype: DType::F16,
            file_shape: vec![1, 1, 1, bands as u64],
            chunk_shape: None,
            codecs: ChunkCodecs { compression: None, checksum: false },
            fill_value: Value::Null,
            dimension_names: Vec::new(),
            attributes: Map::from_iter([(OWN.to_owned(), Value::Object(attributes))]),
        }
    }

    #[test]
    fn statistics_equal_their_definitions() {
        for bands in [1, 7, 8, 21, 32] {
            let values: Vec<f32> = (0..bands * 333)
                .map(|i| 300.0 + ((i * 7919) % 1013) as f32 * 0.37 * (i % bands + 1) as f32)
                .collect();
            check(bands, &values);
        }
    }

    #[test]
    fn relative_errors_of_the_least_numbers_are_not_understated() {
        // If float16 rounds a value to 0, the error is the whole value, however small it was.
        let least = [1e-45f32, 1e-40, 1.1e-38, 1e-30, 0.0, -1e-41, -0.0, f32::MIN_POSITIVE];
        let values: Vec<f32> = least.iter().cycle().take(8 * 40).copied().collect();
        check(8, &values);
        let mut gatherer = Gatherer::new(8);
        gatherer.add(&values, &vec![0.0; values.len()], true);
        let got: Vec<f64> = gatherer.take().0.iter().map(|band| band.max_rel_error).collect();
        assert_eq!(got, [1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    }

    #[test]
    fn values_that_become_0_are_told_for_the_cube_or_a_band() {
        let part = |values: &[f32]| {
            let values: Vec<f32> = values.iter().cycle().take(3 * 100).copied().collect();
            let packed: Vec<f32> = values.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
            let mut gatherer = Gatherer::new(3);
            gatherer.add(&values, &packed, true);
            gatherer.take().vanished()
        };
        assert_eq!(part(&[2e-8, 1e-8, -1e-9]), Some(Vanished { band: None, part: 1.0 }));
        assert_eq!(part(&[0.0, 2e-8, 0.0]), Some(Vanished { band: None, part: 1.0 }));
        assert_eq!(part(&[1.0, 2e-8, 1.0]), Some(Vanished { band: Some(1), part: 1.0 }));
        let two_pixels = [1.0, 2e-8, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(part(&two_pixels), Some(Vanished { band: Some(1), part: 0.5 }));
        assert_eq!(part(&[1.0, 0.0, 1e-7]), None);
    }

    #[test]
    fn the_greatest_absolute_and_relative_error_may_be_of_different_bands() {
        let (values, packed) =
            ([1000.3f32, 0.1001, 5.0, f32::NAN], [1000.5f32, 0.1, 5.0, f32::NAN]);
        let mut gatherer = Gatherer::new(4);
        gatherer.add(&values, &packed, false);
        let stats = gatherer.take();
        let (absolute, relative) =
            (stats.worst_absolute().unwrap(), stats.worst_relative().unwrap());
        assert_eq!((absolute.0, relative.0), (0, 1));
        assert!((absolute.1 - 0.2).abs() < 1e-4 && (relative.1 - 1e-3).abs() < 1e-5, "{stats:?}");
        assert_eq!(BandStats::new(3).worst_absolute(), None);
    }

    #[test]
    fn a_spread_far_below_the_mean_is_not_lost() {
        for (mean, step) in [(1000.0, 0.5), (0.9, 1e-3), (60000.0, 32.0)] {
            let values: Vec<f32> =
                (0..9 * 4000).map(|i| mean + ((i * 7919) % 5) as f32 * step).collect();
            let packed: Vec<f32> = values.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
            let mut gatherer = Gatherer::new(9);
            gatherer.add(&values, &packed, true);
            for (got, want) in gatherer.take().0.iter().zip(oracle(9, &values, &packed)) {
                assert!(
                    (got.std() - want.std()).abs() <= 1e-5 * want.std(),
                    "{} {}",
                    got.std(),
                    want.std()
                );
            }
        }
    }

    #[test]
    fn splits_are_counted_apart_and_come_back() {
        let sample = |start: usize| {
            let values: Vec<f32> = (start..start + 30).map(|number| number as f32).collect();
            let mut gatherer = Gatherer::new(3);
            gatherer.add(&values, &values, true);
            gatherer.take()
        };
        let mut stats = StackStats::new(3);
        for (number, split) in [Some("train"), None, Some("test"), Some("train")].iter().enumerate()
        {
            stats.add_sample(&sample(30 * number), *split);
        }
        assert_eq!(stats.all.0[0].count, 40);
        let train = &stats.splits["train"].0[0];
        assert_eq!((train.count, train.min, train.max, train.mean), (20, 0.0, 117.0, 58.5));
        assert_eq!(StackStats::from_state(&stats.to_state()), Some(stats.clone()));
        let attributes = stats.to_attributes();
        let back = StackStats::of(&image(attributes.clone(), 3)).unwrap();
        assert_eq!(back.splits.keys().collect::<Vec<_>>(), ["test", "train"]);
        assert_eq!(back.splits["test"].0[0].count, 10);
        assert!((back.splits["train"].0[1].std() - stats.splits["train"].0[1].std()).abs() < 1e-9);
        assert!(StackStats::of(&image(attributes, 4)).is_err());
        let mut twice = back.clone();
        twice.merge(&stats);
        assert_eq!(twice.splits["train"].0[2].count, 40);
        let plain = BandStats::new(3).to_attributes();
        assert!(StackStats::of(&image(plain, 3)).unwrap().splits.is_empty());
    }

    #[test]
    fn missing_values_are_counted_and_left_out() {
        let mut values: Vec<f32> = (0..24 * 100).map(|i| (i % 97) as f32 * 0.01).collect();
        values[5] = f32::NAN;
        values[24 * 50] = f32::INFINITY;
        values[24 * 50 + 9] = f32::NEG_INFINITY;
        check(24, &values);
    }
}
