//! Augmentations that change values but do not move pixels.

use std::f64::consts::TAU;

use serde::{Deserialize, Deserializer, Serialize};

use super::bands::drawn;
use super::{Action, Augmentation, Bands, BatchPosition, Op, Single, Spectra, half, one};
use crate::drawn::{Drawn, applied, each, which};
use crate::frame::Frame;
use crate::operation::{Blank, ByBand, Linear, Operation, Rectangle};
use crate::range::{Range, normal};
use hsipack_format::random::Random;
use hsipack_format::{Error, Result, SpectralNorm};

/// A number for all bands, or one per band. JSON has no NaN, so `null` stands for it in a list of
/// bands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PerBand {
    /// The same number for all bands.
    Same(f64),
    /// One number per band.
    Each(#[serde(deserialize_with = "numbers_or_nan")] Vec<f64>),
}

fn numbers_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(deserializer)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

impl PerBand {
    /// The numbers of `bands` bands.
    pub(crate) fn of(&self, what: &str, bands: usize) -> Result<Vec<f64>> {
        match self {
            Self::Same(value) => Ok(vec![*value; bands]),
            Self::Each(values) if values.len() == bands => Ok(values.clone()),
            Self::Each(values) => Err(Error::conflict(format!(
                "{what} has {} numbers, but the images have {bands} bands",
                values.len()
            ))
            .with_remedy("give one number for each band, or one number for all")),
        }
    }
}

/// The value of erased pixels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// A random spectrum whose absolute values sum to 1, drawn for every sample.
    RandomL1,
    /// A number, or a spectrum.
    #[serde(untagged)]
    Value(PerBand),
}

/// Erases a rectangle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Erase {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Area of the rectangle, as a share of the frame's area.
    pub scale: Range,
    /// Aspect ratio of the rectangle, height to width.
    pub ratio: Range,
    /// Value of erased pixels: a number, a spectrum (for example of a cloth) or `random_l1`.
    pub value: Fill,
}

/// Multiplies by (`gain`) or adds (`offset`) one number for all pixels and bands, like Kornia's
/// RandomContrast and RandomBrightness without clipping. Kornia's brightness f adds f - 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scalar {
    /// Share of the samples it is applied to.
    #[serde(default = "one")]
    pub p: f64,
    /// The factor or the summand.
    pub range: Range,
}

/// Adds independent normal noise to every value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussianNoise {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

/// Replaces whole bands with other values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BandDropout {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Minimum and maximum number of bands, or of groups.
    pub bands: [usize; 2],
    /// Whether the bands, or groups, are adjacent.
    pub contiguous: bool,
    /// Bands that are replaced together, such as those of one detector. If empty, each band by
    /// itself.
    pub groups: Vec<Vec<usize>>,
    /// Value of the replaced bands: a number, or one per band (for example the dataset's means).
    pub fill: PerBand,
}

/// Multiplies every band by 1 + ε (`band_jitter`) or adds ε (`band_offset`). ε is normally
/// distributed and smooth along the bands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BandNoise {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Standard deviation of ε.
    pub sigma: f64,
    /// Number of bands over which ε is similar: the width of the Gaussian that smooths it; 0 for
    /// independent bands.
    pub correlation: f64,
}

/// Shifts spectra by a fraction of a band, like a badly calibrated sensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpectralShift {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Largest shift in bands.
    pub max_bands: f64,
}

/// Smooths spectra with a Gaussian, like a sensor of lower resolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpectralSmooth {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Width of the Gaussian in bands.
    pub sigma: Range,
}

/// Maps spectra linearly: y = x·matrix + offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// Share of the samples it is applied to.
    #[serde(default = "half")]
    pub p: f64,
    /// Rows are bands of x, columns are bands of y.
    pub matrix: Vec<Vec<f64>>,
    /// Added after the product.
    #[serde(default = "zero")]
    pub offset: PerBand,
    /// Maps only pixels with these labels; all pixels if none are given.
    #[serde(default)]
    pub labels: Option<Vec<i64>>,
    /// The mask with the labels; the first mask if none is named.
    #[serde(default)]
    pub mask: Option<String>,
}

/// Lights the image from one side: x·(1 + strength·(u·cos φ + v·sin φ)), with u and v from -1 to 1
/// across the frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IlluminationRamp {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Strength.
    pub strength: Range,
}

/// Blurs every band with a Gaussian.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GaussianBlur {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Size of the kernel in rows and columns; must be odd.
    pub kernel: [usize; 2],
    /// Width of the Gaussian in pixels.
    pub sigma: Range,
}

/// Normalises the spectrum of every pixel by the rules of [`hsipack_format::spectrum`]: to a sum of
/// absolute values of 1 (`l1_normalize`), to length 1 (`l2_normalize`), or to mean 0 and standard
/// deviation 1 (`snv`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Normalize {
    /// Share of the samples it is applied to.
    pub p: f64,
}

/// Standardises bands: (x - mean)/std. If the mean or standard deviation of a band is NaN, because
/// the band had no values when they were computed, the band stays as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standardize {
    /// Share of the samples it is applied to.
    #[serde(default = "one")]
    pub p: f64,
    /// Mean of all values, or of every band.
    pub mean: PerBand,
    /// Standard deviation of all values, or of every band.
    pub std: PerBand,
}

/// Restores a sample, images and masks, if a mask has no valid pixels left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidGuard {
    /// The mask of valid pixels.
    pub mask: String,
}

impl Default for Erase {
    fn default() -> Self {
        let (scale, ratio) = (Range::new(0.02, 0.33), Range::new(0.3, 3.3));
        Self { p: half(), scale, ratio, value: Fill::Value(zero()) }
    }
}

impl Augmentation for Erase {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.scale.check("scale", 0.0, 1.0)?;
        self.ratio.check("ratio", f64::MIN_POSITIVE, f64::INFINITY)
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let area = self.scale.draw(random) * (frame.rows * frame.columns) as f64;
        let Range { low, high } = self.ratio;
        // As in Kornia: if the range includes both, ratios below 1 and above 1 are equally likely.
        let ratio = if low < 1.0 && high > 1.0 {
            let (below, above) =
                (Range::new(low, 1.0).draw(random), Range::new(1.0, high).draw(random));
            if random.unit() < 0.5 { below } else { above }
        } else {
            self.ratio.draw(random)
        };
        let side =
            |length: f64, most: usize| (length.sqrt().round_ties_even() as usize).clamp(1, most);
        let height = side(area * ratio, frame.rows);
        let width = side(area / ratio, frame.columns);
        let x = random.below((frame.columns - width + 1) as u64) as usize;
        let y = random.below((frame.rows - height + 1) as u64) as usize;
        let spectrum = match self.value {
            Fill::Value(_) => None,
            Fill::RandomL1 => {
                let values: Vec<f64> = (0..frame.bands).map(|_| random.unit()).collect();
                let sum: f64 = values.iter().sum();
                Some(values.into_iter().map(|value| value / sum).collect())
            }
        };
        Ok(Drawn::Erase { x, y, width, height, spectrum })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for Erase {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let mut blanks = Vec::new();
        for (sample, drawn) in applied(drawn) {
            let Drawn::Erase { x, y, width, height, spectrum } = drawn else {
                return Err(drawn.misfit(op.name()));
            };
            let values = match (&self.value, spectrum) {
                (_, Some(spectrum)) if spectrum.len() == frame.bands => spectrum.clone(),
                (Fill::Value(value), None) => value.of("the value of erase", frame.bands)?,
                _ => return Err(drawn.misfit(op.name())),
            };
            let rectangle = Rectangle::new([*x, *y, *width, *height], frame)?;
            blanks.push(Blank { sample, rectangle, values });
        }
        Ok(Operation::Blank(blanks))
    }
}

impl Augmentation for Scalar {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.range.check("range", f64::NEG_INFINITY, f64::INFINITY)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::Number { value: self.range.draw(random) })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Bands(self)
    }
}

impl Bands for Scalar {
    fn then(&self, op: &Op, drawn: &Drawn, by: &mut ByBand) -> Result<()> {
        let Drawn::Number { value } = drawn else { return Err(drawn.misfit(op.name())) };
        let all = std::iter::repeat_n(*value, by.bands());
        if matches!(op, Op::Gain(_)) {
            by.then_scale(all);
        } else {
            by.then_add(all);
        }
        Ok(())
    }
}

impl Default for GaussianNoise {
    fn default() -> Self {
        Self { p: half(), mean: 0.0, std: one() }
    }
}

impl Augmentation for GaussianNoise {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.std).check("std", 0.0, f64::INFINITY)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::seed(random))
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for GaussianNoise {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        let seeds = each(drawn, |drawn| match drawn {
            Drawn::Seed { seed } => Ok(*seed),
            _ => Err(drawn.misfit(op.name())),
        })?;
        Ok(Operation::Noise { seeds, mean: self.mean, std: self.std })
    }
}

impl Default for BandDropout {
    fn default() -> Self {
        Self { p: half(), bands: [1, 1], contiguous: false, groups: Vec::new(), fill: zero() }
    }
}

impl Augmentation for BandDropout {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, frame: Frame) -> Result<()> {
        let [least, most] = self.bands;
        if let Some(band) = self.groups.iter().flatten().find(|band| **band >= frame.bands) {
            let what = format!("its groups name band {band}, but there are {} bands", frame.bands);
            return Err(Error::conflict(what).with_remedy("bands are numbered from 0"));
        }
        let all = self.units(frame);
        if least <= most && most <= all {
            return Ok(());
        }
        let unit = if self.groups.is_empty() { "bands" } else { "groups" };
        Err(Error::conflict(format!("it cannot drop {least} to {most} of {all} {unit}"))
            .with_remedy(format!(
                "give [least, most] with least <= most, and most at most the number of {unit}"
            )))
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let [least, most] = self.bands;
        let count = least + random.below((most - least + 1) as u64) as usize;
        let mut bands = drawn(self.units(frame), count, self.contiguous, random);
        if !self.groups.is_empty() {
            bands = bands.iter().flat_map(|group| &self.groups[*group]).copied().collect();
        }
        bands.sort_unstable();
        bands.dedup();
        Ok(Drawn::Bands { bands })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Bands(self)
    }
}

impl BandDropout {
    /// Number of bands or groups to choose from.
    fn units(&self, frame: Frame) -> usize {
        if self.groups.is_empty() { frame.bands } else { self.groups.len() }
    }
}

impl Bands for BandDropout {
    fn then(&self, op: &Op, drawn: &Drawn, by: &mut ByBand) -> Result<()> {
        match drawn {
            Drawn::Bands { bands } if bands.iter().all(|band| *band < by.bands()) => {
                let fill = self.fill.of("the fill of band_dropout", by.bands())?;
                by.then_replace(bands, &fill);
                Ok(())
            }
            _ => Err(drawn.misfit(op.name())),
        }
    }
}

impl Default for BandNoise {
    fn default() -> Self {
        Self { p: half(), sigma: 0.05, correlation: 0.0 }
    }
}

impl Augmentation for BandNoise {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.sigma).check("sigma", 0.0, f64::INFINITY)?;
        Range::only(self.correlation).check("correlation", 0.0, 1e6)
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        // Normal numbers that are smooth along the bands, each with standard deviation sigma.
        let reach = (4.0 * self.correlation).ceil() as usize;
        let white: Vec<f64> = (0..frame.bands + 2 * reach).map(|_| normal(random)).collect();
        let weights = gaussian(self.correlation, reach);
        let length = weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt();
        let smooth = white.windows(2 * reach + 1).map(|window| {
            let sum: f64 = window.iter().zip(&weights).map(|(value, weight)| value * weight).sum();
            self.sigma * sum / length
        });
        Ok(Drawn::Numbers { values: smooth.collect() })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Bands(self)
    }
}

impl Bands for BandNoise {
    fn then(&self, op: &Op, drawn: &Drawn, by: &mut ByBand) -> Result<()> {
        match drawn {
            Drawn::Numbers { values } if values.len() == by.bands() => {
                if matches!(op, Op::BandJitter(_)) {
                    by.then_scale(values.iter().map(|value| 1.0 + value));
                } else {
                    by.then_add(values.iter().copied());
                }
                Ok(())
            }
            _ => Err(drawn.misfit(op.name())),
        }
    }
}

/// Weights of a Gaussian at -reach … reach, with a sum of 1.
pub(crate) fn gaussian(sigma: f64, reach: usize) -> Vec<f64> {
    let at = |index: usize| {
        let distance = index as f64 - reach as f64;
        if sigma > 0.0 {
            (-distance * distance / (2.0 * sigma * sigma)).exp()
        } else {
            f64::from(u8::from(distance == 0.0))
        }
    };
    let weights: Vec<f64> = (0..=2 * reach).map(at).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The pixel at `position` - `reach`, mirrored at the outermost of `size` pixels.
pub(crate) fn mirrored(position: usize, reach: usize, size: usize) -> usize {
    let last = size as i64 - 1;
    let position = (position as i64 - reach as i64).abs();
    (if position > last { 2 * last - position } else { position }).max(0) as usize
}

impl Default for SpectralShift {
    fn default() -> Self {
        Self { p: half(), max_bands: one() }
    }
}

impl Augmentation for SpectralShift {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.max_bands).check("max_bands", 0.0, 1e6)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::Number { value: Range::around_zero(self.max_bands).draw(random) })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Spectra(self)
    }
}

impl Spectra for SpectralShift {
    fn weights(&self, value: f64, band: usize, bands: usize) -> Vec<(f64, f64)> {
        let position = (band as f64 + value).clamp(0.0, bands as f64 - 1.0);
        vec![(position.floor(), 1.0 - position.fract()), (position.floor() + 1.0, position.fract())]
    }
}

impl Default for SpectralSmooth {
    fn default() -> Self {
        Self { p: half(), sigma: Range::new(0.5, 2.0) }
    }
}

impl Augmentation for SpectralSmooth {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.sigma.check("sigma", 0.0, 1e6)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::Number { value: self.sigma.draw(random) })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Spectra(self)
    }
}

impl Spectra for SpectralSmooth {
    fn weights(&self, value: f64, band: usize, _: usize) -> Vec<(f64, f64)> {
        let reach = (4.0 * value).ceil() as usize;
        let weights = gaussian(value, reach).into_iter().enumerate();
        weights.map(|(tap, weight)| ((band + tap) as f64 - reach as f64, weight)).collect()
    }
}

impl Augmentation for Projection {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, frame: Frame) -> Result<()> {
        let square = self.matrix.iter().all(|row| row.len() == frame.bands);
        if !square || self.matrix.len() != frame.bands {
            return Err(Error::conflict(format!(
                "the projection's matrix is not {0} x {0}, but the images have {0} bands",
                frame.bands
            ))
            .with_remedy("give one row for each band, with one number for each band"));
        }
        self.offset.of("the projection's offset", frame.bands).map(drop)
    }

    fn masks(&self) -> [Option<&str>; 2] {
        [self.mask.as_deref(), None]
    }

    fn needs_mask(&self) -> bool {
        self.labels.is_some()
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for Projection {
    fn pass(&self, _: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let map: Vec<f64> = self.matrix.iter().flatten().copied().collect();
        let offset = self.offset.of("the projection's offset", frame.bands)?;
        let linear = Linear { map, offset };
        let maps = drawn.iter().map(|drawn| drawn.as_ref().map(|_| linear.clone())).collect();
        let labels = self.labels.clone();
        Ok(Operation::Linear(maps, labels.map(|labels| (self.mask.clone(), labels))))
    }
}

impl Default for IlluminationRamp {
    fn default() -> Self {
        Self { p: half(), strength: Range::new(0.0, 0.3) }
    }
}

impl Augmentation for IlluminationRamp {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.strength.check("strength", f64::NEG_INFINITY, f64::INFINITY)
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        let strength = self.strength.draw(random);
        Ok(Drawn::Ramp { strength, direction: TAU * random.unit() })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for IlluminationRamp {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        Ok(Operation::Ramp(each(drawn, |drawn| match drawn {
            Drawn::Ramp { strength, direction } => {
                Ok([strength * direction.cos(), strength * direction.sin()])
            }
            _ => Err(drawn.misfit(op.name())),
        })?))
    }
}

impl Default for GaussianBlur {
    fn default() -> Self {
        Self { p: half(), kernel: [3, 3], sigma: Range::new(0.1, 2.0) }
    }
}

impl Augmentation for GaussianBlur {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, frame: Frame) -> Result<()> {
        self.sigma.check("sigma", f64::MIN_POSITIVE, f64::INFINITY)?;
        let [rows, columns] = self.kernel;
        let odd = rows % 2 == 1 && columns % 2 == 1;
        if odd && rows / 2 < frame.rows && columns / 2 < frame.columns {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "a kernel of {rows} x {columns} cannot blur a frame of {} x {}",
            frame.rows, frame.columns
        ))
        .with_remedy("give odd sizes, less than twice the frame's size"))
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        Ok(Drawn::Number { value: self.sigma.draw(random) })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for GaussianBlur {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        Ok(Operation::Blur(each(drawn, |drawn| match drawn {
            Drawn::Number { value } => Ok(self.kernel.map(|size| gaussian(*value, size / 2))),
            _ => Err(drawn.misfit(op.name())),
        })?))
    }
}

impl Default for Normalize {
    fn default() -> Self {
        Self { p: one() }
    }
}

impl Augmentation for Normalize {
    fn p(&self) -> f64 {
        self.p
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for Normalize {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        let norm = match op {
            Op::L1Normalize(_) => SpectralNorm::L1,
            Op::L2Normalize(_) => SpectralNorm::L2,
            _ => SpectralNorm::Snv,
        };
        Ok(Operation::Normalize(norm, which(drawn)))
    }
}

impl Augmentation for Standardize {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, frame: Frame) -> Result<()> {
        self.mean.of("the mean", frame.bands)?;
        match self.std.of("the standard deviation", frame.bands)?.iter().find(|std| **std <= 0.0) {
            Some(std) => Err(Error::conflict(format!("the standard deviation of a band is {std}"))
                .with_remedy("give numbers above 0; for constant bands, give 1")),
            None => Ok(()),
        }
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Bands(self)
    }
}

impl Bands for Standardize {
    fn then(&self, op: &Op, drawn: &Drawn, by: &mut ByBand) -> Result<()> {
        let Drawn::Plain = drawn else { return Err(drawn.misfit(op.name())) };
        let (mean, std) =
            (self.mean.of("the mean", by.bands())?, self.std.of("the std", by.bands())?);
        by.then_standardize(&mean, &std);
        Ok(())
    }
}

impl Augmentation for ValidGuard {
    fn masks(&self) -> [Option<&str>; 2] {
        [Some(&self.mask), None]
    }

    fn needs_mask(&self) -> bool {
        true
    }

    fn moves_boxes(&self) -> bool {
        false
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for ValidGuard {
    fn pass(&self, _: &Op, _: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        Ok(Operation::Guard(self.mask.clone()))
    }
}

fn zero() -> PerBand {
    PerBand::Same(0.0)
}
