//! A batch, lent by the ring.

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use hsipack_format::{DType, Sample};
use ndarray::ArrayView4;

use super::batch_plan::{BatchArray, BatchPlan};
use super::device_steps::Decoding;
use super::load_times::LoadTime;
use super::reader::Reader;
use super::shared::Shared;
use super::stored_batch::Compressed;
use crate::Result;
use crate::dataset::Dataset;
use crate::plan::Item;
use crate::ring::Lease;
use crate::trace::BatchNumber;
use crate::values::{self, Value};

/// A batch of samples or crops: images, masks, targets, further images, labels and ids.
///
/// The batch lies in a slot of the ring and keeps the slot until it is dropped. As long as the
/// batch lives, nobody writes to its memory. While all slots are kept, no further batch can come:
/// asking for one is then an error, not a wait.
#[derive(Debug)]
pub struct Batch {
    lease: Lease<BatchPlan>,
    shared: Arc<Shared>,
}

/// One array of a batch.
#[derive(Clone, Copy, Debug)]
pub struct ArrayView<'a> {
    /// `image`, or the name of the mask, target or further image.
    pub name: &'a str,
    /// (samples, rows, columns, bands); a mask has one band.
    pub shape: [usize; 4],
    /// Element type.
    pub dtype: DType,
    /// The values: (sample, row, column, band), little-endian, without gaps, starting on a page.
    pub bytes: &'a [u8],
}

impl<'a> ArrayView<'a> {
    /// The values as an array (samples, rows, columns, bands); `None` if they are of another type.
    pub fn values<T: Value>(&self) -> Option<ArrayView4<'a, T>> {
        values::of_bytes(self.bytes, self.dtype.into(), self.shape)
    }
}

impl Batch {
    pub(super) fn new(lease: Lease<BatchPlan>, shared: Arc<Shared>) -> Self {
        Self { lease, shared }
    }

    fn reader(&self) -> &Reader {
        &self.shared.readers[self.lease.plan().reader]
    }

    /// The reader of the item at a position.
    fn reader_at(&self, position: usize) -> &Reader {
        &self.shared.readers[self.lease.plan().reader_at(position)]
    }

    /// When the batch was loaded.
    pub(super) fn loading(&self) -> &LoadTime {
        &self.lease.plan().loading
    }

    /// The epoch and the number of the batch.
    pub(crate) fn number(&self) -> BatchNumber {
        let plan = self.lease.plan();
        BatchNumber { epoch: plan.epoch, batch: plan.number }
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.items().len()
    }

    /// Whether there are no samples, which is never the case for a batch from a loader.
    pub fn is_empty(&self) -> bool {
        self.items().is_empty()
    }

    /// The epoch it belongs to.
    pub fn epoch(&self) -> u64 {
        self.lease.plan().epoch
    }

    /// Which sample, crop and window each place of the batch holds.
    pub fn items(&self) -> &[Item] {
        &self.lease.plan().items
    }

    /// Ids of the samples.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = usize> {
        self.items().iter().map(|item| item.sample)
    }

    /// Names of the samples.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        let items = self.items().iter().enumerate();
        items.map(|(position, item)| self.reader_at(position).dataset.samples().name(item.sample))
    }

    /// The metadata of the samples: names, labels, groups, the user's columns. Each is read from
    /// its line of `samples.jsonl`, which may fail.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Result<Sample>> {
        let items = self.items().iter().enumerate();
        items.map(|(position, item)| self.reader_at(position).dataset.samples().get(item.sample))
    }

    /// Numbers of the samples' classes (see [`Labels`](crate::Labels::classes)), if they have
    /// labels. For windows around labelled pixels: the class ids that the mask has at their
    /// centres, or the [new ids](crate::LoaderOptions::new_ids) that were asked for.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        self.items().iter().enumerate().map(|(position, item)| {
            let labels = self.reader_at(position).dataset.labels();
            item.label.or_else(|| labels.class_of(item.sample))
        })
    }

    /// The images.
    pub fn image(&self) -> ArrayView<'_> {
        self.view(0)
    }

    /// The images as an array (samples, rows, columns, bands), if they are `float16`. For
    /// `float32`, see [`ArrayView::values`].
    pub fn image_f16(&self) -> Option<ArrayView4<'_, f16>> {
        self.image().values()
    }

    /// The masks.
    pub fn masks(&self) -> impl ExactSizeIterator<Item = ArrayView<'_>> {
        (0..self.reader().masks.len()).map(|mask| self.view(mask + 1))
    }

    /// The mask `name`, if it was asked for.
    pub fn mask(&self, name: &str) -> Option<ArrayView<'_>> {
        self.masks().find(|mask| mask.name == name)
    }

    /// The targets: floats for each pixel, with their channels as bands.
    pub fn targets(&self) -> impl ExactSizeIterator<Item = ArrayView<'_>> {
        let Reader { masks, targets, .. } = self.reader();
        (masks.len()..masks.len() + targets.len()).map(|array| self.view(array + 1))
    }

    /// The target `name`, if it was asked for.
    pub fn target(&self, name: &str) -> Option<ArrayView<'_>> {
        self.targets().find(|target| target.name == name)
    }

    /// The further images, with rows, columns and bands of their own.
    pub fn further_images(&self) -> impl ExactSizeIterator<Item = ArrayView<'_>> {
        let Reader { masks, targets, beside, .. } = self.reader();
        (masks.len() + targets.len()..beside.len()).map(|array| self.view(array + 1))
    }

    /// Names of the further images.
    pub(crate) fn further_names(&self) -> &[String] {
        self.reader().further()
    }

    /// The further image `name`, if it was asked for.
    pub fn further_image(&self, name: &str) -> Option<ArrayView<'_>> {
        self.further_images().find(|image| image.name == name)
    }

    /// Bytes of all arrays.
    pub fn bytes(&self) -> usize {
        let arrays = &self.lease.plan().arrays;
        arrays.iter().map(|array| array.sample_bytes() * self.len()).sum()
    }

    /// The arrays: the image, then the masks, the targets and the further images.
    pub(crate) fn arrays(&self) -> &[BatchArray] {
        &self.lease.plan().arrays
    }

    /// The slot's bytes up to the end of the last array; if a device has to decode the batch, all
    /// that it needs.
    pub(crate) fn memory(&self) -> &[u8] {
        let end = self.decoding().map_or_else(|| self.end(), |decoding| decoding.bytes);
        &self.lease.bytes()[..end]
    }

    /// Where a device writes the state of each chunk, 4 bytes each, if it has to decode the batch.
    pub(crate) fn statuses_mut(&mut self) -> &mut [u8] {
        let range = self.decoding().map_or(0..0, |decoding| decoding.answers());
        &mut self.lease.parts_mut().1[range]
    }

    /// The slot's bytes up to the end of the last array, mutable.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        let end = self.end();
        &mut self.lease.parts_mut().1[..end]
    }

    fn end(&self) -> usize {
        self.lease.plan().end()
    }

    /// If a device has to complete the batch: its work, and where its parts lie in
    /// [`memory`](Self::memory).
    pub(crate) fn decoding(&self) -> Option<Arc<Decoding>> {
        self.lease.plan().compressed.as_ref().and_then(Compressed::decoding)
    }

    /// The slot, to be filled in another way.
    pub(super) fn into_lease(self) -> Lease<BatchPlan> {
        self.lease
    }

    /// The dataset that the samples are from; that of the first ones if there are several
    /// ([`dataset_of`](Self::dataset_of)).
    pub fn dataset(&self) -> &Dataset {
        &self.reader().dataset
    }

    /// The number of this dataset among those of the loader; 0 if there is only one.
    pub fn dataset_number(&self) -> usize {
        self.reader().number
    }

    /// Whether batches have items of several datasets. A batch may have items of one of them only.
    pub(crate) fn mixes_items(&self) -> bool {
        self.shared.options().plan.mixes_items
    }

    /// The number of the dataset, among those of the loader, that the sample at a position of the
    /// batch is from.
    pub fn dataset_of(&self, position: usize) -> usize {
        self.reader_at(position).number
    }

    /// The loader's readers of the items, with the places of the items of each.
    pub(crate) fn readers(&self) -> impl Iterator<Item = (usize, &Reader, Range<usize>)> {
        let readers = self.lease.plan().readers();
        readers.map(|(number, places)| (number, &self.shared.readers[number], places))
    }

    fn view(&self, number: usize) -> ArrayView<'_> {
        let BatchArray { start, rows, columns, bands, dtype } = self.lease.plan().arrays[number];
        let len = self.len() * rows * columns * bands * dtype.size();
        ArrayView {
            name: number.checked_sub(1).map_or("image", |array| &self.reader().beside[array]),
            shape: [self.len(), rows, columns, bands],
            dtype,
            bytes: &self.lease.bytes()[start..start + len],
        }
    }
}
