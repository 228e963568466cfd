//! The operations on a batch other than moving pixels, for any engine.

use hsipack_format::spectral_response::SpectralResponse;
use hsipack_format::{Error, Result, SpectralNorm};

use crate::array::ElementType;
use crate::frame::Frame;
use crate::mixed::Mixed;

/// One operation on all samples of a batch. Lists have one entry per sample, which is `None` for
/// samples that stay unchanged.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Sets rectangles to a spectrum, and in masks to their own label.
    Blank(Vec<Blank>),
    /// Copies rectangles, with the contents of the batch before the pass; in masks as well.
    Paste(Vec<Cut>, Option<Mixed>),
    /// Mixes images.
    Mix(Mixed),
    /// Copies the pixels of one label from other samples.
    Transplant(Transplanting),
    /// Restores samples that lost all pixels of this mask.
    Guard(String),
    /// Applies a factor and a summand to each band.
    ByBand(ByBands),
    /// Applies a linear map to spectra; if labels are given, only to pixels of the mask with these
    /// labels.
    Linear(Vec<Option<Linear>>, Option<(Option<String>, Vec<i64>)>),
    /// Adds normally distributed noise.
    Noise {
        /// One seed per sample.
        seeds: Vec<Option<u64>>,
        /// Mean.
        mean: f64,
        /// Standard deviation.
        std: f64,
    },
    /// Lights the image from one side: strengths along x and y.
    Ramp(Vec<Option<[f64; 2]>>),
    /// Keeps these bands of each sample, in this order; the same number for all.
    Select(Vec<Vec<usize>>),
    /// Resamples the spectra of all samples to other bands.
    ResampleBands(SpectralResponse),
    /// Blurs with these weights along rows (down) and columns (across).
    Blur(Vec<Option<[Vec<f64>; 2]>>),
    /// Normalises spectra.
    Normalize(SpectralNorm, Vec<bool>),
}

impl Operation {
    /// Whether it changes values of images, each pixel by itself or with its neighbours, and
    /// nothing else.
    pub(crate) fn changes_values(&self) -> bool {
        match self {
            Self::ByBand(_)
            | Self::Linear(..)
            | Self::Noise { .. }
            | Self::Ramp(_)
            | Self::Blur(_)
            | Self::Normalize(..) => true,
            Self::Blank(_)
            | Self::Paste(..)
            | Self::Mix(_)
            | Self::Transplant(_)
            | Self::Guard(_)
            | Self::Select(_)
            | Self::ResampleBands(_) => false,
        }
    }
}

/// A rectangle of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First column.
    pub x: usize,
    /// First row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

impl Rectangle {
    /// # Errors
    /// If it does not lie in the frame, for example with parameters that were written by hand.
    pub(crate) fn new([x, y, width, height]: [usize; 4], frame: Frame) -> Result<Self> {
        let inside = |first: usize, size: usize, all: usize| first.saturating_add(size) <= all;
        if inside(x, width, frame.columns) && inside(y, height, frame.rows) {
            return Ok(Self { x, y, width, height });
        }
        let Frame { rows, columns, .. } = frame;
        Err(Error::conflict(format!(
            "a rectangle of {height} x {width} at row {y}, column {x} is not inside a frame of {rows} x {columns}"
        ))
        .with_remedy("draw parameters for images of this size"))
    }
}

/// A rectangle that is set to a spectrum.
#[derive(Clone, Debug)]
pub struct Blank {
    /// Index of the sample.
    pub sample: usize,
    /// The rectangle in it.
    pub rectangle: Rectangle,
    /// A value for each band.
    pub values: Vec<f64>,
}

/// A rectangle that is copied.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Index of the target sample.
    pub sample: usize,
    /// The target rectangle.
    pub to: Rectangle,
    /// Index of the source sample.
    pub donor: usize,
    /// The source rectangle, of the same size.
    pub from: Rectangle,
}

/// Which labels are copied from which samples.
#[derive(Clone, Debug)]
pub struct Transplanting {
    /// The mask with the labels; the first mask if none is named.
    pub mask: Option<String>,
    /// A mask that is not 0 where labels count.
    pub valid: Option<String>,
    /// The donor of every sample.
    pub donors: Vec<Option<usize>>,
    /// Which of the donor's labels is copied, as a share of their number.
    pub picks: Vec<f32>,
    /// The label itself, if it was set by hand; then `valid` and `excluded` are ignored.
    pub fixed: Vec<Option<i64>>,
    /// Labels that are never copied.
    pub excluded: Vec<i64>,
}

/// (value - shift)·factor + summand for every band. If a factor is 0, the result is the summand,
/// whatever the value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ByBand {
    shift: Vec<f64>,
    factor: Vec<f64>,
    summand: Vec<f64>,
}

/// (value - shift)·factor + summand for every band and every sample of a batch. If a factor is 0,
/// the result is the summand, whatever the value. The numbers of all samples are in one piece of
/// memory, in the order in which a device needs them.
#[derive(Clone, Debug)]
pub struct ByBands {
    bands: usize,
    numbers: Vec<f64>,
    changed: Vec<bool>,
}

impl ByBands {
    /// Merges the effects on each sample: `then` adds those on one of them.
    pub(crate) fn merge(
        samples: usize,
        bands: usize,
        then: impl Fn(usize, &mut ByBand) -> Result<()>,
    ) -> Result<Self> {
        let nothing = ByBand::nothing(bands);
        let mut by = nothing.clone();
        let mut numbers = Vec::with_capacity(samples * 3 * bands);
        let mut changed = Vec::with_capacity(samples);
        for sample in 0..samples {
            by.copy_from(&nothing);
            then(sample, &mut by)?;
            changed.push(by != nothing);
            for of in [&by.shift, &by.factor, &by.summand] {
                numbers.extend_from_slice(of);
            }
        }
        Ok(Self { bands, numbers, changed })
    }

    /// Shift, factor and summand of every band, sample after sample: (samples, 3, bands). For
    /// unchanged samples, the numbers change no value.
    pub fn numbers(&self) -> &[f64] {
        &self.numbers
    }

    /// For every sample, its shifts, factors and summands; `None` if it stays unchanged.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<[&[f64]; 3]>> {
        let samples = self.numbers.chunks_exact(3 * self.bands).zip(&self.changed);
        samples.map(|(numbers, changed)| {
            let (shift, others) = numbers.split_at(self.bands);
            let (factor, summand) = others.split_at(self.bands);
            changed.then_some([shift, factor, summand])
        })
    }
}

/// A linear map of spectra.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// bands × bands numbers, row by row, by which spectra are multiplied from the right. Rows are
    /// input bands.
    pub map: Vec<f64>,
    /// Added after the map; empty if nothing is added.
    pub offset: Vec<f64>,
}

impl ByBand {
    /// Leaves every value as it is; adding -0 keeps the sign of 0.
    pub(crate) fn nothing(bands: usize) -> Self {
        Self { shift: vec![0.0; bands], factor: vec![1.0; bands], summand: vec![-0.0; bands] }
    }

    fn copy_from(&mut self, other: &Self) {
        self.shift.copy_from_slice(&other.shift);
        self.factor.copy_from_slice(&other.factor);
        self.summand.copy_from_slice(&other.summand);
    }

    /// Number of bands.
    pub(crate) fn bands(&self) -> usize {
        self.shift.len()
    }

    pub(crate) fn then_scale(&mut self, factors: impl Iterator<Item = f64>) {
        for ((factor, summand), by) in self.factor.iter_mut().zip(&mut self.summand).zip(factors) {
            *factor *= by;
            *summand *= by;
        }
    }

    pub(crate) fn then_add(&mut self, summands: impl Iterator<Item = f64>) {
        for (summand, by) in self.summand.iter_mut().zip(summands) {
            *summand += by;
        }
    }

    /// Standardises. If there are no operations before it, the mean is subtracted first, which
    /// loses fewer digits. Bands without statistics stay unchanged.
    pub(crate) fn then_standardize(&mut self, mean: &[f64], std: &[f64]) {
        let filled = |(mean, std): (&f64, &f64)| {
            if mean.is_nan() || std.is_nan() { (0.0, 1.0) } else { (*mean, *std) }
        };
        let (mean, std): (Vec<f64>, Vec<f64>) = mean.iter().zip(std).map(filled).unzip();
        if *self == Self::nothing(mean.len()) {
            self.shift = mean;
        } else {
            self.then_add(mean.iter().map(|mean| -mean));
        }
        self.then_scale(std.iter().map(|std| 1.0 / std));
    }

    pub(crate) fn then_replace(&mut self, bands: &[usize], values: &[f64]) {
        for band in bands {
            (self.factor[*band], self.summand[*band]) = (0.0, values[*band]);
        }
    }
}

/// Whether a number is 0 in the type in which images of this type are computed.
pub(crate) fn is_nothing(number: f64, element: ElementType) -> bool {
    match element {
        ElementType::F64 => number == 0.0,
        _ => number as f32 == 0.0,
    }
}

/// Leaves out the outermost weights that are 0 for images of this type, on both sides alike: a
/// pixel of weight 0 is not read, because 0·NaN is NaN.
pub(crate) fn trim(weights: &mut Vec<f64>, element: ElementType) {
    let kept = |weight: &f64| !is_nothing(*weight, element);
    let first = weights.iter().position(kept).unwrap_or(0);
    let after = weights.iter().rev().position(kept).unwrap_or(0);
    let outer = first.min(after).min(weights.len() / 2);
    weights.truncate(weights.len() - outer);
    weights.drain(..outer);
}
