//! A decoding thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::batch_plan::{BatchPlan, Part, Task, array_of};
use super::shared::Shared;
use crate::dataset::array::ArrayRef;
use crate::decode::Scratch;
use crate::held::ChunkRef;
use crate::ring::slots::Failure;
use crate::trace::{BatchNumber, Track};
use crate::{Error, ErrorKind, Result};

/// Does tasks until the ring is stopped.
pub(super) fn run(shared: &Shared, thread: usize) {
    let mut scratch = Scratch::traced(shared.options.trace.is_some());
    loop {
        let before = Instant::now();
        let Some(mut task) = shared.ring.take_task() else { return };
        let taken = Instant::now();
        let (plan, number, memory) = task.parts();
        let failures = match plan.task(number) {
            Task::Parts(parts) => fill(shared, plan, parts, memory, &mut scratch),
            Task::Ahead(chunks) => {
                hold(shared, chunks, &mut scratch);
                Vec::new()
            }
        };
        let meter = std::mem::take(&mut scratch.meter);
        // Before the task is back: whoever gets the batch finds all of it counted.
        let end = Instant::now();
        if let Some(trace) = &shared.options.trace {
            let batch = BatchNumber { epoch: plan.epoch, batch: plan.number };
            let track = Track::Decoder(thread);
            trace.span(track, "decode", (taken, end), Some(batch));
            for read in scratch.reads.drain(..) {
                trace.span(track, "read", read, Some(batch));
            }
        }
        plan.loading.did(end);
        shared.counters.decoded(taken - before, end - taken, meter);
        task.done(failures);
    }
}

/// Decodes chunks, to be held. What fails fails again where it is wanted, which tells of it.
fn hold(shared: &Shared, chunks: &[ChunkRef], scratch: &mut Scratch) {
    let Some(held) = &shared.held else { return };
    for chunk in chunks {
        let mut work = || shared.decoder().hold(held, *chunk, scratch);
        let _ = catch_unwind(AssertUnwindSafe(&mut work));
    }
}

/// Fills a task's piece of the slot. A sample that fails does not keep the others of the task from being
/// read.
fn fill(
    shared: &Shared,
    plan: &BatchPlan,
    parts: &[Part],
    memory: &mut [u8],
    scratch: &mut Scratch,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut rest = memory;
    for part in parts {
        let (out, after) = rest.split_at_mut(part.bytes);
        rest = after;
        let bytes = part.bytes / part.windows;
        // Of the last sample: many windows may be of one.
        let mut last: Option<(usize, ArrayRef<'_>, usize)> = None;
        for (position, out) in (part.position..).zip(out.chunks_exact_mut(bytes)) {
            let item = plan.items[position];
            let mut read = || -> Result<()> {
                let (array, index) = match last {
                    Some((sample, array, index)) if sample == item.sample => (array, index),
                    _ => {
                        let array = array_of(&shared.dataset, &shared.masks, item, part.array)?;
                        (array, shared.dataset.samples().index(item.sample))
                    }
                };
                last = Some((item.sample, array, index));
                let (decoder, window, shape) = (shared.decoder(), item.window, array.shape());
                match part.down {
                    Some(down) => decoder.rows(array, index, down, window, out, scratch),
                    None if window.is_inside(shape.rows, shape.columns) => {
                        decoder.all_rows(array, index, window, out, scratch)
                    }
                    None => decoder.padded(array, index, window, shared.pad(array), out, scratch),
                }?;
                if let Some(table) = shared.new_ids.of(array) {
                    table.apply(array.dtype(), out);
                }
                Ok(())
            };
            let done = catch_unwind(AssertUnwindSafe(&mut read)).unwrap_or_else(|_| {
                Err(Error::new(
                    ErrorKind::Io,
                    format!("a decoding thread panicked at sample {}", item.sample),
                ))
            });
            if let Err(error) = done {
                failures.push(Failure { position, error });
            }
        }
    }
    failures
}
