//! From what is stored to the tensors asked for.
//!
//! Everything is queued on the caller's current stream, and nothing asks the device for a value: no step waits.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hsipack_format::{Command, DType, SpectralNorm, remedy};
use tch::{Device, Kind, TchError, Tensor};

use super::batch::{Info, stored_kind};
use super::options::{DeviceOptions, Normalization};
use super::prepare::{replace_nan, standardize};
use super::spectra::normalized;
use crate::dataset::BandStatistics;
use crate::loader::Shared;
use crate::torch::run;
use crate::{Error, Result};

/// Names of splits whose samples a network is trained on, in any case.
const TRAIN: [&str; 2] = ["train", "training"];

pub(super) fn is_train(split: &str) -> bool {
    TRAIN.iter().any(|name| split.eq_ignore_ascii_case(name))
}

/// How batches of a loader are made.
#[derive(Debug)]
pub(super) struct Recipe {
    options: DeviceOptions,
    stacks: BTreeMap<usize, Stack>,
    masks: Vec<Mask>,
}

/// What differs from stack to stack.
#[derive(Debug)]
struct Stack {
    name: String,
    /// The split whose statistics standardise it, if it is one's and not all samples'.
    split: Option<String>,
    scale: f64,
    offset: f64,
    /// Per band, float32 on the device, of physical values if those are asked for.
    mean: Option<Tensor>,
    std: Option<Tensor>,
}

/// How a mask is made.
#[derive(Debug)]
struct Mask {
    name: String,
    dtype: DType,
    kind: Kind,
    layers: Vec<String>,
    /// The layers' bits, (1, layers, 1, 1) on the device, if they are to be unpacked.
    bits: Option<Tensor>,
}

impl Recipe {
    pub(super) fn new(shared: &Shared, options: &DeviceOptions) -> Result<Self> {
        if !matches!(options.image, Kind::Half | Kind::BFloat16 | Kind::Float | Kind::Double) {
            return Err(Error::conflict(format!("images of {:?}", options.image))
                .with_remedy("ask for Half, BFloat16, Float or Double"));
        }
        let mut stacks = BTreeMap::new();
        for sample in shared.plan.samples() {
            let stack = shared.dataset.stack_of(sample.sample)?;
            if let Entry::Vacant(entry) = stacks.entry(stack) {
                entry.insert(Stack::new(shared, options, stack)?);
            }
        }
        let numbers: Vec<usize> = stacks.keys().copied().collect();
        let masks = shared.masks.iter().map(|name| Mask::new(shared, options, &numbers, name));
        let masks = masks.collect::<Result<_>>()?;
        Ok(Self { options: options.clone(), stacks, masks })
    }

    /// Names of a mask's boolean layers, bit 0 first; none for class ids.
    pub(super) fn layers(&self, mask: &str) -> Option<&[String]> {
        self.masks.iter().find(|one| one.name == mask).map(|one| one.layers.as_slice())
    }

    /// Every stack that is standardised by recorded statistics: its name, and the split whose statistics they are, or
    /// `None` for those of all its samples.
    pub(super) fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        if self.options.normalization != Normalization::Standardize {
            return Vec::new();
        }
        self.stacks.values().map(|stack| (stack.name.clone(), stack.split.clone())).collect()
    }

    /// The image and the masks of a batch whose slot's bytes are `memory`.
    pub(super) fn make(
        &self,
        memory: &Tensor,
        info: &Info,
    ) -> Result<(Tensor, Vec<(String, Tensor)>)> {
        let image = self.image(&info.view(memory, 0)?, info)?;
        let masks = self.masks.iter().enumerate().map(|(place, mask)| {
            Ok((mask.name.clone(), mask.make(&info.view(memory, place + 1)?)?))
        });
        Ok((image, masks.collect::<Result<_>>()?))
    }

    fn image(&self, stored: &Tensor, info: &Info) -> Result<Tensor> {
        let stacks = self.stacks_of(info)?;
        run(|| {
            let mut image = stored.f_permute([0, 3, 1, 2])?;
            let normalization = &self.options.normalization;
            if self.options.physical || *normalization != Normalization::None {
                image = image.f_to_kind(wide(image.kind()))?;
            }
            if self.options.physical {
                image = scaled(&image, &stacks)?;
            }
            image = match normalization {
                Normalization::None => image,
                Normalization::Standardize | Normalization::StandardizeBy { .. } => standardize(
                    &image,
                    &per_sample(&stacks, |stack| stack.mean.as_ref())?,
                    &per_sample(&stacks, |stack| stack.std.as_ref())?,
                )?,
                Normalization::L1 => normalized(&image, SpectralNorm::L1)?,
                Normalization::L2 => normalized(&image, SpectralNorm::L2)?,
                Normalization::Snv => normalized(&image, SpectralNorm::Snv)?,
            };
            // Last, so that what takes the place of NaN is in no sum.
            if let Some(value) = self.options.nan {
                image = replace_nan(&image, value)?;
            }
            image.f_to_kind(self.options.image)
        })
    }

    /// The stack of every sample; of one only, if all are of one.
    fn stacks_of(&self, info: &Info) -> Result<Vec<&Stack>> {
        let numbers = info.items.iter().map(|item| info.dataset.stack_of(item.sample));
        let mut numbers = numbers.collect::<Result<Vec<usize>>>()?;
        if numbers.iter().all(|number| *number == numbers[0]) {
            numbers.truncate(1);
        }
        Ok(numbers.iter().map(|number| &self.stacks[number]).collect())
    }
}

/// The type that is computed in.
fn wide(kind: Kind) -> Kind {
    if kind == Kind::Double { Kind::Double } else { Kind::Float }
}

/// Physical values of a wide image.
fn scaled(image: &Tensor, stacks: &[&Stack]) -> Result<Tensor, TchError> {
    let parts = |image: &Tensor, stack: &Stack| {
        let scaled = image.f_mul_scalar(stack.scale)?;
        if stack.offset == 0.0 { Ok(scaled) } else { scaled.f_add_scalar(stack.offset) }
    };
    if let [stack] = stacks {
        return parts(image, stack);
    }
    // Stacks may differ: sample by sample, joined into memory of the same order.
    let samples =
        stacks.iter().zip(0..).map(|(stack, place)| parts(&image.f_narrow(0, place, 1)?, stack));
    let samples = samples.collect::<Result<Vec<_>, _>>()?;
    Tensor::f_cat(&samples.iter().map(|one| one.permute([0, 2, 3, 1])).collect::<Vec<_>>(), 0)?
        .f_permute([0, 3, 1, 2])
}

/// Figures of the stacks, (stacks, C, 1, 1), to broadcast against an image.
fn per_sample<'a>(
    stacks: &[&'a Stack],
    figure: impl Fn(&'a Stack) -> Option<&'a Tensor>,
) -> Result<Tensor, TchError> {
    let figures: Vec<&Tensor> =
        stacks.iter().map(|stack| figure(stack).expect("made where it is asked for")).collect();
    Tensor::f_stack(&figures, 0)?.f_unsqueeze(2)?.f_unsqueeze(3)
}

impl Stack {
    fn new(shared: &Shared, options: &DeviceOptions, number: usize) -> Result<Self> {
        let dataset = &shared.dataset;
        let (scale, offset) = (dataset.scale_factor(number), dataset.add_offset(number));
        let name = dataset.stacks()[number].name.clone();
        let mut stack = Self { name, split: None, scale, offset, mean: None, std: None };
        let (mean, std) = match &options.normalization {
            Normalization::Standardize => {
                let figures;
                (stack.split, figures) = statistics(shared, number)?;
                let (scale, offset) = if options.physical { (scale, offset) } else { (1.0, 0.0) };
                let bands = shared.options.bands.as_deref();
                let chosen = |all: &[f64], figure: &dyn Fn(f64) -> f64| match bands {
                    Some(bands) => bands.iter().map(|band| figure(all[*band])).collect(),
                    None => all.iter().copied().map(figure).collect::<Vec<_>>(),
                };
                (
                    chosen(&figures.mean, &|mean| mean * scale + offset),
                    chosen(&figures.std, &|std| std * scale.abs()),
                )
            }
            Normalization::StandardizeBy { mean, std } => (
                stack.figures(shared, number, "mean", mean)?,
                stack.figures(shared, number, "standard deviation", std)?,
            ),
            _ => return Ok(stack),
        };
        if let Some(std) = std.iter().find(|std| **std < 0.0) {
            return Err(Error::conflict(format!("a standard deviation of {std}")).with_remedy(
                "give numbers from 0 on, or NaN for bands that are to stay as they are",
            ));
        }
        // A band that lacks one of them stays what it is.
        let known = |(mean, std): (f64, f64)| {
            if mean.is_finite() && std.is_finite() { (mean, std) } else { (0.0, 0.0) }
        };
        let (mean, std): (Vec<_>, Vec<_>) = mean.into_iter().zip(std).map(known).unzip();
        stack.mean = Some(on_device(&mean, options.device)?);
        stack.std = Some(on_device(&std, options.device)?);
        Ok(stack)
    }

    /// Figures of the user's, one for each band that is read.
    fn figures(&self, shared: &Shared, number: usize, what: &str, own: &[f64]) -> Result<Vec<f64>> {
        let all = shared.dataset.stacks()[number].image.shape().bands;
        let bands = shared.options.bands.as_ref().map_or(all, Vec::len);
        match own {
            [one] => Ok(vec![*one; bands]),
            _ if own.len() == bands => Ok(own.to_vec()),
            _ => Err(Error::conflict(format!(
                "the {what} to standardise by has {} numbers, stack {} is read with {bands} bands",
                own.len(),
                self.name
            ))
            .at(shared.dataset.path())
            .with_remedy("give one number for each band that is read, or one for all")),
        }
    }
}

/// What a stack is standardised by: the split whose statistics they are, if they are one's, and the statistics.
fn statistics(shared: &Shared, number: usize) -> Result<(Option<String>, BandStatistics)> {
    let dataset = &shared.dataset;
    let mut splits = dataset.split_statistics(number).into_iter();
    if let Some((split, figures)) = splits.find(|(split, _)| is_train(split)) {
        return Ok((Some(split), figures));
    }
    let all = dataset.statistics(number).ok_or_else(|| {
        let name = &dataset.stacks()[number].name;
        Error::unsupported(format!("stack {name} records no statistics"))
            .at(dataset.path())
            .with_remedy(remedy!["pack it with ", Command::Convert, ", or normalise otherwise"])
    })?;
    Ok((None, all))
}

fn on_device(values: &[f64], device: Device) -> Result<Tensor> {
    let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
    run(|| Tensor::f_from_slice(&values)?.f_to_device(device))
}

impl Mask {
    fn new(shared: &Shared, options: &DeviceOptions, stacks: &[usize], name: &str) -> Result<Self> {
        let dataset = &shared.dataset;
        let first = *stacks.first().expect("a plan has samples");
        let dtype =
            dataset.stacks()[first].mask(name).expect("the loader has found it").meta().dtype;
        let layers = dataset.mask_layers(first, name);
        let differ = |stack: &usize| dataset.mask_layers(*stack, name) != layers;
        if options.layers && stacks.iter().any(differ) {
            return Err(Error::unsupported(format!(
                "mask {name:?} has other layers in other stacks"
            ))
            .at(dataset.path())
            .with_remedy("read the stacks one by one, or ask for masks as they are stored"));
        }
        let kind = options.masks.unwrap_or_else(|| least_kind(dtype));
        if !holds(kind, dtype) {
            return Err(Error::conflict(format!(
                "mask {name:?} is {dtype}, which {kind:?} does not hold"
            ))
            .at(shared.dataset.path())
            .with_remedy(format!("ask for {:?}", least_kind(dtype))));
        }
        let bits = if options.layers && !layers.is_empty() {
            let bits: Vec<i64> = (0..layers.len()).map(|bit| 1i64 << bit).collect();
            let shape = [1, bits.len() as i64, 1, 1];
            Some(run(|| {
                // Bit 15 of uint16 is the sign of how libtorch sees it.
                let bits = Tensor::f_from_slice(&bits)?.f_to_kind(stored_kind(dtype))?;
                bits.f_view(shape)?.f_to_device(options.device)
            })?)
        } else {
            None
        };
        Ok(Self { name: name.to_owned(), dtype, kind, layers, bits })
    }

    /// The mask of what is stored, (B, H, W, 1).
    fn make(&self, stored: &Tensor) -> Result<Tensor> {
        run(|| {
            if let Some(bits) = &self.bits {
                return stored.f_permute([0, 3, 1, 2])?.f_bitwise_and_tensor(bits)?.f_ne(0);
            }
            let ids = stored.f_squeeze_dim(3)?;
            let ids = match self.dtype {
                DType::U16 => ids.f_to_kind(Kind::Int)?.f_bitwise_and(0xffff)?,
                DType::U32 => ids.f_to_kind(Kind::Int64)?.f_bitwise_and(0xffff_ffff_i64)?,
                _ => ids,
            };
            ids.f_to_kind(self.kind)
        })
    }
}

/// The least type of libtorch's that holds all values of a stored one.
fn least_kind(dtype: DType) -> Kind {
    match dtype {
        DType::U16 => Kind::Int,
        DType::U32 => Kind::Int64,
        other => stored_kind(other),
    }
}

/// Whether `kind` is a type for masks that holds all values of `dtype`: beyond 64 bits' ids nobody counts.
fn holds(kind: Kind, dtype: DType) -> bool {
    let range = |bits: u32, signed: bool| -> (i64, i64) {
        if signed {
            (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1)
        } else {
            (0, (1i64 << bits) - 1)
        }
    };
    let (least, greatest) = match dtype {
        DType::Bool => (0, 1),
        DType::U8 => range(8, false),
        DType::I8 => range(8, true),
        DType::U16 => range(16, false),
        DType::I16 => range(16, true),
        DType::U32 => range(32, false),
        DType::I32 => range(32, true),
        _ => return matches!(kind, Kind::Int64),
    };
    let (from, to) = match kind {
        Kind::Bool => (0, 1),
        Kind::Uint8 => range(8, false),
        Kind::Int8 => range(8, true),
        Kind::Int16 => range(16, true),
        Kind::Int => range(32, true),
        Kind::Int64 | Kind::Double => return true,
        // Whole numbers that have all their digits.
        Kind::BFloat16 => (-256, 256),
        Kind::Half => (-2048, 2048),
        Kind::Float => (-(1 << 24), 1 << 24),
        _ => return false,
    };
    from <= least && greatest <= to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_held_by_the_least_that_is_chosen_for_it() {
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            assert!(holds(least_kind(dtype), dtype), "{dtype}");
        }
        assert!(!holds(Kind::Uint8, DType::U16) && !holds(Kind::Int16, DType::U16));
        assert!(!holds(Kind::Half, DType::U16) && holds(Kind::Float, DType::U16));
        assert!(holds(Kind::BFloat16, DType::U8) && !holds(Kind::ComplexFloat, DType::U8));
    }
}
