//! The pixels of items, as they are read and after augmentations. The latest items are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use hsipack_augment::{Array, Frame, Host, Images};
use hsipack_format::{Error, Result};
use hsipack_store::memory;

use super::batches::{Batch, Batches};

/// Maximum number of bytes of values to keep.
const KEPT: usize = 128 << 20;
/// Maximum number of bytes of images to read at once.
const AT_ONCE: usize = 512 << 20;

/// Images of one item, or of a whole batch if its items are mixed.
#[derive(Debug)]
pub struct Made {
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
pub struct Latest(VecDeque<(Key, Arc<Made>)>);

impl Latest {
    /// The images that include the item at `place` of a batch. They are made unless they were kept.
    ///
    /// # Errors
    /// If they are too many to be read at once or damaged, or augmentations do not fit.
    pub fn of(
        &mut self,
        key: &Key,
        batches: &Batches,
        batch: &Batch,
        place: usize,
    ) -> Result<Arc<Made>> {
        let whole = batches.mixes();
        let has = |made: &Made| whole || made.first == place;
        if let Some(at) = self.0.iter().position(|(known, made)| known == key && has(made)) {
            let found = self.0.remove(at).expect("one that was found");
            self.0.push_back(found);
        } else {
            let made = Made::of(batches, batch, place)?;
            let mut bytes: usize = self.0.iter().map(|(_, made)| made.bytes).sum();
            while bytes + made.bytes > KEPT
                && let Some((_, oldest)) = self.0.pop_front()
            {
                bytes -= oldest.bytes;
            }
            self.0.push_back((key.clone(), Arc::new(made)));
        }
        Ok(Arc::clone(&self.0.back().expect("one was pushed").1))
    }
}

impl Made {
    fn of(batches: &Batches, batch: &Batch, place: usize) -> Result<Self> {
        let items = match batches.mixes() {
            true => &batch.items[..],
            false => &batch.items[place..=place],
        };
        let bytes = [batch.before, batch.after].map(|frame| bytes(frame, items.len()));
        check(bytes[0].max(bytes[1]), items.len(), batch.before)?;
        let read = batches.replay.read(items)?;
        let augmented = match (&batches.setup.pipeline, &batch.drawn) {
            (Some(pipeline), Some(drawn)) => {
                let own = (!batches.mixes()).then(|| drawn.of_sample(place));
                let made =
                    pipeline.apply(&Host::default(), &read, own.as_ref().unwrap_or(drawn))?;
                Images::new(made.image, made.masks)
            }
            _ => read.clone(),
        };
        let first = if batches.mixes() { 0 } else { place };
        Ok(Self { first, read, augmented, bytes: bytes[0].saturating_add(bytes[1]) })
    }
}

/// The number of bytes of this many images: 4 per value, which includes what augmentations need.
fn bytes(frame: Frame, items: usize) -> usize {
    [frame.rows, frame.columns, frame.bands, items].iter().fold(4, |all, n| all.saturating_mul(*n))
}

fn check(bytes: usize, items: usize, Frame { rows, columns, bands }: Frame) -> Result<()> {
    if bytes <= AT_ONCE {
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
    let limit = memory::size(AT_ONCE as u64);
    Err(Error::conflict(format!("{what}; the viewer reads at most {limit} at once"))
        .with_remedy(remedy))
}
