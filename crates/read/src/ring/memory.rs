//! The ring's memory: one allocation. Its pages are touched at the start, or while the first batches come from a server.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use super::pages::{self, Pages};
use crate::{Error, Result};
use hsipack_format::{Opt, remedy};

/// What kind of memory to ask for.
#[derive(Clone, Default)]
pub struct MemoryOptions {
    /// Page-locks the memory for a device, for example by registering it with CUDA. This is best if there is a device.
    pub locker: Option<Arc<dyn PageLocker>>,
    /// Do not try to keep the memory from being swapped out.
    pub plain: bool,
    /// Do not ask for huge pages.
    pub no_huge_pages: bool,
    /// Do not touch pages beforehand. The system then provides each page when a batch first needs it, while other batches
    /// are still being fetched; touching all pages may take longer than fetching the first batches. Has no effect if a
    /// device locks the memory. Loaders of datasets on servers set this.
    pub later: bool,
}

impl fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("locker", &self.locker.as_ref().map(|locker| locker.name()))
            .field("plain", &self.plain)
            .field("no_huge_pages", &self.no_huge_pages)
            .field("later", &self.later)
            .finish()
    }
}

/// Locks pages, so that a device can access the memory directly.
pub trait PageLocker: Send + Sync {
    /// What locks the pages, e.g. `CUDA`.
    fn name(&self) -> &str;

    /// Locks the pages of `memory`, which does not move until [`unlock`](Self::unlock).
    ///
    /// # Errors
    /// If the device refuses; the text says why.
    fn lock(&self, memory: *mut u8, bytes: usize) -> Result<(), String>;

    /// Unlocks the pages that [`lock`](Self::lock) locked.
    fn unlock(&self, memory: *mut u8, bytes: usize);
}

/// What kind of memory the ring got.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryReport {
    /// Bytes of all slots.
    pub bytes: usize,
    /// `page-locked` for a device, `locked` against swapping, or `plain`.
    pub kind: &'static str,
    /// Bytes on huge pages.
    pub huge_page_bytes: usize,
    /// Why the memory is no better.
    pub notes: Vec<String>,
}

/// The memory of a ring.
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    locker: Option<Arc<dyn PageLocker>>,
    report: MemoryReport,
    /// Whether each page is provided when it is first written to.
    later: bool,
}

// SAFETY: it owns its memory, as a Box does; the ring decides who may touch which part when.
unsafe impl Send for Memory {}
// SAFETY: shared references give out a pointer and plain data only.
unsafe impl Sync for Memory {}

/// Size of huge pages on x86-64 and on 4 KiB arm64.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

impl Memory {
    /// Allocates `bytes`. Touches every page, unless the options leave that for later.
    pub(crate) fn new(bytes: usize, options: &MemoryOptions) -> Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(HUGE_PAGE);
        let start = system::allocate(bytes).map_err(|error| no_room(bytes, error))?;
        let report = MemoryReport { bytes, kind: "plain", huge_page_bytes: 0, notes: Vec::new() };
        // From here on, dropping `memory` frees the allocation.
        let later = options.later && options.locker.is_none();
        let mut memory = Self { start, bytes, locker: None, report, later };
        if !later {
            memory.provide(options).map_err(|error| no_room(bytes, error))?;
        }
        memory.lock(options);
        Ok(memory)
    }

    /// Makes the system provide every page. Pages that are provided later are small, because a decoding thread would have
    /// to wait for a huge one.
    fn provide(&mut self, options: &MemoryOptions) -> io::Result<()> {
        let (start, bytes) = (self.start, self.bytes);
        if options.no_huge_pages {
            return system::touch(start, 0..bytes, Pages::Small);
        }
        if let Err(why) = system::want_huge_pages(start, bytes) {
            self.report.notes.push(format!("no huge pages: {why}"));
            return system::touch(start, 0..bytes, Pages::Small);
        }
        let asked = pages::provide(bytes, |part, pages| {
            let before = Instant::now();
            system::touch(start, part, pages)?;
            Ok(before.elapsed())
        })?;
        if asked < bytes {
            let note = "some huge pages: more of them would take longer to allocate than they save";
            self.report.notes.push(note.to_owned());
        }
        self.report.huge_page_bytes = system::huge_page_bytes(start, bytes);
        Ok(())
    }

    fn lock(&mut self, options: &MemoryOptions) {
        if let Some(locker) = &options.locker {
            match locker.lock(self.start.as_ptr(), self.bytes) {
                Ok(()) => {
                    self.locker = Some(locker.clone());
                    self.report.kind = "page-locked";
                    return;
                }
                Err(why) => {
                    let note = format!("{} does not page-lock the ring: {why}", locker.name());
                    self.report.notes.push(note);
                }
            }
        }
        if options.plain {
            return;
        }
        match system::lock(self.start, self.bytes, self.later) {
            Ok(()) => self.report.kind = "locked",
            Err(why) => self.report.notes.push(format!("not locked against swapping: {why}")),
        }
    }

    /// The state of the memory now.
    pub(crate) fn report(&self) -> MemoryReport {
        let mut report = self.report.clone();
        if self.later {
            report.huge_page_bytes = system::huge_page_bytes(self.start, self.bytes);
        }
        report
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(locker) = &self.locker {
            locker.unlock(self.start.as_ptr(), self.bytes);
        }
        system::free(self.start, self.bytes);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.fmt(f)
    }
}

fn no_room(bytes: usize, error: std::io::Error) -> Error {
    Error::memory(format!("cannot allocate {} MiB for the ring: {error}", bytes.div_ceil(1 << 20)))
        .with_remedy(remedy!["use fewer ", Opt::Slots, " or a smaller ", Opt::BatchSize])
        .caused_by(error)
}

/// The calls to the operating system.
#[cfg(not(miri))]
mod system {
    use std::io;
    use std::ops::Range;
    use std::ptr::NonNull;

    use super::Pages;

    /// Anonymous memory, zero-filled, aligned to huge pages.
    pub fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
        let whole = bytes.checked_add(super::HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new anonymous mapping, wherever the kernel likes, touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = start.align_offset(super::HUGE_PAGE);
        // SAFETY: both ranges lie in the mapping just made, outside the part that is kept. `before` is less than a huge
        // page, and the mapping is one huge page longer than `bytes`.
        let start = unsafe {
            let kept = start.cast::<u8>().add(before);
            unmap(start.cast(), before);
            unmap(kept.add(bytes), whole - before - bytes);
            kept
        };
        NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// The range must be whole pages of a mapping of ours that nothing refers to.
    unsafe fn unmap(start: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: as the caller promises.
            unsafe { libc::munmap(start.cast(), bytes) };
        }
    }

    pub fn free(start: NonNull<u8>, bytes: usize) {
        // SAFETY: called once, by the owner of the mapping, when it is dropped.
        unsafe { unmap(start.as_ptr(), bytes) };
    }

    /// Asks for huge pages wherever no page is provided yet.
    pub fn want_huge_pages(start: NonNull<u8>, bytes: usize) -> Result<(), String> {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if setting.is_ok_and(|setting| setting.contains("[never]")) {
            return Err("the system forbids transparent huge pages".into());
        }
        // SAFETY: advice about a mapping of ours changes no content.
        match unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().to_string()),
        }
    }

    /// Makes the kernel provide every page of a part now: small pages, or the kind that was asked for.
    pub fn touch(start: NonNull<u8>, part: Range<usize>, pages: Pages) -> io::Result<()> {
        // SAFETY: the part lies in a mapping of ours.
        let place = unsafe { start.as_ptr().add(part.start) };
        if pages == Pages::Small {
            // A kernel without huge pages neither knows this advice nor needs it.
            // SAFETY: advice about a mapping of ours changes no content.
            let _ = unsafe { libc::madvise(place.cast(), part.len(), libc::MADV_NOHUGEPAGE) };
        }
        // SAFETY: the part lies in a mapping of ours; populating it changes no content.
        let populated =
            unsafe { libc::madvise(place.cast(), part.len(), libc::MADV_POPULATE_WRITE) };
        if populated == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Kernels before 5.14 do not know the call.
            error if error.raw_os_error() == Some(libc::EINVAL) => {
                for page in (0..part.len()).step_by(4096) {
                    // SAFETY: inside the mapping, which nobody else knows of yet.
                    unsafe { place.add(page).write_volatile(0) };
                }
                Ok(())
            }
            error => Err(error),
        }
    }

    /// How many bytes of the memory lie on huge pages, according to the kernel.
    pub fn huge_page_bytes(start: NonNull<u8>, bytes: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let ours = start.as_ptr() as usize..start.as_ptr() as usize + bytes;
        // Parts on pages of different sizes are separate mappings, and the kernel may have joined one with a neighbour.
        let overlaps = |line: &str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'))?;
            let [from, to] = [range.0, range.1].map(|text| usize::from_str_radix(text, 16).ok());
            Some(from? < ours.end && to? > ours.start)
        };
        let (mut counts, mut kib) = (false, 0);
        for line in maps.lines() {
            counts = overlaps(line).unwrap_or(counts);
            if let Some(text) = line.strip_prefix("AnonHugePages:").filter(|_| counts) {
                kib += text.trim().trim_end_matches(" kB").parse::<usize>().unwrap_or(0);
            }
        }
        (kib << 10).min(bytes)
    }

    /// Locks the pages. If `later` is true, each page is locked when it is first written to.
    pub fn lock(start: NonNull<u8>, bytes: usize, later: bool) -> Result<(), String> {
        let place = start.as_ptr().cast();
        // SAFETY: locking pages of a mapping of ours changes no content.
        let locked = unsafe {
            match later {
                true => libc::mlock2(place, bytes, libc::MLOCK_ONFAULT),
                false => libc::mlock(place, bytes),
            }
        };
        if locked == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(format!(
            "{error}; the limit is {} (raise it with `ulimit -l`)",
            lock_limit().map_or("unknown".to_owned(), |limit| format!("{} MiB", limit >> 20))
        ))
    }

    fn lock_limit() -> Option<u64> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call fills the struct it is given.
        let read = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
        (read == 0).then_some(limit.rlim_cur)
    }
}

/// Miri does not support memory maps.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ops::Range;
    use std::ptr::NonNull;

    use super::Pages;

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 4096).expect("a sensible size")
    }

    pub fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)) })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub fn free(start: NonNull<u8>, bytes: usize) {
        // SAFETY: allocated above with the same layout.
        unsafe { dealloc(start.as_ptr(), layout(bytes)) };
    }

    pub fn want_huge_pages(_: NonNull<u8>, _: usize) -> Result<(), String> {
        Ok(())
    }

    pub fn touch(_: NonNull<u8>, _: Range<usize>, _: Pages) -> io::Result<()> {
        Ok(())
    }

    pub fn huge_page_bytes(_: NonNull<u8>, _: usize) -> usize {
        0
    }

    pub fn lock(_: NonNull<u8>, _: usize, _: bool) -> Result<(), String> {
        Err("not under Miri".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

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
    fn memory_is_zero_and_aligned_and_says_what_it_is() {
        let memory = Memory::new(3 << 20, &MemoryOptions::default()).unwrap();
        assert_eq!(memory.len(), 4 << 20);
        assert_eq!(memory.start() as usize % 4096, 0);
        // SAFETY: the memory is ours alone.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start(), memory.len()) };
        assert!(bytes.iter().step_by(4096).all(|byte| *byte == 0));
        let report = memory.report();
        assert!(report.kind == "locked" || !report.notes.is_empty(), "{report:?}");
    }

    #[test]
    fn a_device_locks_and_unlocks_it() {
        let device = Arc::new(Fake::default());
        let options = MemoryOptions { locker: Some(device.clone()), ..Default::default() };
        let memory = Memory::new(1, &options).unwrap();
        assert_eq!(memory.report().kind, "page-locked");
        assert_eq!(device.locked.load(Ordering::Relaxed), memory.len());
        drop(memory);
        assert_eq!(device.locked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_device_that_refuses_is_named_with_its_reason() {
        let locker: Arc<dyn PageLocker> = Arc::new(Fake { refuses: true, ..Fake::default() });
        let options =
            MemoryOptions { locker: Some(locker), plain: true, no_huge_pages: true, later: false };
        let memory = Memory::new(1, &options).unwrap();
        assert_eq!(memory.report().kind, "plain");
        assert_eq!(
            memory.report().notes,
            ["a fake device does not page-lock the ring: no such memory"]
        );
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_there_is_addresses_for_is_an_error() {
        let error = Memory::new(1 << 60, &MemoryOptions::default()).unwrap_err();
        assert!(error.to_string().contains("fewer slots"), "{error}");
    }

    // Miri does not support memory maps.
    #[cfg(not(miri))]
    #[test]
    fn a_kernel_that_refuses_huge_pages_says_why() {
        let memory = Memory::new(1, &MemoryOptions::default()).unwrap();
        let nowhere = NonNull::new(memory.start().wrapping_add(1)).unwrap();
        assert!(system::want_huge_pages(nowhere, memory.len() - 1).is_err());
    }

    // Miri does not support memory maps.
    #[cfg(not(miri))]
    #[test]
    fn memory_that_is_left_for_later_takes_none_before_it_is_written_to() {
        let resident = || {
            let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let options = MemoryOptions { later: true, ..MemoryOptions::default() };
        let before = resident();
        let memory = Memory::new(1 << 30, &options).unwrap();
        // Other tests run at the same time and use memory, too.
        assert!(resident() < before + (512 << 20));
        let last = memory.len() - 1;
        // SAFETY: inside the memory, which nobody else knows.
        unsafe {
            memory.start().write(7);
            memory.start().add(last).write(9);
            assert_eq!((*memory.start(), *memory.start().add(last)), (7, 9));
            assert_eq!(*memory.start().add(12_345), 0);
        }
        assert!(memory.report().huge_page_bytes <= memory.len());
        // Memory that a device locks is provided at once, even with `later`.
        let locker = Arc::new(Fake::default());
        let options = MemoryOptions { locker: Some(locker), later: true, ..Default::default() };
        assert!(!Memory::new(1 << 20, &options).unwrap().later);
    }
}
