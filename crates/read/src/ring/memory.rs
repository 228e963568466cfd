//! The ring's memory: one [`Supply`], which makes a slot's memory ready when the slot is first
//! filled.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hsipack_store::pages::Supply;

#[cfg(feature = "clap")]
use crate::arguments;
use crate::{Error, Result};
use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

/// Bytes that are made ready ahead of the memory that is being filled, but at most a quarter of a
/// slot.
const AHEAD: usize = 64 << 20;
/// They are requested in steps of so many bytes, because the thread that makes them ready is woken
/// for each.
const STEP: usize = 16 << 20;

/// Kind of memory to request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct MemoryOptions {
    /// Page-locks the memory for a device, for example by registering it with CUDA. This is best if
    /// there is a device.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub locker: Option<Arc<dyn PageLocker>>,
    /// Memory of the ring: locked (never swapped out, if the system allows it) or plain
    #[cfg_attr(feature = "clap", arg(id = "memory", long = "memory", value_name = "MEMORY", action = clap::ArgAction::Set, value_parser = arguments::is_locked(), default_value = "locked", hide = true, help_heading = "Resources"))]
    pub locked: bool,
    /// Do not ask for huge pages [default: the ring uses huge pages if the system has them]
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Resources"))]
    pub no_huge_pages: bool,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { locker: None, locked: true, no_huge_pages: false }
    }
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("locker", &self.locker.as_ref().map(|locker| locker.name()))
            .field("locked", &self.locked)
            .field("no_huge_pages", &self.no_huge_pages)
            .finish()
    }
}

/// Locks pages, so that a device can access the memory directly.
pub trait PageLocker: Send + Sync {
    /// The library that locks the pages, e.g. `CUDA`.
    fn name(&self) -> &str;

    /// Locks the pages of `memory`, which does not move until [`unlock`](Self::unlock). Called for
    /// each slot of the ring, by a thread that makes slots ready.
    ///
    /// # Errors
    /// If the device refuses; the text says why.
    fn lock(&self, memory: *mut u8, bytes: usize) -> Result<(), String>;

    /// Unlocks the pages that [`lock`](Self::lock) locked.
    fn unlock(&self, memory: *mut u8, bytes: usize);
}

/// Kind of memory that the ring received.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryReport {
    /// Bytes of all slots. The system provides those of a slot when it is first filled.
    pub bytes: usize,
    /// `page-locked` for a device, `locked` against swapping, or `plain`.
    pub kind: &'static str,
    /// Bytes on huge pages; `None` if they were not counted.
    pub huge_page_bytes: Option<usize>,
    /// Why the memory is no better.
    pub notes: Vec<String>,
}

/// The memory of a ring.
pub(crate) struct Memory {
    supply: Supply,
    locking: Arc<Locking>,
    /// Slots that were claimed, from the first.
    claimed: AtomicUsize,
}

/// Locks slots when their memory is ready.
struct Locking {
    start: AtomicUsize,
    slots: usize,
    slot_bytes: usize,
    options: MemoryOptions,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    kind: &'static str,
    notes: Vec<String>,
    /// Slots whose memory is ready.
    ready: usize,
    /// Slots that the device locked.
    locked: Vec<usize>,
}

impl Memory {
    /// Memory for `slots` slots, which begin on pages. It takes no memory yet.
    pub(crate) fn new(slots: usize, slot_bytes: usize, options: &MemoryOptions) -> Result<Self> {
        let bytes = slots * slot_bytes;
        let locking = Arc::new(Locking {
            start: AtomicUsize::new(0),
            slots,
            slot_bytes,
            options: options.clone(),
            state: Mutex::new(State {
                kind: "plain",
                notes: Vec::new(),
                ready: 0,
                locked: Vec::new(),
            }),
        });
        let hook = locking.clone();
        let supply =
            Supply::with_hook(bytes, !options.no_huge_pages, move |piece| hook.is_ready(piece))
                .map_err(|error| no_room(bytes, error))?;
        locking.start.store(supply.start() as usize, Ordering::Relaxed);
        let memory = Self { supply, locking, claimed: AtomicUsize::new(0) };
        if memory.locking.options.locker.is_none() {
            memory.lock_against_swapping();
        }
        Ok(memory)
    }

    fn lock_against_swapping(&self) {
        if !self.locking.options.locked {
            return;
        }
        let locked = self.supply.lock();
        let mut state = self.locking.lock();
        match locked {
            Ok(()) => state.kind = "locked",
            Err(why) => state.notes.push(format!("not locked against swapping: {why}")),
        }
    }

    /// Says that a slot will be filled soon.
    pub(crate) fn is_claimed(&self, slot: usize) {
        self.claimed.fetch_max(slot + 1, Ordering::Relaxed);
        // The first one is needed at once. The others only as the one before is filled: otherwise clearing their memory
        // would delay it.
        if slot == 0 {
            self.want(self.locking.slot_bytes);
        }
    }

    /// Says that the memory before `end` is being filled: what follows is needed soon.
    pub(crate) fn is_filled(&self, end: usize) {
        let ahead = AHEAD.min(self.locking.slot_bytes / 4);
        self.want((end + ahead).next_multiple_of(STEP));
    }

    fn want(&self, end: usize) {
        let claimed = self.claimed.load(Ordering::Relaxed) * self.locking.slot_bytes;
        self.supply.want(end.min(claimed));
    }

    /// Waits until the memory before `end` is ready.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub(crate) fn wait(&self, end: usize) -> Result<()> {
        self.supply.wait(end).map_err(|error| no_room(self.len(), error))
    }

    /// The state of the memory now. If a device locks it, waits until the first slot is ready. The
    /// kernel needs some ms to count huge pages, and tens of ms in a process with much memory.
    pub(crate) fn report(&self) -> MemoryReport {
        MemoryReport { huge_page_bytes: Some(self.supply.huge_page_bytes()), ..self.quick_report() }
    }

    /// The state of the memory, without counting huge pages.
    pub(crate) fn quick_report(&self) -> MemoryReport {
        if self.locking.options.locker.is_some() {
            // If the system refuses the memory, batches report that.
            let _ = self.supply.wait(self.locking.slot_bytes);
        }
        // Not under the lock below, which the supply takes while it holds its own.
        let mut notes = self.supply.notes();
        let state = self.locking.lock();
        notes.extend(state.notes.iter().cloned());
        MemoryReport { bytes: self.len(), kind: state.kind, huge_page_bytes: None, notes }
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.supply.start()
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.supply.bytes()
    }
}

impl Locking {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of the memory is ready, and everything before it.
    fn is_ready(&self, piece: Range<usize>) {
        let Some(locker) = &self.options.locker else { return };
        let mut state = self.lock();
        while state.ready < self.slots && (state.ready + 1) * self.slot_bytes <= piece.end {
            let slot = state.ready;
            state.ready += 1;
            match locker.lock(self.slot(slot), self.slot_bytes) {
                Ok(()) => {
                    state.locked.push(slot);
                    state.kind = "page-locked";
                }
                Err(why) => {
                    let note = format!("{} does not page-lock the ring: {why}", locker.name());
                    if !state.notes.contains(&note) {
                        state.notes.push(note);
                    }
                }
            }
        }
    }

    /// The first byte of a slot. It is only an address here.
    fn slot(&self, slot: usize) -> *mut u8 {
        (self.start.load(Ordering::Relaxed) + slot * self.slot_bytes) as *mut u8
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // No slot is locked after this.
        self.supply.stop();
        if let Some(locker) = &self.locking.options.locker {
            for slot in self.locking.lock().locked.drain(..) {
                locker.unlock(self.locking.slot(slot), self.locking.slot_bytes);
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("supply", &self.supply).finish_non_exhaustive()
    }
}

fn no_room(bytes: usize, error: std::io::Error) -> Error {
    Error::memory(format!("cannot allocate {} MiB for the ring: {error}", bytes.div_ceil(1 << 20)))
        .with_remedy(remedy!["use fewer ", Opt::Slots, " or a smaller ", Opt::BatchSize])
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const SLOT: usize = 3 << 20;

    #[derive(Default)]
    struct Fake {
        locked: AtomicUsize,
        refuses: bool,
    }

    impl PageLocker for Fake {
        fn name(&self) -> &str {
            "a fake device"
        }

        fn lock(&self, _: *mut u8, bytes: usize) -> Result<(), String> {
            if self.refuses {
                return Err("no such memory".into());
            }
            self.locked.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }

        fn unlock(&self, _: *mut u8, bytes: usize) {
            self.locked.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn memory_is_aligned_and_says_what_it_is() {
        let memory = Memory::new(1, SLOT, &MemoryOptions::default()).unwrap();
        assert_eq!(memory.len(), 4 << 20);
        assert_eq!(memory.start() as usize % 4096, 0);
        let report = memory.report();
        assert!(report.kind == "locked" || !report.notes.is_empty(), "{report:?}");
    }

    #[test]
    fn a_device_locks_each_slot_when_it_is_ready_and_unlocks_all() {
        let device = Arc::new(Fake::default());
        let options = MemoryOptions { locker: Some(device.clone()), ..Default::default() };
        let memory = Memory::new(40, SLOT, &options).unwrap();
        assert_eq!(device.locked.load(Ordering::Relaxed), 0);
        assert_eq!(memory.report().kind, "page-locked");
        let locked = || device.locked.load(Ordering::Relaxed) / SLOT;
        assert!((1..40).contains(&locked()), "{}", locked());
        memory.wait(5 * SLOT).unwrap();
        assert!((5..40).contains(&locked()), "{}", locked());
        memory.wait(40 * SLOT).unwrap();
        assert_eq!(locked(), 40);
        drop(memory);
        assert_eq!(locked(), 0);
    }

    #[test]
    fn a_device_that_refuses_is_named_with_its_reason() {
        let locker: Arc<dyn PageLocker> = Arc::new(Fake { refuses: true, ..Fake::default() });
        let options = MemoryOptions { locker: Some(locker), locked: false, no_huge_pages: true };
        let memory = Memory::new(3, 4096, &options).unwrap();
        assert_eq!(memory.report().kind, "plain");
        assert_eq!(
            memory.report().notes,
            ["a fake device does not page-lock the ring: no such memory"]
        );
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_there_are_addresses_for_is_an_error() {
        let error = Memory::new(1, 1 << 60, &MemoryOptions::default()).unwrap_err();
        assert!(error.to_string().contains("fewer slots"), "{error}");
    }

    #[test]
    fn the_next_slot_takes_memory_only_as_the_one_before_is_filled() {
        const LARGE: usize = 2 * AHEAD;
        let memory = Memory::new(2, LARGE, &MemoryOptions::default()).unwrap();
        memory.is_claimed(0);
        memory.is_claimed(1);
        memory.is_filled(SLOT);
        memory.wait(LARGE).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(memory.supply.ready(), LARGE);
        memory.is_filled(LARGE - SLOT);
        let begun = std::time::Instant::now();
        while memory.supply.ready() < LARGE + AHEAD / 2 && begun.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(memory.supply.ready(), LARGE + AHEAD / 2);
    }

    // Miri does not support memory maps.
    #[cfg(not(miri))]
    #[test]
    fn a_slot_takes_no_memory_before_it_is_filled() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let before = resident();
        let memory = Memory::new(4, 256 << 20, &MemoryOptions::default()).unwrap();
        memory.is_claimed(0);
        memory.is_claimed(3);
        memory.wait(1).unwrap();
        // Other tests run at the same time and use memory, too.
        assert!(resident() < before + (512 << 20));
    }
}
