//! The CPU as a device: no thread, and no copy as long as the ring can spare the slots.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::batch::Info;
use super::transfer::Next;
use crate::Result;
use crate::loader::{Batch, Loader};
use crate::plan::State;
use crate::process::OfProcess;
use crate::torch::{run, tensor_over};

/// Gives batches whose tensors lie over the ring.
pub(super) struct Host {
    loader: Loader,
    /// One more than there are batches whose slots tensors lie over.
    held: Arc<()>,
    /// A batch of which no tensors could be made.
    pending: Option<(Tensor, Arc<Info>)>,
    /// Whether batches that the ring cannot spare are copied.
    copy: bool,
    copied: u64,
}

/// Owns the slot that tensors lie over.
struct Slot {
    /// A process that was forked has tensors over it, too, but none of the threads that the ring's locks wait for.
    _batch: OfProcess<Batch>,
    _held: Arc<()>,
}

impl Host {
    pub(super) fn new(loader: Loader, copy: bool) -> Self {
        Self { loader, held: Arc::new(()), pending: None, copy, copied: 0 }
    }

    /// As [`Transfer::next`](super::transfer::Transfer::next).
    pub(super) fn next<R>(
        &mut self,
        deadline: Option<Instant>,
        build: impl FnOnce(&Tensor, &Arc<Info>) -> Result<R>,
    ) -> Result<Next<R, State>> {
        let (memory, info) = match self.pending.take() {
            Some(pending) => pending,
            None => match self.take(deadline) {
                Some(Ok(Some(batch))) => self.memory(batch)?,
                Some(Ok(None)) => return Ok(Next::TimedOut),
                Some(Err(error)) => return Err(error),
                None => return Ok(Next::End(self.loader.state())),
            },
        };
        match build(&memory, &info) {
            Ok(built) => Ok(Next::Batch(built, self.loader.state())),
            Err(error) => {
                self.pending = Some((memory, info));
                Err(error)
            }
        }
    }

    fn take(&mut self, deadline: Option<Instant>) -> Option<Result<Option<Batch>>> {
        match deadline {
            None => self.loader.next_batch().map(|next| next.map(Some)),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.loader.next_within(left.max(Duration::from_nanos(1)))
            }
        }
    }

    /// The bytes of a batch as a tensor: its slot itself, or a copy where too many slots are kept for the ring to be
    /// filled meanwhile.
    fn memory(&mut self, mut batch: Batch) -> Result<(Tensor, Arc<Info>)> {
        let info = Info::of(&batch);
        let spare = (self.loader.options().slots / 2).max(1);
        let lie_over = !self.copy || Arc::strong_count(&self.held) <= spare;
        let memory = batch.memory_mut();
        let (start, bytes) = (memory.as_mut_ptr(), [memory.len() as i64]);
        let slot = Slot { _batch: OfProcess::new(batch), _held: self.held.clone() };
        // SAFETY: the slot has that many bytes, stays where it is as long as its lease lives, wherever that moves,
        // and nobody else touches it in that time.
        let memory = unsafe { tensor_over(start, &bytes, Kind::Uint8, slot)? };
        if lie_over {
            return Ok((memory, info));
        }
        let copy = run(|| {
            let mut copy = Tensor::f_empty(bytes, (Kind::Uint8, Device::Cpu))?;
            copy.f_copy_(&memory)?;
            Ok(copy)
        });
        match copy {
            Ok(copy) => {
                self.copied += 1;
                Ok((copy, info))
            }
            Err(error) => {
                self.pending = Some((memory, info));
                Err(error)
            }
        }
    }

    pub(super) fn go_to(&mut self, epoch: u64) {
        self.pending = None;
        self.loader.set_epoch(epoch);
    }

    /// Batches that were copied because others are kept.
    pub(super) fn copied(&self) -> u64 {
        self.copied
    }
}
