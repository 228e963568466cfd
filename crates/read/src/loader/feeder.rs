//! The planning thread: plans batches into free slots, and tells the store what will be wanted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::batch_plan::{BatchPlan, array_of, lay_out};
use super::labelled::LabelledMasks;
use super::shared::{Shared, Start};
use crate::plan::EpochPlan;
use crate::ring::{Claim, PlanSlot};
use crate::{Error, ErrorKind, Result};

/// Why the feeder leaves what it is doing.
enum Leave {
    /// A new generation begins.
    Restarted,
    Stopped,
    /// No batches can come any more.
    Over,
}

/// Plans batches until the ring is stopped.
pub(super) fn run(shared: &Shared) {
    let run = AssertUnwindSafe(|| {
        loop {
            let start = shared.start();
            let generation = start.generation;
            match feed(shared, start) {
                Leave::Restarted => {}
                Leave::Stopped => return,
                Leave::Over if shared.ring.slots().finish(generation) => {}
                Leave::Over => return,
            }
        }
    });
    if catch_unwind(run).is_err() {
        // Waiting for batches would never end.
        shared.ring.slots().stop();
    }
}

fn feed(shared: &Shared, start: Start) -> Leave {
    let Start { generation, mut epoch, mut given } = start;
    let mut labelled = LabelledMasks::new(shared);
    let mut empty = 0;
    while shared.options.end_epoch.is_none_or(|end| epoch < end) {
        let plan = shared
            .dataset
            .check_unchanged()
            .and_then(|()| shared.plan.epoch(epoch, &given, shared.options.share));
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return fail(shared, generation, epoch, error),
        };
        // The rest of an epoch may be empty, but not one epoch after the other.
        empty = if plan.batches() == 0 { empty + 1 } else { 0 };
        if empty == 3 {
            return Leave::Over;
        }
        for number in 0..plan.batches() {
            if let Err(leave) = feed_batch(shared, generation, &plan, number, &mut labelled) {
                return leave;
            }
        }
        epoch += 1;
        given.clear();
    }
    Leave::Over
}

fn feed_batch(
    shared: &Shared,
    generation: u64,
    epoch: &EpochPlan,
    number: usize,
    labelled: &mut LabelledMasks<'_>,
) -> Result<(), Leave> {
    let before = Instant::now();
    let mut slot = claim(shared, generation)?;
    let claimed = Instant::now();
    let (plan, pieces) = slot.plan();
    plan.epoch = epoch.epoch();
    plan.number = number;
    plan.batches = epoch.batches();
    plan.error = plan_batch(shared, epoch, number, labelled, plan)
        .and_then(|()| plan.cut(&shared.decoder(), &shared.masks, pieces))
        .err();
    if plan.error.is_some() {
        pieces.clear();
    } else {
        prefetch(shared, plan);
    }
    slot.publish();
    shared.counters.planned(claimed - before, claimed.elapsed());
    Ok(())
}

fn claim(shared: &Shared, generation: u64) -> Result<PlanSlot<'_, BatchPlan>, Leave> {
    match shared.ring.claim(generation) {
        Claim::Slot(slot) => Ok(slot),
        Claim::Restarted => Err(Leave::Restarted),
        Claim::Stopped => Err(Leave::Stopped),
    }
}

/// Gives the consumer an error in the place of the epoch's batches.
fn fail(shared: &Shared, generation: u64, epoch: u64, error: Error) -> Leave {
    match claim(shared, generation) {
        Ok(mut slot) => {
            let (plan, _) = slot.plan();
            *plan = BatchPlan::failed(epoch, error);
            slot.publish();
            Leave::Over
        }
        Err(leave) => leave,
    }
}

fn plan_batch(
    shared: &Shared,
    epoch: &EpochPlan,
    number: usize,
    labelled: &mut LabelledMasks<'_>,
    plan: &mut BatchPlan,
) -> Result<()> {
    epoch.batch(number, Some(labelled), &mut plan.items)?;
    let first = plan
        .items
        .first()
        .ok_or_else(|| Error::new(ErrorKind::Conflict, "a batch without samples was planned"))?;
    let stack = shared.dataset.stack_of(first.sample as usize)?;
    let size = (first.window.rows as usize, first.window.columns as usize);
    let len = plan.items.len();
    lay_out(&shared.decoder(), &shared.masks, stack, len, size, &mut plan.arrays).map(drop)
}

/// Tells the store which spans the batch needs, adjacent ones together. Errors wait for those who read.
fn prefetch(shared: &Shared, plan: &BatchPlan) {
    let cache = shared.cache.as_ref();
    let mut run: Option<crate::dataset::array::Stored<'_>> = None;
    for part in plan.parts() {
        let item = plan.items[part.position];
        let Ok(array) = array_of(&shared.dataset, &shared.masks, item, part.array) else {
            continue;
        };
        let index = shared.dataset.samples()[item.sample as usize].index;
        let (tile, across) = (array.grid().tile(), array.grid().across());
        let (first, end) =
            (item.window.column as usize, (item.window.column + item.window.columns) as usize);
        for column in first / tile.columns..end.div_ceil(tile.columns) {
            let chunk = part.down * across + column;
            if cache.is_some_and(|cache| cache.holds(array, array.number(index, chunk))) {
                continue;
            }
            let Ok(Some(stored)) = array.locate(index, chunk) else { continue };
            match &mut run {
                Some(run) if run.continues_with(&stored) => run.span.end = stored.span.end,
                _ => {
                    if let Some(run) = run.replace(stored) {
                        run.file.prefetch(run.span);
                    }
                }
            }
        }
    }
    if let Some(run) = run {
        run.file.prefetch(run.span);
    }
}
