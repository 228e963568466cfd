//! The pixels of items, as they are read and after augmentations. The latest items are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use hsipack_augment::{Array, Frame, Host, Images};
use hsipack_format::{Error, Result};
use hsipack_store::memory;

use super::batches::{Batch, Batches};

/// Maximum number of bytes of values to keep.
const MAX_CACHED_BYTES: usize = 128 << 20;
/// Maximum number of bytes of images to read at once.
const MAX_READ_BYTES: usize = 512 << 20;

/// Images of one item, or of a whole batch if its items are mixed.
#[derive(Debug)]
pub struct ItemImages {
    /// The place of the first image in the batch.
    pub first: usize,
    /// The images as the loader reads them.
    pub read: Images<Array>,
    /// The images after augmentations; the same as `read` if there are none.
    pub augmented: Images<Array>,
    bytes: usize,
}

/// Identifies images: words of the setup, epoch, batch.
pub type Key = (String, u64, usize);

/// The latest images.
#[derive(Debug, Default)]
pub struct ImageCache(VecDeque<(Key, Arc<ItemImages>)>);

impl ImageCache {
    /// The images that include the item at `position` of a batch. They are made unless they were
    /// kept.
    ///
    /// # Errors
    /// If they are too many to be read at once or damaged, or augmentations do not fit.
    pub fn of(
        &mut self,
        key: &Key,
        batches: &Batches,
        batch: &Batch,
        position: usize,
    ) -> Result<Arc<ItemImages>> {
        let whole = batches.mixes();
        let has = |images: &ItemImages| whole || images.first == position;
        if let Some(at) =
            self.0.iter().position(|(cached_key, images)| cached_key == key && has(images))
        {
            let found = self.0.remove(at).expect("one that was found");
            self.0.push_back(found);
        } else {
            let images = ItemImages::of(batches, batch, position)?;
            let mut bytes: usize = self.0.iter().map(|(_, images)| images.bytes).sum();
            while bytes + images.bytes > MAX_CACHED_BYTES
                && let Some((_, oldest)) = self.0.pop_front()
            {
                bytes -= oldest.bytes;
            }
            self.0.push_back((key.clone(), Arc::new(images)));
        }
        Ok(Arc::clone(&self.0.back().expect("one was pushed").1))
    }
}

impl ItemImages {
    fn of(batches: &Batches, batch: &Batch, position: usize) -> Result<Self> {
        let items = match batches.mixes() {
            true => &batch.items[..],
            false => &batch.items[position..=position],
        };
        let bytes = [batch.before, batch.after].map(|frame| bytes(frame, items.len()));
        check(bytes[0].max(bytes[1]), items.len(), batch.before)?;
        let read = batches.replay.read(items)?;
        let augmented = match (&batches.setup.pipeline, &batch.drawn) {
            (Some(pipeline), Some(drawn)) => {
                let item_drawn = (!batches.mixes()).then(|| drawn.of_sample(position));
                let augmented = pipeline.apply(
                    &Host::default(),
                    &read,
                    item_drawn.as_ref().unwrap_or(drawn),
                )?;
                Images::new(augmented.image, augmented.masks)
            }
            _ => read.clone(),
        };
        let first = if batches.mixes() { 0 } else { position };
        Ok(Self { first, read, augmented, bytes: bytes[0].saturating_add(bytes[1]) })
    }
}

/// The number of bytes of this many images: 4 per value, which includes what augmentations need.
fn bytes(frame: Frame, items: usize) -> usize {
    [frame.rows, frame.columns, frame.bands, items].iter().fold(4, |all, n| all.saturating_mul(*n))
}

fn check(bytes: usize, items: usize, Frame { rows, columns, bands }: Frame) -> Result<()> {
    if bytes <= MAX_READ_BYTES {
        return Ok(());
    }
    let size = format!("{rows} × {columns} × {bands} take {}", memory::size(bytes as u64));
    let (what, remedy) = match items {
        1 => (format!("images of {size}"), "choose crops"),
        _ => (
            format!(
                "{items} images of {size}, and all of them are needed because augmentations mix them"
            ),
            "choose a smaller batch size, or crops",
        ),
    };
    let limit = memory::size(MAX_READ_BYTES as u64);
    Err(Error::conflict(format!("{what}; the viewer reads at most {limit} at once"))
        .with_remedy(remedy))
}
