//! The augmentations: the name, options, random numbers and effect of each.
//!
//! An augmentation is a struct of options that implements [`Augmentation`] and the trait that its
//! [`Action`] requires. It also has a line in the list `ops!` below.
//!
//! | file | augmentations |
//! |---|---|
//! | `geometric/` | augmentations that move pixels |
//! | `mixing.rs` | augmentations that take pixels from other samples, or rearrange parts |
//! | `values.rs` | augmentations that change values |
//! | `bands.rs` | augmentations that give images other bands |

mod bands;
pub(crate) mod geometric;
pub(crate) mod mixing;
pub(crate) mod values;

use serde::{Deserialize, Serialize};

use crate::drawn::{Drawn, SampleKey};
use crate::frame::Frame;
use crate::operation::{ByBand, Operation};
pub use bands::*;
pub(crate) use geometric::Geometric;
pub use geometric::*;
use hsipack_format::random::{Random, Stream, fold};
use hsipack_format::{Error, Result};
pub use mixing::*;
pub use values::*;
pub(crate) use values::{gaussian, mirrored};

/// The effect of an augmentation, implemented next to its options. Augmentations that share a
/// struct of options look at `op` to tell which one is meant.
pub(crate) trait Augmentation {
    /// Share of the samples it is applied to.
    fn p(&self) -> f64 {
        1.0
    }

    /// Checks that the options are valid and fit the frame.
    fn check(&self, frame: Frame) -> Result<()> {
        let _ = frame;
        Ok(())
    }

    /// Checks that whatever may be drawn fits the frame. What does not depend on chance need not be
    /// checked.
    fn check_draws(&self, frame: Frame) -> Result<()> {
        let _ = frame;
        Ok(())
    }

    /// Draws parameters for one sample.
    fn draw(&self, position: BatchPosition, random: &mut Random) -> Result<Drawn> {
        let _ = (position, random);
        Ok(Drawn::Plain)
    }

    /// Whether it is applied to a sample. `by_chance` is the result of the random draw.
    fn applies(&self, by_chance: bool, position: BatchPosition) -> bool {
        let _ = position;
        by_chance
    }

    /// Whether it reports which samples were mixed, so that labels can be mixed in the same way.
    fn mixes_images(&self) -> bool {
        false
    }

    /// Whether a sample may get pixels from other samples of its batch.
    fn takes_from_others(&self) -> bool {
        self.mixes_images()
    }

    /// Number of bands after it.
    fn bands(&self, frame: Frame) -> usize {
        frame.bands
    }

    /// Whether its parameters are drawn once for all samples of a batch.
    fn draws_for_batches(&self) -> bool {
        false
    }

    /// Whether boxes around objects can follow it: it does not exchange parts of images, nor depend
    /// on pixels.
    fn moves_boxes(&self) -> bool {
        true
    }

    /// Names of the masks it needs, as far as they are named.
    fn masks(&self) -> [Option<&str>; 2] {
        [None, None]
    }

    /// Whether it needs a mask; if none is named, the first one.
    fn needs_mask(&self) -> bool {
        false
    }

    /// Its effect on a batch.
    fn action(&self, op: &Op) -> Action<'_>;
}

/// The effect of an augmentation on a batch.
pub(crate) enum Action<'a> {
    /// Moves pixels.
    Moves(&'a dyn Geometric),
    /// Applies a factor and a summand to each band.
    Bands(&'a dyn Bands),
    /// Maps spectra linearly.
    Spectra(&'a dyn Spectra),
    /// An operation that cannot be merged with others.
    Single(&'a dyn Single),
}

/// Applies a factor and a summand to each band. Consecutive augmentations of this kind are merged.
pub(crate) trait Bands {
    /// Adds its effect on a sample to `by`.
    fn then(&self, op: &Op, drawn: &Drawn, by: &mut ByBand) -> Result<()>;
}

/// Maps spectra linearly. Consecutive augmentations of this kind are merged.
pub(crate) trait Spectra {
    /// The input bands of an output band, with their weights. Bands beyond the ends stand for the
    /// outermost bands.
    fn weights(&self, value: f64, band: usize, bands: usize) -> Vec<(f64, f64)>;
}

/// An operation that cannot be merged with others.
pub(crate) trait Single {
    /// The pass over all samples of a batch.
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation>;
}

/// Defines [`Op`] from the list of augmentations: the effect of each, its options, and its name in
/// JSON.
macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident($options:ident) $name:literal,)+) => {
        /// An augmentation. In JSON, an object with the name as `op` and the fields of its options.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "op")]
        pub enum Op {
            $($(#[$doc])* #[serde(rename = $name)] $variant($options),)+
        }

        impl Op {
            /// The name in JSON.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$variant(_) => $name,)+
                }
            }

            fn options(&self) -> &dyn Augmentation {
                match self {
                    $(Op::$variant(options) => options,)+
                }
            }
        }
    };
}

ops! {
    /// Flips left-right.
    Hflip(Flip) "hflip",
    /// Flips top-bottom.
    Vflip(Flip) "vflip",
    /// Turns by multiples of 90°.
    Rot90(Rot90) "rot90",
    /// Shears, rotates, scales and shifts.
    Affine(Affine) "affine",
    /// Rotates.
    Rotate(Rotate) "rotate",
    /// Moves the corners.
    Perspective(Perspective) "perspective",
    /// Displaces every pixel by a smooth random field.
    Elastic(Elastic) "elastic",
    /// Crops a window at a random position.
    RandomCrop(RandomCrop) "random_crop",
    /// Crops the middle.
    CenterCrop(CenterCrop) "center_crop",
    /// Crops a window of random size and resizes it.
    ResizedCrop(ResizedCrop) "resized_crop",
    /// Resizes.
    Resize(Resize) "resize",
    /// Adds pixels below and to the right.
    PadTo(PadTo) "pad_to",
    /// Erases a rectangle.
    Erase(Erase) "erase",
    /// Copies all pixels of a label from another sample.
    Transplant(Transplant) "transplant",
    /// Copies a rectangle from another sample.
    CutmixRect(CutMix) "cutmix_rect",
    /// Mixes with another sample.
    Mixup(MixUp) "mixup",
    /// Shuffles cells of the image.
    Jigsaw(Jigsaw) "jigsaw",
    /// Hides patches.
    HideAndSeek(HideAndSeek) "hide_and_seek",
    /// Multiplies by a number.
    Gain(Scalar) "gain",
    /// Adds a number.
    Offset(Scalar) "offset",
    /// Adds noise.
    GaussianNoise(GaussianNoise) "gaussian_noise",
    /// Replaces whole bands.
    BandDropout(BandDropout) "band_dropout",
    /// Multiplies every band.
    BandJitter(BandNoise) "band_jitter",
    /// Shifts every band's values.
    BandOffset(BandNoise) "band_offset",
    /// Shifts spectra along the bands.
    SpectralShift(SpectralShift) "spectral_shift",
    /// Keeps random bands.
    RandomBands(RandomBands) "random_bands",
    /// Resamples spectra to other bands.
    Resample(ResampleBands) "resample",
    /// Smooths spectra.
    SpectralSmooth(SpectralSmooth) "spectral_smooth",
    /// Maps spectra linearly.
    Projection(Projection) "projection",
    /// Lights the image from one side.
    IlluminationRamp(IlluminationRamp) "illumination_ramp",
    /// Blurs every band.
    GaussianBlur(GaussianBlur) "gaussian_blur",
    /// Normalises spectra to a sum of absolute values of 1.
    L1Normalize(Normalize) "l1_normalize",
    /// Normalises spectra to length 1.
    L2Normalize(Normalize) "l2_normalize",
    /// Normalises spectra to mean 0 and standard deviation 1.
    Snv(Normalize) "snv",
    /// Standardises bands.
    Standardize(Standardize) "standardize",
    /// Restores samples that lost all their valid pixels.
    ValidGuard(ValidGuard) "valid_guard",
}

/// The information that an augmentation needs to draw parameters for the samples of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    /// Seed and epoch.
    pub key: [u64; 2],
    /// Index of the augmentation in its list.
    pub op: usize,
    /// Sample and repeat at every position of the batch.
    pub samples: &'a [SampleKey],
    /// The frame before the augmentation.
    pub frame: Frame,
}

/// The position of a sample in its batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchPosition {
    /// Index in the batch.
    pub index: usize,
    /// Number of samples in the batch.
    pub samples: usize,
    /// Index of its donor, if samples are mixed.
    pub donor: usize,
    /// The frame before the augmentation.
    pub frame: Frame,
}

impl Op {
    /// Share of the samples it is applied to.
    pub fn p(&self) -> f64 {
        self.options().p()
    }

    /// Its effect on a batch.
    pub(crate) fn action(&self) -> Action<'_> {
        self.options().action(self)
    }

    /// Its geometric operation, if it has one.
    pub(crate) fn geometric(&self) -> Option<&dyn Geometric> {
        match self.action() {
            Action::Moves(geometric) => Some(geometric),
            _ => None,
        }
    }

    /// Whether it reports which samples were mixed, so that labels can be mixed in the same way.
    pub(crate) fn mixes_images(&self) -> bool {
        self.options().mixes_images()
    }

    /// Whether a sample may get pixels from other samples of its batch.
    pub(crate) fn takes_from_others(&self) -> bool {
        self.options().takes_from_others()
    }

    /// Whether boxes around objects can follow it.
    pub(crate) fn moves_boxes(&self) -> bool {
        self.options().moves_boxes()
    }

    /// Names of the masks it needs, as far as they are named.
    pub(crate) fn masks(&self) -> impl Iterator<Item = &str> {
        self.options().masks().into_iter().flatten()
    }

    /// Whether it needs a mask; if none is named, the first one.
    pub(crate) fn needs_mask(&self) -> bool {
        self.options().needs_mask()
    }

    /// The frame after the augmentation.
    ///
    /// # Errors
    /// If the options are not valid, or do not fit the frame.
    pub fn frame(&self, frame: Frame) -> Result<Frame> {
        if !(0.0..=1.0).contains(&self.p()) {
            return Err(Error::conflict(format!("{} has p = {}", self.name(), self.p()))
                .with_remedy("give a probability from 0 to 1"));
        }
        self.options().check(frame).map_err(|error| error.within(self.name()))?;
        let bands = self.options().bands(frame);
        let after = self.geometric().map_or(Ok(frame), |op| op.frame(frame))?;
        Ok(Frame { bands, ..after })
    }

    /// Some parameters for one sample, if it is applied to any.
    ///
    /// # Errors
    /// If some that may be drawn do not fit the frame.
    pub(crate) fn trial(&self, frame: Frame) -> Result<Option<Drawn>> {
        if self.p() == 0.0 {
            return Ok(None);
        }
        self.options().check_draws(frame)?;
        let position = BatchPosition { index: 0, samples: 1, donor: 0, frame };
        let mut random = Random::keyed(Stream::Augment, [0; 5]);
        self.options().draw(position, &mut random).map(Some)
    }

    /// Draws parameters for all samples of a batch; `None` for samples it is not applied to.
    pub(crate) fn draw(&self, draw: Draw<'_>) -> Result<Vec<Option<Drawn>>> {
        let (options, samples) = (self.options(), draw.samples.len());
        let donors = if self.mixes_images() { draw.donors() } else { vec![0; samples] };
        (0..samples)
            .map(|index| {
                let mut random = draw.random(index);
                // Draw this number first, so that it does not depend on the parameters that are drawn.
                let by_chance = random.unit() < self.p();
                let position =
                    BatchPosition { index, samples, donor: donors[index], frame: draw.frame };
                let on = options.applies(by_chance, position);
                if options.draws_for_batches() {
                    random = draw.random_of_batch();
                }
                on.then(|| options.draw(position, &mut random)).transpose()
            })
            .collect()
    }
}

impl Draw<'_> {
    fn random(&self, index: usize) -> Random {
        let SampleKey { sample, repeat } = self.samples[index];
        let [seed, epoch] = self.key;
        Random::keyed(Stream::Augment, [seed, epoch, sample as u64, repeat, self.op as u64])
    }

    /// The same for all positions: it depends on the samples in the batch.
    fn random_of_batch(&self) -> Random {
        let [seed, epoch] = self.key;
        let batch = fold(self.samples.iter().flat_map(|key| [key.sample as u64, key.repeat]));
        Random::keyed(Stream::Mix, [seed, epoch, batch, self.op as u64])
    }

    /// The donor for every position: a permutation that depends on the samples in the batch.
    fn donors(&self) -> Vec<usize> {
        let mut random = self.random_of_batch();
        let mut donors: Vec<usize> = (0..self.samples.len()).collect();
        random.shuffle(&mut donors);
        donors
    }
}

fn size(what: &str, size: [usize; 2]) -> Result<()> {
    if size[0] > 0 && size[1] > 0 {
        return Ok(());
    }
    Err(Error::conflict(format!("{what} cannot have a size of {} x {}", size[0], size[1]))
        .with_remedy("give [rows, columns], both above 0"))
}

fn half() -> f64 {
    0.5
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

fn no() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Display};
    use std::str::FromStr;

    use serde::Serialize;

    use super::*;
    use crate::geometry::{Interpolation, KorniaCompat, Padding};

    fn check<T: FromStr<Err = hsipack_format::Error> + Display + Debug + PartialEq + Serialize>(
        all: &[T],
    ) {
        for value in all {
            let name = value.to_string();
            assert_eq!(name.parse::<T>().unwrap(), *value);
            assert_eq!(serde_json::to_value(value).unwrap(), name);
        }
        let error = "nothing".parse::<T>().unwrap_err();
        assert!(error.remedy().unwrap().to_string().contains(&all[0].to_string()), "{error}");
    }

    #[test]
    fn every_option_has_the_name_that_json_has() {
        check(&Interpolation::ALL);
        check(&Padding::ALL);
        check(&KorniaCompat::ALL);
        check(&Direction::ALL);
        check(&Count::ALL);
        check(&Per::ALL);
    }
}
