//! The calls to the operating system.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::time::Duration;

use super::size::{HUGE_PAGE, Pages};

/// Anonymous memory, zero-filled, aligned to huge pages.
pub fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
    let whole = bytes.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new anonymous mapping, wherever the kernel likes, touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            whole,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let before = start.align_offset(HUGE_PAGE);
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
    let address = unsafe { start.as_ptr().add(part.start) };
    if pages == Pages::Small {
        // A kernel without huge pages neither knows this advice nor needs it.
        // SAFETY: advice about a mapping of ours changes no content.
        let _ = unsafe { libc::madvise(address.cast(), part.len(), libc::MADV_NOHUGEPAGE) };
    }
    // SAFETY: the part lies in a mapping of ours; populating it changes no content.
    let populated = unsafe { libc::madvise(address.cast(), part.len(), libc::MADV_POPULATE_WRITE) };
    if populated == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Kernels before 5.14 do not know the call.
        error if error.raw_os_error() == Some(libc::EINVAL) => {
            for page in (0..part.len()).step_by(4096) {
                // SAFETY: inside the mapping, which nobody else knows of yet.
                unsafe { address.add(page).write_volatile(0) };
            }
            Ok(())
        }
        error => Err(error),
    }
}

/// Processor time of the calling thread so far.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
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

/// Locks each page when it is first written to.
pub fn lock(start: NonNull<u8>, bytes: usize) -> Result<(), String> {
    // SAFETY: locking pages of a mapping of ours changes no content.
    if unsafe { libc::mlock2(start.as_ptr().cast(), bytes, libc::MLOCK_ONFAULT) } == 0 {
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
