//! How stored data becomes images and masks: recipes for any [`Engine`](crate::Engine).

use std::ops::Range;

use hsipack_format::SpectralNorm;

use crate::array::ElementType;

/// How to make an image from stored data, in this order: convert to physical values, normalise,
/// replace NaN, cast. All steps before the cast are computed in float32, or in float64 if the data
/// is stored as float64. Steps that would change nothing are skipped.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageConversion {
    /// Scale factor and offset of physical values: one pair for all samples, or one per sample;
    /// empty to keep stored values.
    pub physical: Vec<[f64; 2]>,
    /// The normalisation.
    pub normalized: Normalized,
    /// Replacement for NaN; infinities stay.
    pub nan: Option<f64>,
    /// The element type of the result.
    pub element: ElementType,
}

/// How images are normalised.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Normalized {
    /// No normalisation.
    #[default]
    Not,
    /// Subtract from every band its mean and divide by its standard deviation: one set of figures
    /// for all samples, or one per sample. Bands with standard deviation 0 are not divided.
    Bands(Vec<BandFigures>),
    /// Normalise spectra by the rules of [`hsipack_format::spectrum`].
    Spectra(SpectralNorm),
}

/// Means and standard deviations, one per band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandFigures {
    /// Means, which are subtracted.
    pub mean: Vec<f32>,
    /// Standard deviations, by which values are divided.
    pub std: Vec<f32>,
}

/// How to make a mask from stored data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelConversion {
    /// The stored element type.
    pub stored: ElementType,
    /// Number of boolean layers to unpack from its bits, starting with bit 0; 0 for class ids.
    pub layers: usize,
    /// The element type of class ids in the result; layers are `Bool`.
    pub element: ElementType,
}

/// How to find out which pixels of an image have values: those inside the cube whose values are
/// finite in all bands that count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validity {
    /// Whether each band counts: one list for all samples, or one per sample; empty if all bands
    /// count.
    pub bands: Vec<Vec<bool>>,
    /// The rows and columns of each sample that lie inside its cube; empty if all do.
    pub inside: Vec<[Range<usize>; 2]>,
}

impl Validity {
    /// Whether each band of a sample counts; `None` if all do.
    pub fn bands_of(&self, sample: usize) -> Option<&[bool]> {
        let bands = self.bands.get(sample).or(self.bands.last())?;
        bands.contains(&false).then_some(bands)
    }

    /// Whether a pixel of a sample lies inside its cube.
    pub fn is_inside(&self, sample: usize, [row, column]: [usize; 2]) -> bool {
        let inside = self.inside.get(sample);
        inside.is_none_or(|[rows, columns]| rows.contains(&row) && columns.contains(&column))
    }
}

impl ImageConversion {
    /// Whether the image equals the stored data of this type, except for the order of axes.
    pub fn is_nothing(&self, stored: ElementType) -> bool {
        self.physical.is_empty()
            && self.normalized == Normalized::Not
            && self.nan.is_none()
            && self.element == stored
    }

    /// Whether finite values that become too large for the element type take its largest value, as
    /// those that augmentations compute. Physical values that are too large are an error instead.
    pub fn stays_finite(&self) -> bool {
        self.normalized != Normalized::Not
            && matches!(self.element, ElementType::F16 | ElementType::BF16)
    }

    /// Scale factor and offset of a sample, if physical values are requested.
    pub fn physical_of(&self, sample: usize) -> Option<[f64; 2]> {
        self.physical.get(sample).or(self.physical.last()).copied()
    }
}

impl LabelConversion {
    /// Whether the mask equals the stored data, with the same type.
    pub fn is_nothing(&self) -> bool {
        self.layers == 0 && self.element == self.stored
    }
}

impl Normalized {
    /// The means and standard deviations for a sample, if bands are standardised.
    pub fn figures_of(&self, sample: usize) -> Option<&BandFigures> {
        match self {
            Self::Bands(figures) => figures.get(sample).or(figures.last()),
            _ => None,
        }
    }
}
