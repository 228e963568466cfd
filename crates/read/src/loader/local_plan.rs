//! Tells the cache on the local disk which chunks this epoch and the next ones will need, and when.

use hsipack_store::local_cache::{EpochUses, UsePlan};

use super::arrays::array_of;
use super::cache_choice::ranks_here;
use super::reader::Reader;
use crate::Result;
use crate::decode::inside;
use crate::plan::{Crop, EpochPlan, Item, Segment, Share};

/// The cache is told nothing about longer epochs: it would take too long, and windows that are
/// drawn from everywhere need every chunk all the time.
const MAX_ITEMS: usize = 1 << 20;
/// How many epochs after the current one the cache is told about. If an epoch draws only some
/// samples, or some more often than others, the epoch after the next one may need chunks that the
/// next one does not.
const EPOCHS: u64 = 3;

/// The local cache's knowledge of a loader.
#[derive(Debug)]
pub(super) struct LocalPlan(Option<UsePlan>);

impl LocalPlan {
    pub(super) fn new(reader: &Reader) -> Self {
        let cache = reader.dataset.local_cache();
        // Which crops have labels is known only when their masks are read.
        let is_known = !matches!(reader.plan.options().crop, Crop::Random { min_labelled, .. } if min_labelled > 0.0);
        // Batches of items of several datasets are not those of this dataset's plan.
        let is_known = is_known && !reader.plan.options().mixes_items;
        Self(cache.filter(|_| is_known).map(|cache| cache.plan()))
    }

    /// Tells what the rest of epoch `epoch` and the next epochs will need, unless that is known.
    /// The batches of the epoch that were `delivered` are not part of the rest.
    pub(super) fn tell(&self, reader: &Reader, epoch: u64, delivered: &[Segment]) {
        let Some(plan) = &self.0 else { return };
        let end = reader.options.end_epoch.unwrap_or(u64::MAX);
        for next in (epoch..=epoch + EPOCHS).filter(|next| *next < end) {
            if plan.knows(next) {
                continue;
            }
            match uses(reader, plan, next, if next == epoch { delivered } else { &[] }) {
                Ok(Some(uses)) => plan.add(next, uses),
                // Any error is reported when the chunks are read.
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Batch `n` of an epoch is planned, and is about to be requested. `unfinished` batches are not
    /// filled yet.
    pub(super) fn go_on(&self, epoch: u64, n: usize, unfinished: usize) {
        if let Some(plan) = &self.0 {
            // The batch itself is one of those that are not filled.
            plan.go_on(epoch, n, unfinished.saturating_sub(1));
        }
    }
}

/// Blocks that all processes of this machine that train together will need in an epoch; `None` if
/// the epoch is too long.
fn uses(
    reader: &Reader,
    plan: &UsePlan,
    epoch: u64,
    delivered: &[Segment],
) -> Result<Option<EpochUses>> {
    let Share { rank, world_size } = reader.options.share;
    let here = (ranks_here() as usize).min(world_size);
    let first = rank - rank % here;
    let shares = (first..(first + here).min(world_size)).map(|rank| Share { rank, world_size });
    let epochs = shares.map(|share| reader.plan.epoch(epoch, delivered, share));
    let epochs: Vec<EpochPlan> = epochs.collect::<Result<_>>()?;
    if epochs.iter().map(EpochPlan::items).sum::<usize>() > MAX_ITEMS {
        return Ok(None);
    }
    let steps = epochs.iter().map(EpochPlan::batches).max().unwrap_or(0);
    let mut uses = plan.epoch(steps);
    let mut items = Vec::new();
    for step in 0..steps {
        for epoch in epochs.iter().filter(|epoch| step < epoch.batches()) {
            epoch.batch(step, None, &mut items)?;
            for item in &items {
                want(reader, *item, step as u32, &mut uses)?;
            }
        }
    }
    Ok(Some(uses))
}

/// Notes the chunks of an item's image, masks and companions.
fn want(reader: &Reader, item: Item, step: u32, uses: &mut EpochUses) -> Result<()> {
    let (decoder, index) = (reader.decoder(), reader.dataset.samples().index(item.sample));
    for number in 0..=reader.beside.len() {
        let array = array_of(&reader.dataset, &reader.beside, item, number)?;
        let (rows, columns) = inside(array, array.window(item.window), reader.pad(array));
        let bands = decoder.bands_of(array);
        for down in array.grid().chunk_rows(&rows) {
            for chunk in array.grid().chunks_in(down, &columns, bands) {
                let Some(stored) = array.locate_if_open(index, chunk) else { continue };
                if let Some(shard) = stored.file.cached_as() {
                    uses.want(shard, &stored.span, step);
                }
            }
        }
    }
    Ok(())
}
