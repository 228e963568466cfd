//! From stored values to the tensors asked for: what is computed for each batch, by any library.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use hsipack_augment::array::Memory;
use hsipack_augment::prepare::{
    BandFigures, ImageConversion, LabelConversion, Normalized, Validity,
};
use hsipack_augment::{Array, ElementType, ImageBands, Library};
use hsipack_format::metadata::Scaling;
use hsipack_format::{Command, DType, Opt, SpectralNorm, remedy};

use super::batch_info::{BatchInfo, Source};
use super::options::{DeviceOptions, Normalization};
use crate::dataset::{BandStatistics, Dataset, is_in_float16};
use crate::loader::{BandFit, Member};
use crate::plan::Item;
use crate::{Error, Result};

/// Names of splits whose samples a network is trained on, in upper or lower case.
const TRAIN: [&str; 2] = ["train", "training"];

pub(super) fn is_train(split: &str) -> bool {
    TRAIN.iter().any(|name| split.eq_ignore_ascii_case(name))
}

/// How batches of a dataset are made.
#[derive(Clone, Debug)]
pub(super) struct Conversion {
    options: DeviceOptions,
    stacks: BTreeMap<usize, Stack>,
    masks: Vec<Mask>,
    companions: Vec<Companion>,
    /// Whether values are made physical and standardised before the images are resampled, so that
    /// batches have them already.
    is_done_before: bool,
}

/// A target or further image, which comes as it is stored.
#[derive(Clone, Debug)]
struct Companion {
    name: String,
    /// Its type.
    element: ElementType,
    /// Whether it has an axis of channels or bands.
    has_bands: bool,
}

/// The name of the mask that says which pixels have values.
pub const VALID: &str = "valid";

/// A batch's image, and its masks, targets and further images by name.
pub(super) type Tensors<T> = (T, Vec<(String, T)>);

/// Properties that differ between stacks.
#[derive(Clone, Debug)]
struct Stack {
    name: String,
    number: usize,
    /// Rows and columns of its cubes.
    sides: [usize; 2],
    /// Element type of the images in a slot.
    stored: ElementType,
    /// The split whose statistics standardise the stack; `None` if they are those of all samples.
    split: Option<String>,
    scale: f64,
    offset: f64,
    /// Statistics of the bands that are read, for physical values if those are asked for.
    figures: Option<BandFigures>,
    /// Whether each band that is read counts for the mask of valid pixels.
    good_bands: Vec<bool>,
}

/// How a mask is made.
#[derive(Clone, Debug)]
struct Mask {
    name: String,
    layers: Vec<String>,
    conversion: LabelConversion,
}

impl Conversion {
    pub(super) fn new(member: &Member, options: &DeviceOptions) -> Result<Self> {
        let mut stacks = BTreeMap::new();
        for sample in member.plan.samples() {
            let stack = member.dataset.stack_of(sample.sample)?;
            if let Entry::Vacant(entry) = stacks.entry(stack) {
                entry.insert(Stack::new(member, options, stack)?);
            }
        }
        stacks.values().try_for_each(|stack: &Stack| stack.check_type(member, options))?;
        let numbers: Vec<usize> = stacks.keys().copied().collect();
        let mut names = member.masks.iter().chain(&member.targets).chain(&member.images);
        if options.valid && names.any(|name| name == VALID) {
            return Err(Error::conflict(format!(
                "the mask of valid pixels would have the name {VALID:?} of another array"
            ))
            .at(member.dataset.path())
            .with_remedy("read the dataset without it"));
        }
        let masks = member.masks.iter().map(|name| Mask::new(member, options, &numbers, name));
        let masks = masks.collect::<Result<_>>()?;
        let companions = member.targets.iter().chain(&member.images);
        let companions = companions.map(|name| Companion::new(member, &numbers, name));
        let companions = companions.collect::<Result<_>>()?;
        let (options, is_done_before) = (options.clone(), false);
        Ok(Self { options, stacks, masks, companions, is_done_before })
    }

    /// For images that are resampled to the bands of batches: moves what is computed with the bands
    /// of the dataset from here to the resampling.
    pub(super) fn move_to(&mut self, fit: &mut BandFit) {
        if !fit.resamples() || self.options.normalization != Normalization::Standardize {
            return;
        }
        let is_scaled = self.is_scaled();
        for (number, stack) in &mut self.stacks {
            let Some(BandFigures { mean, std }) = stack.figures.take() else { continue };
            let [scale, offset] =
                if is_scaled { [stack.scale as f32, stack.offset as f32] } else { [1.0, 0.0] };
            let scaling = mean.iter().zip(&std).map(|(mean, std)| {
                // Bands without spread are not divided.
                let divisor = if *std == 0.0 { 1.0 } else { *std };
                (scale / divisor, (offset - mean) / divisor)
            });
            fit.scaled(*number, &scaling.collect::<Vec<_>>());
        }
        self.is_done_before = true;
    }

    /// The bands of the images of a member, the same in all its stacks.
    ///
    /// # Errors
    /// If stacks have different bands or no wavelengths.
    pub(super) fn bands(&self, member: &Member) -> Result<ImageBands> {
        let mut stacks = self.stacks.values();
        let first = stacks.next().expect("a plan has samples");
        let bands = first.bands(member)?;
        for other in stacks {
            if other.bands(member)? != bands {
                return Err(Error::unsupported(format!(
                    "stacks {} and {} have different bands, which cannot be resampled in one batch",
                    first.name, other.name
                ))
                .at(member.dataset.path())
                .with_remedy("read the stacks one by one"));
            }
        }
        Ok(bands)
    }

    /// The same, whose mask of valid pixels is made of only these bands.
    pub(super) fn of_bands(&self, used: &[usize]) -> Self {
        let mut conversion = self.clone();
        for stack in conversion.stacks.values_mut() {
            let good = stack.good_bands.iter_mut().enumerate();
            good.for_each(|(band, good)| *good &= used.contains(&band));
        }
        conversion
    }

    /// Names of a mask's boolean layers, bit 0 first; empty for class ids.
    pub(super) fn layers(&self, mask: &str) -> Option<&[String]> {
        if self.options.valid && mask == VALID {
            return Some(&[]);
        }
        self.masks.iter().find(|stored| stored.name == mask).map(|mask| mask.layers.as_slice())
    }

    /// Names and element types of the masks, targets and further images, as batches have them.
    pub(super) fn masks(&self) -> Vec<(&str, ElementType)> {
        let element = |mask: &Mask| match mask.conversion.layers {
            0 => mask.conversion.element,
            _ => ElementType::Bool,
        };
        let stored = self.masks.iter().map(|mask| (mask.name.as_str(), element(mask)));
        let companions = self.companions.iter().map(|array| (array.name.as_str(), array.element));
        let valid = self.options.valid.then_some((VALID, ElementType::Bool));
        stored.chain(companions).chain(valid).collect()
    }

    /// Every stack that is standardised by recorded statistics: its name, and the split that they
    /// are of, or `None` if they are of all its samples.
    pub(super) fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        if self.options.normalization != Normalization::Standardize {
            return Vec::new();
        }
        self.stacks.values().map(|stack| (stack.name.clone(), stack.split.clone())).collect()
    }

    /// Whether images, masks or companions are views of the slot of their batch.
    pub(super) fn keeps_slots(&self) -> bool {
        self.is_image_view()
            || !self.companions.is_empty()
            || self.masks.iter().any(|mask| mask.conversion.is_nothing())
    }

    /// Whether images are the stored values, with another order of axes only.
    fn is_image_view(&self) -> bool {
        let DeviceOptions { image, nan, normalization, .. } = &self.options;
        let is_stored = |stack: &Stack| stack.stored == *image;
        !self.is_scaled()
            && nan.is_none()
            && (*normalization == Normalization::None || self.is_done_before)
            && self.stacks.values().all(is_stored)
    }

    /// Whether values are multiplied and added to.
    fn is_scaled(&self) -> bool {
        let is_scaled = |stack: &Stack| (stack.scale, stack.offset) != (1.0, 0.0);
        let is_physical = self.options.physical && !self.is_done_before;
        is_physical && self.stacks.values().any(is_scaled)
    }

    /// Whether images are integers, which no augmentation computes with.
    pub(super) fn has_integers(&self) -> bool {
        self.stacks.values().any(|stack| !stack.stored.is_float())
    }

    /// Whether images and masks are the stored values, so that nothing is computed.
    pub(super) fn is_view(&self) -> bool {
        self.is_image_view()
            && !self.options.valid
            && self.masks.iter().all(|mask| mask.conversion.is_nothing())
    }

    /// Makes the image, the masks and the companions of a batch from `memory`, the bytes of its
    /// slot. `conversions` are those of all readers of the loader.
    pub(super) fn make<L: Library>(
        conversions: &[Arc<Self>],
        library: &L,
        memory: &Arc<dyn Memory>,
        info: &BatchInfo,
    ) -> Result<Tensors<L::Tensor>> {
        // Masks and companions of several datasets in a batch are alike.
        let first = &conversions[info.first().reader];
        let stacks = Self::stacks_of_all(conversions, info)?;
        let is_scaled = info.sources.iter().any(|source| conversions[source.reader].is_scaled());
        let recipe = first.image(&stacks, is_scaled);
        let image = library.image_of(info.view(memory, 0)?, &recipe)?;
        let masks = first.masks.iter().enumerate().map(|(number, mask)| {
            let labels = library.labels_of(info.view(memory, number + 1)?, &mask.conversion)?;
            Ok((mask.name.clone(), labels))
        });
        let companions = first.companions.iter().enumerate().map(|(number, companion)| {
            let stored = info.view(memory, 1 + first.masks.len() + number)?;
            Ok((companion.name.clone(), companion.tensor(library, stored)?))
        });
        let mut masks = masks.chain(companions).collect::<Result<Vec<_>>>()?;
        if first.options.valid {
            let bands = stacks.iter().map(|stack| stack.good_bands.clone()).collect();
            let recipe = Validity { bands, inside: inside(&info.items, &stacks) };
            let valid = library.valid_of(info.view(memory, 0)?, &recipe)?;
            masks.push((VALID.to_owned(), valid));
        }
        Ok((image, masks))
    }

    /// How images of these stacks are computed.
    fn image(&self, stacks: &[&Stack], is_scaled: bool) -> ImageConversion {
        let physical = match is_scaled {
            true => stacks.iter().map(|stack| [stack.scale, stack.offset]).collect(),
            false => Vec::new(),
        };
        let normalized = match self.options.normalization {
            Normalization::None => Normalized::Not,
            _ if self.is_done_before => Normalized::Not,
            Normalization::Standardize | Normalization::StandardizeBy { .. } => {
                let figures = stacks.iter().map(|stack| stack.figures.clone());
                Normalized::Bands(
                    figures.map(|figures| figures.expect("made where asked for")).collect(),
                )
            }
            Normalization::L1 => Normalized::Spectra(SpectralNorm::L1),
            Normalization::L2 => Normalized::Spectra(SpectralNorm::L2),
            Normalization::Snv => Normalized::Spectra(SpectralNorm::Snv),
        };
        let (nan, element) = (self.options.nan, self.options.image);
        ImageConversion { physical, normalized, nan, element }
    }

    /// The stack of every sample of a batch; a single one if all samples are of the same stack.
    fn stacks_of_all<'a>(conversions: &'a [Arc<Self>], info: &BatchInfo) -> Result<Vec<&'a Stack>> {
        let of_source = |source: &Source| {
            let items = &info.items[source.places.clone()];
            conversions[source.reader].stacks_of(items, &source.dataset)
        };
        if let [source] = &*info.sources {
            return of_source(source);
        }
        let mut stacks = Vec::with_capacity(info.items.len());
        for source in &info.sources {
            let of_items = of_source(source)?;
            let count = source.places.len();
            stacks
                .extend((0..count).map(|item| of_items.get(item).copied().unwrap_or(of_items[0])));
        }
        Ok(stacks)
    }

    /// The stack of every sample; a single one if all samples are of the same stack.
    fn stacks_of(&self, items: &[Item], dataset: &Dataset) -> Result<Vec<&Stack>> {
        // If only one stack is read, all samples are of it. They need not be looked up: there may be thousands of
        // windows.
        if self.stacks.len() == 1 {
            return Ok(self.stacks.values().collect());
        }
        let numbers = items.iter().map(|item| dataset.stack_of(item.sample));
        let mut numbers = numbers.collect::<Result<Vec<usize>>>()?;
        if numbers.iter().all(|number| *number == numbers[0]) {
            numbers.truncate(1);
        }
        Ok(numbers.iter().map(|number| &self.stacks[number]).collect())
    }
}

/// The rows and columns of each window that lie inside its cube; empty if all do.
fn inside(items: &[Item], stacks: &[&Stack]) -> Vec<[Range<usize>; 2]> {
    let part = |first: i32, count: u32, length: usize| -> Range<usize> {
        let within = |at: i64| (at - i64::from(first)).clamp(0, count.into()) as usize;
        within(0)..within(length as i64)
    };
    let parts = items.iter().enumerate().map(|(number, Item { window, .. })| {
        let [rows, columns] = stacks.get(number).unwrap_or(&stacks[0]).sides;
        [part(window.row, window.rows, rows), part(window.column, window.columns, columns)]
    });
    let parts: Vec<_> = parts.collect();
    let is_whole = |(part, Item { window, .. }): (&[Range<usize>; 2], &Item)| {
        [part[0].len(), part[1].len()] == [window.rows as usize, window.columns as usize]
    };
    if parts.iter().zip(items).all(is_whole) { Vec::new() } else { parts }
}

impl Stack {
    fn new(member: &Member, options: &DeviceOptions, number: usize) -> Result<Self> {
        let dataset = &member.dataset;
        let (scale, offset) = (dataset.scale_factor(number), dataset.add_offset(number));
        let stored = &dataset.stacks()[number];
        let shape = stored.image.shape();
        let sides = [shape.rows, shape.columns];
        let stored_type = dataset.image_type(number).expect("a stack of the dataset");
        let fit = member.fit.as_deref();
        let stored_type = fit.map_or(stored_type, |fit| fit.dtype);
        let (name, stored) = (stored.name.clone(), ElementType::from(stored_type));
        let good_bands = if options.valid { good_bands(member, number) } else { Vec::new() };
        let (split, figures) = (None, None);
        let mut stack =
            Self { name, number, sides, stored, split, scale, offset, figures, good_bands };
        let (mean, std) = match &options.normalization {
            Normalization::Standardize => {
                let figures;
                (stack.split, figures) = statistics(member, options, number)?;
                let chosen = |all: Vec<f64>| match &member.options.bands {
                    Some(bands) => bands.iter().map(|band| all[*band]).collect(),
                    None => all,
                };
                (chosen(figures.mean), chosen(figures.std))
            }
            Normalization::StandardizeBy { mean, std } => (
                stack.figures(member, number, "mean", mean)?,
                stack.figures(member, number, "standard deviation", std)?,
            ),
            _ => return Ok(stack),
        };
        if let Some(std) = std.iter().find(|std| **std < 0.0) {
            return Err(Error::conflict(format!("the standard deviation is {std}")).with_remedy(
                "give 0 or positive numbers, or NaN for bands that should stay unchanged",
            ));
        }
        // A band that lacks one of them stays as it is.
        let figures = |(mean, std): (f64, f64)| match mean.is_finite() && std.is_finite() {
            true => (mean as f32, std as f32),
            false => (0.0, 0.0),
        };
        let (mut mean, mut std): (Vec<_>, Vec<_>) = mean.into_iter().zip(std).map(figures).unzip();
        if let Some(fit) = fit.filter(|fit| !fit.resamples()) {
            mean.resize(fit.bands, 0.0);
            std.resize(fit.bands, 0.0);
        }
        stack.figures = Some(BandFigures { mean, std });
        Ok(stack)
    }

    /// The bands that are read.
    fn bands(&self, member: &Member) -> Result<ImageBands> {
        let stored = &member.dataset.stacks()[self.number];
        let chosen = |values: &Vec<f64>| match &member.options.bands {
            Some(bands) => bands.iter().map(|band| values[*band]).collect(),
            None => values.clone(),
        };
        let wavelengths = stored.wavelength.as_ref().map(chosen).ok_or_else(|| {
            Error::conflict(format!("stack {} has no wavelengths to resample", self.name))
                .at(member.dataset.path())
                .with_remedy(remedy![
                    "pack its cubes again with ",
                    Opt::BandCenters,
                    ", or leave resample out"
                ])
        })?;
        let valid = Some(good_bands(member, self.number));
        Ok(ImageBands { wavelengths, fwhm: stored.fwhm.as_ref().map(chosen), valid })
    }

    /// Checks the type of images.
    ///
    /// # Errors
    /// If they cannot have it; if they are integers and something is to be computed with them; if
    /// they are physical values of integers that do not fit float16.
    fn check_type(&self, member: &Member, options: &DeviceOptions) -> Result<()> {
        let refuse = |what: String, remedy: String| {
            Err(Error::conflict(what).at(member.dataset.path()).with_remedy(remedy))
        };
        let image = options.image;
        if !self.stored.is_float() {
            let is_computed = options.normalization != Normalization::None
                || options.nan.is_some()
                || options.valid
                || options.physical;
            return match image == self.stored && !is_computed {
                true => Ok(()),
                false => refuse(
                    format!(
                        "stack {} has images of {}, with which nothing is computed",
                        self.name, self.stored
                    ),
                    "choose float32 or float64 as the type, or read physical values".to_owned(),
                ),
            };
        }
        if !image.is_float() {
            return refuse(
                format!("images cannot have the type {image}"),
                "choose float16, bfloat16, float32 or float64".to_owned(),
            );
        }
        // Integers become halves before anything is computed.
        let is_half = self.stored == ElementType::F16 && member.dataset.converts(self.number);
        let is_cast = image == ElementType::F16 && options.normalization == Normalization::None;
        let scaling = match options.physical {
            true => member.dataset.scaling(self.number),
            false => Scaling::NONE,
        };
        let bands = member.options.bands.as_deref();
        let greatest = member.dataset.greatest(self.number, bands, scaling);
        match (is_half || is_cast) && !is_in_float16(greatest) {
            true => refuse(
                format!(
                    "stack {} has values up to {greatest:.3e}, which do not fit float16",
                    self.name
                ),
                "choose float32 as the type".to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// The user's numbers, one for each band that is read.
    fn figures(
        &self,
        member: &Member,
        number: usize,
        what: &str,
        numbers: &[f64],
    ) -> Result<Vec<f64>> {
        let all = member.dataset.stacks()[number].image.shape().bands;
        let read = member.options.bands.as_ref().map_or(all, Vec::len);
        let bands = member.fit.as_ref().map_or(read, |fit| fit.bands);
        match numbers {
            [of_all] => Ok(vec![*of_all; bands]),
            _ if numbers.len() == bands => Ok(numbers.to_vec()),
            _ => Err(Error::conflict(format!(
                "the {what} for standardising has {} numbers, but {bands} bands are read from stack {}",
                numbers.len(),
                self.name
            ))
            .at(member.dataset.path())
            .with_remedy("give one number for each band that is read, or one for all")),
        }
    }
}

/// Whether each band of batches has values, and is not marked as bad.
fn good_bands(member: &Member, number: usize) -> Vec<bool> {
    let mut good = member.good_bands(number);
    if let Some(fit) = &member.fit {
        match fit.valid(number) {
            Some(valid) => good = valid.to_vec(),
            None => good.resize(fit.bands, false),
        }
    }
    good
}

/// The statistics that a stack is standardised by, and their split; `None` if they are of all
/// samples. They are those of all stacks of the dataset with the same bands: cubes of another size
/// are values of the same kind.
fn statistics(
    member: &Member,
    options: &DeviceOptions,
    number: usize,
) -> Result<(Option<String>, BandStatistics)> {
    let dataset = &member.dataset;
    let scaling = |stack: usize| match options.physical {
        true => (dataset.scale_factor(stack), dataset.add_offset(stack)),
        false => (1.0, 0.0),
    };
    let stack = &dataset.stacks()[number];
    let is_alike = |other: &usize| {
        // Stored numbers mean the same only if they are scaled in the same way.
        let meaning = |stack: usize| (dataset.scale_factor(stack), dataset.add_offset(stack));
        let theirs = &dataset.stacks()[*other];
        theirs.image.shape().bands == stack.image.shape().bands
            && theirs.wavelength == stack.wavelength
            && (options.physical || meaning(*other) == meaning(number))
    };
    let alike: Vec<usize> = (0..dataset.stacks().len()).filter(is_alike).collect();
    let scaled = |stack: usize, figures: BandStatistics| {
        let (scale, offset) = scaling(stack);
        if (scale, offset) == (1.0, 0.0) { figures } else { figures.scaled(scale, offset) }
    };
    let of_train = alike.iter().filter_map(|stack| {
        let mut splits = dataset.split_statistics(*stack).into_iter();
        let (split, figures) = splits.find(|(split, _)| is_train(split))?;
        Some((split, scaled(*stack, figures)))
    });
    let (mut splits, of_train): (Vec<String>, Vec<BandStatistics>) = of_train.unzip();
    if !of_train.is_empty() {
        return Ok((Some(splits.swap_remove(0)), BandStatistics::together(&of_train)));
    }
    if dataset.statistics(number).is_none() {
        return Err(Error::unsupported(format!("stack {} records no statistics", stack.name))
            .at(dataset.path())
            .with_remedy(remedy!["pack it with ", Command::Convert, ", or normalise otherwise"]));
    }
    let of_all = alike.iter().filter_map(|stack| Some(scaled(*stack, dataset.statistics(*stack)?)));
    Ok((None, BandStatistics::together(&of_all.collect::<Vec<_>>())))
}

impl Mask {
    fn new(member: &Member, options: &DeviceOptions, stacks: &[usize], name: &str) -> Result<Self> {
        let dataset = &member.dataset;
        let first = *stacks.first().expect("a plan has samples");
        let dtype =
            dataset.stacks()[first].mask(name).expect("the loader has found it").meta().dtype;
        let layers = dataset.mask_layers(first, name);
        let differ = |stack: &usize| dataset.mask_layers(*stack, name) != layers;
        if options.layers && stacks.iter().any(differ) {
            return Err(Error::unsupported(format!(
                "mask {name:?} has different layers in different stacks"
            ))
            .at(dataset.path())
            .with_remedy("read the stacks one by one, or read masks as they are stored"));
        }
        let stored = ElementType::from(dtype);
        let element = options.masks.unwrap_or_else(|| least(stored));
        if !holds(element, dtype) {
            return Err(Error::conflict(format!(
                "mask {name:?} is {dtype}, whose values {element} cannot hold"
            ))
            .at(member.dataset.path())
            .with_remedy(format!("choose {}", least(stored))));
        }
        let unpacked = if options.layers { layers.len() } else { 0 };
        let conversion = LabelConversion { stored, layers: unpacked, element };
        Ok(Self { name: name.to_owned(), layers, conversion })
    }
}

impl Companion {
    fn new(member: &Member, stacks: &[usize], name: &str) -> Result<Self> {
        let dataset = &member.dataset;
        let of = |stack: usize| {
            let array = dataset.stacks()[stack].companion(name).expect("the loader has found it");
            let bands = array.has_bands().then(|| array.shape().bands);
            (array.meta().dtype, bands, array.ratio())
        };
        let first = of(*stacks.first().expect("a plan has samples"));
        if stacks.iter().any(|stack| of(*stack) != first) {
            return Err(Error::unsupported(format!(
                "{name:?} has another type, other bands or another resolution in different stacks"
            ))
            .at(dataset.path())
            .with_remedy("read the stacks one by one"));
        }
        let (dtype, bands, _) = first;
        Ok(Self { name: name.to_owned(), element: dtype.into(), has_bands: bands.is_some() })
    }

    /// (samples, rows, columns), or (samples, bands, rows, columns) over the same memory.
    fn tensor<L: Library>(&self, library: &L, stored: Array) -> Result<L::Tensor> {
        let element = self.element;
        if self.has_bands {
            let (physical, nan) = (Vec::new(), None);
            let as_stored = ImageConversion { physical, normalized: Normalized::Not, nan, element };
            return library.image_of(stored, &as_stored);
        }
        library.labels_of(stored, &LabelConversion { stored: element, layers: 0, element })
    }
}

/// The smallest type that holds all values of a stored type and that torch computes with.
fn least(stored: ElementType) -> ElementType {
    match stored {
        ElementType::U16 => ElementType::I32,
        ElementType::U32 | ElementType::U64 => ElementType::I64,
        other => other,
    }
}

/// Whether `element` can hold all values of `dtype`. Signed and unsigned 64-bit types count as
/// equal: no id is that large.
fn holds(element: ElementType, dtype: DType) -> bool {
    let stored = ElementType::from(dtype);
    if matches!(stored, ElementType::I64 | ElementType::U64) {
        return matches!(element, ElementType::I64 | ElementType::U64);
    }
    stored
        .whole_numbers()
        .is_some_and(|(least, greatest)| element.holds(least) && element.holds(greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_held_by_the_least_that_is_chosen_for_it() {
        for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
            assert!(holds(least(ElementType::from(dtype)), dtype), "{dtype}");
        }
        assert!(!holds(ElementType::U8, DType::U16) && !holds(ElementType::I16, DType::U16));
        assert!(!holds(ElementType::F16, DType::U16) && holds(ElementType::F32, DType::U16));
        assert!(holds(ElementType::BF16, DType::U8) && holds(ElementType::U16, DType::U16));
        assert!(!holds(ElementType::F64, DType::I64) && holds(ElementType::I64, DType::U64));
    }
}
