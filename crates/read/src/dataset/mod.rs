//! A packed dataset, opened for reading by many threads.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | opening, samples, random access |
//! | `labels.rs` | splits, groups, classes and their counts |
//! | `load.rs` | random access into arrays |
//! | `array.rs` | the stored chunks of one array: shards, indexes, checksums seen |

pub(crate) mod array;
mod labels;
mod load;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::{Command, CubeShape, DType, Error, Opt, Samples, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{folder, memory};
use ndarray::ArrayView3;

pub use hsipack_format::statistics::BandStatistics;
pub use labels::{ClassCount, Labels};
pub use load::read_array;

use crate::Result;
use crate::decode::{Decoder, Scratch};
use crate::plan::Window;
use crate::store::{Store, StoreKind};
use crate::values::{self, Value};
use array::{ArrayRef, Files};

/// When checksums of chunks are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Whenever a chunk is decoded.
    Always,
    /// The first time a process decodes a chunk. What changes on the disk after that (a failing disk, a file overwritten
    /// in place) is delivered as it is.
    #[default]
    Once,
    /// Never; damage may then pass for data.
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
    /// Where bytes come from; a memory map unless given.
    pub store: Option<Arc<dyn Store>>,
    /// When checksums are compared.
    pub verify: Verify,
    /// The fingerprint that the dataset had: only the samples that it had then, or an error if it never had that one. The
    /// statistics are those of all samples.
    pub as_of: Option<String>,
}

/// A packed dataset, open. Cloning it is cheap and shares everything; all methods may be called from many
/// threads.
///
/// Values come as stored: `float16` (or `float32` if packed so), little-endian, (row, column, band). Physical
/// values are stored values × [`scale_factor`](Self::scale_factor) + [`add_offset`](Self::add_offset).
#[derive(Clone, Debug)]
pub struct Dataset(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    packed: hsipack_store::Dataset,
    /// Per stack: the image's files, then those of its masks.
    files: Vec<Vec<Files>>,
    labels: Labels,
    store: Arc<dyn Store>,
    verify: Verify,
}

/// Values of one sample: an image window or a mask window.
#[derive(Clone, Debug, PartialEq)]
pub struct Cube {
    /// (rows, columns, bands); a mask has one band.
    pub shape: CubeShape,
    /// Element type.
    pub dtype: DType,
    /// The values, aligned for every element type; what is left of the last word is 0.
    words: Vec<u64>,
}

impl Dataset {
    /// Opens the dataset at `path`, reading it through memory maps.
    ///
    /// # Errors
    /// As [`open_with`](Self::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, OpenOptions::default())
    }

    /// Opens the dataset at `path`.
    ///
    /// # Errors
    /// If it is not a packed dataset, is of a newer layout, its metadata do not match `SHA256SUMS` or
    /// each other, or it never had the fingerprint asked for. Stores of this layout that another library wrote need no
    /// `SHA256SUMS`.
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let packed = hsipack_store::Dataset::open_to_read(path, options.as_of.as_deref())?;
        let store = options.store.unwrap_or_else(|| StoreKind::default().store());
        let arrays = |stack: &hsipack_store::Stack| {
            std::iter::once(&stack.image).chain(&stack.masks).map(Files::new).collect()
        };
        let files = packed.stacks().iter().map(arrays).collect::<Result<_>>()?;
        let labels = Labels::of(packed.samples());
        let verify = options.verify;
        Ok(Self(Arc::new(Inner { packed, files, labels, store, verify })))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        self.0.packed.path()
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.0.packed.samples().len()
    }

    /// Bytes of all decoded chunks, of images and masks: what a cache of decoded chunks may take.
    pub fn decoded_bytes(&self) -> u64 {
        let arrays = self
            .stacks()
            .iter()
            .flat_map(|stack| std::iter::once(&stack.image).chain(&stack.masks));
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
        self.0.packed.samples()
    }

    /// Splits, groups and labels.
    pub fn labels(&self) -> &Labels {
        &self.0.labels
    }

    /// Those of the samples `ids` that are of one of these splits, in their order.
    ///
    /// # Errors
    /// If the dataset has no such split, or none of `ids` is of any of them.
    ///
    /// # Panics
    /// If there is no sample of one of the ids.
    pub fn in_splits(&self, ids: Vec<usize>, splits: &[String]) -> Result<Vec<usize>> {
        let there = self.labels().splits();
        let named = self.samples().splits();
        let wanted: Vec<bool> = named.different().iter().map(|one| splits.contains(one)).collect();
        let is_wanted = |id: &usize| named.number(*id).is_some_and(|split| wanted[split as usize]);
        let chosen: Vec<usize> = ids.into_iter().filter(is_wanted).collect();
        let unknown = splits.iter().filter(|split| !there.contains(split));
        let mut missing: Vec<&String> = unknown.collect();
        if missing.is_empty() && chosen.is_empty() {
            missing.extend(splits);
        } else if missing.is_empty() {
            return Ok(chosen);
        }
        let names: Vec<String> = missing.iter().map(|split| format!("'{split}'")).collect();
        let remedy = match there {
            [] => remedy!["it has no splits; give them with ", Command::Convert.with(Opt::Table)],
            there => format!("it has {}", there.join(", ")).into(),
        };
        Err(Error::conflict(format!("no sample is of split {}", names.join(", ")))
            .at(self.path())
            .with_remedy(remedy))
    }

    /// The stacks: cubes of one shape, their masks, wavelengths and attributes.
    pub fn stacks(&self) -> &[hsipack_store::Stack] {
        self.0.packed.stacks()
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

    /// Band centres of a stack in nm, where known.
    pub fn wavelengths(&self, stack: usize) -> Option<&[f64]> {
        self.stacks().get(stack)?.wavelength.as_deref()
    }

    /// The factor from stored values of a stack to physical ones.
    pub fn scale_factor(&self, stack: usize) -> f64 {
        self.stacks().get(stack).map_or(1.0, |stack| stack.image.scale_factor())
    }

    /// Per-band statistics of a stack's stored values, where they are recorded.
    pub fn statistics(&self, stack: usize) -> Option<BandStatistics> {
        self.stacks().get(stack)?.image.meta().statistics().ok()
    }

    /// Per-band statistics of the stored values of each split of a stack, in the order of the splits' names, where
    /// they are recorded.
    pub fn split_statistics(&self, stack: usize) -> Vec<(String, BandStatistics)> {
        let stack = self.stacks().get(stack);
        stack.and_then(|stack| stack.image.meta().split_statistics().ok()).unwrap_or_default()
    }

    /// The bad-band list of a stack, where its sources had one: whether each band is good.
    pub fn good_bands(&self, stack: usize) -> Option<Vec<bool>> {
        self.stacks().get(stack)?.image.meta().band_notes().good_bands
    }

    /// Names of the boolean layers that a mask of a stack packs into its bits, bit 0 first; none if it holds class ids, or
    /// there is no such mask.
    pub fn mask_layers(&self, stack: usize, mask: &str) -> Vec<String> {
        let mask = self.stacks().get(stack).and_then(|stack| stack.mask(mask));
        mask.map_or(Vec::new(), |mask| mask.meta().mask_meaning().layers)
    }

    /// What is added to stored values × [`scale_factor`](Self::scale_factor) of a stack to give physical ones.
    pub fn add_offset(&self, stack: usize) -> f64 {
        self.stacks().get(stack).map_or(0.0, |stack| stack.image.add_offset())
    }

    /// Two datasets with equal fingerprints have equal metadata.
    pub fn fingerprint(&self) -> &str {
        self.0.packed.fingerprint()
    }

    /// Compares with what lies at the path now. Samples that were appended since change nothing: this dataset goes on
    /// with its own.
    ///
    /// # Errors
    /// If the dataset was replaced by another one, or removed, since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.0.packed.folder().check()
    }

    /// The whole cube of a sample.
    ///
    /// # Errors
    /// If there is no such sample, it cannot be read, or is damaged.
    pub fn sample(&self, sample: usize) -> Result<Cube> {
        let shape = self.image(self.stack_of(sample)?).shape();
        self.crop(sample, 0..shape.rows, 0..shape.columns)
    }

    /// Rows × columns of the cube of a sample, all bands.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image).
    pub fn crop(&self, sample: usize, rows: Range<usize>, columns: Range<usize>) -> Result<Cube> {
        self.crop_bands(sample, rows, columns, None)
    }

    /// Rows × columns of some bands, in the order given, of the cube of a sample.
    ///
    /// # Errors
    /// As [`read_image`](Self::read_image).
    pub fn crop_bands(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
    ) -> Result<Cube> {
        let array = self.image(self.stack_of(sample)?);
        let window = window(&rows, &columns);
        let count = bands.map_or(array.shape().bands, <[usize]>::len);
        let mut cube = Cube::zeros(array, window, count)?;
        self.read_image(sample, rows, columns, bands, cube.bytes_mut())?;
        Ok(cube)
    }

    /// Reads rows × columns of some bands (all if `None`), in the order given, of the cube of a sample into
    /// `out`, which they fill: (row, column, band), as stored.
    ///
    /// # Errors
    /// If there is no such sample, rows, columns or bands; `out` has another length; the shard cannot be
    /// read or is damaged.
    pub fn read_image(
        &self,
        sample: usize,
        rows: Range<usize>,
        columns: Range<usize>,
        bands: Option<&[usize]>,
        out: &mut [u8],
    ) -> Result<()> {
        let array = self.image(self.stack_of(sample)?);
        self.read(array, sample, window(&rows, &columns), bands, out)
    }

    /// The whole mask of that name of a sample; class ids, or bits of boolean layers.
    ///
    /// # Errors
    /// As [`read_mask`](Self::read_mask).
    pub fn mask(&self, sample: usize, name: &str) -> Result<Cube> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        let shape = array.shape();
        let mut cube =
            Cube::zeros(array, window(&(0..shape.rows), &(0..shape.columns)), shape.bands)?;
        self.read_mask(sample, name, 0..shape.rows, 0..shape.columns, cube.bytes_mut())?;
        Ok(cube)
    }

    /// Reads rows × columns of a mask into `out`, which they fill.
    ///
    /// # Errors
    /// If there is no such sample, mask, rows or columns; `out` has another length; the shard cannot be read
    /// or is damaged.
    pub fn read_mask(
        &self,
        sample: usize,
        name: &str,
        rows: Range<usize>,
        columns: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let array = self.mask_array(self.stack_of(sample)?, name)?;
        self.read(array, sample, window(&rows, &columns), None, out)
    }

    fn read(
        &self,
        array: ArrayRef<'_>,
        sample: usize,
        window: Window,
        bands: Option<&[usize]>,
        out: &mut [u8],
    ) -> Result<()> {
        self.check_unchanged()?;
        let shape = array.shape();
        let fits = |start: u32, len: u32, axis: usize| {
            u64::from(start) + u64::from(len) <= axis as u64 && len > 0
        };
        if !fits(window.row, window.rows, shape.rows)
            || !fits(window.column, window.columns, shape.columns)
        {
            return Err(self.no_such(format!(
                "rows {}..{} and columns {}..{} of sample {sample}, which has {} rows and {} columns",
                window.row,
                u64::from(window.row) + u64::from(window.rows),
                window.column,
                u64::from(window.column) + u64::from(window.columns),
                shape.rows,
                shape.columns
            )));
        }
        if let Some(band) = bands.into_iter().flatten().find(|band| **band >= shape.bands) {
            return Err(self.no_such(format!(
                "band {band} of sample {sample}, which has {} bands",
                shape.bands
            )));
        }
        let pixels = window.rows as usize * window.columns as usize;
        let want = pixels * bands.map_or(shape.bands, <[usize]>::len) * array.dtype().size();
        if out.len() != want {
            return Err(Error::conflict(format!(
                "the window takes {want} bytes, but there is room for {}",
                out.len()
            ))
            .at(self.path()));
        }
        let decoder = Decoder { dataset: self, bands, cache: None };
        decoder.window(array, sample, window, out, &mut Scratch::default())
    }

    fn no_such(&self, what: String) -> Error {
        Error::conflict(format!("there are no {what}")).at(self.path())
    }

    /// The image array of a stack.
    pub(crate) fn image(&self, stack: usize) -> ArrayRef<'_> {
        self.array(stack, 0)
    }

    /// Array `array` of a stack: 0 is the image, 1, 2, … are its masks in order of their names.
    pub(crate) fn array(&self, stack: usize, array: usize) -> ArrayRef<'_> {
        let packed = &self.stacks()[stack];
        let chunks: &ChunkArray = if array == 0 { &packed.image } else { &packed.masks[array - 1] };
        ArrayRef { dataset: self, stack, array, chunks, files: &self.0.files[stack][array] }
    }

    fn mask_array(&self, stack: usize, name: &str) -> Result<ArrayRef<'_>> {
        let masks = &self.stacks()[stack].masks;
        match masks.iter().position(|mask| mask.name() == name) {
            Some(place) => Ok(self.array(stack, place + 1)),
            None => Err(self.no_mask(stack, name)),
        }
    }

    /// The error for a mask that a stack does not have.
    pub(crate) fn no_mask(&self, stack: usize, name: &str) -> Error {
        let stack = &self.stacks()[stack];
        let names: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
        Error::conflict(format!("stack {} has no mask {name:?}", stack.name))
            .at(self.path())
            .with_remedy(if names.is_empty() {
                remedy!["it has no masks; pack some with ", Command::Convert.with(Opt::Mask)]
            } else {
                format!("it has {}", names.join(", ")).into()
            })
    }

    /// Its folder, where files are opened.
    fn folder(&self) -> &folder::Folder {
        self.0.packed.folder()
    }

    fn may_lack_files(&self) -> bool {
        self.0.packed.may_lack_files()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn verify(&self) -> Verify {
        self.0.verify
    }
}

impl Cube {
    /// The values, (row, column, band), little-endian.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len()]
    }

    /// The values as an array (rows, columns, bands); `None` if they are of another type.
    ///
    /// ```no_run
    /// use half::f16;
    /// use hsipack_read::Dataset;
    ///
    /// let cube = Dataset::open("tissue.hsipack")?.sample(0)?;
    /// let values = cube.values::<f16>().expect("packed as float16");
    /// let spectrum = values.slice(ndarray::s![10, 20, ..]);
    /// # let _ = spectrum;
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    pub fn values<T: Value>(&self) -> Option<ArrayView3<'_, T>> {
        let shape = (self.shape.rows, self.shape.columns, self.shape.bands);
        values::of_bytes(self.bytes(), self.dtype.into(), shape)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut bytemuck::cast_slice_mut(&mut self.words)[..len]
    }

    /// Bytes of the values.
    fn len(&self) -> usize {
        self.shape.values() * self.dtype.size()
    }

    fn zeros(array: ArrayRef<'_>, window: Window, bands: usize) -> Result<Self> {
        // A window that does not fit is refused before it is read; it must not be allocated either.
        let shape = array.shape();
        let rows = (window.rows as usize).min(shape.rows);
        let columns = (window.columns as usize).min(shape.columns);
        let shape = CubeShape::new(rows, columns, bands);
        let bytes = shape.values() * array.dtype().size();
        let words = memory::zeroed(bytes.div_ceil(size_of::<u64>()), "a cube")?;
        Ok(Self { shape, dtype: array.dtype(), words })
    }
}

fn window(rows: &Range<usize>, columns: &Range<usize>) -> Window {
    let clamp = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Window {
        row: clamp(rows.start),
        column: clamp(columns.start),
        rows: clamp(rows.end.saturating_sub(rows.start)),
        columns: clamp(columns.end.saturating_sub(columns.start)),
    }
}
