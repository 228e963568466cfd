//! Checks at the exit of the process, and for calls in a forked process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::faults::{Kind, report};
use crate::settings::{EXIT_STATUS, variable};

/// The process that the device belongs to; 0 while there is none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Whether this is a forked process that called the driver.
static FORKED_CALL: AtomicBool = AtomicBool::new(false);

/// Reports everything that was not given back, and returns the number of faults.
static END: OnceLock<fn() -> usize> = OnceLock::new();

/// Registers `end` as the check at the exit of this process.
pub fn prepare(end: fn() -> usize) {
    END.get_or_init(|| end);
    OWNER.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the handler is a function without arguments, and the library is never unloaded.
    let failed = unsafe { libc::atexit(at_exit) };
    assert_eq!(failed, 0, "no room for one more handler of exit");
}

/// Whether this process was forked from one that has used the device. Then its call of `name` is a
/// fault.
pub fn is_forked(name: &'static str) -> bool {
    if !in_forked() {
        return false;
    }
    report(format_args!("fault [{}] {name}: called in a forked process", Kind::Forked));
    FORKED_CALL.store(true, Ordering::Relaxed);
    true
}

fn in_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

extern "C" fn at_exit() {
    // In a forked process, locks may stay taken forever, and it owns nothing here.
    let faults = if in_forked() {
        usize::from(FORKED_CALL.load(Ordering::Relaxed))
    } else {
        END.get().map_or(0, |end| end())
    };
    let status = variable(EXIT_STATUS, 0);
    if faults > 0 && status != 0 {
        // SAFETY: writes out the buffered output of C programs; then the process ends. An exit handler cannot set the
        // status in any other way.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status);
        }
    }
}
