//! Our own loops over host memory. Each pass reads and writes every value once, computes in float32
//! (float64 for float64) and rounds once.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | passes for each element type; which memory they write to |
//! | `workers.rs` | threads that share a loop |
//! | `element.rs` | arithmetic on runs of values |
//! | `warp.rs` | moving pixels |
//! | `rows.rs` | blur, mixing |
//! | `spectra.rs` | bands and spectra |
//! | `rectangles.rs` | rectangles, and pixels with a label |
//! | `random.rs` | noise |
//! | `prepare.rs` | from stored data to images and masks |

mod element;
mod prepare;
mod random;
mod rectangles;
mod rows;
mod spectra;
#[cfg(test)]
mod tests;
mod warp;
mod workers;

use std::sync::Arc;

use bytemuck::{cast_slice, cast_slice_mut};
use hsipack_format::spectral_response::SpectralResponse;
use hsipack_format::spectrum::Real;
use hsipack_format::{Error, Result, SpectralNorm};

use crate::array::{Array, Device, ElementType, Pool, numbers};
use crate::engine::{BatchArray, Engine, sealed::Sealed};
use crate::geometry::{Field, Source};
use crate::mixed::Mixing;
use crate::operation::{Blank, ByBands, Cut, Linear, Transplanting};
use crate::ops::gaussian;
use crate::prepare::{ImageConversion, LabelConversion, Validity};
use crate::resample::{ResampleJob, Resampling};
use element::{Element, Wide};
use rectangles::Layer;
use rows::Around;
use spectra::PIXELS;
use workers::Workers;

/// Augments arrays in host memory.
///
/// Results are the same bit for bit, whatever the number of threads and the other samples in the
/// batch. The memory of dropped results is reused. Clones share threads and memory.
#[derive(Clone, Debug)]
pub struct Host {
    workers: Arc<Workers>,
    pool: Arc<Pool>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new(hsipack_store::threads::cores())
    }
}

impl Host {
    /// A host with this many threads, which start when they are first needed.
    pub fn new(threads: usize) -> Self {
        Self { workers: Arc::new(Workers::new(threads)), pool: Arc::default() }
    }

    /// Number of threads that share a loop.
    pub fn threads(&self) -> usize {
        self.workers.count()
    }

    /// New memory for an array of this many elements, with undefined contents.
    fn room(&self, elements: usize, element: ElementType) -> Result<crate::array::Buffer> {
        self.pool.buffer(elements.saturating_mul(element.size()))
    }
}

/// Values of a target that a thread computes at once.
const PIECE: usize = 1 << 14;

/// Evaluates the expression with `$type` as the Rust type of the floating-point elements.
macro_rules! floats {
    ($element:expr, $type:ident => $work:expr) => {
        match $element {
            ElementType::F16 => {
                type $type = half::f16;
                $work
            }
            ElementType::BF16 => {
                type $type = half::bf16;
                $work
            }
            ElementType::F32 => {
                type $type = f32;
                $work
            }
            ElementType::F64 => {
                type $type = f64;
                $work
            }
            other => Err(Error::bug(format!("an image of {other}"))),
        }
    };
}

impl BatchArray<Array> {
    fn bytes(&self) -> &[u8] {
        self.array.bytes().expect("held arrays have no gaps and are the host's")
    }

    /// Number of elements in a sample.
    fn sample(&self) -> usize {
        self.shape[1..].iter().product()
    }

    fn bands(&self) -> usize {
        self.shape[3].max(1)
    }

    /// Number of bytes in a pixel.
    fn pixel(&self) -> usize {
        self.shape[3] * self.element.size()
    }

    /// Replaces the array.
    fn replace(&mut self, buffer: crate::array::Buffer, shape: [usize; 4]) -> Result<()> {
        self.array = buffer.array(&shape, self.element)?;
        (self.shape, self.ours) = (shape, true);
        Ok(())
    }

    /// The bytes, for writing: of the array itself if it may be changed, otherwise of a copy that
    /// replaces it.
    fn bytes_mut(&mut self, host: &Host) -> Result<&mut [u8]> {
        if !self.ours {
            let from = self.bytes();
            let mut copy = host.pool.buffer(from.len())?;
            host.workers.each(copy.bytes_mut(), 1 << 20, |number, piece| {
                piece.copy_from_slice(&from[number << 20..][..piece.len()]);
            });
            self.replace(copy, self.shape)?;
        }
        let len = self.bytes().len();
        // SAFETY: the elements lie there, contiguously. The memory was either made here, and no clone of the array was
        // kept (`Work::kept` clears `ours`), or given to be overwritten (`Images::overwriting`, whose caller promises
        // that nobody else reads it).
        Ok(unsafe { std::slice::from_raw_parts_mut(self.array.address(), len) })
    }

    /// Runs `work(sample, number, piece)` in place on the pieces of every sample that `which`
    /// selects. Each piece has `piece` elements, except the last one of a sample. If the array may
    /// not be changed, it is copied on the way.
    fn each<T: Element>(
        &mut self,
        host: &Host,
        piece: usize,
        which: impl Fn(usize) -> bool + Sync + Send,
        work: impl Fn(usize, usize, &mut [T]) + Sync + Send,
    ) -> Result<()> {
        let sample_len = self.sample();
        if self.ours {
            let all: &mut [T] = cast_slice_mut(self.bytes_mut(host)?);
            for (sample, out) in all.chunks_mut(sample_len.max(1)).enumerate() {
                if which(sample) {
                    host.workers.each(out, piece, |number, piece| work(sample, number, piece));
                }
            }
            return Ok(());
        }
        let mut buffer = host.room(self.shape.iter().product(), self.element)?;
        let from: &[T] = cast_slice(self.bytes());
        let into: &mut [T] = cast_slice_mut(buffer.bytes_mut());
        host.workers.each_of(into, sample_len, piece, |sample, number, out| {
            // Copy first: the piece is then still in the cache when it is processed.
            out.copy_from_slice(&from[sample * sample_len + number * piece..][..out.len()]);
            if which(sample) {
                work(sample, number, out);
            }
        });
        self.replace(buffer, self.shape)
    }
}

/// The noise (2, rows, columns) from which an elastic field is smoothed, in
/// [-1, 1): along x, along y.
#[doc(hidden)]
pub fn elastic_noise(seed: u64, [rows, columns]: [usize; 2]) -> Vec<f32> {
    let mut noise = vec![0.0; 2 * rows * columns];
    random::uniform(seed, &mut noise);
    noise
}

impl Host {
    /// A smooth field of displacements (2, rows, columns) in pixels, x first.
    fn field(&self, field: &Field, [rows, columns]: [usize; 2]) -> Result<Vec<f32>> {
        let noise = elastic_noise(field.seed, [rows, columns]);
        let mut smooth: Vec<f32> = hsipack_store::memory::zeroed(noise.len(), "an elastic field")?;
        let plane = (rows * columns).max(1);
        let planes = noise.chunks(plane).zip(smooth.chunks_mut(plane));
        for ((noise, smooth), pixels) in planes.zip(field.pixels) {
            let down = gaussian(field.sigma[0], field.kernel[0] / 2);
            let down: Vec<f64> = down.into_iter().map(|weight| weight * pixels).collect();
            let across = gaussian(field.sigma[1], field.kernel[1] / 2);
            let (shape, weights) = ([rows, columns, 1], [&down[..], &across[..]]);
            rows::blur(&self.workers, noise, smooth, shape, weights, Around::Zeros);
        }
        Ok(smooth)
    }
}

impl Sealed for Host {}

impl Engine for Host {
    type Array = Array;
    /// (2, rows, columns) in pixels, x first.
    type Fields = Vec<Option<Vec<f32>>>;
    /// Pixels of each sample, in order.
    type Chosen = Vec<Vec<usize>>;
    type Lost = Vec<bool>;

    fn look(&self, array: &Array) -> Result<(Vec<usize>, ElementType)> {
        if array.device() != Device::Cpu {
            return Err(Error::unsupported(format!(
                "the array is on {}, not on the CPU",
                array.device()
            ))
            .with_remedy("copy it to the CPU first, or use a library that computes there"));
        }
        Ok((array.shape().to_vec(), array.element()))
    }

    fn hold(&self, array: &Array, overwrite: bool) -> Result<BatchArray<Array>> {
        let (shape, element) = self.look(array)?;
        let (inner, axes) = match shape[..] {
            [samples, rows, columns] => ([samples, rows, columns, 1], &[0, 1, 2][..]),
            [samples, values, rows, columns] => {
                ([samples, rows, columns, values], &[0, 2, 3, 1][..])
            }
            _ => return Err(Error::bug(format!("an array of shape {shape:?} on its way"))),
        };
        let turned = array.permuted(axes);
        if turned.is_contiguous() {
            return Ok(BatchArray {
                array: turned.reshaped(&inner)?,
                shape: inner,
                element,
                ours: overwrite,
            });
        }
        let mut buffer = self.room(turned.len(), element)?;
        gather(&self.workers, &turned, buffer.bytes_mut());
        Ok(BatchArray { array: buffer.array(&inner, element)?, shape: inner, element, ours: true })
    }

    fn give(&self, held: &BatchArray<Array>, layered: bool) -> Result<Array> {
        let [samples, rows, columns, _] = held.shape;
        if layered {
            return Ok(held.array.permuted(&[0, 3, 1, 2]));
        }
        held.array.reshaped(&[samples, rows, columns])
    }

    fn fields(&self, moves: &[Resampling], to: [usize; 2]) -> Result<Self::Fields> {
        let field = |step: &Resampling| match step {
            Resampling::Sample(Source { elastic: Some(field), .. }) => {
                self.field(field, to).map(Some)
            }
            _ => Ok(None),
        };
        moves.iter().map(field).collect()
    }

    fn place(
        &self,
        held: &mut BatchArray<Array>,
        job: &ResampleJob<'_>,
        fields: &Self::Fields,
    ) -> Result<()> {
        let [samples, _, _, values] = held.shape;
        let to = [samples, job.to[0], job.to[1], values];
        let mut buffer = self.room(to.iter().product(), held.element)?;
        let plan = warp::WarpArguments::new(job, held.shape, fields);
        if job.nearest() {
            let fill = numbers::bytes_of(job.fill, job.fill as i64, held.element);
            warp::moved_whole(&self.workers, plan, held.bytes(), buffer.bytes_mut(), &fill);
        } else {
            floats!(held.element, T => {
                let into: &mut [T] = cast_slice_mut(buffer.bytes_mut());
                warp::moved(&self.workers, plan, cast_slice::<u8, T>(held.bytes()), into);
                Ok(())
            })?;
        }
        held.replace(buffer, to)
    }

    fn weighted(&self, target: &BatchArray<Array>) -> Result<[BatchArray<Array>; 2]> {
        let len = target.shape.iter().product();
        let with = |missing: f64, present: Option<f64>| {
            let mut buffer = self.room(len, target.element)?;
            floats!(target.element, T => {
                let from: &[T] = cast_slice(target.bytes());
                let into: &mut [T] = cast_slice_mut(buffer.bytes_mut());
                let number = |number: f64| T::store(<T as Element>::Wide::of(number));
                let (missing, present) = (number(missing), present.map(number));
                self.workers.each(into, PIECE, |piece, out| {
                    for (out, value) in out.iter_mut().zip(&from[piece * PIECE..]) {
                        let is_missing = value.load().to_f64().is_nan();
                        *out = if is_missing { missing } else { present.unwrap_or(*value) };
                    }
                });
                Ok(())
            })?;
            let mut changed = target.clone();
            changed.replace(buffer, target.shape)?;
            Ok(changed)
        };
        Ok([with(0.0, None)?, with(0.0, Some(1.0))?])
    }

    fn means(
        &self,
        target: &mut BatchArray<Array>,
        values: &BatchArray<Array>,
        weights: &BatchArray<Array>,
    ) -> Result<()> {
        floats!(target.element, T => {
            let values: &[T] = cast_slice(values.bytes());
            let weights: &[T] = cast_slice(weights.bytes());
            let sample_len = target.sample();
            target.each::<T>(self, PIECE, |_| true, |sample, number, out| {
                let first = sample * sample_len + number * PIECE;
                let sums = values[first..].iter().zip(&weights[first..]);
                for (out, (value, weight)) in out.iter_mut().zip(sums) {
                    if !out.load().to_f64().is_nan() {
                        let mean = value.load().to_f64() / weight.load().to_f64();
                        *out = T::store(<T as Element>::Wide::of(mean));
                    }
                }
            })
        })
    }

    fn blank(
        &self,
        held: &mut BatchArray<Array>,
        blanks: &[Blank],
        label: Option<i64>,
    ) -> Result<()> {
        let (shape, element, pixel) = (held.shape, held.element, held.pixel());
        let bytes = held.bytes_mut(self)?;
        for blank in blanks {
            let fill = match label {
                Some(label) => numbers::bytes_of(0.0, label, element).repeat(shape[3]),
                None => {
                    let values = blank.values.iter();
                    values.flat_map(|value| numbers::bytes_of(*value, 0, element)).collect()
                }
            };
            for line in rectangles::lines(blank.rectangle, blank.sample, shape, pixel) {
                bytes[line]
                    .chunks_exact_mut(pixel)
                    .for_each(|target| target.copy_from_slice(&fill));
            }
        }
        Ok(())
    }

    fn paste(&self, held: &mut BatchArray<Array>, cuts: &[Cut]) -> Result<()> {
        let (shape, pixel) = (held.shape, held.pixel());
        rectangles::paste(held.bytes_mut(self)?, shape, pixel, cuts)
    }

    fn mix(&self, held: &mut BatchArray<Array>, partners: &[usize], shares: &[f64]) -> Result<()> {
        let mut buffer = self.room(held.shape.iter().product(), held.element)?;
        let sample_len = held.sample();
        floats!(held.element, T => {
            let from: &[T] = cast_slice(held.bytes());
            let into: &mut [T] = cast_slice_mut(buffer.bytes_mut());
            for (sample, out) in into.chunks_mut(sample_len).enumerate() {
                let of = |sample: usize| &from[sample * sample_len..][..sample_len];
                let (values, partner, share) = (of(sample), partners[sample], shares[sample]);
                match Mixing::of(sample, partner, share) {
                    Mixing::Own => out.copy_from_slice(values),
                    Mixing::Theirs => out.copy_from_slice(of(partner)),
                    Mixing::Both => rows::mix(&self.workers, out, [values, of(partner)], share),
                }
            }
            Ok(())
        })?;
        held.replace(buffer, held.shape)
    }

    fn choose(
        &self,
        labels: &BatchArray<Array>,
        valid: Option<&BatchArray<Array>>,
        what: &Transplanting,
    ) -> Result<Self::Chosen> {
        let chosen = what.donors.iter().enumerate().map(|(sample, donor)| match donor {
            None => Ok(Vec::new()),
            Some(donor) => {
                let valid = valid.map(|valid| layer(valid, *donor));
                rectangles::chosen(what, sample, &layer(labels, *donor), valid.as_ref())
            }
        });
        chosen.collect()
    }

    fn transplant(
        &self,
        held: &mut BatchArray<Array>,
        chosen: &Self::Chosen,
        donors: &[Option<usize>],
    ) -> Result<()> {
        let (pixel, sample_bytes) = (held.pixel(), held.sample() * held.element.size());
        let bytes = held.bytes_mut(self)?;
        // Collect all pixels first, before any is overwritten.
        let mut taken = Vec::new();
        for (pixels, donor) in chosen.iter().zip(donors) {
            let Some(donor) = donor else { continue };
            for position in pixels {
                taken.extend_from_slice(&bytes[donor * sample_bytes + position * pixel..][..pixel]);
            }
        }
        let mut taken = taken.chunks_exact(pixel);
        for (sample, pixels) in chosen.iter().enumerate() {
            for (position, taken) in pixels.iter().zip(&mut taken) {
                bytes[sample * sample_bytes + position * pixel..][..pixel].copy_from_slice(taken);
            }
        }
        Ok(())
    }

    fn lost(&self, labels: &BatchArray<Array>) -> Result<Vec<bool>> {
        (0..labels.shape[0]).map(|sample| Ok(!layer(labels, sample).any()?)).collect()
    }

    fn restore(
        &self,
        held: &mut BatchArray<Array>,
        before: &BatchArray<Array>,
        lost: &Vec<bool>,
    ) -> Result<()> {
        if lost.contains(&true) {
            let sample_bytes = held.sample() * held.element.size();
            let samples = held.bytes_mut(self)?.chunks_mut(sample_bytes);
            let before = before.bytes().chunks(sample_bytes);
            for ((out, before), _) in samples.zip(before).zip(lost).filter(|(_, lost)| **lost) {
                out.copy_from_slice(before);
            }
        }
        Ok(())
    }

    fn by_band(&self, held: &mut BatchArray<Array>, by: &ByBands) -> Result<()> {
        let piece = PIXELS * held.bands();
        floats!(held.element, T => {
            let bands: Vec<_> = by
                .iter()
                .map(|by| by.map(spectra::Bands::<<T as Element>::Wide>::new::<T>))
                .collect();
            held.each::<T>(self, piece, |sample| bands[sample].is_some(), |sample, _, piece| {
                if let Some(bands) = &bands[sample] {
                    bands.apply(piece);
                }
            })
        })
    }

    fn linear(
        &self,
        held: &mut BatchArray<Array>,
        maps: &[Option<Linear>],
        labels: Option<(&BatchArray<Array>, &[i64])>,
    ) -> Result<()> {
        let bands = held.bands();
        // The pixels of every sample that are mapped; `None` for all.
        let mut wanted: Vec<Option<Vec<bool>>> = vec![None; maps.len()];
        if let Some((mask, labels)) = labels {
            for (sample, wanted) in
                wanted.iter_mut().enumerate().filter(|(sample, _)| maps[*sample].is_some())
            {
                let theirs = layer(mask, sample).first()?;
                *wanted = Some(theirs.into_iter().map(|label| labels.contains(&label)).collect());
            }
        }
        floats!(held.element, T => {
            let maps: Vec<_> = maps
                .iter()
                .map(|map| {
                    map.as_ref().map(|map| spectra::Map::<<T as Element>::Wide>::new(map, bands))
                })
                .collect();
            held.each::<T>(self, PIXELS * bands, |sample| maps[sample].is_some(), |sample, number, piece| {
                let Some(map) = &maps[sample] else { return };
                let first = number * PIXELS;
                let takes = |pixel: usize| {
                    wanted[sample].as_ref().is_none_or(|wanted| wanted[first + pixel])
                };
                map.apply(piece, takes);
            })
        })
    }

    fn noise(
        &self,
        held: &mut BatchArray<Array>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<()> {
        floats!(held.element, T => {
            // No number that is drawn is further from 0 than 7.
            let most = T::LARGEST.to_f64() - mean.abs() - 7.0 * std;
            let small = |magnitude: f64| magnitude <= 0.99 * most;
            let (mean, std) = (<T as Element>::Wide::of(mean), <T as Element>::Wide::of(std));
            let which = |sample: usize| seeds[sample].is_some();
            held.each::<T>(self, random::PIECE, which, |sample, number, piece| {
                let Some(seed) = seeds[sample] else { return };
                let mut noise = vec![0.0; piece.len()];
                let magnitude = <T as Element>::magnitude(piece).to_f64();
                random::normal(seed, number, &mut noise);
                let pairs = piece.iter_mut().zip(noise);
                let added = |value: T, noise: f32| {
                    value.load() + <T as Element>::Wide::nearest(noise.into()).mul_add(std, mean)
                };
                if small(magnitude) {
                    pairs.for_each(|(value, noise)| *value = T::rounded(added(*value, noise)));
                } else {
                    pairs.for_each(|(value, noise)| {
                        let settled = added(*value, noise).settled(value.load(), T::LARGEST);
                        *value = T::rounded(settled);
                    });
                }
            })
        })
    }

    fn ramp(&self, held: &mut BatchArray<Array>, ramps: &[Option<[f64; 2]>]) -> Result<()> {
        let ([_, rows, columns, bands], line) = (held.shape, held.shape[2] * held.shape[3]);
        // The centres of the outermost pixels are at -1 and 1; a single pixel is at 0.
        let at = |index: usize, size: usize| {
            if size > 1 { 2.0 * index as f64 / (size as f64 - 1.0) - 1.0 } else { 0.0 }
        };
        floats!(held.element, T => {
            held.each::<T>(self, line, |sample| ramps[sample].is_some(), |sample, row, line| {
                let Some([across, down]) = ramps[sample] else { return };
                let mut values = vec![<T as Element>::Wide::ZERO; line.len()];
                T::load_all(line, &mut values);
                let magnitude = <T as Element>::magnitude(line).to_f64();
                for (column, spectrum) in values.chunks_exact_mut(bands).enumerate() {
                    let factor = 1.0 + across * at(column, columns) + down * at(row, rows);
                    let factor = <T as Element>::Wide::of(factor);
                    if magnitude * factor.to_f64().abs() <= 0.99 * T::LARGEST.to_f64() {
                        spectrum.iter_mut().for_each(|value| *value *= factor);
                    } else {
                        spectrum.iter_mut().for_each(|value| {
                            *value = (*value * factor).settled(*value, T::LARGEST);
                        });
                    }
                }
                T::round_all(line, &values);
            })
        })
    }

    fn blur(&self, held: &mut BatchArray<Array>, weights: &[Option<[Vec<f64>; 2]>]) -> Result<()> {
        let [_, rows, columns, bands] = held.shape;
        let sample_len = held.sample();
        let mut buffer = self.room(held.shape.iter().product(), held.element)?;
        floats!(held.element, T => {
            let from: &[T] = cast_slice(held.bytes());
            let into: &mut [T] = cast_slice_mut(buffer.bytes_mut());
            let samples = from.chunks(sample_len).zip(into.chunks_mut(sample_len));
            for ((from, into), weights) in samples.zip(weights) {
                match weights {
                    None => into.copy_from_slice(from),
                    Some([down, across]) => {
                        let (shape, weights) = ([rows, columns, bands], [&down[..], &across[..]]);
                        rows::blur(&self.workers, from, into, shape, weights, Around::Mirrored);
                    }
                }
            }
            Ok(())
        })?;
        held.replace(buffer, held.shape)
    }

    fn select(&self, held: &mut BatchArray<Array>, bands: &[Vec<usize>]) -> Result<()> {
        let [samples, rows, columns, all] = held.shape;
        let (size, count) = (held.element.size(), bands.first().map_or(0, Vec::len));
        let mut buffer = self.room(samples * rows * columns * count, held.element)?;
        let from = held.bytes();
        let line = columns * count * size;
        self.workers.each(buffer.bytes_mut(), line, |row, out| {
            let bands = &bands[row / rows];
            let from = &from[row * columns * all * size..][..columns * all * size];
            let pixels = from.chunks_exact(all * size).zip(out.chunks_exact_mut(count * size));
            for (from, out) in pixels {
                for (band, out) in bands.iter().zip(out.chunks_exact_mut(size)) {
                    out.copy_from_slice(&from[band * size..][..size]);
                }
            }
        });
        held.replace(buffer, [samples, rows, columns, count])
    }

    fn resample_bands(
        &self,
        held: &mut BatchArray<Array>,
        response: &SpectralResponse,
    ) -> Result<()> {
        let [samples, rows, columns, all] = held.shape;
        let count = response.bands();
        let mut buffer = self.room(samples * rows * columns * count, held.element)?;
        floats!(held.element, T => {
            let weights = spectra::Weights::<<T as Element>::Wide>::new(response);
            let from: &[T] = cast_slice(held.bytes());
            let out: &mut [T] = cast_slice_mut(buffer.bytes_mut());
            self.workers.each(out, PIXELS * count, |number, out| {
                weights.apply(&from[number * PIXELS * all..], out);
            });
            Ok(())
        })?;
        held.replace(buffer, [samples, rows, columns, count])
    }

    fn normalize(
        &self,
        held: &mut BatchArray<Array>,
        norm: SpectralNorm,
        which: &[bool],
    ) -> Result<()> {
        let bands = held.bands();
        floats!(held.element, T => {
            held.each::<T>(self, PIXELS * bands, |sample| which[sample], |_, _, piece| {
                spectra::normalize(piece, bands, norm);
            })
        })
    }

    fn image(&self, stored: &Array, recipe: &ImageConversion) -> Result<Array> {
        let outer = |array: &Array| array.permuted(&[0, 3, 1, 2]);
        if recipe.is_nothing(stored.element()) {
            return Ok(outer(stored));
        }
        let (Some(from), &[_, rows, columns, bands]) = (stored.bytes(), stored.shape()) else {
            return Err(Error::bug(format!("what is stored, as {stored:?}")));
        };
        let mut buffer = self.room(stored.len(), recipe.element)?;
        let shape = [rows * columns, bands.max(1)];
        floats!(stored.element(), T => floats!(recipe.element, U => {
            let into: &mut [U] = cast_slice_mut(buffer.bytes_mut());
            prepare::image(&self.workers, cast_slice::<u8, T>(from), into, shape, recipe);
            Ok(())
        }))?;
        Ok(outer(&buffer.array(stored.shape(), recipe.element)?))
    }

    fn labels(&self, stored: &Array, recipe: &LabelConversion) -> Result<Array> {
        let (Some(from), &[samples, rows, columns, 1]) = (stored.bytes(), stored.shape()) else {
            return Err(Error::bug(format!("a stored mask, as {stored:?}")));
        };
        if recipe.is_nothing() {
            return stored.reshaped(&[samples, rows, columns]);
        }
        let layers = recipe.layers.max(1);
        let element = if recipe.layers > 0 { ElementType::Bool } else { recipe.element };
        let mut buffer = self.room(stored.len() * layers, element)?;
        prepare::mask(&self.workers, from, buffer.bytes_mut(), recipe)?;
        if recipe.layers > 0 {
            let shape = [samples, rows, columns, layers];
            return Ok(buffer.array(&shape, element)?.permuted(&[0, 3, 1, 2]));
        }
        buffer.array(&[samples, rows, columns], element)
    }

    fn valid(&self, stored: &Array, recipe: &Validity) -> Result<Array> {
        let (Some(from), &[samples, rows, columns, bands]) = (stored.bytes(), stored.shape())
        else {
            return Err(Error::bug(format!("a stored image, as {stored:?}")));
        };
        let mut buffer = self.room(samples * rows * columns, ElementType::Bool)?;
        let into = buffer.bytes_mut();
        floats!(stored.element(), T => {
            let shape = [rows, columns, bands];
            prepare::valid(&self.workers, cast_slice::<u8, T>(from), into, shape, recipe);
            Ok(())
        })?;
        buffer.array(&[samples, rows, columns], ElementType::Bool)
    }
}

/// The first layer of one sample's labels.
fn layer(held: &BatchArray<Array>, sample: usize) -> Layer<'_> {
    let bytes = held.sample() * held.element.size();
    Layer {
        bytes: &held.bytes()[sample * bytes..][..bytes],
        element: held.element,
        layers: held.bands(),
    }
}

/// Copies the elements of an array with gaps, or in another order, into contiguous memory.
fn gather(workers: &Workers, from: &Array, into: &mut [u8]) {
    let (size, shape, strides) = (from.element().size(), from.shape(), from.strides());
    let Some(((inner, outer), (step, steps))) = shape.split_last().zip(strides.split_last()) else {
        return;
    };
    // Copy one run along the last axis at a time. Addresses are plain numbers here, so that threads can share them.
    let start = from.address() as usize;
    workers.each(into, (inner * size).max(1), |run, out| {
        let (mut remaining, mut offset) = (run, 0isize);
        for (length, stride) in outer.iter().zip(steps).rev() {
            offset += (remaining % length) as isize * stride;
            remaining /= length;
        }
        for (index, out) in out.chunks_exact_mut(size).enumerate() {
            let at = offset + index as isize * step;
            let address = start.wrapping_add_signed(at * size as isize);
            // SAFETY: this is an element of the array. The array's constructor checked that it lies in the memory, and
            // `look` checked that this is host memory.
            out.copy_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, size) });
        }
    });
}
