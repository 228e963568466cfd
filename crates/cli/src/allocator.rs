//! If the system refuses memory, the command ends with a message and an exit status.
//!
//! Large allocations return an error if they are refused (`hsipack_store::memory`). If any other
//! allocation is refused (names, lists, memory of other crates), Rust would end the process by a
//! signal, with a stack trace that helps nobody.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicI32, Ordering};

use hsipack_store::memory;

/// The system's allocator. It ends the process if memory is refused and the caller does not expect
/// that.
pub struct Allocator;

/// The exit status when memory is refused. It starts with the status of `validate` for "could not
/// be checked", because 1 means damage there.
static STATUS: AtomicI32 = AtomicI32::new(2);

/// If the address space is short, makes all threads share one heap. Otherwise each thread would
/// reserve 64 MiB for a heap of its own, and the other threads could not use the memory that it
/// frees.
pub fn share_what_is_short() {
    #[cfg(target_env = "gnu")]
    if memory::is_short(1 << 30) {
        // SAFETY: sets a number of the allocator, before any thread was started.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Sets the exit status to 1, the status of an error. Called when the command is known and is not
/// `validate`.
pub fn end_with_error() {
    STATUS.store(1, Ordering::Relaxed);
}

// SAFETY: the system's allocator does all the work, with the caller's arguments; nothing unwinds.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are the same.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(memory, layout, size) }, size)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn checked(memory: *mut u8, size: usize) -> *mut u8 {
    if memory.is_null() && !memory::may_be_refused() {
        end(size);
    }
    memory
}

/// Reports what was refused, without taking memory, and ends the process at once. Unfinished output
/// stays marked as unfinished, as after a kill.
#[cold]
fn end(size: usize) -> ! {
    let mut line = [0; 128];
    let mut words = Cursor::new(&mut line[..]);
    let _ = writeln!(
        words,
        "hsipack: cannot allocate {size} bytes (free some memory, raise the limit, or ask for less)"
    );
    let len = words.position() as usize;
    // SAFETY: the line is readable for its length; ending the process runs nothing that could take memory.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), len);
        libc::_exit(STATUS.load(Ordering::Relaxed))
    }
}
