//! Augmenting what a [`DeviceLoader`](crate::DeviceLoader) gives.

use super::super::{Parameters, Pipeline, SampleKey};
use super::{Images, Mask, Mixed};
use crate::Result;
use crate::device::DeviceBatch;

impl Pipeline {
    /// Augments a batch, in its epoch, by its samples; its images and masks are replaced. What they lay over is not
    /// written to, so that tensors kept of it stay as they are. Gives who was mixed with whom, for every
    /// mixing augmentation, and what was drawn.
    ///
    /// ```no_run
    /// use hsipack_read::augment::Pipeline;
    /// use hsipack_read::{Dataset, DeviceLoader, DeviceOptions, LoaderOptions, best_device};
    ///
    /// let dataset = Dataset::open("tissue.hsipack")?;
    /// let pipeline = Pipeline::from_json(r#"[{"op": "hflip"}, {"op": "l1_normalize"}]"#)?;
    /// let device = DeviceOptions::new(best_device());
    /// let mut loader = DeviceLoader::new(&dataset, LoaderOptions::new(6), device)?;
    /// for batch in loader.epoch() {
    ///     let mut batch = batch?;
    ///     pipeline.augment_batch(&mut batch)?;
    ///     println!("{:?}", batch.image.size()); // (samples, bands, rows, columns)
    /// }
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`augment`](Self::augment); the batch stays as it was then.
    pub fn augment_batch(&self, batch: &mut DeviceBatch) -> Result<(Vec<Mixed>, Parameters)> {
        let samples: Vec<SampleKey> = batch.items().iter().map(SampleKey::from).collect();
        let masks = batch
            .masks
            .iter()
            .map(|(name, labels)| Mask { name: name.clone(), labels: labels.shallow_clone() });
        let masks = masks.collect();
        let images = Images { image: batch.image.shallow_clone(), masks, overwrite: false };
        let epoch = batch.epoch();
        let (augmented, parameters) =
            batch.with_results(|| self.augment(images, epoch, &samples))?;
        batch.image = augmented.image;
        batch.masks = augmented.masks.into_iter().map(|mask| (mask.name, mask.labels)).collect();
        Ok((augmented.mixed, parameters))
    }
}
