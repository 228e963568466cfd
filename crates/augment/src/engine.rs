//! What whoever applies augmentations has to be able to do: [`Host`](crate::Host) in the host's memory,
//! [`Through`](crate::Through) with the tensor operations of a library.
//!
//! On their way images are (sample, row, column, band) without gaps, whatever they are called outside; so are masks,
//! with their layers in the place of bands. Nothing here waits for a device: what depends on pixels is computed there,
//! what does not on the host.

use hsipack_format::{Result, SpectralNorm};

use crate::array::ElementType;
use crate::prepare::{ImageRecipe, LabelRecipe};

// What the work consists of.
pub use crate::matrix::Whole;
pub use crate::moves::{Job, Move};
pub use crate::ops::{Field, Outside, Source};
pub use crate::pass::{Blank, ByBand, Cut, Linear, Rectangle, Transplanting};
pub use crate::stages::Together;

/// Only the two of this crate.
// Nobody else is to name it.
#[allow(unnameable_types)]
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// An array on its way through a pipeline.
#[derive(Clone, Debug)]
pub struct Held<A> {
    /// (samples, rows, columns, values), without gaps.
    pub array: A,
    /// Its shape.
    pub shape: [usize; 4],
    /// What its elements are.
    pub element: ElementType,
    /// Whether its memory may be written to: it was made on the way, or given to be overwritten.
    pub ours: bool,
}

/// Does to batches what was drawn for them.
///
/// Whatever changes an array in place makes sure before that it may ([`Held::ours`]): else it makes a copy, or writes the
/// result into new memory at once.
pub trait Engine: sealed::Sealed {
    /// What images and masks are.
    type Array: Clone;
    /// Displacements of elastic warps, one for each sample that has one.
    type Fields;
    /// Which pixels are transplanted.
    type Chosen;
    /// Which samples lost all pixels of a mask.
    type Lost;

    /// Shape and element type of an array as users have it.
    ///
    /// # Errors
    /// If it has a type that nothing here computes with.
    fn look(&self, array: &Self::Array) -> Result<(Vec<usize>, ElementType)>;

    /// (samples, rows, columns, values), without gaps, of (samples, values, rows, columns) or (samples, rows, columns).
    /// Shares the memory where it lies so already.
    ///
    /// # Errors
    /// If there is no memory.
    fn hold(&self, array: &Self::Array, overwrite: bool) -> Result<Held<Self::Array>>;

    /// The other way, without copying; (samples, rows, columns) of one value, without `layered`.
    ///
    /// # Errors
    /// If the library fails.
    fn give(&self, held: &Held<Self::Array>, layered: bool) -> Result<Self::Array>;

    /// Displacements for those moves that have a field; the result has `to` rows and columns.
    ///
    /// # Errors
    /// If there is no memory.
    fn fields(&self, moves: &[Move], to: [usize; 2]) -> Result<Self::Fields>;

    /// Brings pixels to their places.
    ///
    /// # Errors
    /// If there is no memory.
    fn place(
        &self,
        held: &mut Held<Self::Array>,
        job: &Job<'_>,
        fields: &Self::Fields,
    ) -> Result<()>;

    /// Sets rectangles to their spectra; with `label`, to that instead.
    ///
    /// # Errors
    /// If there is no memory.
    fn blank(
        &self,
        held: &mut Held<Self::Array>,
        blanks: &[Blank],
        label: Option<i64>,
    ) -> Result<()>;

    /// Copies rectangles, of the array as it was before.
    ///
    /// # Errors
    /// If there is no memory.
    fn paste(&self, held: &mut Held<Self::Array>, cuts: &[Cut]) -> Result<()>;

    /// Every sample times 1 - its share, plus its partner times the share.
    ///
    /// # Errors
    /// If there is no memory.
    fn mix(&self, held: &mut Held<Self::Array>, partners: &[usize], shares: &[f64]) -> Result<()>;

    /// Which pixels every sample takes: those of its donor with the label that was picked. Of masks with several layers
    /// the first counts.
    ///
    /// # Errors
    /// If there is no memory.
    fn choose(
        &self,
        labels: &Held<Self::Array>,
        valid: Option<&Held<Self::Array>>,
        what: &Transplanting,
    ) -> Result<Self::Chosen>;

    /// Copies the chosen pixels from the donors.
    ///
    /// # Errors
    /// If there is no memory.
    fn transplant(
        &self,
        held: &mut Held<Self::Array>,
        chosen: &Self::Chosen,
        donors: &[Option<usize>],
    ) -> Result<()>;

    /// Which samples have no pixel left in the mask's first layer.
    ///
    /// # Errors
    /// If there is no memory.
    fn lost(&self, labels: &Held<Self::Array>) -> Result<Self::Lost>;

    /// Gives samples back as they were.
    ///
    /// # Errors
    /// If there is no memory.
    fn restore(
        &self,
        held: &mut Held<Self::Array>,
        before: &Held<Self::Array>,
        lost: &Self::Lost,
    ) -> Result<()>;

    /// Products and sums by band.
    ///
    /// # Errors
    /// If there is no memory.
    fn by_band(&self, held: &mut Held<Self::Array>, by: &[Option<ByBand>]) -> Result<()>;

    /// Linear maps of spectra; of pixels that have one of the labels, if there are any.
    ///
    /// # Errors
    /// If there is no memory.
    fn linear(
        &self,
        held: &mut Held<Self::Array>,
        maps: &[Option<Linear>],
        labels: Option<(&Held<Self::Array>, &[i64])>,
    ) -> Result<()>;

    /// Adds normal noise.
    ///
    /// # Errors
    /// If there is no memory.
    fn noise(
        &self,
        held: &mut Held<Self::Array>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<()>;

    /// Multiplies by 1 + x·across + y·down, x and y from -1 to 1 over the frame.
    ///
    /// # Errors
    /// If there is no memory.
    fn ramp(&self, held: &mut Held<Self::Array>, ramps: &[Option<[f64; 2]>]) -> Result<()>;

    /// Blurs with weights along rows (down) and columns (across), mirrored at the outermost pixels' centres.
    ///
    /// # Errors
    /// If there is no memory.
    fn blur(&self, held: &mut Held<Self::Array>, weights: &[Option<[Vec<f64>; 2]>]) -> Result<()>;

    /// Normalises spectra by the rule of [`hsipack_format::spectrum`].
    ///
    /// # Errors
    /// If there is no memory.
    fn normalize(
        &self,
        held: &mut Held<Self::Array>,
        norm: SpectralNorm,
        which: &[bool],
    ) -> Result<()>;

    /// An image (samples, bands, rows, columns) of what is stored, (samples, rows, columns, bands). Shares the memory
    /// where there is nothing to compute.
    ///
    /// # Errors
    /// If there is no memory.
    fn image(&self, stored: &Self::Array, recipe: &ImageRecipe) -> Result<Self::Array>;

    /// A mask (samples, rows, columns), or (samples, layers, rows, columns), of what is stored, (samples, rows, columns,
    /// 1). Libraries without unsigned types see the stored bits as [signed](ElementType::signed) ones.
    ///
    /// # Errors
    /// If there is no memory.
    fn labels(&self, stored: &Self::Array, recipe: &LabelRecipe) -> Result<Self::Array>;
}
