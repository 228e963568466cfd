//! Makes the tensors of a batch from the bytes of its slot: values as asked for, then augmentations.

use std::sync::Arc;
use std::time::Instant;

use hsipack_augment::array::{Memory, Stream};
use hsipack_augment::{Device, Images, Library, Mask, Mixed, Parameters, Pipeline, SampleKey};

use super::batch::Info;
use super::recipe::Recipe;
use crate::Result;
use crate::trace::{Trace, Track};

/// Tensors of a batch.
pub(super) struct Made<L: Library> {
    pub image: L::Tensor,
    /// Names and masks.
    pub masks: Vec<(String, L::Tensor)>,
    pub info: Arc<Info>,
    /// Which samples the loader's augmentations mixed, or why the batch could not be augmented. It is then the error
    /// of the batch.
    pub mixed: Result<Vec<Mixed>>,
}

/// Makes them.
pub(super) struct TensorMaker<L: Library> {
    pub library: L,
    pub recipe: Arc<Recipe>,
    pub pipeline: Option<Arc<Pipeline>>,
    pub trace: Option<Arc<Trace>>,
    /// The thread that makes them.
    pub track: Track,
}

impl<L: Library> TensorMaker<L> {
    /// Makes the tensors of a batch. On a device, its memory is lent to the stream that is current in the calling
    /// thread.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub(super) fn make(&self, memory: &Arc<dyn Memory>, info: &Arc<Info>) -> Result<Made<L>> {
        memory.lend(match memory.device() {
            Device::Cpu => Stream::LEGACY,
            Device::Cuda(number) => self.library.stream(number)?,
        })?;
        let begin = Instant::now();
        let (image, masks) = self.recipe.make(&self.library, memory, info)?;
        let mut made = Made { image, masks, info: info.clone(), mixed: Ok(Vec::new()) };
        if !self.recipe.is_view() {
            self.record("convert", begin, info);
        }
        if let Some(pipeline) = &self.pipeline {
            let begin = Instant::now();
            made.mixed = augment(&self.library, pipeline, &mut made.image, &mut made.masks, info)
                .map(|(mixed, _)| mixed);
            self.record("augment", begin, info);
        }
        Ok(made)
    }

    fn record(&self, name: &'static str, begin: Instant, info: &Info) {
        if let Some(trace) = &self.trace {
            trace.span(self.track, name, (begin, Instant::now()), Some(info.number));
        }
    }
}

/// Augments a batch, as determined by its epoch and its samples. Returns which samples were mixed, and what was drawn. If
/// it fails, the batch stays as it was.
pub(super) fn augment<L: Library>(
    library: &L,
    pipeline: &Pipeline,
    image: &mut L::Tensor,
    masks: &mut Vec<(String, L::Tensor)>,
    info: &Info,
) -> Result<(Vec<Mixed>, Parameters)> {
    let samples: Vec<SampleKey> = info.items.iter().map(SampleKey::from).collect();
    let labels = masks.iter();
    let labels = labels.map(|(name, labels)| Mask { name: name.clone(), labels: labels.clone() });
    let images = Images::new(image.clone(), labels.collect());
    let (augmented, parameters) = library.augment(pipeline, images, info.number.epoch, &samples)?;
    *image = augmented.image;
    *masks = augmented.masks.into_iter().map(|mask| (mask.name, mask.labels)).collect();
    Ok((augmented.mixed, parameters))
}
