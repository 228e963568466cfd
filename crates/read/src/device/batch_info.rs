//! The metadata of a batch: its items, and where its arrays are in a slot.

use std::sync::Arc;

use hsipack_augment::array::Memory;
use hsipack_augment::{Array, ElementType};

use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{Batch, BatchArray};
use crate::plan::Item;
use crate::trace::BatchNumber;

/// The metadata of a batch.
pub(super) struct BatchInfo {
    /// The dataset and not the loader, so that a batch that is kept need not keep the ring.
    pub dataset: Dataset,
    /// The number of the dataset among those of the loader.
    pub dataset_number: usize,
    /// The loader's reader of the dataset.
    pub reader: usize,
    pub number: BatchNumber,
    pub items: Vec<Item>,
    pub arrays: Vec<BatchArray>,
    /// Names of the further images.
    pub further: Vec<String>,
}

impl BatchInfo {
    pub(super) fn of(batch: &Batch) -> Arc<Self> {
        Arc::new(Self {
            dataset: batch.dataset().clone(),
            dataset_number: batch.dataset_number(),
            reader: batch.reader_number(),
            number: batch.number(),
            items: batch.items().to_vec(),
            arrays: batch.arrays().to_vec(),
            further: batch.further_names().to_vec(),
        })
    }

    /// Array `number` as it lies in `memory`, the bytes of a slot: (B, H, W, C).
    pub(super) fn view(&self, memory: &Arc<dyn Memory>, number: usize) -> Result<Array> {
        let array = self.arrays[number];
        let shape = [self.items.len(), array.rows, array.columns, array.bands];
        Array::new(memory.clone(), array.start, &shape, ElementType::from(array.dtype))
    }
}
