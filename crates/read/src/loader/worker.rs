//! A decoding thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::batch_plan::Task;
use super::compressed;
use super::fill::fill_all;
use super::reader::Reader;
use super::shared::Shared;
use super::stored_batch::Compressed;
use crate::decode::Scratch;
use crate::ring::slots::Failure;
use crate::shuffle_buffer::ChunkRef;
use crate::trace::{BatchNumber, Track};

/// Does tasks until the ring is stopped.
pub(super) fn run(shared: &Shared, thread: usize) {
    let mut scratch = Scratch::traced(shared.options().trace.is_some());
    loop {
        let before = Instant::now();
        let Some(mut task) = shared.ring.take_task() else { return };
        let taken = Instant::now();
        let (plan, number, memory) = task.parts();
        let reader = &shared.readers[plan.reader];
        let failures = match (plan.task(number), memory) {
            (Task::Parts(parts), Ok(memory)) => {
                fill_all(&shared.readers, plan, parts, memory, &mut scratch)
            }
            (Task::Parts(parts), Err(error)) => {
                let position = parts.first().map_or(0, |part| part.position);
                vec![Failure { position, error }]
            }
            (Task::Compressed(entries), Ok(memory)) => {
                compressed::gather(reader, plan, entries, memory, &mut scratch)
            }
            (Task::Compressed(entries), Err(error)) => {
                let position = Compressed::position_of(entries);
                vec![Failure { position, error }]
            }
            (Task::Ahead(chunks), _) => {
                hold(reader, chunks, &mut scratch);
                Vec::new()
            }
        };
        let meter = std::mem::take(&mut scratch.meter);
        // This is counted before the task is given back, so that whoever gets the batch finds all of it counted.
        let end = Instant::now();
        if let Some(trace) = &shared.options().trace {
            let batch = BatchNumber { epoch: plan.epoch, batch: plan.number };
            let track = Track::Decoder(thread);
            trace.span(track, "decode", (taken, end), Some(batch));
            for read in scratch.reads.drain(..) {
                trace.span(track, "read", read, Some(batch));
            }
        }
        plan.loading.did(end);
        if let Some(cache) = &reader.cache {
            cache.waited(taken - before, meter.read);
        }
        shared.counters.decoded(taken - before, end - taken, meter);
        task.done(failures);
    }
}

/// Decodes chunks and holds them. If that fails, it fails again when the chunk is needed, and is
/// reported then.
fn hold(reader: &Reader, chunks: &[ChunkRef], scratch: &mut Scratch) {
    let Some(buffer) = &reader.shuffle_buffer else { return };
    for chunk in chunks {
        let mut work = || reader.decoder().hold(buffer, *chunk, scratch);
        let _ = catch_unwind(AssertUnwindSafe(&mut work));
    }
}
