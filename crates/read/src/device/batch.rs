//! A batch of tensors.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use hsipack_augment::{Library, Mixed, ObjectBox, Parameters, Pipeline};
use hsipack_format::Sample;

use super::batch_info::BatchInfo;
use super::tensors::augment;
use crate::Result;
use crate::dataset::{Boxes, Dataset};
use crate::plan::Item;
use crate::trace::BatchNumber;

/// A batch of samples or crops as tensors of a library, on a device.
///
/// You may take tensors out and keep them as long as you like: nobody writes to memory that a
/// tensor refers to. Tensors that are kept cost memory, because the loader has to take new memory
/// instead of using theirs again. On a CUDA device, use tensors on the stream that was current when
/// the batch was asked for. If you use them on another stream, make the first stream wait for that
/// work before the last tensor over the batch is dropped.
pub struct DeviceBatch<L: Library> {
    /// The images: (B, C, H, W), `channels_last` in memory, which is (B, H, W, C).
    pub image: L::Tensor,
    /// Names and masks: class ids are (B, H, W), boolean layers (B, layers, H, W). Targets and
    /// further images follow, as they are stored: floats (B, H, W), or (B, channels, H, W) with
    /// `channels_last` in memory. Further images may have other rows and columns.
    pub masks: Vec<(String, L::Tensor)>,
    /// For every mixing augmentation of the loader: which samples were mixed with which. Empty if
    /// it has none.
    pub mixed: Vec<Mixed>,
    /// The loader's augmentations, and what was drawn for this batch.
    pub(super) drawn: Option<(Arc<Pipeline>, Parameters)>,
    pub(super) info: Arc<BatchInfo>,
    pub(super) library: L,
}

impl<L: Library> DeviceBatch<L> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        self.info.items.len()
    }

    /// Whether there are no samples, which is never the case for a batch from a loader.
    pub fn is_empty(&self) -> bool {
        self.info.items.is_empty()
    }

    /// The epoch it belongs to.
    pub fn epoch(&self) -> u64 {
        self.info.number.epoch
    }

    /// The epoch and the number of the batch.
    pub fn number(&self) -> BatchNumber {
        self.info.number
    }

    /// The dataset that the samples are from; that of the first ones if there are several
    /// ([`datasets`](Self::datasets)).
    pub fn dataset(&self) -> &Dataset {
        &self.info.first().dataset
    }

    /// The number of this dataset among those of the loader; 0 if there is only one.
    pub fn dataset_number(&self) -> usize {
        self.info.first().dataset_number
    }

    /// The datasets that the samples are from: the number of each among those of the loader, and
    /// the places of its samples.
    pub fn datasets(&self) -> impl ExactSizeIterator<Item = (usize, Range<usize>)> {
        self.info.sources.iter().map(|source| (source.dataset_number, source.places.clone()))
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
        let items = self.info.items_with_sources();
        items.map(|(item, source)| source.dataset.samples().name(item.sample))
    }

    /// The metadata of the samples: names, labels, groups, the user's columns. Each is read from
    /// its line of `samples.jsonl`, which may fail.
    pub fn samples(&self) -> impl ExactSizeIterator<Item = Result<Sample>> {
        let items = self.info.items_with_sources();
        items.map(|(item, source)| source.dataset.samples().get(item.sample))
    }

    /// Numbers of the samples' classes (see [`Labels`](crate::Labels::classes)), if they have
    /// labels. For windows around labelled pixels: the class ids that the mask has at their
    /// centres.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = Option<u32>> {
        self.info.items_with_sources().map(|(item, source)| {
            item.label.or_else(|| source.dataset.labels().class_of(item.sample))
        })
    }

    /// The objects in each item, with their boxes as the loader cut and augmented the images: the
    /// position of each object among `boxes`, and its box. Objects of which a smaller share than
    /// `min_visible` is left, or nothing, are left out.
    ///
    /// # Errors
    /// If the loader's augmentations move no boxes ([`Pipeline::check_boxes`]).
    pub fn boxes(&self, boxes: &Boxes, min_visible: f64) -> Result<Vec<Vec<(usize, ObjectBox)>>> {
        self.boxes_of(|_| Some(boxes), min_visible)
    }

    /// The same if the samples are of several datasets: `boxes` gets the number of the dataset.
    /// Samples of a dataset without boxes have no objects.
    ///
    /// # Errors
    /// As [`boxes`](Self::boxes).
    pub fn boxes_of<'b>(
        &self,
        boxes: impl Fn(usize) -> Option<&'b Boxes>,
        min_visible: f64,
    ) -> Result<Vec<Vec<(usize, ObjectBox)>>> {
        let items = || {
            let items = self.info.items_with_sources();
            items.map(|(item, source)| (item, boxes(source.dataset_number)))
        };
        let cut = items().map(|(item, boxes)| {
            boxes.map_or_else(Vec::new, |boxes| boxes.in_window(item.sample, item.window))
        });
        let mut moved: Vec<Vec<ObjectBox>> = cut.collect();
        if let Some((pipeline, parameters)) = &self.drawn {
            parameters.move_boxes(pipeline, &mut moved)?;
        }
        let visible = items().zip(moved).map(|((item, boxes), objects)| {
            boxes.map_or_else(Vec::new, |boxes| boxes.visible(item.sample, objects, min_visible))
        });
        Ok(visible.collect())
    }

    /// For each item, which of the bands that were read its image has, in their order. `None` if
    /// the loader's augmentations draw no bands: then it has all of them.
    ///
    /// # Errors
    /// If a program changed what was drawn.
    pub fn bands(&self) -> Result<Option<Vec<Vec<usize>>>> {
        match &self.drawn {
            Some((pipeline, parameters)) => parameters.bands(pipeline),
            None => Ok(None),
        }
    }

    /// Name of the sample at a place of the batch.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn name(&self, position: usize) -> &str {
        self.info.source_of(position).dataset.samples().name(self.items()[position].sample)
    }

    /// Names of the further images among the masks.
    pub fn further_images(&self) -> &[String] {
        &self.info.further
    }

    /// The mask, target or further image `name`, if it was asked for.
    pub fn mask(&self, name: &str) -> Option<&L::Tensor> {
        self.masks.iter().find(|(mask, _)| mask == name).map(|(_, mask)| mask)
    }

    /// Augments the batch, as determined by its epoch and its samples. The images and masks are
    /// replaced. Memory that other tensors share is not written to, so tensors of the batch that
    /// are kept stay as they are. Returns which samples were mixed with which, for every mixing
    /// augmentation, and what was drawn. A loader can do the same ahead of time:
    /// [`PreparedDeviceLoader::augmented`](super::PreparedDeviceLoader::augmented).
    ///
    /// ```no_run
    /// use hsipack_read::augment::{Host, Pipeline};
    /// use hsipack_read::{Dataset, Device, DeviceLoader, DeviceOptions, LoaderOptions};
    ///
    /// let dataset = Dataset::open("tissue.hsipack")?;
    /// let pipeline = Pipeline::from_json(r#"[{"op": "hflip"}, {"op": "l1_normalize"}]"#)?;
    /// let device = DeviceOptions::new(Device::Cpu);
    /// let mut loader = DeviceLoader::new(&dataset, LoaderOptions::new(6), device, Host::default())?;
    /// for batch in loader.epoch() {
    ///     let mut batch = batch?;
    ///     batch.augment(&pipeline)?;
    ///     println!("{:?}", batch.image.shape()); // (samples, bands, rows, columns)
    /// }
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Pipeline::draw`] and [`Pipeline::apply`]. The batch then stays as it was.
    pub fn augment(&mut self, pipeline: &Pipeline) -> Result<(Vec<Mixed>, Parameters)> {
        augment(&self.library, pipeline, &mut self.image, &mut self.masks, &self.info)
    }
}

impl<L: Library> fmt::Debug for DeviceBatch<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let masks: Vec<&str> = self.masks.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("DeviceBatch")
            .field("masks", &masks)
            .field("epoch", &self.info.number.epoch)
            .field("items", &self.info.items)
            .finish_non_exhaustive()
    }
}
