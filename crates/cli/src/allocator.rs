//! Memory that the system refuses ends the command with a message and an exit status.
//!
//! What is large is asked for so that a refusal is an error (`hsipack_store::memory`). For all the rest, names and
//! lists and what other crates take, Rust would end the process by a signal, with a stack trace that helps nobody.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicI32, Ordering};

use hsipack_store::memory;

/// The system's allocator, which ends the process where it has nothing to give to who does not expect that.
pub struct Allocator;

/// What the process ends with: at first that of `validate` for what could not be checked, whose 1 means damage.
static STATUS: AtomicI32 = AtomicI32::new(2);

/// Where the address space is short, has all threads share one heap. With heaps of their own they would each reserve 64 MiB,
/// and what one of them freed would be lost to the others.
pub fn share_what_is_short() {
    #[cfg(target_env = "gnu")]
    if memory::is_short(1 << 30) {
        // SAFETY: sets a number of the allocator, before any thread was started.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Has the process end with 1, that of an error: the command is known, and is not `validate`.
pub fn end_with_error() {
    STATUS.store(1, Ordering::Relaxed);
}

// SAFETY: all is done by the system's allocator, with what the caller gave; nothing unwinds.
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

/// Says what was refused, without taking memory, and ends the process as it is: an output that is not done stays
/// marked so, as after a kill.
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
