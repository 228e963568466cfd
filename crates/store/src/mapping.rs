//! Read-only memory maps that report I/O errors as errors.
//!
//! If a page of a mapped file cannot be read (the disk failed, the file was cut short, a network
//! mount went away), the system raises the signal SIGBUS, which kills the process. A [`Mapping`]
//! survives this, with the method of systemd's `sigbus.c`. A handler for the whole process is
//! installed with the first map. It looks up the faulting address among the live maps, puts a page
//! of zeros in place of the unreadable page, and records this. After its closure has read,
//! [`Mapping::with`] checks these records, and returns an error instead of the closure's result.
//! Faults at other addresses go to the handlers of others.
//!
//! Other libraries install handlers, too: Python's `faulthandler`, which pytest enables, and torch
//! in the worker processes of a DataLoader. The system knows one handler per process. So [`guard`]
//! asks for it before every read of a map. If it is not ours, `guard` installs ours again, and
//! faults elsewhere go to the other one. Asking is a system call of 0.2 µs; a chunk takes 10 µs or
//! more to decompress. The handler of others that is installed in another thread between this call
//! and the read is not noticed.
//!
//! `memmap2` maps and unmaps; this module adds the protection.
//!
//! The handler may run at any time in any thread, so it takes no lock and allocates nothing. The
//! table of live maps is a list of blocks of slots that are never freed. Each slot is guarded by a
//! version number, which is odd while the slot is being changed.
//!
//! One case cannot be detected: a file that is *changed in place* while it is mapped. Then the
//! bytes change while they are being read. If the file is cut short, the rest of the page that
//! contains its new end reads as zeros, without a signal. Only checksums over the bytes detect
//! this. hsipack itself writes files under another name and renames them, which never affects a
//! map.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use hsipack_format::{Error, Result};
use memmap2::{Mmap, UncheckedAdvice};

use crate::{bounded_read, memory};

/// A file that is mapped for reading. Its length is fixed when it is mapped. No file descriptor is
/// held.
#[derive(Debug)]
pub struct Mapping {
    path: PathBuf,
    map: Mmap,
    slot: &'static Slot,
}

impl Mapping {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// If it cannot be opened or mapped, or is not a regular file; the error names the file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let (file, _) = bounded_read::open(&path)?;
        Self::of(&file, path)
    }

    /// Maps `file`, which may be closed afterwards; `path` is for error messages.
    ///
    /// # Errors
    /// If it cannot be mapped: it is not a regular file, or there are too many maps.
    pub fn of(file: &File, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match map(file) {
            Ok(map) => {
                guard();
                let slot = Slot::take();
                slot.set(map.as_ptr() as usize, map.len());
                Ok(Self { path, map, slot })
            }
            Err(error) => {
                let bytes = file.metadata().map_or(0, |meta| meta.len());
                Err(cannot_map(path, error, memory::exceeds_address_space(bytes)))
            }
        }
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the file in bytes when it was mapped.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Calls `take` with the bytes of `range`. Read them only in this process: if a system call is
    /// given a page that cannot be read, it fails with its own error (EFAULT).
    ///
    /// # Errors
    /// If the range is outside the file, bytes near it cannot be read, or `take` fails. A disk
    /// error takes precedence over an error of `take`, because `take` then worked on zeros.
    pub fn with<T>(&self, range: Range<u64>, take: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let span = self.span(&range).ok_or_else(|| self.outside(&range))?;
        guard();
        let taken = take(&self.map[span.clone()]);
        // Orders the reads of `take` before the check of the records.
        fence(Ordering::SeqCst);
        if self.slot.has_failed(span) { Err(self.unreadable(&range)) } else { taken }
    }

    /// All bytes of the file, for frequent access. Bytes that cannot be read are zeros: call
    /// [`were_read`](Self::were_read) afterwards to detect this. Because it is called often, it
    /// does not call [`guard`].
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Whether all bytes that were accessed so far could be read.
    pub fn were_read(&self) -> bool {
        // A failure is recorded before its zeros can be read, so reads in program order find the record. A stronger fence
        // would be too slow, because this is called for every number of an index.
        fence(Ordering::AcqRel);
        !self.slot.any_failed.load(Ordering::Relaxed)
    }

    /// Releases the pages that were read, so that the system can drop them from its cache on
    /// request. If they are read again, they are loaded from the file.
    pub fn release(&self) {
        // SAFETY: these are pages of a file, mapped for reading. A concurrent reader finds the same bytes. It is advice:
        // nothing is lost if it is refused.
        let _ = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
    }

    fn span(&self, range: &Range<u64>) -> Option<Range<usize>> {
        let inside = range.start <= range.end && range.end <= self.len();
        // Both ends are at most the length, which is a `usize`.
        inside.then_some(range.start as usize..range.end as usize)
    }

    fn outside(&self, range: &Range<u64>) -> Error {
        Error::damaged(format!(
            "bytes {} to {} were requested, but the file has {} bytes",
            range.start,
            range.end,
            self.len()
        ))
        .at(&self.path)
    }

    #[cold]
    fn unreadable(&self, range: &Range<u64>) -> Error {
        let now = std::fs::metadata(&self.path).map_or(u64::MAX, |meta| meta.len());
        let (what, remedy) = if now < self.len() {
            (
                format!("the file became shorter, {now} bytes instead of {}", self.len()),
                "restore the file from a copy; do not change files that are being read",
            )
        } else {
            (
                format!("the disk failed at bytes {} to {}", range.start, range.end),
                "check the system log and the disk, and restore the file from a copy",
            )
        };
        Error::io(&self.path, "cannot read", io::Error::other(what)).with_remedy(remedy)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Must happen before `map` unmaps: afterwards, the addresses may be reused.
        self.slot.give_back();
    }
}

/// The error if a map was refused; `full` says whether the limit of the address space is the
/// reason.
fn cannot_map(path: PathBuf, error: io::Error, full: bool) -> Error {
    let code = error.raw_os_error();
    let error = Error::io(path, "cannot map into memory", error);
    match code {
        Some(libc::ENOMEM) if full => error.with_remedy(
            "the limit of this process's address space is reached: raise it with `ulimit -v`",
        ),
        Some(libc::ENOMEM) => error.with_remedy(
            "there are too many maps: raise the limit with `sysctl vm.max_map_count=1048576`, \
             or pack into larger shards",
        ),
        Some(libc::ENODEV | libc::EACCES) => error.with_remedy("give a regular file"),
        _ => error,
    }
}

/// Maps the whole file.
fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: the module requires that its users do not change the file meanwhile; pages that cannot be read become zeros.
    unsafe { Mmap::map(file) }
}

/// Bytes of a page of the system's memory.
pub fn page_size() -> usize {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    match PAGE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: asks the system for a number.
            let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            let page = usize::try_from(page).expect("the system knows its page size");
            PAGE.store(page, Ordering::Relaxed);
            page
        }
        page => page,
    }
}

/// Number of parts of a map whose failures are recorded separately. In a shard of 512 MiB, one bad
/// sector affects only the chunks within 512 KiB.
const PARTS: usize = 1024;

/// A live map, as used by the handler.
#[derive(Debug)]
struct Slot {
    /// Odd while the slot is being changed; different after every change.
    version: AtomicUsize,
    /// Address of the first byte.
    start: AtomicUsize,
    /// Length in bytes; 0 if the slot is free.
    len: AtomicUsize,
    /// Whether any bit of `failed` is set.
    any_failed: AtomicBool,
    /// A bit for each part that could not be read.
    failed: [AtomicU64; PARTS / 64],
}

const BLOCK: usize = 64;

/// Slots of the table. Blocks are leaked, so that the handler may read them at any time.
struct Block {
    slots: [Slot; BLOCK],
    next: *const Block,
}

/// The newest block.
static TABLE: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut());
/// Free slots for new maps.
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());

impl Slot {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            any_failed: AtomicBool::new(false),
            failed: [const { AtomicU64::new(0) }; PARTS / 64],
        }
    }

    /// Takes a free slot. If there is none, the table grows.
    fn take() -> &'static Slot {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            // This happens under the lock, so no other block can be added in between.
            let next = TABLE.load(Ordering::Relaxed);
            let block: &'static Block =
                Box::leak(Box::new(Block { slots: [const { Slot::new() }; BLOCK], next }));
            TABLE.store(ptr::from_ref(block).cast_mut(), Ordering::Release);
            free.extend(&block.slots);
        }
        free.pop().expect("a block was added")
    }

    fn set(&self, start: usize, len: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.any_failed.store(false, Ordering::Relaxed);
        self.failed.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.version.store(version + 2, Ordering::Release);
    }

    fn give_back(&'static self) {
        self.set(0, 0);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }

    /// The position of `address` in the map, if it is there; async-signal-safe.
    fn find(&self, address: usize) -> Option<usize> {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let stable = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        let at = address.wrapping_sub(start);
        (stable && at < len).then_some(at)
    }

    /// The part of the map that holds byte `at`.
    fn part(&self, at: usize) -> usize {
        let len = self.len.load(Ordering::Relaxed).div_ceil(PARTS);
        // Parts are at least as large as the smallest page size, because whole pages fail.
        at / len.max(4096)
    }

    /// Records that the page from byte `at` on could not be read; async-signal-safe.
    fn fail(&self, at: usize, page: usize) {
        let len = self.len.load(Ordering::Relaxed);
        for part in self.part(at)..=self.part((at + page - 1).min(len - 1)) {
            self.failed[part / 64].fetch_or(1 << (part % 64), Ordering::SeqCst);
        }
        self.any_failed.store(true, Ordering::SeqCst);
    }

    fn has_failed(&self, span: Range<usize>) -> bool {
        if !self.any_failed.load(Ordering::SeqCst) || span.is_empty() {
            return false;
        }
        (self.part(span.start)..=self.part(span.end - 1))
            .any(|part| self.failed[part / 64].load(Ordering::SeqCst) >> (part % 64) & 1 == 1)
    }
}

/// The live map that contains `address`, and the position in it; async-signal-safe.
fn find(address: usize) -> Option<(&'static Slot, usize)> {
    let mut block = TABLE.load(Ordering::Acquire).cast_const();
    // SAFETY: null or a leaked block, made before the pointer to it was stored; likewise below.
    while let Some(Block { slots, next }) = unsafe { block.as_ref() } {
        if let Some(found) = slots.iter().find_map(|slot| Some((slot, slot.find(address)?))) {
            return Some(found);
        }
        block = *next;
    }
    None
}

/// Handlers of others for SIGBUS, the newest last. Faults that are not in our maps go to the
/// newest. If there is none, the system's default action applies.
static OTHERS: [Other; OTHERS_KEPT] = [const { Other(AtomicU64::new(0)) }; OTHERS_KEPT];
/// Number of [`OTHERS`].
static OTHERS_LEN: AtomicUsize = AtomicUsize::new(0);
/// More libraries than this never install handlers in one process. Beyond that, the newest is
/// replaced.
const OTHERS_KEPT: usize = 8;

/// A handler of others: its address times 2, plus 1 if it takes three arguments (SA_SIGINFO). One
/// number, so that our handler never sees half of a change.
struct Other(AtomicU64);

impl Other {
    fn pack(action: &libc::sigaction) -> u64 {
        (action.sa_sigaction as u64) << 1 | u64::from(action.sa_flags & libc::SA_SIGINFO != 0)
    }

    fn get(&self) -> (libc::sighandler_t, bool) {
        let packed = self.0.load(Ordering::Relaxed);
        ((packed >> 1) as libc::sighandler_t, packed & 1 == 1)
    }
}

/// Makes sure that our handler is the one that the system calls. Takes about 0.2 µs.
///
/// [`Mapping::with`] calls this before it touches a page. Call it before [`Mapping::bytes`] after
/// other code may have installed a handler.
pub fn guard() {
    if current_action().sa_sigaction != our_handler() {
        install_handler();
    }
}

fn our_handler() -> libc::sighandler_t {
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    handler as libc::sighandler_t
}

/// Installs our handler over that of others, who get the faults that are not in our maps.
#[cold]
fn install_handler() {
    static CHANGING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let other = current_action();
    if other.sa_sigaction == our_handler() {
        return;
    }
    page_size();
    // Must be known before our handler can run.
    remember(&other);
    let mut action = default_action();
    action.sa_sigaction = our_handler();
    // The alternate stack is for threads whose own stack is used up. Threads without an alternate stack use their own.
    // Without SA_NODEFER, a handler of others could not send the signal again while it runs.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: the handler has the signature that SA_SIGINFO asks for, and is async-signal-safe.
    unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) };
}

/// Adds an action of others to [`OTHERS`].
fn remember(other: &libc::sigaction) {
    if other.sa_sigaction == libc::SIG_DFL {
        // Others have given up their handlers.
        return OTHERS_LEN.store(0, Ordering::Release);
    }
    let (len, packed) = (OTHERS_LEN.load(Ordering::Relaxed), Other::pack(other));
    // A handler that was installed again does not get a signal twice.
    let position =
        OTHERS[..len].iter().position(|handler| handler.0.load(Ordering::Relaxed) == packed);
    let at = position.unwrap_or(len).min(OTHERS_KEPT - 1);
    OTHERS[at].0.store(packed, Ordering::Relaxed);
    OTHERS_LEN.store(at + 1, Ordering::Release);
}

fn current_action() -> libc::sigaction {
    let mut action = MaybeUninit::zeroed();
    // SAFETY: only queries; if the call fails, all zeros is a valid `sigaction` (the default).
    unsafe {
        libc::sigaction(libc::SIGBUS, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}

/// The system's default action for a signal, with no signals blocked.
fn default_action() -> libc::sigaction {
    const { assert!(libc::SIG_DFL == 0) };
    // SAFETY: all zeros is SIG_DFL with an empty mask and no flags.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The handler. Uses only atomics and async-signal-safe system calls, and preserves `errno`.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system gives a valid `info`; the address has a meaning for faults, whose code is above 0.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code <= 0 || !mend(address) {
        pass_on(signal, info, context, code > 0);
    }
}

/// Replaces the unreadable page at `address` with a page of zeros, if it is in one of our maps.
fn mend(address: usize) -> bool {
    let Some((slot, at)) = find(address) else { return false };
    let page = page_size();
    let offset = address % page;
    // Maps start on a page, so the page of byte `at` starts at `at - offset`. The failure is recorded before other threads
    // can read the zeros.
    slot.fail(at - offset, page);
    // The page is shared, like the map: CUDA's driver hangs if it registers private pages as read-only.
    // SAFETY: the thread's own place for `errno`, put back as it was.
    let errno = unsafe { *errno_place() };
    // SAFETY: replaces one page of a live map of this module, which the faulting thread is reading and so
    // keeps from being unmapped; nothing else can be there. mmap is a plain system call.
    let zeros = unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(address - offset),
            page,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *errno_place() = errno };
    zeros != libc::MAP_FAILED
}

fn errno_place() -> *mut c_int {
    // SAFETY: gives the address of a thread-local number.
    #[cfg(target_os = "linux")]
    return unsafe { libc::__errno_location() };
    // SAFETY: as above.
    #[cfg(not(target_os = "linux"))]
    return unsafe { libc::__error() };
}

/// Address of `errno` of the thread whose signal a handler of others has now; 0 if none.
static PASSING: AtomicUsize = AtomicUsize::new(0);
/// Number of the [`OTHERS`] that may still get this thread's signal.
static REMAINING_HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// How often a fault may occur again at the same address before an older handler gets it.
const MAX_REPEATS: u64 = 1000;

/// Repeated faults of threads. Threads with the same place here are only counted wrongly.
static REPEATS: [Repeats; 64] =
    [const { Repeats { address: AtomicUsize::new(0), count: AtomicU64::new(0) } }; 64];

struct Repeats {
    address: AtomicUsize,
    count: AtomicU64,
}

/// How often the thread has had a fault at this address, without one elsewhere in between;
/// async-signal-safe.
fn repeats(thread: usize, address: usize) -> u64 {
    let slot = &REPEATS[(thread >> 8) % REPEATS.len()];
    if slot.address.swap(address, Ordering::Relaxed) != address {
        slot.count.store(0, Ordering::Relaxed);
    }
    slot.count.fetch_add(1, Ordering::Relaxed)
}

/// Does what would happen without this module.
///
/// A handler of others often ends with "put back the action that was there before, and send the
/// signal again"; so does that of Python's `faulthandler`. The action before it may be ours. Then
/// the signal arrives here again while that handler runs, and goes to the handler before that one.
/// It never goes to the same handler again, which would never end.
///
/// A handler may also return without doing anything, like that of `faulthandler` after it was
/// disabled. Then the same fault occurs again and again, until an older handler gets it.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, fault: bool) {
    let thread = errno_place() as usize;
    let sent_again = PASSING.load(Ordering::SeqCst) == thread;
    let installed = OTHERS_LEN.load(Ordering::Acquire);
    let usable = if fault {
        // SAFETY: the system gives a valid `info`, and faults have an address.
        let tries = repeats(thread, unsafe { (*info).si_addr() as usize }) / MAX_REPEATS;
        installed.saturating_sub(usize::try_from(tries).unwrap_or(usize::MAX))
    } else {
        installed
    };
    let remaining =
        if sent_again { REMAINING_HANDLERS.load(Ordering::SeqCst).min(usable) } else { usable };
    let (handler, takes_info) = match remaining.checked_sub(1) {
        Some(newest) => OTHERS[newest].get(),
        None => (libc::SIG_DFL, false),
    };
    let first = PASSING.compare_exchange(0, thread, Ordering::SeqCst, Ordering::SeqCst).is_ok();
    if first || sent_again {
        REMAINING_HANDLERS.store(remaining.saturating_sub(1), Ordering::SeqCst);
    }
    call(handler, takes_info, signal, info, context, fault);
    if first {
        PASSING.store(0, Ordering::SeqCst);
    }
}

/// Calls a handler of others, or does what the system does by default.
fn call(
    handler: libc::sighandler_t,
    takes_info: bool,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
    fault: bool,
) {
    match handler {
        libc::SIG_IGN if !fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets the default action instead of this handler. A fault occurs again when the handler returns; a
            // signal that was sent is sent again, and arrives then.
            unsafe {
                libc::sigaction(signal, &default_action(), ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler if takes_info => {
            // SAFETY: SA_SIGINFO says that the address is a function of this signature.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO, the address is a function of this signature.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

// Miri does not support memory maps of files.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;
    use hsipack_format::ErrorKind;

    const LEN: usize = 1 << 20;

    fn content() -> Vec<u8> {
        (0..LEN).map(|at| (at % 251) as u8 + 1).collect()
    }

    fn file(folder: &tempfile::TempDir, name: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, content()).unwrap();
        path
    }

    fn cut(path: &Path, len: u64) {
        File::options().write(true).open(path).unwrap().set_len(len).unwrap();
    }

    fn sum(mapping: &Mapping, range: Range<u64>) -> Result<u64> {
        mapping.with(range, |bytes| Ok(bytes.iter().map(|byte| u64::from(*byte)).sum()))
    }

    #[test]
    fn every_range_holds_the_files_bytes_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mapping = Mapping::open(file(&folder, "a")).unwrap();
        assert_eq!(mapping.len(), LEN as u64);
        let want = content();
        for range in [0..LEN, 0..0, LEN..LEN, 4095..4097, 1..LEN - 1] {
            let got =
                mapping.with(range.start as u64..range.end as u64, |bytes| Ok(bytes.to_vec()));
            assert_eq!(got.unwrap(), want[range]);
        }
        #[allow(clippy::reversed_empty_ranges)]
        for range in
            [0..LEN as u64 + 1, LEN as u64 + 1..LEN as u64 + 1, 5..4, u64::MAX - 1..u64::MAX]
        {
            assert!(sum(&mapping, range.clone()).is_err(), "{range:?}");
        }
    }

    #[test]
    fn released_pages_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let mapping = Mapping::open(file(&folder, "whole")).unwrap();
        let before = sum(&mapping, 0..mapping.len()).unwrap();
        mapping.release();
        assert_eq!(sum(&mapping, 0..mapping.len()).unwrap(), before);
        let empty = folder.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        Mapping::open(empty).unwrap().release();
    }

    #[test]
    fn a_file_cut_short_is_an_error_where_it_is_missing_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (file(&folder, "a"), Mapping::open(file(&folder, "b")).unwrap());
        let mapping = Mapping::open(&path).unwrap();
        cut(&path, 0x8_0000);
        for _ in 0..2 {
            let error = sum(&mapping, 0..LEN as u64).unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Io, Some(path.as_path())));
            assert!(error.what().contains("shorter, 524288 bytes instead of 1048576"), "{error}");
            assert!(error.remedy().is_some());
        }
        assert!(sum(&mapping, 0x7_F000..0x8_0000).is_ok());
        assert!(sum(&mapping, 0x8_0000..0x8_0001).is_err());
        let want: u64 = content().iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum(&other, 0..LEN as u64).unwrap(), want);
    }

    #[test]
    fn the_disks_error_comes_before_the_closures() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder, "a");
        let mapping = Mapping::open(&path).unwrap();
        cut(&path, 0);
        let error = mapping
            .with(0..8, |bytes| -> Result<()> { Err(Error::damaged(format!("{}", bytes[0]))) })
            .unwrap_err();
        assert!(error.what().starts_with("cannot read"), "{error}");
    }

    #[test]
    fn a_new_map_knows_nothing_of_the_failures_of_an_older_one() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 * BLOCK {
            let path = file(&folder, "a");
            let mapping = Mapping::open(&path).unwrap();
            assert!(sum(&mapping, 0..LEN as u64).is_ok());
            cut(&path, 0);
            assert!(sum(&mapping, 0..LEN as u64).is_err());
        }
    }

    #[test]
    fn threads_fail_and_succeed_side_by_side_while_maps_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let want: u64 = content().iter().map(|byte| u64::from(*byte)).sum();
        let shared = Mapping::open(file(&folder, "shared")).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (folder, shared) = (&folder, &shared);
                scope.spawn(move || {
                    let name = format!("{thread}");
                    for round in 0..20 {
                        let path = file(folder, &name);
                        let mapping = Mapping::open(&path).unwrap();
                        cut(&path, if thread % 2 == 0 { 0 } else { LEN as u64 });
                        let got = sum(&mapping, 0..LEN as u64).ok();
                        assert_eq!(got, (thread % 2 == 1).then_some(want), "{thread} {round}");
                        assert_eq!(sum(shared, 0..LEN as u64).unwrap(), want);
                    }
                });
            }
        });
    }

    #[test]
    fn all_threads_that_read_a_failed_page_are_told() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let path = file(&folder, "a");
            let mapping = Mapping::open(&path).unwrap();
            cut(&path, 4096);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert!(sum(&mapping, 0..LEN as u64).is_err()));
                }
            });
        }
    }

    #[test]
    fn missing_files_folders_and_empty_files() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let error = Mapping::open(&missing).unwrap_err();
        assert_eq!(
            (error.path(), error.remedy()),
            (Some(missing.as_path()), Some(&"check the path".into()))
        );
        assert!(Mapping::open(folder.path()).is_err());
        let empty = folder.path().join("empty");
        std::fs::write(&empty, []).unwrap();
        let empty = Mapping::open(empty).unwrap();
        assert!(empty.is_empty());
        assert_eq!(sum(&empty, 0..0).unwrap(), 0);
        assert!(sum(&empty, 0..1).is_err());
    }

    #[test]
    fn too_many_maps_are_explained() {
        let error = |full| {
            cannot_map("a".into(), io::Error::from_raw_os_error(libc::ENOMEM), full).to_string()
        };
        assert!(error(false).contains("vm.max_map_count"), "{}", error(false));
        assert!(error(true).contains("ulimit -v") && !error(true).contains("max_map_count"));
    }

    #[test]
    fn a_failed_page_fails_the_spans_that_touch_it() {
        for len in [1, 4096, 5000, PARTS * 4096, PARTS * 4096 + 1, PARTS * 10_000 + 7] {
            for at in [0, len / 3, len - 1] {
                let (slot, page) = (Slot::new(), at / 4096 * 4096);
                slot.set(1 << 30, len);
                assert_eq!(slot.find((1 << 30) + at), Some(at));
                assert_eq!((slot.find((1 << 30) - 1), slot.find((1 << 30) + len)), (None, None));
                slot.fail(page, 4096);
                assert!(slot.has_failed(at..at + 1), "{len} {at}");
                assert!(slot.has_failed(0..len) && !slot.has_failed(at..at));
                let far = page.saturating_sub(2 * 4096.max(len.div_ceil(PARTS)));
                assert!(!slot.has_failed(0..far), "{len} {at}");
            }
        }
    }

    /// Runs the test `in_a_child` in a separate process.
    fn child(case: &str) -> ExitStatus {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mapping::tests::in_a_child", "--ignored", "--nocapture"])
            .env("HSIPACK_MAPPING_CASE", case)
            .status()
            .unwrap()
    }

    #[test]
    fn bus_errors_elsewhere_end_the_process_as_ever() {
        assert_eq!(child("foreign map").signal(), Some(libc::SIGBUS));
        assert_eq!(child("sent").signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn bus_errors_elsewhere_go_to_the_handler_that_was_there_before() {
        assert_eq!(child("previous handler").code(), Some(42));
        assert_eq!(child("previous plain handler").code(), Some(43));
    }

    #[test]
    fn a_handler_that_is_installed_later_does_not_take_our_faults() {
        assert_eq!(child("later handler").code(), Some(42));
        assert_eq!(child("later handlers").code(), Some(42));
    }

    #[test]
    fn handlers_that_send_the_signal_again_end_the_process() {
        assert_eq!(child("sends again").signal(), Some(libc::SIGBUS));
        assert_eq!(child("sends again, to ours").signal(), Some(libc::SIGBUS));
        assert_eq!(child("sends again, to an older one").code(), Some(43));
    }

    #[test]
    fn a_handler_that_returns_does_not_keep_the_process_in_a_fault() {
        assert_eq!(child("does nothing").signal(), Some(libc::SIGBUS));
    }

    extern "C" fn return_at_once(_: c_int) {}

    /// The action that [`send_again`] puts back, as the address of its handler.
    static BEFORE: AtomicUsize = AtomicUsize::new(0);

    /// Like the handler of Python's `faulthandler`.
    extern "C" fn send_again(signal: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
        handle(BEFORE.load(Ordering::SeqCst), libc::SA_SIGINFO | libc::SA_NODEFER);
        // SAFETY: a signal to this process itself.
        unsafe { libc::raise(signal) };
    }

    fn install_send_again() {
        BEFORE.store(current_action().sa_sigaction, Ordering::SeqCst);
        handle(send_again as *const () as usize, libc::SA_SIGINFO | libc::SA_NODEFER);
    }

    extern "C" fn exit_42(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the system's own information; `_exit` may be called in handlers.
        unsafe { libc::_exit(if (*info).si_addr().is_null() { 1 } else { 42 }) };
    }

    extern "C" fn exit_43(_: c_int) {
        // SAFETY: may be called in handlers.
        unsafe { libc::_exit(43) };
    }

    fn handle(handler: usize, flags: c_int) {
        let mut action = default_action();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        // SAFETY: the handlers above, with flags that match their signatures.
        unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) };
    }

    #[test]
    #[ignore = "run by the tests above, in processes of their own"]
    fn in_a_child() {
        let case = std::env::var("HSIPACK_MAPPING_CASE").unwrap();
        match case.as_str() {
            "previous handler" => handle(exit_42 as *const () as usize, libc::SA_SIGINFO),
            "previous plain handler" => handle(exit_43 as *const () as usize, 0),
            "sends again" => install_send_again(),
            "does nothing" => handle(return_at_once as *const () as usize, 0),
            "sends again, to an older one" => handle(exit_43 as *const () as usize, 0),
            _ => handle(libc::SIG_DFL, 0),
        }
        let folder = tempfile::tempdir().unwrap();
        let ours = file(&folder, "ours");
        let mapping = Mapping::open(&ours).unwrap();
        for _ in 0..if case == "later handlers" { 30 } else { 1 } {
            match case.as_str() {
                "later handler" => handle(exit_42 as *const () as usize, libc::SA_SIGINFO),
                "later handlers" => {
                    for handler in [exit_43 as *const () as usize, exit_42 as *const () as usize] {
                        handle(
                            handler,
                            if handler == exit_43 as *const () as usize {
                                0
                            } else {
                                libc::SA_SIGINFO
                            },
                        );
                        assert!(sum(&mapping, 0..1).is_ok());
                    }
                }
                "sends again, to ours" | "sends again, to an older one" => install_send_again(),
                _ => {}
            }
        }
        cut(&ours, 0);
        assert!(sum(&mapping, 0..LEN as u64).is_err());
        if case == "sent" {
            drop(folder);
            // SAFETY: a signal to this process itself.
            unsafe { libc::raise(libc::SIGBUS) };
            unreachable!("the signal ends the process");
        }
        let foreign =
            File::options().read(true).write(true).open(file(&folder, "foreign")).unwrap();
        let map = map(&foreign).unwrap();
        // Remove the folder now, because the process will be killed.
        folder.close().unwrap();
        foreign.set_len(0).unwrap();
        panic!("a page that is not there holds {}", map[0]);
    }
}
