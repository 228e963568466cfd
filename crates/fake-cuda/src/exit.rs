//! Checks at the exit of the process, and for calls in a forked process.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::faults::{Kind, report};
use crate::settings::{EXIT_STATUS, variable};
use crate::world::{State, world};

/// The process that the device belongs to; 0 while there is none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Whether this is a forked process that called the driver.
static FORKED_CALL: AtomicBool = AtomicBool::new(false);

/// Registers the check at the exit of this process.
pub fn prepare() {
    OWNER.store(std::process::id(), Ordering::Relaxed);
    // SAFETY: the handler is a function without arguments, and the library is never unloaded.
    let failed = unsafe { libc::atexit(at_exit) };
    assert_eq!(failed, 0, "no room for one more handler of exit");
}

/// Whether this process was forked from one that has used the device. Then its call of `name` is a fault.
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
        world().lock("exit").end()
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

impl State {
    /// Reports everything that was not given back, and returns the number of faults.
    fn end(&mut self) -> usize {
        for device in 0..self.contexts.devices() {
            if let Some((context, retained)) = self.contexts.primary(device) {
                self.note_leaks(context);
                let what =
                    format!("the context of device {device} is still retained {retained} times");
                self.note(Kind::Leak, what);
            }
        }
        let pushed = self.contexts.pushed();
        if pushed > 0 {
            self.note(Kind::Leak, format_args!("{pushed} context(s) pushed and not popped"));
        }
        self.over = true;
        let faults = self.faults.count();
        if faults > 0 || std::env::var_os(crate::settings::REPORT).is_some() {
            report(format_args!("end: {faults} faults"));
        }
        faults
    }
}
