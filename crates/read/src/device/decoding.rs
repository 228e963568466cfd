//! Batches that the device decodes: what the transfer thread does with them.
//!
//! Such a batch is copied into a buffer on the device as it is, ahead of the slot that it will be decoded into. A stream of
//! its own waits for the copy and for the slot's fences, decodes, and copies back whether chunks are damaged. Only then the
//! batch is handed over, so that an error is the error of its batch. While a batch is decoded, the next one is copied into
//! the other buffer.
//!
//! ```text
//! copies   │ copy 1 │ copy 2          │ copy 3 …
//! decoding          │ decode 1 │      │ decode 2 │
//! thread   ▪ waits for the decoding ▪ hands over 1 ▪ …
//! ```
//!
//! In addition to the rules of `transfer.rs`, the following always holds:
//!
//! 1. A buffer is written to, grown or freed only when the thread has seen the decoding done that read it before.
//! 2. Scratch memory is used by one decoding at a time: the thread has seen the previous one done.
//! 3. A decoding waits, on the device, for its copy and for the fences of its slot.
//! 4. A host batch is used again only when the thread has seen its decoding done, or its copy if it was never decoded.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::backend::{Backend, DecodePlaces, DeviceMemory};
use super::decode::Status;
use super::exchange::Interrupt;
use super::transfer::{Item, Ready, Slot, Source};
use super::worker::{Ahead, InFlight, Taken, Worker};
use crate::loader::Decoding;
use crate::{Error, Result};

/// Buffers grow in steps of this many bytes, and by a part more than is needed.
const STEP: usize = 1 << 20;

/// Memory on the device besides the slots.
pub(super) struct Buffers<B: Backend> {
    backend: Arc<B>,
    /// For compressed batches, in turns.
    compressed: [Option<B::Memory>; 2],
    turn: usize,
    scratch: Option<B::Memory>,
}

/// A compressed batch whose copy is queued.
pub(super) struct Staged<B: Backend, S: Source> {
    flight: InFlight<B, S>,
    place: S::Place,
    /// Which buffer it is in.
    buffer: usize,
}

/// Why a batch could not be staged.
pub(super) enum Refused<S: Source> {
    /// Nothing was queued.
    Refused(Taken<S>, Error),
    /// The copy cannot be waited for; batch and buffer are left to it.
    Lost(Error, S::Place),
}

impl<B: Backend> Buffers<B> {
    pub(super) fn new(backend: Arc<B>) -> Self {
        Self { backend, compressed: [None, None], turn: 0, scratch: None }
    }

    /// Leaves all buffers to the device for good, because it no longer reports what is done.
    pub(super) fn abandon(&mut self) {
        self.compressed.iter_mut().for_each(|memory| std::mem::forget(memory.take()));
        std::mem::forget(self.scratch.take());
    }
}

/// Memory of at least so many bytes: what is there, or a larger allocation in its place. No queued work may use it.
fn grown<'a, B: Backend>(
    backend: &B,
    memory: &'a mut Option<B::Memory>,
    bytes: usize,
) -> Result<&'a B::Memory> {
    if memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
        // Freed first: there may be no room for both.
        *memory = None;
        *memory = Some(backend.allocate((bytes + bytes / 8).next_multiple_of(STEP))?);
    }
    Ok(memory.as_ref().expect("allocated above if it was missing"))
}

impl<B: Backend, S: Source> Worker<B, S> {
    /// Queues the copy of a compressed batch.
    pub(super) fn stage(&mut self, taken: Taken<S>) -> Result<Staged<B, S>, Refused<S>> {
        let Buffers { backend, compressed, turn, .. } = &mut self.buffers;
        let buffer = *turn;
        let bytes = S::bytes(&taken.batch);
        let queued = grown(&**backend, &mut compressed[buffer], bytes.len()).and_then(|memory| {
            // SAFETY: the batch is kept until an event recorded afterwards is done, or for ever. So is the buffer, which
            // nothing uses now: its last decoding was seen done.
            unsafe { backend.copy(bytes, memory) }
        });
        if let Err(error) = queued {
            return Err(Refused::Refused(taken, error));
        }
        self.rack.copied_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        *turn = 1 - buffer;
        let Taken { batch, place } = taken;
        let backend = self.rack.backend.clone();
        let batch = ManuallyDrop::new(batch);
        match backend.copied() {
            Ok(copied) => {
                let copied = Some(Arc::new(copied));
                Ok(Staged { flight: InFlight { backend, batch, copied }, place, buffer })
            }
            Err(error) => {
                self.lose(&error);
                Err(Refused::Lost(error, place))
            }
        }
    }

    /// Hands over why a batch was not staged.
    pub(super) fn refuse_staging(&mut self, refused: Refused<S>) -> Result<(), Interrupt> {
        match refused {
            Refused::Refused(taken, error) => self.refuse(taken, error),
            Refused::Lost(error, place) => self.fail(error, place),
        }
    }

    /// Decodes a batch whose copy is queued, and hands it over.
    pub(super) fn decode(&mut self, staged: Staged<B, S>) -> Result<(), Interrupt> {
        if let Some(error) = self.loss() {
            let Staged { flight, place, .. } = staged;
            drop(flight);
            return self.fail(error, place);
        }
        // If the thread is interrupted here, dropping `staged` waits for its copy.
        let mut slot = match self.room()? {
            Ok(slot) => slot,
            Err(refusal) => {
                let Staged { flight, place, .. } = staged;
                return match flight.finish() {
                    Ok(()) => self.fail(refusal.error, place),
                    Err(error) => {
                        self.lose(&error);
                        self.fail(error, place)
                    }
                };
            }
        };
        let Staged { mut flight, place, buffer } = staged;
        let info = S::info(&flight.batch);
        if let Err(error) = self.launch(&flight, buffer, &slot) {
            self.rack.exchange.give(Ok(slot));
            return match flight.into_batch() {
                Ok(batch) => self.refuse(Taken { batch, place }, error),
                Err(lost) => {
                    self.lose(&lost);
                    self.fail(lost, place)
                }
            };
        }
        self.is_accepted();
        // Batch, buffers and slot are left to the device for good if it does not say any more what is done.
        flight.copied = None;
        let decoded = match self.ask_for_answers(&mut flight, buffer) {
            Ok(decoded) => Arc::new(decoded),
            Err(error) => {
                self.abandon(slot);
                self.lose(&error);
                return self.fail(error, place);
            }
        };
        flight.copied = Some(decoded.clone());
        self.look_ahead();
        let mut batch = match flight.into_batch() {
            Ok(batch) => batch,
            Err(error) => {
                self.abandon(slot);
                self.lose(&error);
                return self.fail(error, place);
            }
        };
        // The decoding came after the fences, and it is done.
        slot.fences.clear();
        if is_sound(S::answers(&mut batch)) {
            drop(batch);
            self.rack.decoded.fetch_add(1, Ordering::Relaxed);
            let memory = self.rack.lent(slot, decoded);
            return self.put(Item::Batch(Ready { memory, info, place }));
        }
        self.rack.exchange.give(Ok(slot));
        match self.source.decoded_here(batch) {
            Ok(batch) => self.copy(Taken { batch, place }),
            Err(error) => self.fail(error, place),
        }
    }

    /// Queues the decoding. If that fails, it is not queued.
    fn launch(&mut self, flight: &InFlight<B, S>, buffer: usize, slot: &Slot<B>) -> Result<()> {
        let decoding = decoding::<S>(&flight.batch)?;
        let Buffers { backend, compressed, scratch, .. } = &mut self.buffers;
        let Some(compressed) = &compressed[buffer] else {
            return Err(Error::bug("a batch was staged without a buffer"));
        };
        let bytes = usize::try_from(decoding.decode.scratch_bytes()).unwrap_or(usize::MAX);
        let scratch = grown(&**backend, scratch, bytes)?;
        let start = compressed.start();
        let places = DecodePlaces {
            chunks: start.wrapping_add(decoding.table),
            compressed: start,
            batch: slot.memory.start(),
            scratch: scratch.start(),
            statuses: start.wrapping_add(decoding.statuses),
        };
        if decoding.values > slot.memory.bytes() {
            return Err(Error::bug("a batch that is larger than its slot"));
        }
        if let Some(copied) = &flight.copied {
            backend.wait_on_decodes(copied)?;
        }
        slot.fences.iter().try_for_each(|fence| backend.wait_on_decodes(fence))?;
        // SAFETY: `Decode::new` checked that the chunks' frames lie in the bytes that were copied to the buffer, and their
        // places in the first `values` bytes of the slot. The table and the statuses are in the buffer, too. The buffer,
        // the scratch memory and the slot stay until an event that is recorded afterwards is done, or for ever, and nobody
        // else uses them meanwhile: the decoding waits for the copy and for the slot's fences.
        unsafe { backend.queue_decode(&decoding.decode, &places) }
    }

    /// Queues the copy of the chunks' statuses to the host batch. Returns an event after it.
    fn ask_for_answers(&self, flight: &mut InFlight<B, S>, buffer: usize) -> Result<B::Event> {
        let decoding = decoding::<S>(&flight.batch)?;
        let Some(compressed) = &self.buffers.compressed[buffer] else {
            return Err(Error::bug("a batch was staged without a buffer"));
        };
        let backend = &self.rack.backend;
        let from = compressed.start().wrapping_add(decoding.statuses);
        let answers = S::answers(&mut flight.batch);
        // SAFETY: both have as many bytes, and stay until the event below is done, or for ever. Nobody reads or writes the
        // answers before.
        unsafe { backend.queue_answers(from, answers.as_mut_ptr(), answers.len()) }?;
        backend.decoded()
    }

    /// If the next batch is there, queues its copy while another batch is decoded.
    fn look_ahead(&mut self) {
        if self.ahead.is_some() || self.lost.is_some() {
            return;
        }
        let Some(next) = self.source.next_if_ready() else { return };
        let place = self.source.place();
        self.ahead = Some(match next {
            None => Ahead::End(place),
            Some(Err(error)) => Ahead::Failed(error, place),
            Some(Ok(batch)) if S::decoding(&batch).is_none() => {
                Ahead::Batch(Taken { batch, place })
            }
            Some(Ok(batch)) => match self.stage(Taken { batch, place }) {
                Ok(staged) => Ahead::Staged(staged),
                // It is tried again, and refused then, when it is its turn.
                Err(Refused::Refused(taken, _)) => Ahead::Batch(taken),
                Err(Refused::Lost(error, place)) => Ahead::Failed(error, place),
            },
        });
    }
}

fn decoding<S: Source>(batch: &S::Batch) -> Result<Decoding> {
    S::decoding(batch).ok_or_else(|| Error::bug("a batch of values was to be decoded"))
}

/// Whether all chunks were decoded.
fn is_sound(answers: &[u8]) -> bool {
    let statuses = answers.chunks_exact(4).map(|status| status.try_into().expect("four bytes"));
    statuses.map(u32::from_le_bytes).all(|status| Status::of(status) == Status::Sound)
}
