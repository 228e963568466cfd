//! A batch of tensors, and how tensors lie over a slot.

use std::fmt;
use std::sync::Arc;

use hsipack_format::{DType, Sample};
use tch::{Kind, Tensor};

use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{Batch, BatchArray};
use crate::plan::Item;
use crate::torch::pool::Pool;
use crate::torch::run;
use crate::trace::BatchNumber;

/// A batch of samples or crops as tensors on a device.
///
/// Tensors may be taken out and kept as long as one likes: nobody writes to memory that a tensor refers to. Kept
/// ones cost memory, since the loader has to take new memory instead of using theirs again. On a CUDA device, use
/// tensors on the stream that was current when the batch was asked for, or have yours wait for it; and drop them
/// with that stream current, or after its having waited for yours.
pub struct DeviceBatch {
    /// The images: (B, C, H, W), `channels_last` in memory, which is (B, H, W, C).
    pub image: Tensor,
    /// Names and masks: class ids are (B, H, W), boolean layers (B, layers, H, W).
    pub masks: Vec<(String, Tensor)>,
    pub(super) info: Arc<Info>,
    /// Where results of augmentations lie on the CPU, from batch to batch.
    pub(super) results: Option<Arc<Pool>>,
    /// Dropped last, when the tensors above are gone: gives the slot back if nobody else refers to it.
    pub(super) _hold: Option<Box<dyn Send>>,
}

/// What is known of a batch beside its bytes.
pub(super) struct Info {
    /// Not the loader: a batch that is kept need not keep the ring.
    pub dataset: Dataset,
    pub number: BatchNumber,
    pub items: Vec<Item>,
    pub arrays: Vec<BatchArray>,
}

impl DeviceBatch {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.info.items.len()
    }

    /// Whether there are none; never so for a batch that a loader gave.
    pub fn is_empty(&self) -> bool {
        self.info.items.is_empty()
    }

    /// The epoch it belongs to.
    pub fn epoch(&self) -> u64 {
        self.info.number.epoch
    }

    /// Does something whose large results on the CPU come from the loader's memory for them, which is used again when they
    /// are dropped.
    pub fn with_results<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.results {
            Some(pool) => pool.during(work),
            None => work(),
        }
    }

    /// Which batch of its epoch it is.
    pub fn number(&self) -> BatchNumber {
        self.info.number
    }

    /// Which sample, crop and window each place of the batch holds.
    pub fn items(&self) -> &[Item] {
        &self.info.items
    }

    /// Ids of the samples.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = usize> {
        self.items().iter().map(|item| item.sample)
    }

    /// Names of the samples.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        let samples = self.info.dataset.samples();
        self.items().iter().map(move |item| samples.name(item.sample))
    }

    /// What is known of the samples: names, labels, groups, the user's columns; each is read from its line of
    /// `samples.jsonl`.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Sample> {
        let samples = self.info.dataset.samples();
        self.items().iter().map(move |item| samples.get(item.sample))
    }

    /// Numbers of the samples' classes (see [`Labels`](crate::Labels::classes)), where they have labels.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        let labels = self.info.dataset.labels();
        self.items().iter().map(move |item| labels.class_of(item.sample))
    }

    /// The mask of that name, if it was asked for.
    pub fn mask(&self, name: &str) -> Option<&Tensor> {
        self.masks.iter().find(|(mask, _)| mask == name).map(|(_, mask)| mask)
    }
}

impl fmt::Debug for DeviceBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBatch")
            .field("image", &self.image)
            .field("masks", &self.masks)
            .field("epoch", &self.info.number.epoch)
            .field("items", &self.info.items)
            .finish()
    }
}

impl Info {
    pub(super) fn of(batch: &Batch) -> Arc<Self> {
        Arc::new(Self {
            dataset: batch.dataset().clone(),
            number: batch.number(),
            items: batch.items().to_vec(),
            arrays: batch.arrays().to_vec(),
        })
    }

    /// Array `number` as it lies in `memory`, the bytes of a slot: (B, H, W, C) with the type of
    /// [`stored_kind`]. It is a view: its storage is that of `memory`.
    pub(super) fn view(&self, memory: &Tensor, number: usize) -> Result<Tensor> {
        let array = self.arrays[number];
        let bytes = array.sample_bytes() * self.items.len();
        let shape = [self.items.len(), array.rows, array.columns, array.bands];
        run(|| {
            memory
                .f_narrow(0, array.start as i64, bytes as i64)?
                .f_view_dtype(stored_kind(array.dtype))?
                .f_view(shape.map(|length| length as i64))
        })
    }
}

/// How libtorch sees what is stored: it has no unsigned types beyond uint8, whose bits come as signed ones.
pub(crate) fn stored_kind(dtype: DType) -> Kind {
    match dtype {
        DType::Bool => Kind::Bool,
        DType::U8 => Kind::Uint8,
        DType::I8 => Kind::Int8,
        DType::U16 | DType::I16 => Kind::Int16,
        DType::U32 | DType::I32 => Kind::Int,
        DType::U64 | DType::I64 => Kind::Int64,
        DType::F16 => Kind::Half,
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
    }
}
