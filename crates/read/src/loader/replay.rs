//! Reads items of a loader's batches when they are asked for.

use hsipack_augment::array::Buffer;
use hsipack_store::threads;

use super::batch_plan::{BatchArray, BatchPlan, Task, lay_out};
use super::fill::fill;
use super::labelled::LabelledMasks;
use super::reader::Reader;
use crate::Result;
use crate::decode::Scratch;
use crate::plan::{EpochPlan, Item};

impl Reader {
    /// The items of batch `number`, with the labels that the loader gives them.
    pub(crate) fn items(&self, epoch: &EpochPlan, number: usize) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        epoch.batch(number, Some(&mut LabelledMasks::new(self)), &mut items)?;
        self.new_ids.relabel(&self.dataset, &mut items);
        Ok(items)
    }

    /// Reads items of one shape into memory that is laid out like a slot of the ring. Also returns
    /// where each array lies.
    pub(crate) fn read(&self, items: &[Item]) -> Result<(Buffer, Vec<BatchArray>)> {
        self.dataset.check_unchanged()?;
        let mut plan = BatchPlan::default();
        plan.items = items.to_vec();
        let Some(first) = items.first() else { return Ok((Buffer::zeroed(0)?, plan.arrays)) };
        let stack = self.dataset.stack_of(first.sample)?;
        let size = (first.window.rows, first.window.columns);
        let decoder = self.decoder();
        let form = (&decoder, self.fit.as_deref());
        let end = lay_out(form, &self.beside, stack, items.len(), size, &mut plan.arrays)?;
        let mut pieces = Vec::new();
        plan.cut(&|_| self.arrays(), &mut pieces)?;
        let mut buffer = Buffer::zeroed(end)?;
        let mut unfilled = buffer.bytes_mut();
        let mut start = 0;
        let mut tasks = Vec::new();
        for (number, piece) in pieces.into_iter().enumerate() {
            // Arrays start on pages, so there may be gaps.
            let (_, after) = unfilled.split_at_mut(piece.start - start);
            let (memory, after) = after.split_at_mut(piece.len());
            (unfilled, start) = (after, piece.end);
            tasks.push((number, memory));
        }
        let read = |scratch: &mut Scratch, (number, memory): (usize, &mut [u8])| {
            let Task::Parts(parts) = plan.task(number) else { return Ok(()) };
            let mut failures = fill(self, &plan, parts, memory, scratch);
            failures.pop().map_or(Ok(()), |failure| Err(failure.error))
        };
        threads::in_turn(
            self.options.threads,
            "replay",
            tasks.into_iter(),
            Scratch::default,
            read,
        )?;
        Ok((buffer, plan.arrays))
    }
}
