//! Moving pixels with tensor operations: every output pixel is a weighted sum of four rows in a
//! table of pixels.
//!
//! `embedding_bag` does this in one pass over the pixels' spectra, which are contiguous. Positions
//! are float32, whatever the image's type. torch's own `grid_sampler` reads each band as a plane,
//! and requires positions of the image's type: in float16 they are off by a quarter of a pixel at
//! 640 columns.

use hsipack_format::{Error, Result};

use super::engine::wide;
use super::{Binary, TensorEngine, Tensors, Unary};
use crate::array::ElementType;
use crate::engine::BatchArray;
use crate::geometry::{Field, Padding, Source};
use crate::matrix::Whole;
use crate::ops::gaussian;
use crate::resample::{ResampleJob, Resampling};

/// How many numbers a resampled sample needs on the device: its map and its bounds.
const NUMBERS: usize = 13;

/// Positions in a frame of one pixel that are as near to the centre of a pixel as float32 can tell
/// are at its centre; for larger frames, as many times this number. Otherwise neighbours would get
/// weights of 1e-6.
const CENTRE_TOLERANCE: f64 = 1.0 / (1 << 21) as f64;

/// The two pixels along an axis between which positions lie.
struct Taps<T: Tensors> {
    places: [T::Tensor; 2],
    weights: [T::Tensor; 2],
    /// The sum of the weights of both: less than 1 if one lies outside, 0 if both do.
    weight: T::Tensor,
}

/// The resampled samples of a job: their indices in the batch, and the sources of their pixels.
type Sampled<'a> = (Vec<usize>, Vec<&'a Source>);

fn sampled(moves: &[Resampling]) -> Sampled<'_> {
    let sources = moves.iter().enumerate().filter_map(|(sample, step)| match step {
        Resampling::Sample(source) => Some((sample, source)),
        _ => None,
    });
    sources.unzip()
}

impl<T: Tensors> TensorEngine<T> {
    /// Smooth fields of displacements for the samples that have one: (samples, 2, rows, columns) in
    /// pixels, x first.
    pub(super) fn smooth_fields(
        &self,
        moves: &[Resampling],
        [rows, columns]: [usize; 2],
    ) -> Result<Option<T::Tensor>> {
        let fields: Vec<Option<&Field>> = moves
            .iter()
            .map(|step| match step {
                Resampling::Sample(source) => source.elastic.as_ref(),
                _ => None,
            })
            .collect();
        let Some(first) = fields.iter().flatten().next().copied() else { return Ok(None) };
        // All fields of one pass belong to one augmentation, so only their seeds differ.
        if fields
            .iter()
            .flatten()
            .any(|field| Field { seed: first.seed, ..(*field).clone() } != *first)
        {
            return Err(Error::bug("fields of several augmentations in one pass"));
        }
        let seeds: Vec<Option<u64>> =
            fields.iter().map(|field| field.map(|field| field.seed)).collect();
        let noise = match self.uniform_by_kernels(&seeds, [rows, columns])? {
            Some(noise) => noise,
            None => {
                let still = self.0.full(&[2, rows, columns], 0.0, ElementType::F32)?;
                let noise = seeds.iter().map(|seed| match seed {
                    Some(seed) => self.0.uniform(&[2, rows, columns], *seed),
                    None => Ok(still.clone()),
                });
                self.0.stack(&noise.collect::<Result<Vec<_>>>()?, 0)?
            }
        };
        let smooth = match self.smoothed_by_kernels(&noise, first)? {
            Some(smooth) => smooth,
            None => {
                // Smoothing along an axis with zeros around is a matrix product.
                let down = smoothing(first.sigma[0], first.kernel[0], rows);
                let down = self.numbers(&down, &[rows, rows], ElementType::F32)?;
                let across = smoothing(first.sigma[1], first.kernel[1], columns);
                let across = self.numbers(&across, &[columns, columns], ElementType::F32)?;
                self.0.matmul(&self.0.matmul(&down, &noise)?, &across)?
            }
        };
        let pixels = self.numbers(&first.pixels, &[2, 1, 1], ElementType::F32)?;
        Ok(Some(self.0.binary(Binary::Mul, &smooth, &pixels)?))
    }

    /// Moves pixels as the job says.
    pub(super) fn moved(
        &self,
        held: &mut BatchArray<T::Tensor>,
        job: &ResampleJob<'_>,
        fields: Option<&T::Tensor>,
    ) -> Result<()> {
        let [samples, _, _, values] = held.shape;
        let shape = [samples, job.to[0], job.to[1], values];
        let (places, sources) = sampled(job.moves);
        let warped = match places.len() {
            0 => None,
            _ => Some(self.warped(held, job, (&places, &sources), fields)?),
        };
        held.array = match warped {
            Some(warped) if places.len() == samples => warped,
            warped => {
                let out = self.0.empty(&shape, held.element)?;
                if let Some(warped) = warped {
                    self.0.index_copy_(&out, &self.indices(places)?, &warped)?;
                }
                for (sample, step) in job.moves.iter().enumerate() {
                    let from = self.sample(&held.array, sample)?;
                    let from = match step {
                        Resampling::Keep => from,
                        Resampling::Places(whole) => self.placed(&from, whole, job.to)?,
                        Resampling::Sample(_) => continue,
                    };
                    self.0.copy_(&self.sample(&out, sample)?, &from)?;
                }
                out
            }
        };
        (held.shape, held.ours) = (shape, true);
        Ok(())
    }

    /// One sample (1, rows, columns, values) with its pixels in their new places.
    fn placed(&self, from: &T::Tensor, whole: &Whole, to: [usize; 2]) -> Result<T::Tensor> {
        let Whole { x, y } = whole;
        // The axis of the frame along which the result's x runs, and its direction.
        let (turned, sign_x, sign_y) = (x[0] == 0, x[0] + y[0], x[1] + y[1]);
        let first = |map: &[i64; 3]| {
            let ends = [0, to[1] as i64 - 1]
                .map(|x| [0, to[0] as i64 - 1].map(|y| map[0] * x + map[1] * y + map[2]));
            ends.into_iter().flatten().min().unwrap_or(0).max(0) as usize
        };
        let (left, top) = (first(x), first(y));
        let [rows, columns] = if turned { [to[1], to[0]] } else { to };
        let window = self.0.narrow(&self.0.narrow(from, 1, top, rows)?, 2, left, columns)?;
        let window = if turned { self.0.permute(&window, &[0, 2, 1, 3])? } else { window };
        let axes: Vec<usize> = [(sign_y, 1), (sign_x, 2)]
            .into_iter()
            .filter(|(sign, _)| *sign < 0)
            .map(|(_, axis)| axis)
            .collect();
        if axes.is_empty() { Ok(window) } else { self.0.flip(&window, &axes) }
    }

    /// The resampled samples: (sampled, rows, columns, values).
    fn warped(
        &self,
        held: &BatchArray<T::Tensor>,
        job: &ResampleJob<'_>,
        (places, sources): (&[usize], &[&Source]),
        fields: Option<&T::Tensor>,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let [samples, rows, columns, values] = held.shape;
        let (right, bottom) = (columns as f64 - 1.0, rows as f64 - 1.0);
        let fields = fields.map(|fields| self.part(fields, places)).transpose()?;
        let [x, y] = self.positions(job, sources, [rows, columns], fields.as_ref())?;
        // Index of every sample's first pixel in the table of all pixels.
        let first: Vec<i64> =
            places.iter().map(|sample| (sample * rows * columns) as i64).collect();
        let first = self.integers(&first, &[places.len(), 1, 1], ElementType::I64)?;
        let table = t.reshape(&held.array, &[samples * rows * columns, values])?;
        let within = |p: &T::Tensor, last: f64| -> Result<T::Tensor> {
            let p = t.with(Binary::Minimum, &t.with(Binary::Maximum, p, 0.0)?, last)?;
            t.to(&p, ElementType::I64)
        };
        let index = |x: &T::Tensor, y: &T::Tensor| -> Result<T::Tensor> {
            let line = t.with(Binary::Mul, &within(y, bottom)?, columns as f64)?;
            t.binary(Binary::Add, &t.binary(Binary::Add, &line, &within(x, right)?)?, &first)
        };
        let between = |p: &T::Tensor, last: f64| self.between(p, last);
        let inside = |x: &T::Tensor, y: &T::Tensor| -> Result<T::Tensor> {
            t.binary(Binary::LogicalAnd, &between(x, right)?, &between(y, bottom)?)
        };
        let pixels = places.len() * job.to[0] * job.to[1];
        let shape = [places.len(), job.to[0], job.to[1], values];
        let pixel = [shape[0], shape[1], shape[2], 1];
        let filled = job.outside().is_some_and(|outside| outside.padding == Padding::Zeros);
        let fill = || self.numbers(&[job.fill], &[1], held.element);
        if job.nearest() {
            // Round half to even, as torch's own sampling does.
            let (x, y) = (t.unary(Unary::Round, &x)?, t.unary(Unary::Round, &y)?);
            let taken = t.index_select(&table, &t.reshape(&index(&x, &y)?, &[pixels])?)?;
            let taken = t.reshape(&taken, &shape)?;
            if !filled {
                return Ok(taken);
            }
            return t.r#where(&t.reshape(&inside(&x, &y)?, &pixel)?, &taken, &fill()?);
        }
        let near = [rows, columns, job.to[0], job.to[1]].into_iter().max().unwrap_or(1);
        let near = near as f64 * CENTRE_TOLERANCE;
        let [across, down] = [(&x, right), (&y, bottom)].map(|(p, last)| self.taps(p, near, last));
        let (across, down) = (across?, down?);
        let mut indices = Vec::with_capacity(4);
        let mut weights = Vec::with_capacity(4);
        for (y, part_y) in down.places.iter().zip(&down.weights) {
            for (x, part_x) in across.places.iter().zip(&across.weights) {
                weights.push(t.binary(Binary::Mul, part_x, part_y)?);
                indices.push(index(x, y)?);
            }
        }
        let indices = t.reshape(&t.stack(&indices, 3)?, &[pixels, 4])?;
        let weights = t.reshape(&t.stack(&weights, 3)?, &[pixels, 4])?;
        let out = if held.element == wide(held.element) {
            t.reshape(&self.means(&table, &indices, &weights, held.element)?, &shape)?
        } else {
            // Rounded weights may add up to more than 1, and halves of subnormal numbers are not exact. So only samples that
            // have infinite values get any.
            let out = t.embedding_bag(&table, &indices, &t.to(&weights, held.element)?)?;
            let out = t.reshape(&out, &shape)?;
            let all = t.reshape(&held.array, &[samples, rows * columns * values])?;
            let infinite = t.with(Binary::Eq, &t.unary(Unary::Abs, &all)?, f64::INFINITY)?;
            let infinite = self.part(&t.any(&infinite, 1)?, places)?;
            let infinite = t.reshape(&infinite, &[places.len(), 1, 1, 1])?;
            t.r#where(&infinite, &out, &self.clamped(&out, held.element)?)?
        };
        if !filled {
            return Ok(out);
        }
        // Sums of 1 are exact.
        let weight = t.binary(Binary::Mul, &across.weight, &down.weight)?;
        let weight = t.reshape(&weight, &pixel)?;
        let out = if job.fill == 0.0 {
            out
        } else {
            let missing = t.to(&self.one_minus(&weight)?, wide(held.element))?;
            let some = t.with(Binary::Ne, &missing, 0.0)?;
            let nothing = t.full(&[1], 0.0, wide(held.element))?;
            let outside = t.r#where(&some, &t.with(Binary::Mul, &missing, job.fill)?, &nothing)?;
            let sum = t.binary(Binary::Add, &out, &outside)?;
            // Means of finite values are finite.
            let finite =
                t.with(Binary::Le, &t.unary(Unary::Abs, &out)?, held.element.greatest())?;
            let sum = match job.fill.is_finite() {
                true => t.r#where(&finite, &self.clamped(&sum, held.element)?, &sum)?,
                false => sum,
            };
            t.to(&sum, held.element)?
        };
        // Positions completely outside, where the nearest pixel inside may be NaN.
        let beyond = t.with(Binary::Eq, &weight, 0.0)?;
        t.r#where(&beyond, &fill()?, &out)
    }

    /// The two pixels along an axis for every position, with their weights.
    fn taps(&self, p: &T::Tensor, near: f64, last: f64) -> Result<Taps<T>> {
        let t = &self.0;
        let nearest = t.unary(Unary::Round, p)?;
        let apart = t.unary(Unary::Abs, &t.binary(Binary::Sub, p, &nearest)?)?;
        let p = t.r#where(&t.with(Binary::Le, &apart, near)?, &nearest, p)?;
        let before = t.unary(Unary::Floor, &p)?;
        let after = t.with(Binary::Add, &before, 1.0)?;
        let part = t.binary(Binary::Sub, &p, &before)?;
        let inside = |p: &T::Tensor| self.between(p, last);
        let weight_before = t.binary(Binary::Mul, &self.one_minus(&part)?, &inside(&before)?)?;
        let weight_after = t.binary(Binary::Mul, &part, &inside(&after)?)?;
        let weight = t.binary(Binary::Add, &weight_before, &weight_after)?;
        // A pixel of weight 0 must not be read, because 0·NaN is NaN, but every bag has four pixels. Its neighbour stands
        // for it, and gets half the weight twice, which is exact.
        let half = t.with(Binary::Mul, &weight, 0.5)?;
        let without = |weight: &T::Tensor| t.with(Binary::Eq, weight, 0.0);
        let (no_before, no_after) = (without(&weight_before)?, without(&weight_after)?);
        let alone = t.binary(Binary::LogicalOr, &no_before, &no_after)?;
        let places =
            [t.r#where(&no_before, &after, &before)?, t.r#where(&no_after, &before, &after)?];
        let weights =
            [t.r#where(&alone, &half, &weight_before)?, t.r#where(&alone, &half, &weight_after)?];
        Ok(Taps { places, weights, weight })
    }

    /// Whether positions are from 0 to `last`.
    fn between(&self, p: &T::Tensor, last: f64) -> Result<T::Tensor> {
        let (low, high) = (self.0.with(Binary::Ge, p, 0.0)?, self.0.with(Binary::Le, p, last)?);
        self.0.binary(Binary::LogicalAnd, &low, &high)
    }

    fn one_minus(&self, part: &T::Tensor) -> Result<T::Tensor> {
        self.0.with(Binary::Add, &self.0.unary(Unary::Neg, part)?, 1.0)
    }

    /// The source positions of the output pixels: x and y, each (sampled, rows, columns), float32.
    fn positions(
        &self,
        job: &ResampleJob<'_>,
        sources: &[&Source],
        [rows, columns]: [usize; 2],
        fields: Option<&T::Tensor>,
    ) -> Result<[T::Tensor; 2]> {
        let t = &self.0;
        let mut numbers = Vec::with_capacity(NUMBERS * sources.len());
        for source in sources {
            numbers.extend(job.map(source).0.as_flattened());
            let whole = [0.0, columns as f64 - 1.0, 0.0, rows as f64 - 1.0];
            numbers.extend(source.bounds.unwrap_or(whole));
        }
        // One copy to the device for all drawn parameters.
        let numbers = self.numbers(&numbers, &[sources.len(), NUMBERS, 1], ElementType::F32)?;
        let number = |index: usize| t.narrow(&numbers, 1, index, 1);
        let [to_rows, to_columns] = job.to;
        let mut x = t.reshape(&t.arange(to_columns, ElementType::F32)?, &[1, 1, to_columns])?;
        let mut y = t.reshape(&t.arange(to_rows, ElementType::F32)?, &[1, to_rows, 1])?;
        if let Some(fields) = fields {
            let plane = |plane: usize| {
                let shape = [sources.len(), to_rows, to_columns];
                t.reshape(&t.narrow(fields, 1, plane, 1)?, &shape)
            };
            (x, y) =
                (t.binary(Binary::Add, &plane(0)?, &x)?, t.binary(Binary::Add, &plane(1)?, &y)?);
        }
        let row = |first: usize| -> Result<T::Tensor> {
            let by_x = t.binary(Binary::Mul, &x, &number(first)?)?;
            let by_y = t.binary(Binary::Mul, &y, &number(first + 1)?)?;
            t.binary(Binary::Add, &t.binary(Binary::Add, &by_x, &by_y)?, &number(first + 2)?)
        };
        let mut at = [row(0)?, row(3)?];
        if sources.iter().any(|source| !job.map(source).is_affine()) {
            let scale = row(6)?;
            at = [t.binary(Binary::Div, &at[0], &scale)?, t.binary(Binary::Div, &at[1], &scale)?];
        }
        // Near the horizon of a perspective, positions are infinite or NaN, but every position must become a valid
        // index.
        for p in &mut at {
            *p = t.nan_to_num(p, -1e6, 1e6, -1e6)?;
        }
        let Some(outside) = job.outside() else { return Ok(at) };
        for (p, (size, least)) in at.iter_mut().zip([(columns, 9), (rows, 11)]) {
            match outside.padding {
                Padding::Zeros => {}
                Padding::Border => {
                    let above = t.binary(Binary::Maximum, p, &number(least)?)?;
                    *p = t.binary(Binary::Minimum, &above, &number(least + 1)?)?;
                }
                // A single pixel is mirrored onto itself.
                Padding::Reflection if size == 1 => *p = t.with(Binary::Mul, p, 0.0)?,
                Padding::Reflection => *p = self.reflected(p, size, outside.align_corners)?,
            }
        }
        Ok(at)
    }

    /// Positions mirrored into a frame of `size` pixels.
    fn reflected(&self, p: &T::Tensor, size: usize, align_corners: bool) -> Result<T::Tensor> {
        let t = &self.0;
        let size = size as f64;
        let (low, span) = if align_corners { (0.0, size - 1.0) } else { (-0.5, size) };
        let p = t.unary(Unary::Abs, &t.with(Binary::Sub, p, low)?)?;
        let remainder = t.with(Binary::Fmod, &p, span)?;
        let turns = t.with(Binary::FloorDivide, &p, span)?;
        let odd = t.with(Binary::Ne, &t.with(Binary::Fmod, &turns, 2.0)?, 0.0)?;
        let back = t.with(Binary::Add, &t.unary(Unary::Neg, &remainder)?, span)?;
        let p = t.with(Binary::Add, &t.r#where(&odd, &back, &remainder)?, low)?;
        t.with(Binary::Minimum, &t.with(Binary::Maximum, &p, 0.0)?, size - 1.0)
    }
}

/// The matrix (size, size) that smooths along an axis with a Gaussian, with zeros around.
fn smoothing(sigma: f64, kernel: usize, size: usize) -> Vec<f64> {
    let reach = kernel / 2;
    let weights = gaussian(sigma, reach);
    let mut matrix = vec![0.0; size * size];
    for (row, line) in matrix.chunks_exact_mut(size.max(1)).enumerate() {
        for (column, value) in line.iter_mut().enumerate() {
            *value = weights.get((column + reach).wrapping_sub(row)).copied().unwrap_or(0.0);
        }
    }
    matrix
}
