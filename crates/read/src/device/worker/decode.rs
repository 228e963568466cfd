//! Batches that the device decodes: what the transfer thread does with them.
//!
//! Such a batch is copied into a buffer on the device as it is, ahead of the slot that it will be
//! decoded into. A stream of its own waits for the copy and for the slot's fences, decodes, and
//! copies back whether chunks are damaged. Only then the batch is handed over, so that an error is
//! the error of its batch. While a batch is decoded, the next one is copied into the other buffer.
//!
//! ```text
//! copies   │ copy 1 │ copy 2          │ copy 3 …
//! decoding          │ decode 1 │      │ decode 2 │
//! thread   ▪ waits for the decoding ▪ hands over 1 ▪ …
//! ```
//!
//! In addition to the rules of `slots.rs`, the following always holds:
//!
//! 1. A buffer is written to, grown or freed only when the thread has seen the decoding done that
//!    read it before.
//! 2. Scratch memory is used by one decoding at a time: the thread has seen the previous one done.
//! 3. A decoding waits, on the device, for its copy and for the fences of its slot.
//! 4. A host batch is used again only when the thread has seen its decoding done, or its copy if it
//!    was never decoded.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::backend::{Backend, DecodePlaces, DeviceMemory, GatherPlaces};
use super::super::decode::Status;
use super::super::exchange::Interrupt;
use super::super::resident::Region;
use super::super::slots::{Item, Ready, Slot};
use super::super::source::Source;
use super::state::{Ahead, Buffers, CopyEvents, InFlight, Staged, Taken, Worker, grown};
use crate::loader::{Decoding, LinkCopy, Step};
use crate::{Error, ErrorKind, Result};

/// Why a batch could not be staged.
pub(super) enum Refused<S: Source> {
    /// Nothing is under way.
    Retry(Taken<S>, Error),
    /// The same: the device cannot copy from the map of a file.
    FromMap(Taken<S>),
    /// The copy cannot be waited for; batch and buffer are left to it.
    Lost(Error, S::Position),
}

/// Queues one of the copies of a compressed batch.
///
/// # Safety
/// The batch, whose slot has these bytes, and the buffer must stay as they are until an event
/// recorded afterwards is done. So must the map of the file, which the batch leases if the copy is
/// from there.
unsafe fn queue_copy<B: Backend>(
    backend: &B,
    copy: &LinkCopy,
    bytes: &[u8],
    buffer: &B::Memory,
) -> Result<()> {
    let LinkCopy { to, map } = copy;
    let from = match (map, bytes.get(to.clone())) {
        (_, None) => return Err(Error::bug("a copy from beyond the end of a slot")),
        (Some(address), _) => std::ptr::with_exposed_provenance(*address),
        (None, Some(bytes)) => bytes.as_ptr(),
    };
    // SAFETY: the buffer is at least as long as the slot's bytes, in which `to` lies; the caller is responsible for the rest.
    unsafe { backend.queue_copy(from, buffer.start().wrapping_add(to.start), to.len()) }
}

impl<B: Backend, S: Source> Worker<B, S> {
    /// Queues the copy of a compressed batch.
    pub(super) fn stage(&mut self, taken: Taken<S>) -> Result<Staged<B, S>, Refused<S>> {
        let Buffers { backend, compressed, turn, .. } = &mut self.buffers;
        let buffer = *turn;
        let bytes = S::bytes(&taken.batch);
        let work = match decoding::<S>(&taken.batch) {
            Ok(work) => work,
            Err(error) => return Err(Refused::Retry(taken, error)),
        };
        let memory = match grown(&*self.rack, &mut compressed[buffer], bytes.len()) {
            Ok(memory) => memory,
            Err(error) => return Err(Refused::Retry(taken, error)),
        };
        let copying = match backend.copied() {
            Ok(copying) => copying,
            Err(error) => return Err(Refused::Retry(taken, error)),
        };
        for (number, copy) in work.copies.iter().enumerate() {
            // SAFETY: the batch is kept until an event recorded afterwards is done, or for ever. So is the buffer, which
            // nothing uses now: its last decoding was seen done.
            let Err(error) = (unsafe { queue_copy(&**backend, copy, bytes, memory) }) else {
                continue;
            };
            if number > 0
                && let Err(lost) = backend.copied().and_then(|copied| backend.finish(&copied))
            {
                // Some copies may be under way.
                std::mem::forget(taken.batch);
                self.lose(&lost);
                return Err(Refused::Lost(lost, taken.position));
            }
            return Err(match copy.map {
                Some(_) if error.kind() != ErrorKind::DeviceMemory => {
                    self.source.close_page_cache(error.what());
                    Refused::FromMap(taken)
                }
                _ => Refused::Retry(taken, error),
            });
        }
        let sum = |of_map: bool| -> u64 {
            let copies = work.copies.iter().filter(|copy| copy.map.is_some() == of_map);
            copies.map(|copy| copy.to.len() as u64).sum()
        };
        let (of_map, of_slot) = (sum(true), sum(false));
        self.rack.copied_bytes.fetch_add(of_map + of_slot, Ordering::Relaxed);
        self.rack.page_cache_bytes.fetch_add(of_map, Ordering::Relaxed);
        self.rack.gathered_bytes.fetch_add(work.gathered_bytes as u64, Ordering::Relaxed);
        *turn = 1 - buffer;
        let Taken { batch, position } = taken;
        let backend = self.rack.backend.clone();
        let batch = ManuallyDrop::new(batch);
        match backend.copied() {
            Ok(copied) => {
                let copied = Arc::new(copied);
                let copy = CopyEvents { copying, copied: copied.clone() };
                let flight = InFlight { backend, batch, copied: Some(copied) };
                Ok(Staged { flight, copy, position, buffer })
            }
            Err(error) => {
                self.lose(&error);
                Err(Refused::Lost(error, position))
            }
        }
    }

    /// Hands over why a batch was not staged.
    pub(super) fn refuse_staging(&mut self, refused: Refused<S>) -> Result<(), Interrupt> {
        match refused {
            Refused::Retry(taken, error) => self.refuse(taken, error),
            Refused::FromMap(taken) => self.decode_on_host(taken.batch, taken.position),
            Refused::Lost(error, position) => self.fail(error, position),
        }
    }

    /// Completes a batch whose copy is queued, and hands it over.
    pub(super) fn decode(&mut self, staged: Staged<B, S>) -> Result<(), Interrupt> {
        if let Some(error) = self.loss() {
            let Staged { flight, position, .. } = staged;
            drop(flight);
            return self.fail(error, position);
        }
        let decoding = decoding::<S>(&staged.flight.batch);
        if decoding.as_ref().is_ok_and(|decoding| !decoding.is_backed()) {
            // An earlier batch was to bring chunks to the device's memory, and did not.
            let Staged { flight, position, .. } = staged;
            return match flight.into_batch() {
                Ok(batch) => self.decode_on_host(batch, position),
                Err(error) => {
                    self.lose(&error);
                    self.fail(error, position)
                }
            };
        }
        // If the thread is interrupted here, dropping `staged` waits for its copy.
        let mut slot = match self.room()? {
            Ok(slot) => slot,
            Err(refusal) => {
                let Staged { flight, position, .. } = staged;
                return match flight.finish() {
                    Ok(()) => self.fail(refusal.error, position),
                    Err(error) => {
                        self.lose(&error);
                        self.fail(error, position)
                    }
                };
            }
        };
        let begun_at = Instant::now();
        let Staged { mut flight, copy, position, buffer } = staged;
        let info = S::info(&flight.batch);
        // Before memory of regions is held, because growing may release them.
        let decoding = decoding.and_then(|decoding| {
            let bytes = usize::try_from(decoding.scratch_bytes()).unwrap_or(usize::MAX);
            grown(&*self.rack, &mut self.buffers.scratch, bytes.max(1)).map(|_| decoding)
        });
        // Memory of regions is held from here on, unless it was released.
        let held =
            decoding.as_ref().map_or(Some(RegionMemory::default()), |work| RegionMemory::of(work));
        let held = ManuallyDrop::new(held);
        let launched = match (decoding, &*held) {
            (Ok(decoding), Some(held)) => {
                let launched = self.launch(&decoding, held, &flight, buffer, &slot);
                launched.map(|begun| Some((decoding, Marks { copy, begun_at, decoding: begun })))
            }
            (Ok(_), None) => Ok(None),
            (Err(error), _) => Err(error),
        };
        let (decoding, marks) = match launched {
            Ok(Some(launched)) => launched,
            not_launched => {
                // Some of the work may be queued nevertheless.
                let backend = &self.rack.backend;
                if let Err(lost) = backend.decoded().and_then(|done| backend.finish(&done)) {
                    flight.copied = None;
                    self.abandon(slot);
                    self.lose(&lost);
                    return self.fail(lost, position);
                }
                drop(ManuallyDrop::into_inner(held));
                self.rack.exchange.give(Ok(slot));
                return match (flight.into_batch(), not_launched.err()) {
                    (Ok(batch), None) => self.decode_on_host(batch, position),
                    (Ok(batch), Some(error)) => self.refuse(Taken { batch, position }, error),
                    (Err(lost), _) => {
                        self.lose(&lost);
                        self.fail(lost, position)
                    }
                };
            }
        };
        self.is_accepted();
        // Batch, buffers, slot and what stays in the device's memory are left to the device for good if it does not say any more
        // what is done.
        flight.copied = None;
        let done = match self.ask_for_answers(&decoding, &mut flight, buffer) {
            Ok(done) => Arc::new(done),
            Err(error) => {
                self.abandon(slot);
                self.lose(&error);
                return self.fail(error, position);
            }
        };
        flight.copied = Some(done.clone());
        if !decoding.decodes() {
            return self.hand_over_gathered(
                &decoding,
                &marks,
                flight,
                (slot, done),
                (info, position),
                held,
            );
        }
        self.look_ahead();
        let mut batch = match flight.into_batch() {
            Ok(batch) => batch,
            Err(error) => {
                self.abandon(slot);
                self.lose(&error);
                return self.fail(error, position);
            }
        };
        drop(ManuallyDrop::into_inner(held));
        // The decoding came after the fences, and it is done.
        slot.fences.clear();
        if is_sound(S::answers(&mut batch)) {
            decoding.confirm();
            drop(batch);
            self.count(&decoding);
            self.record(&marks, &done);
            let memory = self.rack.lent(slot, done);
            return self.put(Item::Batch(Ready { memory, info, position }));
        }
        self.rack.exchange.give(Ok(slot));
        self.decode_on_host(batch, position)
    }

    /// Hands over a batch of which nothing can be damaged, as soon as its work is queued.
    fn hand_over_gathered(
        &mut self,
        decoding: &Decoding,
        marks: &Marks<B>,
        flight: InFlight<B, S>,
        (mut slot, done): (Slot<B>, Arc<B::Event>),
        (info, position): (S::Info, S::Position),
        held: ManuallyDrop<Option<RegionMemory>>,
    ) -> Result<(), Interrupt> {
        // As in `hand_over`: whoever waits for the work has waited for the fences.
        slot.fences.clear();
        let memory = self.rack.lent(slot, done.clone());
        self.count(decoding);
        let put = self.put(Item::Batch(Ready { memory, info, position }));
        if put.is_ok() {
            self.look_ahead();
        }
        match flight.into_batch() {
            Ok(batch) => {
                // Before its slot is planned again.
                decoding.confirm();
                drop(batch);
                drop(ManuallyDrop::into_inner(held));
                self.record(marks, &done);
            }
            // This batch was handed over. If it cannot be used, the consumer's stream says so.
            Err(error) => self.lose(&error),
        }
        put
    }

    fn count(&self, decoding: &Decoding) {
        self.rack.decoded.fetch_add(u64::from(decoding.decodes()), Ordering::Relaxed);
        self.rack.hits.fetch_add(decoding.hits as u64, Ordering::Relaxed);
    }

    /// Records the times of a batch that is done.
    fn record(&self, marks: &Marks<B>, done: &B::Event) {
        let Marks { copy: CopyEvents { copying, copied }, begun_at, decoding } = marks;
        let backend = &self.rack.backend;
        let copy_s = backend.seconds_between(copying, copied);
        // A device that does not say works in the host's memory, in this thread.
        let decode = backend.seconds_between(decoding, done).map(Duration::from_secs_f64);
        self.rack.tally.completed(copy_s, decode.unwrap_or_else(|| begun_at.elapsed()));
    }

    /// Decodes a batch on the CPU that the device cannot complete, and copies its values.
    fn decode_on_host(&mut self, batch: S::Batch, position: S::Position) -> Result<(), Interrupt> {
        match self.source.decoded_here(batch) {
            Ok(batch) => self.copy(Taken { batch, position }),
            Err(error) => self.fail(error, position),
        }
    }

    /// Queues the device's work, and returns an event before it. If that fails, some of it may be
    /// queued.
    fn launch(
        &self,
        decoding: &Decoding,
        held: &RegionMemory,
        flight: &InFlight<B, S>,
        buffer: usize,
        slot: &Slot<B>,
    ) -> Result<B::Event> {
        let Buffers { backend, compressed, scratch, .. } = &self.buffers;
        let (Some(compressed), Some(scratch)) = (&compressed[buffer], scratch) else {
            return Err(Error::bug("a batch was staged without a buffer"));
        };
        let scratch = scratch.start();
        let (start, batch) = (compressed.start(), slot.memory.start());
        if decoding.values > slot.memory.bytes() {
            return Err(Error::bug("a batch that is larger than its slot"));
        }
        if let Some(copied) = &flight.copied {
            backend.wait_on_decodes(copied)?;
        }
        slot.fences.iter().try_for_each(|fence| backend.wait_on_decodes(fence))?;
        let begun = backend.decoded()?;
        for step in &decoding.steps {
            // SAFETY: `Decode::new` and `Gather::new` compared places with the memory that is used here: the bytes that were
            // copied to the buffer, the first `values` bytes of the slot, and regions. The tables and the statuses are in the
            // buffer, too. The buffer, the scratch memory, the slot and the regions stay until an event that is recorded
            // afterwards is done, or for ever. Nobody else uses the first three meanwhile: the work waits for the copy and for the
            // slot's fences. Only this thread writes to a region, and others read it only when it is complete.
            match step {
                Step::Decode { decode, table, statuses, from, into } => {
                    let from = from.as_deref().map(|region| held.start(region)).transpose()?;
                    let into = into.as_deref().map(|region| held.start(region)).transpose()?;
                    let addresses = DecodePlaces {
                        chunks: start.wrapping_add(*table),
                        compressed: from.unwrap_or(start),
                        batch: into.unwrap_or(batch),
                        scratch,
                        statuses: start.wrapping_add(*statuses),
                    };
                    // SAFETY: as above.
                    unsafe { backend.queue_decode(decode, &addresses) }?;
                }
                Step::Move { from, bytes, into, to } => {
                    let from = start.wrapping_add(*from);
                    let to = held.start(into)?.wrapping_add(*to as usize);
                    // SAFETY: as above; the region has a place of this length there.
                    unsafe { backend.queue_move(from, to, *bytes) }?;
                }
                Step::Gather { gather, table, bands, from } => {
                    let addresses = GatherPlaces {
                        windows: start.wrapping_add(*table),
                        bands: start.wrapping_add(*bands),
                        cubes: held.start(from)?,
                        batch,
                    };
                    // SAFETY: as above.
                    unsafe { backend.queue_gather(gather, &addresses) }?;
                }
            }
        }
        Ok(begun)
    }

    /// Queues the copy of the statuses to the host, and records an event after all of this batch's
    /// work.
    fn ask_for_answers(
        &self,
        decoding: &Decoding,
        flight: &mut InFlight<B, S>,
        buffer: usize,
    ) -> Result<B::Event> {
        let backend = &self.rack.backend;
        let Some(memory) = &self.buffers.compressed[buffer] else {
            return Err(Error::bug("a batch was staged without a buffer"));
        };
        if decoding.decodes() {
            let answers = S::answers(&mut flight.batch);
            let from = memory.start().wrapping_add(decoding.statuses);
            // SAFETY: there is a status of four bytes for each chunk, in the buffer and in the batch. Both stay as they are until
            // the event that is recorded next is done, or for ever; nobody reads or writes the answers before.
            unsafe { backend.queue_answers(from, answers.as_mut_ptr(), answers.len()) }?;
        }
        backend.decoded()
    }

    /// If the next batch is there, queues its copy while another batch is decoded.
    fn look_ahead(&mut self) {
        if self.ahead.is_some() || self.lost.is_some() {
            return;
        }
        let Some(next) = self.source.next_if_ready() else { return };
        let position = self.source.position();
        self.ahead = Some(match next {
            None => Ahead::End(position),
            Some(Err(error)) => Ahead::Failed(error, position),
            Some(Ok(batch)) if S::decoding(&batch).is_none() => {
                Ahead::Batch(Taken { batch, position })
            }
            Some(Ok(batch)) => match self.stage(Taken { batch, position }) {
                Ok(staged) => Ahead::Staged(staged),
                // It is tried again, and refused then, when it is its turn.
                Err(Refused::Retry(taken, _) | Refused::FromMap(taken)) => Ahead::Batch(taken),
                Err(Refused::Lost(error, position)) => Ahead::Failed(error, position),
            },
        });
    }
}

/// Events between which the times of a batch are measured.
struct Marks<B: Backend> {
    copy: CopyEvents<B>,
    /// When there was a slot for it.
    begun_at: Instant,
    /// After everything that the decoding waits for.
    decoding: B::Event,
}

/// Memory of regions that queued work uses.
#[derive(Default)]
struct RegionMemory(Vec<(Arc<Region>, Arc<dyn DeviceMemory>)>);

impl RegionMemory {
    /// The memory of the regions that this work uses; `None` if some of it was released.
    fn of(decoding: &Decoding) -> Option<Self> {
        let mut held = Self::default();
        for region in decoding.regions() {
            if held.0.iter().all(|(other, _)| !Arc::ptr_eq(other, region)) {
                held.0.push((region.clone(), region.memory()?));
            }
        }
        Some(held)
    }

    /// The start of a region.
    fn start(&self, region: &Region) -> Result<*mut u8> {
        let found = self.0.iter().find(|(held, _)| std::ptr::eq(&raw const **held, region));
        let (_, memory) = found.ok_or_else(|| Error::bug("a region is used that is not held"))?;
        Ok(memory.start())
    }
}

fn decoding<S: Source>(batch: &S::Batch) -> Result<Arc<Decoding>> {
    S::decoding(batch).ok_or_else(|| Error::bug("a batch of values was to be decoded"))
}

/// Whether all chunks were decoded.
fn is_sound(answers: &[u8]) -> bool {
    let statuses = answers.chunks_exact(4).map(|status| status.try_into().expect("four bytes"));
    statuses.map(u32::from_le_bytes).all(|status| Status::of(status) == Status::Sound)
}
