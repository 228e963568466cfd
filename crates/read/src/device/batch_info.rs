//! The metadata of a batch: its items, and where its arrays are in a slot.

use std::ops::Range;
use std::sync::Arc;

use hsipack_augment::array::Memory;
use hsipack_augment::{Array, ElementType, SampleKey};

use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{Batch, BatchArray, Reader};
use crate::plan::Item;
use crate::trace::BatchNumber;

/// The metadata of a batch.
pub(super) struct BatchInfo {
    /// The datasets of the items, in the order of the items. At least one.
    pub sources: Vec<Source>,
    /// Whether batches have items of several datasets, even if this one has not.
    pub mixes_items: bool,
    pub number: BatchNumber,
    pub items: Vec<Item>,
    pub arrays: Vec<BatchArray>,
    /// Names of the further images.
    pub further: Vec<String>,
}

/// A dataset, and its items in a batch.
pub(super) struct Source {
    /// The dataset and not the loader, so that a batch that is kept need not keep the ring.
    pub dataset: Dataset,
    /// The number of the dataset among those of the loader.
    pub dataset_number: usize,
    /// The loader's reader of the dataset.
    pub reader: usize,
    /// Places of the items.
    pub places: Range<usize>,
}

impl BatchInfo {
    pub(super) fn of(batch: &Batch) -> Arc<Self> {
        let source = |(reader, read, places): (usize, &Reader, Range<usize>)| {
            let (dataset, dataset_number) = (read.dataset.clone(), read.number);
            Source { dataset, dataset_number, reader, places }
        };
        Arc::new(Self {
            sources: batch.readers().map(source).collect(),
            mixes_items: batch.mixes_items(),
            number: batch.number(),
            items: batch.items().to_vec(),
            arrays: batch.arrays().to_vec(),
            further: batch.further_names().to_vec(),
        })
    }

    /// The dataset of the first items.
    pub(super) fn first(&self) -> &Source {
        &self.sources[0]
    }

    /// The source of the item at a position.
    pub(super) fn source_of(&self, position: usize) -> &Source {
        let source = self.sources.iter().find(|source| position < source.places.end);
        source.unwrap_or_else(|| self.first())
    }

    /// Every item with its source.
    pub(super) fn items_with_sources(&self) -> impl ExactSizeIterator<Item = (&Item, &Source)> {
        self.items.iter().enumerate().map(|(position, item)| (item, self.source_of(position)))
    }

    /// The loader's reader whose augmentations the batch gets. The same ones augment all batches
    /// that mix datasets.
    pub(super) fn augmented_as(&self) -> usize {
        if self.mixes_items { 0 } else { self.first().reader }
    }

    /// Keys of the samples for augmentations. Samples with the same id in two datasets have
    /// different keys.
    pub(super) fn keys(&self) -> Vec<SampleKey> {
        let key = |(item, source): (&Item, &Source)| {
            let SampleKey { sample, repeat } = SampleKey::from(item);
            SampleKey { sample, repeat: repeat | (source.dataset_number as u64) << 32 }
        };
        match self.mixes_items {
            true => self.items_with_sources().map(key).collect(),
            false => self.items.iter().map(SampleKey::from).collect(),
        }
    }

    /// Array `number` as it lies in `memory`, the bytes of a slot: (B, H, W, C).
    pub(super) fn view(&self, memory: &Arc<dyn Memory>, number: usize) -> Result<Array> {
        let array = self.arrays[number];
        let shape = [self.items.len(), array.rows, array.columns, array.bands];
        Array::new(memory.clone(), array.start, &shape, ElementType::from(array.dtype))
    }
}
