//! The engine, and how many samples it computes at once.

use hsipack_format::spectral_response::SpectralResponse;
use hsipack_format::{Error, Result, SpectralNorm};

use super::{Binary, Tensors, Unary};
use crate::array::{Array, ElementType};
use crate::engine::{BatchArray, Engine, sealed::Sealed};
use crate::operation::{Blank, ByBands, Cut, Linear, Transplanting};
use crate::prepare::{ImageConversion, LabelConversion, Validity};
use crate::resample::{ResampleJob, Resampling};

/// An [`Engine`] that uses the tensor operations of a library for everything.
#[derive(Clone, Debug)]
pub struct TensorEngine<T: Tensors>(pub T);

/// Maximum number of elements that are computed at once. Intermediate results of float16 images are
/// float32, and for a whole batch they would take several times its memory. A larger sample is
/// computed alone.
const MAX_ELEMENTS: usize = 1 << 25;

/// The element type in which values are computed.
pub(super) fn wide(element: ElementType) -> ElementType {
    if element == ElementType::F64 { element } else { ElementType::F32 }
}

impl<T: Tensors> TensorEngine<T> {
    /// Stores in `part` what was computed from its values one by one. Results from finite values
    /// stay finite.
    pub(super) fn settle(
        &self,
        part: &T::Tensor,
        computed: &T::Tensor,
        element: ElementType,
    ) -> Result<()> {
        let t = &self.0;
        let finite = t.with(Binary::Le, &t.unary(Unary::Abs, part)?, element.greatest())?;
        let computed = t.r#where(&finite, &self.clamped(computed, element)?, computed)?;
        t.copy_(part, &computed)
    }

    /// Values clamped to the range of a type; NaN stays.
    pub(super) fn clamped(&self, values: &T::Tensor, element: ElementType) -> Result<T::Tensor> {
        let most = element.greatest();
        self.0.with(Binary::Maximum, &self.0.with(Binary::Minimum, values, most)?, -most)
    }

    /// Weighted means of rows, as `embedding_bag`. Means of finite values stay finite, though
    /// weights are rounded and may add up to more than 1: halves of means do not overflow.
    pub(super) fn means(
        &self,
        table: &T::Tensor,
        indices: &T::Tensor,
        weights: &T::Tensor,
        element: ElementType,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let weights = t.to(&t.with(Binary::Mul, weights, 0.5)?, t.element(table)?)?;
        let half = t.embedding_bag(table, indices, &weights)?;
        let most = element.greatest() / 2.0;
        let clamped = t.with(Binary::Maximum, &t.with(Binary::Minimum, &half, most)?, -most)?;
        let finite = t.with(Binary::Le, &t.unary(Unary::Abs, &half)?, element.greatest())?;
        t.with(Binary::Mul, &t.r#where(&finite, &clamped, &half)?, 2.0)
    }

    /// Uploads numbers to the device, with this element type.
    pub(super) fn numbers(
        &self,
        numbers: &[f64],
        shape: &[usize],
        element: ElementType,
    ) -> Result<T::Tensor> {
        self.0.upload(&Array::of_numbers(numbers, shape, element)?)
    }

    /// Uploads whole numbers to the device, with this element type.
    pub(super) fn integers(
        &self,
        numbers: &[i64],
        shape: &[usize],
        element: ElementType,
    ) -> Result<T::Tensor> {
        self.0.upload(&Array::of_integers(numbers, shape, element)?)
    }

    /// Uploads indices to the device.
    pub(super) fn indices(&self, indices: impl IntoIterator<Item = usize>) -> Result<T::Tensor> {
        let indices: Vec<i64> = indices.into_iter().map(|index| index as i64).collect();
        self.integers(&indices, &[indices.len()], ElementType::I64)
    }

    /// One sample; the axis of samples is kept with length 1.
    pub(super) fn sample(&self, tensor: &T::Tensor, sample: usize) -> Result<T::Tensor> {
        self.0.narrow(tensor, 0, sample, 1)
    }

    /// A copy in its own memory.
    pub(super) fn copied(
        &self,
        tensor: &T::Tensor,
        shape: &[usize],
        element: ElementType,
    ) -> Result<T::Tensor> {
        let copy = self.0.empty(shape, element)?;
        self.0.copy_(&copy, tensor)?;
        Ok(copy)
    }

    /// Makes sure that an array may be written to, by copying it if necessary.
    pub(super) fn own(&self, held: &mut BatchArray<T::Tensor>) -> Result<()> {
        if !held.ours {
            self.replace_by_copy(held)?;
        }
        Ok(())
    }

    /// Replaces an array by a copy, and returns the original.
    pub(super) fn replace_by_copy(&self, held: &mut BatchArray<T::Tensor>) -> Result<T::Tensor> {
        let copy = self.copied(&held.array, &held.shape, held.element)?;
        held.ours = true;
        Ok(std::mem::replace(&mut held.array, copy))
    }

    /// Some samples of a tensor: a view if they are consecutive, otherwise a copy.
    pub(super) fn part(&self, tensor: &T::Tensor, samples: &[usize]) -> Result<T::Tensor> {
        match follow_one_another(samples) {
            true => self.0.narrow(tensor, 0, samples[0], samples.len()),
            false => self.0.index_select(tensor, &self.indices(samples.iter().copied())?),
        }
    }

    /// Lets `work` change some samples of a tensor in place, passed as one tensor.
    pub(super) fn change(
        &self,
        tensor: &T::Tensor,
        samples: &[usize],
        work: impl FnOnce(&T::Tensor) -> Result<()>,
    ) -> Result<()> {
        let part = self.part(tensor, samples)?;
        work(&part)?;
        if !follow_one_another(samples) {
            let index = self.indices(samples.iter().copied())?;
            self.0.index_copy_(tensor, &index, &part)?;
        }
        Ok(())
    }

    /// Runs `work(part, what)` on the samples that have an entry in `what`, several at a time.
    /// `part` contains these samples as (samples, rows, columns, values), to be changed in place;
    /// the second argument has their entries. The computation needs memory for `values` values per
    /// pixel.
    pub(super) fn each_part<W>(
        &self,
        held: &mut BatchArray<T::Tensor>,
        what: &[Option<W>],
        values: usize,
        mut work: impl FnMut(&T::Tensor, &[&W]) -> Result<()>,
    ) -> Result<()> {
        self.own(held)?;
        let affected: Vec<(usize, &W)> = what
            .iter()
            .enumerate()
            .filter_map(|(sample, what)| Some((sample, what.as_ref()?)))
            .collect();
        for block in affected.chunks(self.at_once(held, values)) {
            let (samples, what): (Vec<usize>, Vec<&W>) = block.iter().copied().unzip();
            self.change(&held.array, &samples, |part| work(part, &what))?;
        }
        Ok(())
    }

    /// Where a tensor is not NaN.
    fn not_nan(&self, tensor: &T::Tensor) -> Result<T::Tensor> {
        self.0.binary(Binary::Eq, tensor, tensor)
    }

    /// Number of samples to compute at once, if each needs memory for `values` values per pixel.
    pub(super) fn at_once(&self, held: &BatchArray<T::Tensor>, values: usize) -> usize {
        let [_, rows, columns, _] = held.shape;
        (MAX_ELEMENTS / (rows * columns * values).max(1)).max(1)
    }
}

fn follow_one_another(samples: &[usize]) -> bool {
    samples.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

impl<T: Tensors> Sealed for TensorEngine<T> {}

impl<T: Tensors> Engine for TensorEngine<T> {
    type Array = T::Tensor;
    /// (samples, 2, rows, columns) in pixels, x first; `None` if no sample has a field.
    type Fields = Option<T::Tensor>;
    /// (samples, rows, columns, 1), boolean.
    type Chosen = T::Tensor;
    /// (samples, 1, 1, 1), boolean.
    type Lost = T::Tensor;

    fn look(&self, array: &T::Tensor) -> Result<(Vec<usize>, ElementType)> {
        Ok((self.0.shape(array)?, self.0.element(array)?))
    }

    fn hold(&self, array: &T::Tensor, overwrite: bool) -> Result<BatchArray<T::Tensor>> {
        let (shape, element) = self.look(array)?;
        if element.signed() != element {
            return Err(Error::unsupported(format!(
                "masks of type {element} cannot be augmented on a device"
            ))
            .with_remedy("convert them to a signed type with mask.int() or mask.long()"));
        }
        let (inner, turned) = match shape[..] {
            [samples, rows, columns] => ([samples, rows, columns, 1], array.clone()),
            [samples, values, rows, columns] => {
                ([samples, rows, columns, values], self.0.permute(array, &[0, 2, 3, 1])?)
            }
            _ => return Err(Error::bug(format!("an array of shape {shape:?} on its way"))),
        };
        let contiguous = self.0.is_contiguous(&turned)?;
        let array = self.0.reshape(&self.0.contiguous(&turned)?, &inner)?;
        Ok(BatchArray { array, shape: inner, element, ours: overwrite || !contiguous })
    }

    fn give(&self, held: &BatchArray<T::Tensor>, layered: bool) -> Result<T::Tensor> {
        if layered {
            return self.0.permute(&held.array, &[0, 3, 1, 2]);
        }
        self.0.reshape(&held.array, &held.shape[..3])
    }

    fn fields(&self, moves: &[Resampling], to: [usize; 2]) -> Result<Self::Fields> {
        self.smooth_fields(moves, to)
    }

    fn place(
        &self,
        held: &mut BatchArray<T::Tensor>,
        job: &ResampleJob<'_>,
        fields: &Self::Fields,
    ) -> Result<()> {
        if self.moved_by_kernels(held, job, fields.as_ref())? {
            return Ok(());
        }
        self.moved(held, job, fields.as_ref())
    }

    fn weighted(&self, target: &BatchArray<T::Tensor>) -> Result<[BatchArray<T::Tensor>; 2]> {
        let has_value = self.not_nan(&target.array)?;
        let zero = self.0.full(&[1], 0.0, target.element)?;
        let values = self.0.r#where(&has_value, &target.array, &zero)?;
        let weights = self.0.to(&has_value, target.element)?;
        Ok([values, weights].map(|array| BatchArray { array, ours: true, ..target.clone() }))
    }

    fn means(
        &self,
        target: &mut BatchArray<T::Tensor>,
        values: &BatchArray<T::Tensor>,
        weights: &BatchArray<T::Tensor>,
    ) -> Result<()> {
        let means = self.0.binary(Binary::Div, &values.array, &weights.array)?;
        let has_value = self.not_nan(&target.array)?;
        target.array = self.0.r#where(&has_value, &means, &target.array)?;
        target.ours = true;
        Ok(())
    }

    fn blank(
        &self,
        held: &mut BatchArray<T::Tensor>,
        blanks: &[Blank],
        label: Option<i64>,
    ) -> Result<()> {
        self.blanked(held, blanks, label)
    }

    fn paste(&self, held: &mut BatchArray<T::Tensor>, cuts: &[Cut]) -> Result<()> {
        self.pasted(held, cuts)
    }

    fn mix(
        &self,
        held: &mut BatchArray<T::Tensor>,
        partners: &[usize],
        shares: &[f64],
    ) -> Result<()> {
        self.mixed(held, partners, shares)
    }

    fn choose(
        &self,
        labels: &BatchArray<T::Tensor>,
        valid: Option<&BatchArray<T::Tensor>>,
        what: &Transplanting,
    ) -> Result<T::Tensor> {
        self.chosen(labels, valid, what)
    }

    fn transplant(
        &self,
        held: &mut BatchArray<T::Tensor>,
        chosen: &T::Tensor,
        donors: &[Option<usize>],
    ) -> Result<()> {
        self.transplanted(held, chosen, donors)
    }

    fn lost(&self, labels: &BatchArray<T::Tensor>) -> Result<T::Tensor> {
        self.without_labels(labels)
    }

    fn restore(
        &self,
        held: &mut BatchArray<T::Tensor>,
        before: &BatchArray<T::Tensor>,
        lost: &T::Tensor,
    ) -> Result<()> {
        held.array = self.0.r#where(lost, &before.array, &held.array)?;
        held.ours = true;
        Ok(())
    }

    fn by_band(&self, held: &mut BatchArray<T::Tensor>, by: &ByBands) -> Result<()> {
        if self.scaled_by_kernels(held, by)? {
            return Ok(());
        }
        let (element, bands) = (held.element, held.shape[3]);
        let by: Vec<_> = by.iter().collect();
        self.each_part(held, &by, bands, |part, by| self.scaled(part, by, bands, element))
    }

    fn linear(
        &self,
        held: &mut BatchArray<T::Tensor>,
        maps: &[Option<Linear>],
        labels: Option<(&BatchArray<T::Tensor>, &[i64])>,
    ) -> Result<()> {
        self.mapped(held, maps, labels)
    }

    fn noise(
        &self,
        held: &mut BatchArray<T::Tensor>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<()> {
        if self.noisy_by_kernels(held, seeds, mean, std)? {
            return Ok(());
        }
        self.noisy(held, seeds, mean, std)
    }

    fn ramp(&self, held: &mut BatchArray<T::Tensor>, ramps: &[Option<[f64; 2]>]) -> Result<()> {
        self.lit(held, ramps)
    }

    fn blur(
        &self,
        held: &mut BatchArray<T::Tensor>,
        weights: &[Option<[Vec<f64>; 2]>],
    ) -> Result<()> {
        if self.blurred_by_kernels(held, weights)? {
            return Ok(());
        }
        self.blurred(held, weights)
    }

    fn select(&self, held: &mut BatchArray<T::Tensor>, bands: &[Vec<usize>]) -> Result<()> {
        self.selected(held, bands)
    }

    fn resample_bands(
        &self,
        held: &mut BatchArray<T::Tensor>,
        response: &SpectralResponse,
    ) -> Result<()> {
        self.resampled(held, response)
    }

    fn normalize(
        &self,
        held: &mut BatchArray<T::Tensor>,
        norm: SpectralNorm,
        which: &[bool],
    ) -> Result<()> {
        let (element, bands) = (held.element, held.shape[3]);
        let which: Vec<Option<()>> = which.iter().map(|yes| yes.then_some(())).collect();
        self.each_part(held, &which, bands, |part, _| {
            let values = self.0.to(part, wide(element))?;
            self.0.copy_(part, &self.normalized(&values, norm)?)
        })
    }

    fn image(&self, stored: &T::Tensor, recipe: &ImageConversion) -> Result<T::Tensor> {
        self.prepared(stored, recipe)
    }

    fn labels(&self, stored: &T::Tensor, recipe: &LabelConversion) -> Result<T::Tensor> {
        self.unpacked(stored, recipe)
    }

    fn valid(&self, stored: &T::Tensor, recipe: &Validity) -> Result<T::Tensor> {
        self.finite(stored, recipe)
    }
}
