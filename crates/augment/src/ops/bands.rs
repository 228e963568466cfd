//! Augmentations that give images other bands.

use hsipack_format::random::Random;
use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands, SpectralResponse};
use hsipack_format::{Error, Result, option_names};
use serde::{Deserialize, Serialize};

use super::{Action, Augmentation, BatchPosition, Op, Single, no, yes};
use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::operation::Operation;

/// Whether a random choice holds for a batch or for an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// One for all items of a batch. It depends on which samples the batch has.
    #[default]
    Batch,
    /// One for each item.
    Item,
}

option_names!(Per, "per", { Batch => "batch", Item => "item" });

/// Keeps random bands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomBands {
    /// Number of bands that are kept.
    pub count: usize,
    /// Whether they are adjacent.
    #[serde(default = "no")]
    pub contiguous: bool,
    /// Whether they are drawn once for a batch, or for each item.
    #[serde(default)]
    pub per: Per,
    /// Whether they keep their order. Otherwise the order is random, too.
    #[serde(default = "yes")]
    pub sorted: bool,
}

/// Draws `count` of `all`; adjacent and sorted if asked for.
pub(super) fn drawn(all: usize, count: usize, contiguous: bool, random: &mut Random) -> Vec<usize> {
    if contiguous {
        let first = random.below((all - count + 1) as u64) as usize;
        return (first..first + count).collect();
    }
    let mut chosen: Vec<usize> = (0..all).collect();
    random.shuffle(&mut chosen);
    chosen.truncate(count);
    chosen
}

impl Augmentation for RandomBands {
    fn check(&self, frame: Frame) -> Result<()> {
        if (1..=frame.bands).contains(&self.count) {
            return Ok(());
        }
        Err(Error::conflict(format!("it cannot keep {} of {} bands", self.count, frame.bands))
            .with_remedy("give a count from 1 to the number of bands"))
    }

    fn bands(&self, _: Frame) -> usize {
        self.count
    }

    fn draws_for_batches(&self) -> bool {
        self.per == Per::Batch
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let mut bands = drawn(frame.bands, self.count, self.contiguous, random);
        match self.sorted {
            true => bands.sort_unstable(),
            false => random.shuffle(&mut bands),
        }
        Ok(Drawn::Bands { bands })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for RandomBands {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let chosen = drawn.iter().map(|drawn| match drawn {
            Some(Drawn::Bands { bands })
                if bands.len() == self.count && bands.iter().all(|band| *band < frame.bands) =>
            {
                Ok(bands.clone())
            }
            Some(other) => Err(other.misfit(op.name())),
            None => Err(Drawn::Plain.misfit(op.name())),
        });
        Ok(Operation::Select(chosen.collect::<Result<_>>()?))
    }
}

/// The bands of images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageBands {
    /// Centres in nm.
    pub wavelengths: Vec<f64>,
    /// Full widths at half maximum in nm; a width that is not above 0 is unknown.
    #[serde(default)]
    pub fwhm: Option<Vec<f64>>,
    /// Which bands are valid; all if `None`.
    #[serde(default)]
    pub valid: Option<Vec<bool>>,
}

impl ImageBands {
    fn sensor(&self) -> SensorBands<'_> {
        let Self { wavelengths, fwhm, valid } = self;
        SensorBands { wavelengths, fwhm: fwhm.as_deref(), valid: valid.as_deref() }
    }
}

/// Resamples spectra to other bands, by the rules of [`hsipack_format::spectral_response`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResampleBands {
    /// Centres of the new bands in nm.
    pub wavelengths: Vec<f64>,
    /// Their full widths at half maximum in nm; a width that is not above 0 is unknown.
    #[serde(default)]
    pub fwhm: Option<Vec<f64>>,
    /// The bands before it, which [`Pipeline::with_bands`](crate::Pipeline::with_bands) sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<ImageBands>,
}

impl ResampleBands {
    fn source(&self) -> Result<&ImageBands> {
        self.source.as_ref().ok_or_else(|| {
            Error::conflict("the wavelengths of the images are unknown").with_remedy(
                "augment batches of a loader, or dictionaries with the keys image and wavelength",
            )
        })
    }

    /// The weights of the bands before it.
    ///
    /// # Errors
    /// If these bands are unknown, or bands cannot exist.
    pub(crate) fn response(&self) -> Result<SpectralResponse> {
        let source = self.source()?;
        let target =
            SensorBands { wavelengths: &self.wavelengths, fwhm: self.fwhm.as_deref(), valid: None };
        SpectralResponse::new(source.sensor(), target, MIN_COVERAGE)
    }

    /// The bands after it.
    pub(crate) fn target(&self) -> Result<ImageBands> {
        let valid = Some(self.response()?.valid().to_vec());
        Ok(ImageBands { wavelengths: self.wavelengths.clone(), fwhm: self.fwhm.clone(), valid })
    }
}

impl Augmentation for ResampleBands {
    fn check(&self, frame: Frame) -> Result<()> {
        let bands = self.source()?.wavelengths.len();
        match bands == frame.bands {
            true => Ok(()),
            false => Err(Error::conflict(format!(
                "there are {bands} wavelengths for images of {} bands",
                frame.bands
            ))
            .with_remedy("give the wavelengths of the images")),
        }
    }

    fn check_draws(&self, _: Frame) -> Result<()> {
        match self.response()?.valid().contains(&true) {
            true => Ok(()),
            false => Err(Error::conflict(format!(
                "the images have no bands at the {} wavelengths, from {} to {} nm",
                self.wavelengths.len(),
                self.wavelengths.iter().copied().fold(f64::INFINITY, f64::min),
                self.wavelengths.iter().copied().fold(0.0, f64::max)
            ))
            .with_remedy("give wavelengths in nm that the images cover")),
        }
    }

    fn bands(&self, _: Frame) -> usize {
        self.wavelengths.len()
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for ResampleBands {
    fn pass(&self, _: &Op, _: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        Ok(Operation::ResampleBands(self.response()?))
    }
}
