//! Finds items in place of batches whose samples are all damaged.
//!
//! If damaged samples are skipped, a batch may be left without samples. It must come nevertheless:
//! the other ranks have their part of it, and `len(loader)` counts it. So it gets one item of its
//! shape that can be read, as padding. Like the padding of last batches, this is the first item of
//! the whole epoch that will do. So it does not depend on the rank, on the number of threads, or on
//! where an epoch was resumed.

use std::collections::HashMap;
use std::time::Instant;

use super::batch_plan::BatchPlan;
use super::labelled::LabelledMasks;
use super::reader::Reader;
use crate::decode::is_damage;
use crate::plan::{EpochPlan, Item, Window};
use crate::{Error, Result};

/// The replacements of one epoch, from one dataset.
#[derive(Debug, Default)]
pub(super) struct Replacements {
    epoch: Option<EpochPlan>,
    /// By the number of the shape.
    searches: HashMap<usize, Search>,
}

/// The result of looking for a replacement.
#[derive(Debug)]
pub(super) enum Replacement {
    /// This item can be read. Its values are in the slot.
    Found(Item),
    /// The deadline passed. The search goes on with the next call.
    Pending,
    /// No item of this shape can be read.
    None,
}

/// The search for an item of one shape, in two rounds. The first round tries one window of each
/// sample, because a sample may have very many windows in a damaged shard. The second round tries
/// the other windows.
#[derive(Debug, Default)]
struct Search {
    /// The item to try next, as a place in the epoch's order.
    position: u32,
    is_second: bool,
    /// The window of each sample that was tried in the first round; `None` if its windows cannot be
    /// drawn.
    tried: HashMap<usize, Option<Window>>,
    found: Option<Item>,
}

impl Replacements {
    /// Looks for an item of the shape of a batch, and reads it into the batch's slot. The search
    /// ends early if the loader `is_stopped`.
    ///
    /// # Errors
    /// If an item cannot be read for another reason than damage.
    pub(super) fn find(
        &mut self,
        reader: &Reader,
        batch: &BatchPlan,
        bytes: &mut [u8],
        deadline: Option<Instant>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Replacement> {
        let epoch = match self.epoch.take().filter(|epoch| epoch.epoch() == batch.epoch) {
            Some(epoch) => epoch,
            None => {
                self.searches.clear();
                match reader.plan.options().mixes_items {
                    true => reader.plan.unbatched(batch.epoch),
                    false => reader.plan.epoch(batch.epoch, &[], reader.options.share)?,
                }
            }
        };
        let epoch = self.epoch.insert(epoch);
        let search = self.searches.entry(batch.shape).or_default();
        loop {
            let item = match search.found.take() {
                Some(item) => item,
                None => match search.next(reader, epoch, batch.shape)? {
                    Some(item) => item,
                    None => return Ok(Replacement::None),
                },
            };
            match read(reader, item, batch, bytes) {
                Ok(()) => {
                    search.found = Some(item);
                    return Ok(Replacement::Found(item));
                }
                Err(error) if is_damage(&error) => {}
                Err(error) => return Err(error),
            }
            if is_stopped() {
                return Err(
                    Error::conflict("the loader was stopped").with_remedy("create another one")
                );
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Replacement::Pending);
            }
        }
    }
}

impl Search {
    /// The next item to try; `None` if all were tried.
    fn next(&mut self, reader: &Reader, epoch: &EpochPlan, shape: usize) -> Result<Option<Item>> {
        let mut labelled = LabelledMasks::new(reader);
        loop {
            if self.position == epoch.places() {
                if self.is_second {
                    return Ok(None);
                }
                (self.position, self.is_second) = (0, true);
            }
            let position = self.position;
            self.position += 1;
            let Some(sample) = epoch.sample_of_shape(position, shape) else { continue };
            let tried = self.tried.get(&sample).copied();
            if !self.is_second && tried.is_some() || tried == Some(None) {
                continue;
            }
            let mut items = match epoch.padding_at(position, Some(&mut labelled)) {
                Ok(item) => [item],
                // The mask that says which pixels are labelled.
                Err(error) if is_damage(&error) => {
                    self.tried.insert(sample, None);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if tried == Some(Some(items[0].window)) {
                continue;
            }
            if !self.is_second {
                self.tried.insert(sample, Some(items[0].window));
            }
            reader.new_ids.relabel(&reader.dataset, &mut items);
            return Ok(Some(items[0]));
        }
    }
}

/// Reads an item to the first place of each array of a batch.
fn read(reader: &Reader, item: Item, batch: &BatchPlan, bytes: &mut [u8]) -> Result<()> {
    let (buffer, arrays) = reader.read(&[item])?;
    for (to, from) in batch.arrays.iter().zip(&arrays) {
        let len = to.sample_bytes();
        if from.sample_bytes() != len {
            return Err(Error::bug("the replacement of a damaged batch has another shape"));
        }
        bytes[to.start..to.start + len]
            .copy_from_slice(&buffer.bytes()[from.start..from.start + len]);
    }
    Ok(())
}
