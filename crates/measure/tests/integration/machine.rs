//! Who may run beside whom: tests that judge times share the machine with none that computes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a test does with the machine.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Computes, and does not mind others that do.
    Computing,
    /// Judges times that are waits, nearly all of them: others that wait do not lengthen them.
    Waiting,
    /// Judges times that it takes to compute.
    Alone,
}

/// What the tests that run now do, and how many those are.
static NOW: Mutex<(Use, usize)> = Mutex::new((Use::Alone, 0));
static LEFT: Condvar = Condvar::new();

/// A test's part of the machine.
pub struct Part;

impl Drop for Part {
    fn drop(&mut self) {
        now().1 -= 1;
        LEFT.notify_all();
    }
}

/// The machine for a test that judges times: no other test of this program runs meanwhile.
pub fn alone() -> Part {
    entered(Use::Alone)
}

/// The machine for a test that judges times in which it waits, nearly all of the time: others do as well.
pub fn waiting() -> Part {
    entered(Use::Waiting)
}

/// The machine for a test that does not mind others.
pub fn beside_others() -> Part {
    entered(Use::Computing)
}

fn entered(how: Use) -> Part {
    let fits = |(others, count): (Use, usize)| count == 0 || (others == how && how != Use::Alone);
    let mut now = now();
    while !fits(*now) {
        now = LEFT.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
    *now = (how, now.1 + 1);
    Part
}

fn now() -> MutexGuard<'static, (Use, usize)> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}
