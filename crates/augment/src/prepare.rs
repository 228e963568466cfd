//! From what is stored to images and masks: what is to be done, by whichever [`Engine`](crate::Engine).

use hsipack_format::SpectralNorm;

use crate::array::ElementType;

/// How an image is made of what is stored, in this order: physical values, normalised, NaN replaced, cast. All but the
/// cast is computed in float32, in float64 for what is stored so; where there is nothing to compute, nothing is.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageRecipe {
    /// Factor and summand of physical values: one for all samples, or one for each; empty for stored values.
    pub physical: Vec<[f64; 2]>,
    /// How it is normalised.
    pub normalized: Normalized,
    /// What NaN is replaced with; infinities stay.
    pub nan: Option<f64>,
    /// The element type of the result.
    pub element: ElementType,
}

/// How images are normalised.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Normalized {
    /// Not at all.
    #[default]
    Not,
    /// Every band less its mean, divided by its standard deviation: figures for all samples, or for each. Bands of
    /// standard deviation 0 are not divided.
    Bands(Vec<BandFigures>),
    /// Spectra, by the rule of [`hsipack_format::spectrum`].
    Spectra(SpectralNorm),
}

/// Means and standard deviations, one a band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandFigures {
    /// What is subtracted.
    pub mean: Vec<f32>,
    /// What is divided by.
    pub std: Vec<f32>,
}

/// How a mask is made of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelRecipe {
    /// What is stored.
    pub stored: ElementType,
    /// Boolean layers to unpack from its bits, bit 0 first; 0 for class ids.
    pub layers: usize,
    /// The element type of class ids in the result; layers are `Bool`.
    pub element: ElementType,
}

impl ImageRecipe {
    /// Whether the image is what is stored, of that type, seen from another side.
    pub fn is_nothing(&self, stored: ElementType) -> bool {
        self.physical.is_empty()
            && self.normalized == Normalized::Not
            && self.nan.is_none()
            && self.element == stored
    }

    /// Factor and summand of a sample, if physical values are asked for.
    pub fn physical_of(&self, sample: usize) -> Option<[f64; 2]> {
        self.physical.get(sample).or(self.physical.last()).copied()
    }
}

impl LabelRecipe {
    /// Whether the mask is what is stored, of that type.
    pub fn is_nothing(&self) -> bool {
        self.layers == 0 && self.element == self.stored
    }
}

impl Normalized {
    /// The figures that standardise a sample, if that is what is done.
    pub fn figures_of(&self, sample: usize) -> Option<&BandFigures> {
        match self {
            Self::Bands(figures) => figures.get(sample).or(figures.last()),
            _ => None,
        }
    }
}
