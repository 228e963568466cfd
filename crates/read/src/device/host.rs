//! The CPU as a device: without a thread, and without a copy as long as the ring can spare the
//! slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hsipack_augment::Device;
use hsipack_augment::array::{Memory, Pool};
use hsipack_store::process::OfProcess;

use super::batch_info::BatchInfo;
use super::monitor::Copies;
use super::options::DeviceOptions;
use super::transfer::Next;
use crate::Result;
use crate::loader::{Batch, Loader};
use crate::plan::State;

/// Delivers batches whose arrays lie over the ring.
pub(super) struct Host {
    loader: Loader,
    /// Its reference count is one more than the number of batches whose slots arrays lie over.
    held: Arc<()>,
    /// A batch that could not be used, or that is delivered again and again.
    pending: Option<(Arc<dyn Memory>, Arc<BatchInfo>)>,
    /// Whether arrays of the pending batch could not be made before.
    is_retry: bool,
    /// Whether the first batch is delivered for ever.
    repeat: bool,
    /// How many slots arrays may lie over; further batches are copied. `None` if they never are.
    spare: Option<usize>,
    /// Where those copies lie.
    pool: Arc<Pool>,
    copied: Arc<Copied>,
}

/// Number of batches that were copied because others are kept.
struct Copied(AtomicU64);

impl Copies for Copied {
    fn device_slots(&self) -> usize {
        0
    }

    fn given_away(&self) -> u64 {
        0
    }

    fn copied(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A batch's slot of the ring, as arrays lie over it.
struct Slot {
    start: *mut u8,
    bytes: usize,
    /// A forked process has arrays over it, too, but none of the threads that the ring's locks wait
    /// for.
    _batch: OfProcess<Batch>,
    _held: Arc<()>,
}

// SAFETY: the address is that of the batch's memory, and a batch may be held by any thread.
unsafe impl Send for Slot {}
// SAFETY: if the slot is shared, it is only read.
unsafe impl Sync for Slot {}

// SAFETY: the slot has that many bytes, stays where it is as long as its lease lives, wherever that moves, and nobody
// writes to it in that time.
unsafe impl Memory for Slot {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn start(&self) -> *mut u8 {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Host {
    /// For batches that are used before the next one is asked for.
    pub(super) fn new(loader: Loader, options: &DeviceOptions) -> Self {
        let spare = (loader.options().slots / 2).max(1);
        Self::with_spare(loader, options, spare)
    }

    /// For a thread that takes the next batch while one is used: one more slot is kept.
    pub(super) fn prefetched(loader: Loader, options: &DeviceOptions) -> Self {
        let slots = loader.options().slots;
        let spare = (slots / 2 + 1).min(slots - 1).max(1);
        Self::with_spare(loader, options, spare)
    }

    fn with_spare(loader: Loader, options: &DeviceOptions, spare: usize) -> Self {
        let (held, pool) = (Arc::new(()), Arc::default());
        let (pending, is_retry, repeat) = (None, false, options.repeat);
        let spare = options.copy.then_some(spare);
        let copied = Arc::new(Copied(AtomicU64::new(0)));
        Self { loader, held, pending, is_retry, repeat, spare, pool, copied }
    }

    /// How far the loader is.
    pub(super) fn state(&self) -> State {
        self.loader.state()
    }

    /// Like [`Transfer::next`](super::transfer::Transfer::next).
    pub(super) fn next<R>(
        &mut self,
        deadline: Option<Instant>,
        build: impl FnOnce(&Arc<dyn Memory>, &Arc<BatchInfo>) -> Result<R>,
    ) -> Result<Next<R, State>> {
        let (memory, info) = match self.pending.take() {
            Some(pending) => pending,
            None => match self.take(deadline) {
                Some(Ok(Some(batch))) => self.memory(batch)?,
                Some(Ok(None)) => return Ok(Next::TimedOut),
                Some(Err(error)) => return Ok(Next::Failed(error, self.loader.state())),
                None => return Ok(Next::End(self.loader.state())),
            },
        };
        let built = build(&memory, &info);
        let is_again = built.is_err() && !self.is_retry;
        self.is_retry = is_again;
        if is_again || self.repeat {
            self.pending = Some((memory, info));
        }
        match built {
            Ok(built) => Ok(Next::Batch(built, self.loader.state())),
            Err(error) if is_again => Err(error),
            Err(error) => Ok(Next::Failed(error, self.loader.state())),
        }
    }

    fn take(&mut self, deadline: Option<Instant>) -> Option<Result<Option<Batch>>> {
        match deadline {
            None => self.loader.next_batch().map(|next| next.map(Some)),
            Some(deadline) => {
                let remaining = deadline.saturating_duration_since(Instant::now());
                self.loader.next_within(remaining.max(Duration::from_nanos(1)))
            }
        }
    }

    /// The bytes of a batch: its slot itself, or a copy if so many slots are kept that the ring
    /// could not be filled meanwhile.
    fn memory(&mut self, mut batch: Batch) -> Result<(Arc<dyn Memory>, Arc<BatchInfo>)> {
        let info = BatchInfo::of(&batch);
        if self.spare.is_none_or(|spare| Arc::strong_count(&self.held) <= spare) {
            return Ok((self.slot(batch), info));
        }
        let from = batch.memory_mut();
        match self.pool.buffer(from.len()) {
            Ok(mut copy) => {
                copy.bytes_mut().copy_from_slice(from);
                self.copied.0.fetch_add(1, Ordering::Relaxed);
                Ok((copy.shared(), info))
            }
            Err(error) => {
                self.pending = Some((self.slot(batch), info));
                Err(error)
            }
        }
    }

    fn slot(&self, mut batch: Batch) -> Arc<dyn Memory> {
        let memory = batch.memory_mut();
        let (start, bytes) = (memory.as_mut_ptr(), memory.len());
        Arc::new(Slot { start, bytes, _batch: OfProcess::new(batch), _held: self.held.clone() })
    }

    pub(super) fn go_to(&mut self, epoch: u64) {
        self.is_retry = false;
        if !self.repeat {
            self.pending = None;
        }
        self.loader.set_epoch(epoch);
    }

    pub(super) fn copies(&self) -> Arc<dyn Copies> {
        self.copied.clone()
    }
}
