//! Opening a dataset, and its properties.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use hsipack_augment::array::Pool;
use hsipack_format::metadata::Scaling;
use hsipack_format::statistics::BandStatistics;
use hsipack_format::{DType, Error, ErrorKind, Samples};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::folder;
use hsipack_store::local_cache::{CachedDataset, LocalCache};
use hsipack_store::paths;
use hsipack_store::remote::is_url;

use super::files::Files;
use super::integers::Integers;
use super::labels::Labels;
use crate::Result;
use crate::store::{Store, StoreKind, Traffic};

/// When checksums of chunks are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Whenever a chunk is decoded.
    Always,
    /// The first time a process decodes a chunk. If the chunk changes on the disk after that (a
    /// failing disk, a file overwritten in place), the changed values are delivered. In datasets on
    /// servers, whenever a chunk is decoded: every transfer can damage it.
    #[default]
    Once,
    /// Never. Damaged values may then be delivered as if they were correct.
    Never,
}

hsipack_format::option_names!(Verify, "verify", {
    Always => "always",
    Once => "once",
    Never => "never",
});

/// How to open a dataset.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Where bytes are read from. The default is a memory map, or the server that the URL names.
    pub store: Option<Arc<dyn Store>>,
    /// When checksums are compared.
    pub verify: Verify,
    /// A fingerprint that the dataset has or had: only the samples that it had then are opened. It
    /// is an error if the dataset never had this fingerprint. The statistics are still those of all
    /// samples.
    pub as_of: Option<String>,
    /// A cache on the local disk, for a dataset on a server. Files on this machine are not copied.
    pub local_cache: Option<LocalCache>,
}

/// An open packed dataset. Cloning it is cheap and shares everything. All methods may be called
/// from many threads.
///
/// Values come as stored: `float16` (or `float32` if packed so), little-endian, (row, column,
/// band). Physical values are stored values × [`scale_factor`](Self::scale_factor) +
/// [`add_offset`](Self::add_offset). Images that are stored as integers come as physical values of
/// `float16`, with scale factor 1 and offset 0, or in another form
/// ([`with_integers`](Self::with_integers)).
#[derive(Clone, Debug)]
pub struct Dataset {
    inner: Arc<Inner>,
    integers: Integers,
}

#[derive(Debug)]
struct Inner {
    packed: hsipack_store::Dataset,
    /// Per stack: the image's files, then those of its masks.
    files: Vec<Vec<Files>>,
    labels: Labels,
    store: Arc<dyn Store>,
    local_cache: Option<Arc<CachedDataset>>,
    verify: Verify,
    /// Memory of the last image that was read by itself, for the next one.
    memory: Arc<Pool>,
}

impl Dataset {
    /// Opens the dataset at `path`, reading it through memory maps.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Opens the dataset at `path`, which may be a URL: `s3://`, `gs://`, `az://`, `hf://`,
    /// `http://` or `https://`. The program may change its working directory afterwards.
    ///
    /// # Errors
    /// If it is not a packed dataset; if it has a newer layout; if its metadata do not match
    /// `SHA256SUMS` or each other; if it never had the fingerprint asked for. Stores of this layout
    /// that another library wrote need no `SHA256SUMS`.
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let path = &paths::absolute(path.as_ref())?;
        let as_of = options.as_of.as_deref();
        let dataset = Self::of(hsipack_store::Dataset::open_unsettled(path, as_of)?, &options)?;
        if !is_url(path) {
            return Ok(dataset);
        }
        match dataset.open_shards() {
            Ok(()) => Ok(dataset),
            // The dataset was replaced meanwhile, so open the new one.
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let dataset =
                    Self::of(hsipack_store::Dataset::open_to_read(path, as_of)?, &options)?;
                dataset.open_shards()?;
                Ok(dataset)
            }
            Err(error) => Err(error),
        }
    }

    fn of(packed: hsipack_store::Dataset, options: &OpenOptions) -> Result<Self> {
        let path = packed.path();
        let store = match &options.store {
            Some(store) => store.clone(),
            None => StoreKind::default().store_for(path)?,
        };
        let local_cache = match options.local_cache.as_ref().filter(|_| is_url(path)) {
            Some(cache) => Some(Arc::new(cache.dataset(packed.fingerprint(), path)?)),
            None => None,
        };
        if let Some(cache) = &local_cache {
            store.keep_in(cache);
        }
        store.expect(packed.take_tails());
        let arrays = |stack: &hsipack_store::Stack| stack.arrays().map(Files::new).collect();
        let files = packed.stacks().iter().map(arrays).collect::<Result<_>>()?;
        let labels = Labels::of(packed.samples());
        let verify = match options.verify {
            Verify::Once if is_url(path) => Verify::Always,
            verify => verify,
        };
        let memory = Arc::new(Pool::of_one());
        let inner = Inner { packed, files, labels, store, local_cache, verify, memory };
        Ok(Self { inner: Arc::new(inner), integers: Integers::default() })
    }

    /// The same dataset, which delivers images that are stored as integers in this form.
    #[must_use]
    pub fn with_integers(mut self, integers: Integers) -> Self {
        self.integers = integers;
        self
    }

    /// The form in which images come that are stored as integers.
    pub fn integers(&self) -> Integers {
        self.integers
    }

    /// Whether images of a stack are stored as integers, and are converted before they are
    /// delivered.
    pub fn converts(&self, stack: usize) -> bool {
        stack < self.stacks().len() && self.image(stack).conversion().is_some()
    }

    /// The type of the images of a stack, as they are delivered.
    pub fn image_type(&self, stack: usize) -> Option<DType> {
        (stack < self.stacks().len()).then(|| self.image(stack).dtype())
    }

    /// Whether float16 holds the values of a stack, as far as its statistics say: none becomes
    /// infinite, and not all of them lose digits.
    pub fn fits_float16(&self, stack: usize) -> bool {
        is_in_float16(self.greatest(stack, None, Scaling::NONE))
    }

    /// The greatest absolute value of some bands of a stack (`None`: all), scaled after it was
    /// delivered, as far as the statistics say; otherwise 0. Infinite values are left out: they are
    /// infinite in any type.
    pub(crate) fn greatest(&self, stack: usize, bands: Option<&[usize]>, scaling: Scaling) -> f64 {
        let Some(BandStatistics { min, max, .. }) = self.statistics(stack) else { return 0.0 };
        let is_read = |band: &usize| bands.is_none_or(|bands| bands.contains(band));
        let ends = (0..min.len()).filter(is_read).flat_map(|band| [min[band], max[band]]);
        // Bands without values have NaN here.
        let scaled = ends.map(|end| (end * scaling.factor + scaling.offset).abs());
        scaled.filter(|end| end.is_finite()).fold(0.0, f64::max)
    }

    /// From the values of a stack that are delivered to physical values.
    pub(crate) fn scaling(&self, stack: usize) -> Scaling {
        let is_physical = matches!(self.integers, Integers::Physical(_)) && self.converts(stack);
        match self.stacks().get(stack) {
            Some(stack) if !is_physical => stack.image.scaling(),
            _ => Scaling::NONE,
        }
    }

    /// From statistics of stored values to those of values that are delivered.
    fn delivered(&self, stack: usize, statistics: BandStatistics) -> BandStatistics {
        let scaling = self.stacks()[stack].image.scaling();
        match matches!(self.integers, Integers::Physical(_)) && self.converts(stack) {
            true => statistics.scaled(scaling.factor, scaling.offset),
            false => statistics,
        }
    }

    /// The path of the dataset from the root of the file system, or its URL.
    pub fn path(&self) -> &Path {
        self.inner.packed.path()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.inner.packed.samples().len()
    }

    /// Bytes of all decoded chunks, of images, masks and companions: the most that a cache of
    /// decoded chunks can take.
    pub fn decoded_bytes(&self) -> u64 {
        let arrays = self.stacks().iter().flat_map(hsipack_store::Stack::arrays);
        let bytes = |array: &ChunkArray| {
            (array.len() * array.grid().chunks_per_sample() * array.chunk_bytes()) as u64
        };
        arrays.map(bytes).sum()
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All samples in order, with the columns of the user's table.
    pub fn samples(&self) -> &Samples {
        self.inner.packed.samples()
    }

    /// Splits, groups and labels.
    pub fn labels(&self) -> &Labels {
        &self.inner.labels
    }

    /// The samples of `ids` that are in one of these splits, in the order of `ids`.
    ///
    /// # Errors
    /// If the dataset does not have one of the splits, or none of `ids` is in any of them.
    ///
    /// # Panics
    /// If one of the ids is not that of a sample.
    pub fn in_splits(&self, ids: Vec<usize>, splits: &[String]) -> Result<Vec<usize>> {
        self.samples().in_splits(ids, splits).map_err(|error| error.at(self.path()))
    }

    /// The stacks: cubes of one shape, their masks, wavelengths and attributes.
    pub fn stacks(&self) -> &[hsipack_store::Stack] {
        self.inner.packed.stacks()
    }

    /// The stack that holds sample `sample`, as its place in [`stacks`](Self::stacks).
    ///
    /// # Errors
    /// If there is no such sample.
    pub fn stack_of(&self, sample: usize) -> Result<usize> {
        let stack = (sample < self.len()).then(|| self.samples().stack(sample));
        stack.ok_or_else(|| {
            Error::conflict(format!("there is no sample {sample}")).at(self.path()).with_remedy(
                format!("samples are numbered from 0 to {}", self.len().saturating_sub(1)),
            )
        })
    }

    /// Band centres of a stack in nm, if known.
    pub fn wavelengths(&self, stack: usize) -> Option<&[f64]> {
        self.stacks().get(stack)?.wavelength.as_deref()
    }

    /// The factor from values of a stack, as they are delivered, to physical ones.
    pub fn scale_factor(&self, stack: usize) -> f64 {
        self.scaling(stack).factor
    }

    /// Per-band statistics of a stack's values, as they are delivered, if they are recorded.
    pub fn statistics(&self, stack: usize) -> Option<BandStatistics> {
        let statistics = self.stacks().get(stack)?.image.meta().statistics().ok()?;
        Some(self.delivered(stack, statistics))
    }

    /// Per-band statistics of a stack's values, as they are delivered, for each split, in the order
    /// of the splits' names, if they are recorded.
    pub fn split_statistics(&self, stack: usize) -> Vec<(String, BandStatistics)> {
        let Some(image) = self.stacks().get(stack).map(|stack| &stack.image) else {
            return Vec::new();
        };
        let splits = image.meta().split_statistics().unwrap_or_default().into_iter();
        splits.map(|(split, statistics)| (split, self.delivered(stack, statistics))).collect()
    }

    /// The bad-band list of a stack, if its sources had one: whether each band is good.
    pub fn good_bands(&self, stack: usize) -> Option<Vec<bool>> {
        self.stacks().get(stack)?.image.meta().band_notes().good_bands
    }

    /// Names of the boolean layers that a stack's mask packs into its bits, bit 0 first. Empty if
    /// the mask holds class ids, or there is no such mask.
    pub fn mask_layers(&self, stack: usize, mask: &str) -> Vec<String> {
        let mask = self.stacks().get(stack).and_then(|stack| stack.mask(mask));
        mask.map_or(Vec::new(), |mask| mask.meta().mask_meaning().layers)
    }

    /// The offset of a stack: physical values are delivered values ×
    /// [`scale_factor`](Self::scale_factor) + this.
    pub fn add_offset(&self, stack: usize) -> f64 {
        self.scaling(stack).offset
    }

    /// Two datasets with equal fingerprints have equal metadata.
    pub fn fingerprint(&self) -> &str {
        self.inner.packed.fingerprint()
    }

    /// Whether this is the dataset as it was before cubes or masks were added.
    pub fn is_past(&self) -> bool {
        self.inner.packed.is_past()
    }

    /// The number of samples that the dataset had when its fingerprint was this one; `None` if it
    /// never had it.
    pub fn samples_at(&self, fingerprint: &str) -> Option<usize> {
        self.inner.packed.samples_at(fingerprint)
    }

    /// Checks that the path still holds this dataset. Samples that were appended since do not
    /// matter: this dataset keeps its own samples.
    ///
    /// # Errors
    /// If the dataset was replaced by another one, or removed, since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.inner.packed.folder().check()
    }

    /// The same, but a server that confirmed it a moment ago is not asked again.
    ///
    /// # Errors
    /// As [`check_unchanged`](Self::check_unchanged).
    pub(crate) fn check_recently(&self) -> Result<()> {
        self.inner.packed.folder().check_recently()
    }

    /// The files of array `array` of a stack.
    pub(super) fn files(&self, stack: usize, array: usize) -> &Files {
        &self.inner.files[stack][array]
    }

    /// The dataset's folder, where files are opened.
    pub(super) fn folder(&self) -> &folder::Folder {
        self.inner.packed.folder()
    }

    pub(super) fn may_lack_files(&self) -> bool {
        self.inner.packed.may_lack_files()
    }

    /// Requests to the server for shards so far; `None` for a dataset on this machine.
    pub fn traffic(&self) -> Option<Traffic> {
        self.store().traffic()
    }

    /// The dataset's cache on the local disk, if it has one.
    pub fn local_cache(&self) -> Option<&CachedDataset> {
        self.inner.local_cache.as_deref()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    pub(crate) fn verify(&self) -> Verify {
        self.inner.verify
    }

    /// Memory for images that are read by themselves.
    pub(super) fn memory(&self) -> &Arc<Pool> {
        &self.inner.memory
    }
}

/// Whether float16 holds values with this greatest absolute value.
pub(crate) fn is_in_float16(greatest: f64) -> bool {
    greatest == 0.0 || (f64::from(f16::MIN_POSITIVE)..=f64::from(f16::MAX)).contains(&greatest)
}
