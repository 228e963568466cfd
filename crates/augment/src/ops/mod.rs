//! The augmentations: what each is called, takes and draws.
//!
//! | file | augmentations |
//! |---|---|
//! | `geometric/` | those that move pixels |
//! | `mixing.rs` | those that take pixels of other samples, or move pieces |
//! | `values.rs` | those that change values |

pub(crate) mod geometric;
pub(crate) mod mixing;
pub(crate) mod values;

use serde::{Deserialize, Serialize};

use super::matrix::Matrix;
pub(crate) use geometric::Geometric;
pub use geometric::{
    Affine, CenterCrop, Elastic, Flip, Interpolation, KorniaCompat, PadTo, Padding, Perspective,
    RandomCrop, Resize, ResizedCrop, Rot90, Rotate,
};
pub use geometric::{Field, Outside, Source};
use hsipack_format::random::{Random, Stream, fold};
use hsipack_format::{Error, Result};
pub use mixing::{Count, CutMix, Direction, HideAndSeek, Jigsaw, MixUp, Transplant};
pub use values::{
    BandDropout, BandNoise, Erase, Fill, GaussianBlur, GaussianNoise, IlluminationRamp, Normalize,
    PerBand, Projection, Scalar, SpectralShift, SpectralSmooth, Standardize, ValidGuard,
};
pub(crate) use values::{gaussian, mirrored};

/// Rows, columns and bands of the samples of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bands.
    pub bands: usize,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} x {} (rows, columns, bands)", self.rows, self.columns, self.bands)
    }
}

impl Frame {
    /// (x, y) of the middle.
    fn centre(self) -> [f64; 2] {
        [(self.columns as f64 - 1.0) / 2.0, (self.rows as f64 - 1.0) / 2.0]
    }

    fn resized(self, [rows, columns]: [usize; 2]) -> Self {
        Self { rows, columns, ..self }
    }

    /// The map of pixels to -1 … 1: the outermost pixels' centres with `align_corners`, else their edges.
    fn normalised(self, align_corners: bool) -> Matrix {
        let axis = |size: usize| {
            let size = size as f64;
            if align_corners { (2.0 / (size - 1.0), -1.0) } else { (2.0 / size, 1.0 / size - 1.0) }
        };
        let ((a, b), (c, d)) = (axis(self.columns), axis(self.rows));
        Matrix::axes(a, b, c, d)
    }
}

/// An augmentation. In JSON an object whose `op` names it, with the fields of its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// Mirrors left and right.
    Hflip(Flip),
    /// Mirrors top and bottom.
    Vflip(Flip),
    /// Turns by quarters.
    Rot90(Rot90),
    /// Shears, turns, scales and moves.
    Affine(Affine),
    /// Turns.
    Rotate(Rotate),
    /// Moves the corners.
    Perspective(Perspective),
    /// Moves every pixel by a smooth random field.
    Elastic(Elastic),
    /// Cuts out a window anywhere.
    RandomCrop(RandomCrop),
    /// Cuts out the middle.
    CenterCrop(CenterCrop),
    /// Cuts out a window of random size and resizes it.
    ResizedCrop(ResizedCrop),
    /// Resizes.
    Resize(Resize),
    /// Puts pixels below and to the right.
    PadTo(PadTo),
    /// Erases a rectangle.
    Erase(Erase),
    /// Copies all pixels of a label from another sample.
    Transplant(Transplant),
    /// Copies a rectangle from another sample.
    CutmixRect(CutMix),
    /// Mixes with another sample.
    Mixup(MixUp),
    /// Puts cells in another order.
    Jigsaw(Jigsaw),
    /// Hides patches.
    HideAndSeek(HideAndSeek),
    /// Multiplies by a number.
    Gain(Scalar),
    /// Adds a number.
    Offset(Scalar),
    /// Adds noise.
    GaussianNoise(GaussianNoise),
    /// Replaces whole bands.
    BandDropout(BandDropout),
    /// Multiplies every band.
    BandJitter(BandNoise),
    /// Shifts every band's values.
    BandOffset(BandNoise),
    /// Shifts spectra along the bands.
    SpectralShift(SpectralShift),
    /// Smooths spectra.
    SpectralSmooth(SpectralSmooth),
    /// Maps spectra linearly.
    Projection(Projection),
    /// Lights from a side.
    IlluminationRamp(IlluminationRamp),
    /// Blurs every band.
    GaussianBlur(GaussianBlur),
    /// Spectra with a sum of absolute values of 1.
    L1Normalize(Normalize),
    /// Spectra of length 1.
    L2Normalize(Normalize),
    /// Spectra with mean 0 and standard deviation 1.
    Snv(Normalize),
    /// Standardises bands.
    Standardize(Standardize),
    /// Gives samples back that lost all their valid pixels.
    ValidGuard(ValidGuard),
}

/// What was drawn for one sample and one augmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "drawn", rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)] // the names say it; units are those of the augmentations' options
pub enum Drawn {
    /// Applied; there is nothing to draw.
    Plain,
    /// Quarter turns, counter-clockwise.
    Turns { turns: u8 },
    /// Degrees, factors of x and y, pixels along x and y, degrees.
    Affine { angle: f64, scale: [f64; 2], translation: [f64; 2], shear: [f64; 2] },
    /// Degrees.
    Rotate { angle: f64 },
    /// Corners (x, y) before and after: top left, top right, bottom right, bottom left.
    Perspective { from: [[f64; 2]; 4], to: [[f64; 2]; 4] },
    /// What a field or noise is made from.
    Seed { seed: u64 },
    /// The window's first column and row, its size.
    Window { x: usize, y: usize, width: usize, height: usize },
    /// The rectangle, and a random spectrum if one was asked for.
    Erase { x: usize, y: usize, width: usize, height: usize, spectrum: Option<Vec<f64>> },
    /// The donor's place in the batch; which of its labels (0 … 1 over those it may give), or the label itself.
    Transplant { donor: usize, pick: f64, label: Option<i64> },
    /// The donor's place in the batch, the rectangle, and its share of the frame's area.
    CutMix { donor: usize, x: usize, y: usize, width: usize, height: usize, lambda: f64 },
    /// The donor's place in the batch and its share.
    MixUp { donor: usize, lambda: f64 },
    /// For every cell, counted column by column, the cell that comes there, counted row by row.
    Jigsaw { order: Vec<usize> },
    /// Size of the patches (rows, columns), and which are hidden, counted row by row.
    Patches { size: [usize; 2], hidden: Vec<usize> },
    /// A factor, summand, width or shift.
    Number { value: f64 },
    /// One number for each band.
    Numbers { values: Vec<f64> },
    /// Bands, counted from 0.
    Bands { bands: Vec<usize> },
    /// Strength, and direction in radians from the x axis towards the y axis.
    Ramp { strength: f64, direction: f64 },
}

impl Drawn {
    /// The error of parameters that belong to something else.
    pub(crate) fn misfit(&self, op: &str) -> Error {
        Error::conflict(format!("parameters {self:?} do not fit {op}"))
            .with_remedy("replay parameters with the pipeline and the frame that drew them")
    }
}

/// What one augmentation needs to know to draw for one sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    /// Seed and epoch.
    pub key: [u64; 2],
    /// Number of the augmentation in its list.
    pub op: usize,
    /// Sample and repeat of every place in the batch.
    pub samples: &'a [SampleKey],
    /// The frame that the augmentation is given.
    pub frame: Frame,
}

/// What a sample's parameters are drawn from, beside seed and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleKey {
    /// The sample's id.
    pub sample: usize,
    /// Which of the sample's items in the epoch it is.
    pub repeat: u64,
}

/// An [`Op`] that mirrors left and right.
pub(crate) struct HorizontalFlip;
/// An [`Op`] that mirrors top and bottom.
pub(crate) struct VerticalFlip;

impl Op {
    /// The name in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Hflip(_) => "hflip",
            Op::Vflip(_) => "vflip",
            Op::Rot90(_) => "rot90",
            Op::Affine(_) => "affine",
            Op::Rotate(_) => "rotate",
            Op::Perspective(_) => "perspective",
            Op::Elastic(_) => "elastic",
            Op::RandomCrop(_) => "random_crop",
            Op::CenterCrop(_) => "center_crop",
            Op::ResizedCrop(_) => "resized_crop",
            Op::Resize(_) => "resize",
            Op::PadTo(_) => "pad_to",
            Op::Erase(_) => "erase",
            Op::Transplant(_) => "transplant",
            Op::CutmixRect(_) => "cutmix_rect",
            Op::Mixup(_) => "mixup",
            Op::Jigsaw(_) => "jigsaw",
            Op::HideAndSeek(_) => "hide_and_seek",
            Op::Gain(_) => "gain",
            Op::Offset(_) => "offset",
            Op::GaussianNoise(_) => "gaussian_noise",
            Op::BandDropout(_) => "band_dropout",
            Op::BandJitter(_) => "band_jitter",
            Op::BandOffset(_) => "band_offset",
            Op::SpectralShift(_) => "spectral_shift",
            Op::SpectralSmooth(_) => "spectral_smooth",
            Op::Projection(_) => "projection",
            Op::IlluminationRamp(_) => "illumination_ramp",
            Op::GaussianBlur(_) => "gaussian_blur",
            Op::L1Normalize(_) => "l1_normalize",
            Op::L2Normalize(_) => "l2_normalize",
            Op::Snv(_) => "snv",
            Op::Standardize(_) => "standardize",
            Op::ValidGuard(_) => "valid_guard",
        }
    }

    /// Share of the samples it is applied to.
    pub fn p(&self) -> f64 {
        match self {
            Op::Hflip(op) | Op::Vflip(op) => op.p,
            Op::Rot90(op) => op.p,
            Op::Affine(op) => op.p,
            Op::Rotate(op) => op.p,
            Op::Perspective(op) => op.p,
            Op::Elastic(op) => op.p,
            Op::Erase(op) => op.p,
            Op::Transplant(op) => op.p,
            Op::CutmixRect(op) => op.p,
            Op::Mixup(op) => op.p,
            Op::Jigsaw(op) => op.p,
            Op::HideAndSeek(op) => op.p,
            Op::Gain(op) | Op::Offset(op) => op.p,
            Op::GaussianNoise(op) => op.p,
            Op::BandDropout(op) => op.p,
            Op::BandJitter(op) | Op::BandOffset(op) => op.p,
            Op::SpectralShift(op) => op.p,
            Op::SpectralSmooth(op) => op.p,
            Op::Projection(op) => op.p,
            Op::IlluminationRamp(op) => op.p,
            Op::GaussianBlur(op) => op.p,
            Op::L1Normalize(op) | Op::L2Normalize(op) | Op::Snv(op) => op.p,
            Op::Standardize(op) => op.p,
            Op::RandomCrop(_)
            | Op::CenterCrop(_)
            | Op::ResizedCrop(_)
            | Op::Resize(_)
            | Op::PadTo(_)
            | Op::ValidGuard(_) => 1.0,
        }
    }

    /// What it does to pixels' places, if that is what it does.
    pub(crate) fn geometric(&self) -> Option<Box<dyn Geometric + '_>> {
        Some(match self {
            Op::Hflip(_) => Box::new(HorizontalFlip),
            Op::Vflip(_) => Box::new(VerticalFlip),
            Op::Rot90(op) => Box::new(op),
            Op::Affine(op) => Box::new(op),
            Op::Rotate(op) => Box::new(op),
            Op::Perspective(op) => Box::new(op),
            Op::Elastic(op) => Box::new(op),
            Op::RandomCrop(op) => Box::new(op),
            Op::CenterCrop(op) => Box::new(op),
            Op::ResizedCrop(op) => Box::new(op),
            Op::Resize(op) => Box::new(op),
            Op::PadTo(op) => Box::new(op),
            _ => return None,
        })
    }

    /// Whether it says who was mixed with whom, for labels to be mixed alike.
    pub(crate) fn mixes_images(&self) -> bool {
        matches!(self, Op::Mixup(_) | Op::CutmixRect(_))
    }

    /// Names of the masks it needs, as far as it names them.
    pub(crate) fn masks(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Op::Transplant(op) => [op.mask.as_deref(), op.valid.as_deref()],
            Op::Projection(op) => [op.mask.as_deref(), None],
            Op::ValidGuard(op) => [Some(op.mask.as_str()), None],
            _ => [None, None],
        };
        names.into_iter().flatten()
    }

    /// Whether it needs a mask, the first one if it names none.
    pub(crate) fn needs_mask(&self) -> bool {
        match self {
            Op::Transplant(_) | Op::ValidGuard(_) => true,
            Op::Projection(op) => op.labels.is_some(),
            _ => false,
        }
    }

    /// The frame that comes out.
    ///
    /// # Errors
    /// If the options mean nothing, or do not fit the frame.
    pub fn frame(&self, frame: Frame) -> Result<Frame> {
        self.check(frame)?;
        self.geometric().map_or(Ok(frame), |op| op.frame(frame))
    }

    fn check(&self, frame: Frame) -> Result<()> {
        if !(0.0..=1.0).contains(&self.p()) {
            return Err(Error::conflict(format!("{} with p = {}", self.name(), self.p()))
                .with_remedy("give a share of the samples, from 0 to 1"));
        }
        match self {
            Op::Rot90(op) if op.turns[0] > op.turns[1] => {
                Err(Error::conflict(format!("rot90 by {} to {} turns", op.turns[0], op.turns[1]))
                    .with_remedy("give [least, most]"))
            }
            Op::Affine(op) => op.check(),
            Op::Rotate(op) => op.degrees.check("degrees", f64::NEG_INFINITY, f64::INFINITY),
            Op::Perspective(op) => super::Range::only(op.distortion).check("distortion", 0.0, 1.0),
            Op::Elastic(op) => op.check(),
            Op::ResizedCrop(op) => op.check(),
            Op::Erase(op) => op.check(),
            Op::CutmixRect(op) => op.check(),
            Op::Mixup(op) => op.lambda.check("lambda", 0.0, 1.0),
            Op::Jigsaw(op) => op.check(frame),
            Op::HideAndSeek(op) => op.check(),
            Op::Gain(op) | Op::Offset(op) => {
                op.range.check("range", f64::NEG_INFINITY, f64::INFINITY)
            }
            Op::GaussianNoise(op) => super::Range::only(op.std).check("std", 0.0, f64::INFINITY),
            Op::BandDropout(op) => op.check(frame),
            Op::BandJitter(op) | Op::BandOffset(op) => op.check(),
            Op::SpectralShift(op) => op.check(),
            Op::SpectralSmooth(op) => op.sigma.check("sigma", 0.0, 1e6),
            Op::Projection(op) => op.check(frame),
            Op::IlluminationRamp(op) => {
                op.strength.check("strength", f64::NEG_INFINITY, f64::INFINITY)
            }
            Op::GaussianBlur(op) => op.check(frame),
            Op::Standardize(op) => op.check(frame),
            _ => Ok(()),
        }
        .map_err(|error| error.within(self.name()))
    }

    /// Draws for all samples of a batch; `None` where it is not applied.
    pub(crate) fn draw(&self, draw: Draw<'_>) -> Result<Vec<Option<Drawn>>> {
        let donors = if self.mixes() { draw.donors() } else { vec![0; draw.samples.len()] };
        (0..draw.samples.len())
            .map(|place| {
                let mut random = draw.random(place);
                // The gate first, so that it does not depend on what is drawn beside it.
                let on = random.unit() < self.p();
                let on = match self {
                    Op::Transplant(op) => op.fixed(place, draw.samples.len()).unwrap_or(on),
                    _ => on,
                };
                on.then(|| self.draw_one(place, donors[place], draw, &mut random)).transpose()
            })
            .collect()
    }

    fn mixes(&self) -> bool {
        matches!(self, Op::CutmixRect(_) | Op::Mixup(_))
    }

    fn draw_one(
        &self,
        place: usize,
        donor: usize,
        draw: Draw<'_>,
        random: &mut Random,
    ) -> Result<Drawn> {
        let frame = draw.frame;
        Ok(match self {
            Op::Rot90(op) => op.draw(frame, random)?,
            Op::Affine(op) => op.draw(frame, random),
            Op::Rotate(op) => op.draw(random),
            Op::Perspective(op) => op.draw(frame, random),
            Op::RandomCrop(op) => op.draw(frame, random),
            Op::ResizedCrop(op) => op.draw(frame, random),
            Op::Erase(op) => op.draw(frame, random),
            Op::Transplant(op) => op.draw(place, draw.samples.len(), random),
            Op::CutmixRect(op) => op.draw(donor, frame, random),
            Op::Mixup(op) => op.draw(donor, random),
            Op::Jigsaw(op) => op.draw(random),
            Op::HideAndSeek(op) => op.draw(frame, random),
            Op::Gain(op) | Op::Offset(op) => op.draw(random),
            Op::BandDropout(op) => op.draw(frame, random),
            Op::BandJitter(op) | Op::BandOffset(op) => op.draw(frame, random),
            Op::SpectralShift(op) => op.draw(random),
            Op::SpectralSmooth(op) => Drawn::Number { value: op.sigma.draw(random) },
            Op::IlluminationRamp(op) => op.draw(random),
            Op::GaussianBlur(op) => Drawn::Number { value: op.sigma.draw(random) },
            // Seeds stay whole numbers where JSON's readers take numbers for float64.
            Op::Elastic(_) | Op::GaussianNoise(_) => Drawn::Seed { seed: random.bits() >> 11 },
            Op::Hflip(_)
            | Op::Vflip(_)
            | Op::CenterCrop(_)
            | Op::Resize(_)
            | Op::PadTo(_)
            | Op::Projection(_)
            | Op::L1Normalize(_)
            | Op::L2Normalize(_)
            | Op::Snv(_)
            | Op::Standardize(_)
            | Op::ValidGuard(_) => Drawn::Plain,
        })
    }
}

impl Draw<'_> {
    fn random(&self, place: usize) -> Random {
        let SampleKey { sample, repeat } = self.samples[place];
        let [seed, epoch] = self.key;
        Random::keyed(Stream::Augment, [seed, epoch, sample as u64, repeat, self.op as u64])
    }

    /// For every place the one that gives to it: a permutation that depends on who is in the batch.
    fn donors(&self) -> Vec<usize> {
        let [seed, epoch] = self.key;
        let batch = fold(self.samples.iter().flat_map(|key| [key.sample as u64, key.repeat]));
        let mut random = Random::keyed(Stream::Mix, [seed, epoch, batch, self.op as u64]);
        let mut donors: Vec<usize> = (0..self.samples.len()).collect();
        random.shuffle(&mut donors);
        donors
    }
}

fn size(what: &str, size: [usize; 2]) -> Result<()> {
    if size[0] > 0 && size[1] > 0 {
        return Ok(());
    }
    Err(Error::conflict(format!("{what} to {} x {}", size[0], size[1]))
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
