//! Our own kernels, which replace a library's operations where they are available: moving pixels,
//! smoothing fields of displacements, copying and filling rectangles, applying factors and summands
//! to bands, blurring, drawing noise. Each function returns whether it did the work. float64 is
//! left to the operations.

use std::ops::Range;

use hsipack_format::Result;

use super::{TensorEngine, Tensors};
use crate::array::ElementType;
use crate::array::numbers::bytes_of;
use crate::engine::BatchArray;
use crate::geometry::{Field, Padding};
use crate::kernels::arguments::{
    Blur, DRAWN, Draw, Drawn, PAIRS, PIXELS, Rectangles, SAMPLES, Sample, THREADS, Values, WIDEST,
    Warp,
};
use crate::matrix::{Matrix, Whole};
use crate::operation::{Blank, ByBands, Cut, Rectangle};
use crate::ops::gaussian;
use crate::resample::{ResampleJob, Resampling};

/// Most samples along the second axis of a grid.
const GRID_SAMPLES: usize = (1 << 16) - 1;

/// The name of an element type in kernels that compute, for the types that they support.
fn named(element: ElementType) -> Option<&'static str> {
    match element {
        ElementType::F16 => Some("f16"),
        ElementType::BF16 => Some("bf16"),
        ElementType::F32 => Some("f32"),
        _ => None,
    }
}

/// The widest vectors, in bytes, in which pixels of this size at these addresses can be read.
fn vector(pixel: usize, addresses: &[usize], most: usize) -> usize {
    let all = addresses.iter().fold(pixel | most, |all, address| all | address);
    1 << all.trailing_zeros()
}

/// The number of blocks for `all` elements with `of` per block, if a grid may have as many.
fn blocks(all: usize, of: usize) -> Option<u32> {
    let blocks = all.div_ceil(of);
    u32::try_from(blocks).ok().filter(|blocks| (1..1 << 31).contains(blocks))
}

fn whole(number: usize) -> Option<i32> {
    i32::try_from(number).ok()
}

impl Sample {
    fn new(index: usize, map: &Matrix, bounds: [f64; 4]) -> Self {
        let mut numbers = [0.0; 9];
        numbers.iter_mut().zip(map.0.as_flattened()).for_each(|(to, from)| *to = *from as f32);
        Self {
            map: numbers,
            bounds: bounds.map(|bound| bound as f32),
            place: index as i32,
            field: -1,
        }
    }
}

fn matrix(whole: &Whole) -> Matrix {
    let row = |map: [i64; 3]| map.map(|number| number as f64);
    Matrix([row(whole.x), row(whole.y), [0.0, 0.0, 1.0]])
}

impl<T: Tensors> TensorEngine<T> {
    fn addresses<const N: usize>(&self, tensors: [&T::Tensor; N]) -> Result<[usize; N]> {
        let mut addresses = [0; N];
        for (address, tensor) in addresses.iter_mut().zip(tensors) {
            *address = self.0.address(tensor)?;
        }
        Ok(addresses)
    }

    /// Moves pixels as the job says.
    pub(super) fn moved_by_kernels(
        &self,
        held: &mut BatchArray<T::Tensor>,
        job: &ResampleJob<'_>,
        fields: Option<&T::Tensor>,
    ) -> Result<bool> {
        let Some(kernels) = self.0.kernels()? else { return Ok(false) };
        let ([samples, rows, columns, values], [to_rows, to_columns]) = (held.shape, job.to);
        let sampled = job.moves.iter().any(|step| matches!(step, Resampling::Sample(_)));
        let name = named(held.element);
        let sizes = [rows, columns, to_rows, to_columns, samples].map(whole);
        let pixels = [rows * columns, to_rows * to_columns].map(whole);
        let (
            [Some(rows), Some(columns), Some(to_rows), Some(to_columns), Some(_)],
            [Some(_), Some(to)],
        ) = (sizes, pixels)
        else {
            return Ok(false);
        };
        if sampled && !job.nearest() && name.is_none() {
            return Ok(false);
        }
        let shape = [samples, job.to[0], job.to[1], values];
        let out = self.0.empty(&shape, held.element)?;
        let fields = fields.map(|fields| self.0.contiguous(fields)).transpose()?;
        let [from, into] = self.addresses([&held.array, &out])?;
        let displaced = fields.as_ref().map_or(Ok(0), |fields| self.0.address(fields))?;
        let frame = [0.0, f64::from(columns) - 1.0, 0.0, f64::from(rows) - 1.0];
        // Samples that are interpolated, and samples whose pixels are copied.
        let (mut between, mut pixel) = (Vec::new(), Vec::new());
        let mut affine = true;
        for (index, step) in job.moves.iter().enumerate() {
            match step {
                Resampling::Keep => pixel.push(Sample::new(index, &Matrix::IDENTITY, frame)),
                Resampling::Places(map) => pixel.push(Sample::new(index, &matrix(map), frame)),
                Resampling::Sample(source) => {
                    let map = job.map(source);
                    affine &= map.is_affine();
                    let mut sample = Sample::new(index, map, source.bounds.unwrap_or(frame));
                    if source.elastic.is_some() {
                        sample.field = index as i32;
                    }
                    if job.nearest() { &mut pixel } else { &mut between }.push(sample);
                }
            }
        }
        let size = held.element.size();
        let bytes = vector(values * size, &[from, into], WIDEST);
        let outside = job.outside();
        let padding = outside.map_or(Warp::ZEROS, |outside| match outside.padding {
            Padding::Zeros => Warp::ZEROS,
            Padding::Border => Warp::BORDER,
            Padding::Reflection => Warp::REFLECTION,
        });
        let fill = if outside.is_some() && padding == Warp::ZEROS { job.fill } else { 0.0 };
        let mut warp = Warp {
            fill_vector: repeated(fill, held.element),
            fill: ElementType::F32.bounded(fill) as f32,
            rows,
            columns,
            to_rows,
            to_columns,
            vectors: (values * size / bytes) as i32,
            padding,
            align_corners: i32::from(outside.is_some_and(|outside| outside.align_corners)),
            affine: i32::from(affine),
            samples: [Sample::default(); SAMPLES],
        };
        let blocks = blocks(to as usize, PIXELS).expect("there are pixels, and less than 2^31");
        let warps = format!("warp_{}_{}", name.unwrap_or_default(), bytes / size);
        for (samples, kernel) in [(between, warps), (pixel, format!("take_{bytes}"))] {
            for some in samples.chunks(SAMPLES) {
                warp.samples[..some.len()].copy_from_slice(some);
                let grid = [blocks, some.len() as u32];
                // SAFETY: `from` and `into` have the shapes given in the arguments and are contiguous. They are read
                // and written in vectors that fit their addresses. `fields` has a pair of planes for each sample of the
                // batch. The library keeps the memory until its stream has finished, and this kernel is queued on that
                // stream.
                unsafe { kernels.launch(&kernel, grid, &warp, [from, into, displaced])? };
            }
        }
        (held.array, held.shape, held.ours) = (out, shape, true);
        Ok(true)
    }

    /// Copies rectangles from `before`, the batch as it was.
    pub(super) fn pasted_by_kernels(
        &self,
        held: &BatchArray<T::Tensor>,
        before: &T::Tensor,
        cuts: &[Cut],
    ) -> Result<bool> {
        let numbers = |cut: &Cut| numbers(cut.sample, cut.to, [cut.donor, cut.from.y, cut.from.x]);
        let cuts: Vec<_> = cuts.iter().map(numbers).collect();
        self.rectangles_by_kernels("paste", held, before, &cuts)
    }

    /// Fills rectangles with `spectra` (spectra, values): one for each rectangle, or one for all.
    pub(super) fn blanked_by_kernels(
        &self,
        held: &BatchArray<T::Tensor>,
        spectra: &T::Tensor,
        blanks: &[Blank],
        one_for_all: bool,
    ) -> Result<bool> {
        let spectrum = |number: usize| if one_for_all { 0 } else { number };
        let numbers = |(number, blank): (usize, &Blank)| {
            numbers(blank.sample, blank.rectangle, [spectrum(number), 0, 0])
        };
        let blanks: Vec<_> = blanks.iter().enumerate().map(numbers).collect();
        self.rectangles_by_kernels("blank", held, spectra, &blanks)
    }

    fn rectangles_by_kernels(
        &self,
        kernel: &str,
        held: &BatchArray<T::Tensor>,
        from: &T::Tensor,
        rectangles: &[[usize; Rectangles::NUMBERS]],
    ) -> Result<bool> {
        let Some(kernels) = self.0.kernels()? else { return Ok(false) };
        let ([samples, rows, columns, values], size) = (held.shape, held.element.size());
        let [from, into] = self.addresses([from, &held.array])?;
        let bytes = vector(values * size, &[from, into], WIDEST);
        let vectors = values * size / bytes;
        // No number of a rectangle is larger than one of these.
        let sizes = [rows, columns, vectors, samples, rectangles.len()].map(whole);
        let [Some(rows), Some(columns), Some(vectors), Some(_), Some(_)] = sizes else {
            return Ok(false);
        };
        let largest = rectangles.iter().map(|[_, _, _, height, width, ..]| height * width).max();
        let Some(largest) = largest.filter(|pixels| *pixels > 0) else { return Ok(true) };
        let Some(blocks) = blocks(largest * (values * size / bytes), THREADS) else {
            return Ok(false);
        };
        let numbers: Vec<i64> =
            rectangles.as_flattened().iter().map(|number| *number as i64).collect();
        let shape = [rectangles.len(), Rectangles::NUMBERS];
        let numbers = self.integers(&numbers, &shape, ElementType::I32)?;
        let mut first = self.0.address(&numbers)?;
        let (kernel, frame) = (format!("{kernel}_{bytes}"), Rectangles { rows, columns, vectors });
        for some in rectangles.chunks(Rectangles::MAX_PER_CALL) {
            // SAFETY: as for moving; rectangles are inside the frames of their samples, and spectra are as many as the
            // rectangles, or one that all of them name. What is read is not what is written.
            unsafe {
                kernels.launch(
                    &kernel,
                    [blocks, some.len() as u32],
                    &frame,
                    [from, into, first],
                )?;
            }
            first += size_of_val(some) / size_of::<usize>() * size_of::<i32>();
        }
        Ok(true)
    }

    /// Applies a factor and a summand to each band.
    pub(super) fn scaled_by_kernels(
        &self,
        held: &mut BatchArray<T::Tensor>,
        by: &ByBands,
    ) -> Result<bool> {
        let ([samples, rows, columns, bands], element) = (held.shape, held.element);
        let (Some(name), Some(kernels)) = (named(element), self.0.kernels()?) else {
            return Ok(false);
        };
        let numbers = self.numbers(by.numbers(), &[samples, 3, bands], ElementType::F32)?;
        let out = match held.ours {
            true => held.array.clone(),
            false => self.0.empty(&held.shape, element)?,
        };
        let [from, into, by] = self.addresses([&held.array, &out, &numbers])?;
        let size = element.size();
        let bytes = vector(bands * size, &[from, into], WIDEST);
        let vectors = bands * size / bytes;
        let all = rows * columns * vectors;
        let (Some(blocks), Some(vectors), true) =
            (blocks(all, THREADS), whole(vectors), samples < 1 << 16)
        else {
            return Ok(false);
        };
        let arguments = Values { vectors, all: all as i64 };
        let kernel = format!("by_band_{name}_{}", bytes / size);
        // SAFETY: as for moving; each value is read before it is written, by the same thread.
        unsafe {
            kernels.launch(&kernel, [blocks, samples as u32], &arguments, [from, into, by])?;
        }
        (held.array, held.ours) = (out, true);
        Ok(true)
    }

    /// Adds noise in place: the same as on the host.
    pub(super) fn noisy_by_kernels(
        &self,
        held: &mut BatchArray<T::Tensor>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<bool> {
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        let (Some(name), Some(kernels)) = (named(element), self.0.kernels()?) else {
            return Ok(false);
        };
        let (size, values) = (element.size(), rows * columns * bands);
        let lines = |count: usize| values.div_ceil(2 * PAIRS) * (PAIRS / count);
        if blocks(lines(1), THREADS).is_none() {
            return Ok(false);
        }
        self.own(held)?;
        let image = self.0.address(&held.array)?;
        let count = vector(values * size, &[image], WIDEST) / size;
        let blocks = blocks(lines(count), THREADS).expect("wider vectors need fewer blocks");
        let all = (values / count) as i64;
        let kernel = format!("noise_{name}_{count}");
        for (samples, number) in drawn(seeds) {
            let [mean, std] = [mean, std].map(|number| ElementType::F32.bounded(number) as f32);
            let draw = Draw { mean, std, all, samples };
            // SAFETY: as for moving; each value is read before it is written, by the same thread.
            unsafe { kernels.launch(&kernel, [blocks, number], &draw, [image, image, 0])? };
        }
        Ok(true)
    }

    /// Planes (samples, 2, rows, columns) of uniform numbers in
    /// [-1, 1): those of the host for these seeds, 0 for samples without a seed.
    pub(super) fn uniform_by_kernels(
        &self,
        seeds: &[Option<u64>],
        [rows, columns]: [usize; 2],
    ) -> Result<Option<T::Tensor>> {
        let Some(kernels) = self.0.kernels()? else { return Ok(None) };
        let values = 2 * rows * columns;
        let Some(blocks) = blocks(values, THREADS) else { return Ok(None) };
        let planes = self.0.full(&[seeds.len(), 2, rows, columns], 0.0, ElementType::F32)?;
        let into = self.0.address(&planes)?;
        for (samples, number) in drawn(seeds) {
            let draw = Draw { mean: 0.0, std: 1.0, all: values as i64, samples };
            // SAFETY: as for moving; nothing is read.
            unsafe { kernels.launch("uniform_f32", [blocks, number], &draw, [into, into, 0])? };
        }
        Ok(Some(planes))
    }

    /// Blurs in place, samples that follow one another together. The intermediate result is
    /// float32: as large as two float16 images of these samples.
    pub(super) fn blurred_by_kernels(
        &self,
        held: &mut BatchArray<T::Tensor>,
        weights: &[Option<[Vec<f64>; 2]>],
    ) -> Result<bool> {
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        let (Some(name), Some(kernels)) = (named(element), self.0.kernels()?) else {
            return Ok(false);
        };
        self.own(held)?;
        let runs = blurred_together(weights, self.at_once(held, bands));
        let longest = runs.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let between = self.0.empty(&[longest, rows, columns, bands], ElementType::F32)?;
        let all: Vec<f64> = runs
            .iter()
            .flat_map(|run| [0, 1].map(|axis| (run, axis)))
            .flat_map(|(run, axis)| weights[run.clone()].iter().flatten().map(move |of| &of[axis]))
            .flatten()
            .copied()
            .collect();
        let numbers = self.numbers(&all, &[all.len()], ElementType::F32)?;
        let [image, between, numbers] = self.addresses([&held.array, &between, &numbers])?;
        let size = element.size();
        let sample_bytes = rows * columns * bands * size;
        // The same number of values per vector on both sides, with no vector wider than allowed.
        let count = (vector(bands * size, &[image, sample_bytes], 4 * size) / size)
            .min(vector(bands * 4, &[between], WIDEST) / 4);
        let vectors = bands / count;
        let sizes = [rows, columns, vectors].map(whole);
        let (Some(blocks), [Some(rows), Some(columns), Some(vectors)]) =
            (blocks(rows * columns * vectors, THREADS), sizes)
        else {
            return Ok(false);
        };
        let names = [format!("blur_{name}_f32_{count}"), format!("blur_f32_{name}_{count}")];
        let mut number = numbers;
        for run in runs {
            let samples = image + run.start * sample_bytes;
            for (axis, kernel) in names.iter().enumerate() {
                let taps = weights[run.start].as_ref().map_or(0, |weights| weights[axis].len());
                let (from, into) = if axis == 0 { (samples, between) } else { (between, samples) };
                let (axis, of_each) = (axis as i32, taps as i32);
                let blur = Blur { rows, columns, vectors, axis, taps: of_each, zeros: 0 };
                let grid = [blocks, run.len() as u32];
                // SAFETY: as for moving; the memory that is read is not the memory that is written.
                unsafe { kernels.launch(kernel, grid, &blur, [from, into, number])? };
                number += run.len() * taps * size_of::<f32>();
            }
        }
        Ok(true)
    }

    /// Planes of noise (samples, 2, rows, columns), smoothed with zeros around.
    pub(super) fn smoothed_by_kernels(
        &self,
        noise: &T::Tensor,
        field: &Field,
    ) -> Result<Option<T::Tensor>> {
        let Some(kernels) = self.0.kernels()? else { return Ok(None) };
        let shape = self.0.shape(noise)?;
        let [samples, planes, rows, columns] = shape[..] else { return Ok(None) };
        let planes = samples * planes;
        let (Some(blocks), [Some(rows), Some(columns)], true) =
            (blocks(rows * columns, THREADS), [rows, columns].map(whole), planes < 1 << 16)
        else {
            return Ok(None);
        };
        let noise = self.0.contiguous(noise)?;
        let [between, smooth] =
            [self.0.empty(&shape, ElementType::F32)?, self.0.empty(&shape, ElementType::F32)?];
        let weights = [0, 1].map(|axis| gaussian(field.sigma[axis], field.kernel[axis] / 2));
        let addresses = self.addresses([&noise, &between, &smooth])?;
        for (axis, weights) in weights.iter().enumerate() {
            // The kernel expects weights for each plane; here they are all the same.
            let (all, taps) = (weights.repeat(planes), weights.len());
            let all = self.numbers(&all, &[planes, taps], ElementType::F32)?;
            let (axis, taps) = (axis as i32, taps as i32);
            let blur = Blur { rows, columns, vectors: 1, axis, taps, zeros: 1 };
            let at = axis as usize;
            let places = [addresses[at], addresses[at + 1], self.0.address(&all)?];
            // SAFETY: as for moving; the memory that is read is not the memory that is written.
            unsafe { kernels.launch("blur_f32_f32_1", [blocks, planes as u32], &blur, places)? };
        }
        Ok(Some(smooth))
    }
}

/// Samples that follow one another and have as many weights: at most `most` at once.
fn blurred_together(weights: &[Option<[Vec<f64>; 2]>], most: usize) -> Vec<Range<usize>> {
    let taps = |sample: usize| weights[sample].as_ref().map(|of| of.each_ref().map(Vec::len));
    let most = most.min(GRID_SAMPLES);
    let mut runs: Vec<Range<usize>> = Vec::new();
    for sample in (0..weights.len()).filter(|sample| weights[*sample].is_some()) {
        match runs.last_mut() {
            Some(run)
                if run.end == sample && run.len() < most && taps(run.start) == taps(sample) =>
            {
                run.end += 1;
            }
            _ => runs.push(sample..sample + 1),
        }
    }
    runs
}

/// The numbers of a rectangle, as kernels expect them.
fn numbers(
    sample: usize,
    rectangle: Rectangle,
    [source, row, column]: [usize; 3],
) -> [usize; Rectangles::NUMBERS] {
    let Rectangle { x, y, width, height } = rectangle;
    [sample, y, x, height, width, source, row, column]
}

/// The samples that have a seed, in as many calls as they need, with the number of samples of each
/// call.
fn drawn(seeds: &[Option<u64>]) -> Vec<([Drawn; DRAWN], u32)> {
    let all: Vec<Drawn> = (0..)
        .zip(seeds)
        .filter_map(|(index, seed)| Some(Drawn { seed: (*seed)?, place: index }))
        .collect();
    let call = |some: &[Drawn]| {
        let mut samples = [Drawn::default(); DRAWN];
        samples[..some.len()].copy_from_slice(some);
        (samples, some.len() as u32)
    };
    all.chunks(DRAWN).map(call).collect()
}

/// A number as an element, repeated to fill the widest vector.
fn repeated(number: f64, element: ElementType) -> [u8; WIDEST] {
    let bytes = bytes_of(number, number as i64, element);
    let mut all = [0; WIDEST];
    all.chunks_exact_mut(bytes.len()).for_each(|slot| slot.copy_from_slice(&bytes));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_fit_pixels_and_addresses() {
        assert_eq!(vector(200, &[4096, 8192], WIDEST), 8);
        assert_eq!(vector(256, &[4096], WIDEST), 16);
        assert_eq!(vector(256, &[4096], 8), 8);
        assert_eq!(vector(256, &[4100], WIDEST), 4);
        assert_eq!(vector(14, &[4096], WIDEST), 2);
        assert_eq!(vector(3, &[1], WIDEST), 1);
    }

    #[test]
    fn samples_with_as_many_weights_are_blurred_together() {
        let of = |taps: usize| Some([vec![0.5; taps], vec![0.5; 3]]);
        let weights = [of(3), of(3), None, of(3), of(5), of(5), of(5)];
        assert_eq!(blurred_together(&weights, 9), [0..2, 3..4, 4..7]);
        assert_eq!(blurred_together(&weights, 2), [0..2, 3..4, 4..6, 6..7]);
        assert_eq!(blurred_together(&weights[2..3], 2), []);
    }

    #[test]
    fn fills_are_repeated() {
        assert_eq!(repeated(-3.0, ElementType::I16)[..4], [0xfd, 0xff, 0xfd, 0xff]);
        assert_eq!(repeated(1.0, ElementType::F16)[12..], [0, 0x3c, 0, 0x3c]);
        assert_eq!(repeated(7.0, ElementType::U8), [7; 16]);
        assert_eq!(repeated(7.0, ElementType::I64)[8..], [7, 0, 0, 0, 0, 0, 0, 0]);
    }
}
