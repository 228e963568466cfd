//! Makes the tensors of a batch from the bytes of its slot: values as asked for, then
//! augmentations.

use std::sync::Arc;
use std::time::Instant;

use hsipack_augment::array::{Memory, Stream};
use hsipack_augment::{Device, Images, Library, Mask, Mixed, Parameters, Pipeline};

use super::batch_info::BatchInfo;
use super::conversion::Conversion;
use crate::Result;
use crate::trace::{Trace, Track};

/// Tensors of a batch.
pub(super) struct BatchTensors<L: Library> {
    pub image: L::Tensor,
    /// Names and masks.
    pub masks: Vec<(String, L::Tensor)>,
    pub info: Arc<BatchInfo>,
    /// How the loader's augmentations changed the batch, or why they could not. It is then the
    /// error of the batch.
    pub augmented: Result<Augmentation>,
}

/// How a loader augmented a batch.
#[derive(Default)]
pub(super) struct Augmentation {
    /// Which samples were mixed, for every augmentation that mixes.
    pub mixed: Vec<Mixed>,
    /// The augmentations, and what was drawn; nothing without augmentations.
    pub drawn: Option<(Arc<Pipeline>, Parameters)>,
}

/// Makes them.
pub(super) struct TensorMaker<L: Library> {
    pub library: L,
    /// Of each reader of the loader.
    pub conversions: Vec<Arc<Conversion>>,
    /// Of each reader of the loader. Empty without augmentations.
    pub pipelines: Vec<Arc<Pipeline>>,
    pub trace: Option<Arc<Trace>>,
    /// The thread that makes them.
    pub track: Track,
}

impl<L: Library> TensorMaker<L> {
    /// Makes the tensors of a batch. On a device, its memory is lent to the stream that is current
    /// in the calling thread.
    ///
    /// # Errors
    /// If there is no memory, or the device fails.
    pub(super) fn make(
        &self,
        memory: &Arc<dyn Memory>,
        info: &Arc<BatchInfo>,
    ) -> Result<BatchTensors<L>> {
        memory.lend(match memory.device() {
            Device::Cpu => Stream::LEGACY,
            Device::Cuda(number) => self.library.stream(number)?,
        })?;
        let begin = Instant::now();
        let (image, masks) = Conversion::make(&self.conversions, &self.library, memory, info)?;
        let augmented = Ok(Augmentation::default());
        let mut tensors = BatchTensors { image, masks, info: info.clone(), augmented };
        if !info.sources.iter().all(|source| self.conversions[source.reader].is_view()) {
            self.record("convert", begin, info);
        }
        if let Some(pipeline) = self.pipelines.get(info.augmented_as()) {
            let begin = Instant::now();
            let (image, masks) = (&mut tensors.image, &mut tensors.masks);
            tensors.augmented =
                augment(&self.library, pipeline, image, masks, info).map(|(mixed, parameters)| {
                    Augmentation { mixed, drawn: Some((pipeline.clone(), parameters)) }
                });
            self.record("augment", begin, info);
        }
        Ok(tensors)
    }

    fn record(&self, name: &'static str, begin: Instant, info: &BatchInfo) {
        if let Some(trace) = &self.trace {
            trace.span(self.track, name, (begin, Instant::now()), Some(info.number));
        }
    }
}

/// Augments a batch, as determined by its epoch and its samples. Returns which samples were mixed,
/// and what was drawn. If it fails, the batch stays as it was.
pub(super) fn augment<L: Library>(
    library: &L,
    pipeline: &Pipeline,
    image: &mut L::Tensor,
    masks: &mut Vec<(String, L::Tensor)>,
    info: &BatchInfo,
) -> Result<(Vec<Mixed>, Parameters)> {
    let samples = info.keys();
    let labels = masks.iter();
    let labels = labels.map(|(name, labels)| Mask { name: name.clone(), labels: labels.clone() });
    let images = Images::new(image.clone(), labels.collect()).with_further(info.further.clone());
    let (augmented, parameters) = library.augment(pipeline, images, info.number.epoch, &samples)?;
    *image = augmented.image;
    *masks = augmented.masks.into_iter().map(|mask| (mask.name, mask.labels)).collect();
    Ok((augmented.mixed, parameters))
}
