//! The operations that an engine must have: [`Host`](crate::Host) works in host memory,
//! [`TensorEngine`](crate::TensorEngine) with the tensor operations of a library.
//!
//! Inside a pipeline, images are always contiguous (sample, row, column, band), whatever their
//! outer layout. Masks are stored in the same way, with layers in place of bands. Nothing here
//! waits for a device: values that depend on pixels are computed on the device, all others on the
//! host.

use hsipack_format::spectral_response::SpectralResponse;
use hsipack_format::{Result, SpectralNorm};

use crate::array::ElementType;
use crate::prepare::{ImageConversion, LabelConversion, Validity};

// The parts of the work.
pub use crate::geometry::{Field, Outside, Source};
pub use crate::matrix::Whole;
pub use crate::operation::{Blank, ByBands, Cut, Linear, Rectangle, Transplanting};
pub use crate::resample::{ResampleJob, ResampleOptions, Resampling};

/// Seals the trait: only the two engines of this crate implement it.
// Other code need not name this trait.
#[allow(unnameable_types)]
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// An array inside a pipeline.
#[derive(Clone, Debug)]
pub struct BatchArray<A> {
    /// (samples, rows, columns, values), contiguous.
    pub array: A,
    /// Its shape.
    pub shape: [usize; 4],
    /// The type of its elements.
    pub element: ElementType,
    /// Whether its memory may be written to: it was made in the pipeline, or the caller allowed
    /// overwriting.
    pub ours: bool,
}

/// Applies drawn parameters to batches.
///
/// Every method that changes an array in place first checks that it may ([`BatchArray::ours`]).
/// Otherwise it makes a copy, or writes the result directly into new memory.
pub trait Engine: sealed::Sealed {
    /// The type of images and masks.
    type Array: Clone;
    /// Displacements of elastic warps, one for each sample that has one.
    type Fields;
    /// The pixels to transplant.
    type Chosen;
    /// The samples that lost all pixels of a mask.
    type Lost;

    /// Shape and element type of an array as the user passes it.
    ///
    /// # Errors
    /// If the element type is not supported.
    fn look(&self, array: &Self::Array) -> Result<(Vec<usize>, ElementType)>;

    /// Converts (samples, values, rows, columns) or (samples, rows, columns) to contiguous
    /// (samples, rows, columns, values). Shares the memory if it already has this layout.
    ///
    /// # Errors
    /// If there is no memory.
    fn hold(&self, array: &Self::Array, overwrite: bool) -> Result<BatchArray<Self::Array>>;

    /// The reverse, without copying; (samples, rows, columns) for one value if not `layered`.
    ///
    /// # Errors
    /// If the library fails.
    fn give(&self, held: &BatchArray<Self::Array>, layered: bool) -> Result<Self::Array>;

    /// Displacements for the moves that have a field; the result has `to` rows and columns.
    ///
    /// # Errors
    /// If there is no memory.
    fn fields(&self, moves: &[Resampling], to: [usize; 2]) -> Result<Self::Fields>;

    /// Moves pixels to their places.
    ///
    /// # Errors
    /// If there is no memory.
    fn place(
        &self,
        held: &mut BatchArray<Self::Array>,
        job: &ResampleJob<'_>,
        fields: &Self::Fields,
    ) -> Result<()>;

    /// A target with 0 in place of its missing values (NaN), and weights: 1 where it has a value, 0
    /// where it is missing.
    ///
    /// # Errors
    /// If there is no memory.
    fn weighted(&self, target: &BatchArray<Self::Array>) -> Result<[BatchArray<Self::Array>; 2]>;

    /// Replaces the values of a target by `values` divided by `weights`. Missing values stay
    /// missing.
    ///
    /// # Errors
    /// If there is no memory.
    fn means(
        &self,
        target: &mut BatchArray<Self::Array>,
        values: &BatchArray<Self::Array>,
        weights: &BatchArray<Self::Array>,
    ) -> Result<()>;

    /// Sets rectangles to their spectra, or to `label` if it is given.
    ///
    /// # Errors
    /// If there is no memory.
    fn blank(
        &self,
        held: &mut BatchArray<Self::Array>,
        blanks: &[Blank],
        label: Option<i64>,
    ) -> Result<()>;

    /// Copies rectangles, with the contents of the array before the call.
    ///
    /// # Errors
    /// If there is no memory.
    fn paste(&self, held: &mut BatchArray<Self::Array>, cuts: &[Cut]) -> Result<()>;

    /// Every sample times (1 - its share), plus its partner times the share.
    ///
    /// # Errors
    /// If there is no memory.
    fn mix(
        &self,
        held: &mut BatchArray<Self::Array>,
        partners: &[usize],
        shares: &[f64],
    ) -> Result<()>;

    /// The pixels that every sample takes: those of its donor with the picked label. If a mask has
    /// several layers, the first one is used.
    ///
    /// # Errors
    /// If there is no memory.
    fn choose(
        &self,
        labels: &BatchArray<Self::Array>,
        valid: Option<&BatchArray<Self::Array>>,
        what: &Transplanting,
    ) -> Result<Self::Chosen>;

    /// Copies the chosen pixels from the donors.
    ///
    /// # Errors
    /// If there is no memory.
    fn transplant(
        &self,
        held: &mut BatchArray<Self::Array>,
        chosen: &Self::Chosen,
        donors: &[Option<usize>],
    ) -> Result<()>;

    /// The samples that have no pixel left in the mask's first layer.
    ///
    /// # Errors
    /// If there is no memory.
    fn lost(&self, labels: &BatchArray<Self::Array>) -> Result<Self::Lost>;

    /// Restores samples to their earlier state.
    ///
    /// # Errors
    /// If there is no memory.
    fn restore(
        &self,
        held: &mut BatchArray<Self::Array>,
        before: &BatchArray<Self::Array>,
        lost: &Self::Lost,
    ) -> Result<()>;

    /// Applies a factor and a summand to each band.
    ///
    /// # Errors
    /// If there is no memory.
    fn by_band(&self, held: &mut BatchArray<Self::Array>, by: &ByBands) -> Result<()>;

    /// Applies linear maps to spectra; if labels are given, only to pixels with one of them.
    ///
    /// # Errors
    /// If there is no memory.
    fn linear(
        &self,
        held: &mut BatchArray<Self::Array>,
        maps: &[Option<Linear>],
        labels: Option<(&BatchArray<Self::Array>, &[i64])>,
    ) -> Result<()>;

    /// Adds normally distributed noise.
    ///
    /// # Errors
    /// If there is no memory.
    fn noise(
        &self,
        held: &mut BatchArray<Self::Array>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<()>;

    /// Multiplies by 1 + x·across + y·down, with x and y from -1 to 1 over the frame.
    ///
    /// # Errors
    /// If there is no memory.
    fn ramp(&self, held: &mut BatchArray<Self::Array>, ramps: &[Option<[f64; 2]>]) -> Result<()>;

    /// Blurs with weights along rows (down) and columns (across). Beyond the edge, pixels are
    /// mirrored at the centres of the outermost pixels.
    ///
    /// # Errors
    /// If there is no memory.
    fn blur(
        &self,
        held: &mut BatchArray<Self::Array>,
        weights: &[Option<[Vec<f64>; 2]>],
    ) -> Result<()>;

    /// Keeps bands of each sample: the same number for all, at least one.
    ///
    /// # Errors
    /// If there is no memory.
    fn select(&self, held: &mut BatchArray<Self::Array>, bands: &[Vec<usize>]) -> Result<()>;

    /// Resamples spectra to other bands. The new bands that are not valid are NaN, and so are
    /// values that need a value that is not finite.
    ///
    /// # Errors
    /// If there is no memory.
    fn resample_bands(
        &self,
        held: &mut BatchArray<Self::Array>,
        response: &SpectralResponse,
    ) -> Result<()>;

    /// Normalises spectra by the rules of [`hsipack_format::spectrum`].
    ///
    /// # Errors
    /// If there is no memory.
    fn normalize(
        &self,
        held: &mut BatchArray<Self::Array>,
        norm: SpectralNorm,
        which: &[bool],
    ) -> Result<()>;

    /// Converts stored data (samples, rows, columns, bands) to an image (samples, bands, rows,
    /// columns). Shares the memory if there is nothing to compute.
    ///
    /// # Errors
    /// If there is no memory.
    fn image(&self, stored: &Self::Array, recipe: &ImageConversion) -> Result<Self::Array>;

    /// Converts stored data (samples, rows, columns, 1) to a mask (samples, rows, columns) or
    /// (samples, layers, rows, columns). Libraries without unsigned types see the stored bits as
    /// [signed](ElementType::signed).
    ///
    /// # Errors
    /// If there is no memory.
    fn labels(&self, stored: &Self::Array, recipe: &LabelConversion) -> Result<Self::Array>;

    /// Which pixels of stored data (samples, rows, columns, bands) have values: (samples, rows,
    /// columns) of `Bool`.
    ///
    /// # Errors
    /// If there is no memory.
    fn valid(&self, stored: &Self::Array, recipe: &Validity) -> Result<Self::Array>;
}
