//! Which tests may run at the same time: tests that judge times do not run beside tests that
//! compute.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How a test uses the machine.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    /// Computes, and may run beside others that compute.
    Computing,
    /// Judges times that are mostly waits, which other waiting tests do not lengthen.
    Waiting,
    /// Judges times of computation.
    Alone,
}

/// State and number of the running tests.
static NOW: Mutex<(Use, usize)> = Mutex::new((Use::Alone, 0));
static TEST_ENDED: Condvar = Condvar::new();

/// A test's share of the machine.
pub struct Part;

impl Drop for Part {
    fn drop(&mut self) {
        now().1 -= 1;
        TEST_ENDED.notify_all();
    }
}

/// Takes the machine for a test that judges times: no other test of this program runs meanwhile.
pub fn alone() -> Part {
    entered(Use::Alone)
}

/// Takes the machine for a test that judges times in which it mostly waits. Others that wait run
/// meanwhile.
pub fn waiting() -> Part {
    entered(Use::Waiting)
}

/// Takes the machine for a test that may run beside others.
pub fn beside_others() -> Part {
    entered(Use::Computing)
}

fn entered(how: Use) -> Part {
    let fits = |(others, count): (Use, usize)| count == 0 || (others == how && how != Use::Alone);
    let mut now = now();
    while !fits(*now) {
        now = TEST_ENDED.wait(now).unwrap_or_else(PoisonError::into_inner);
    }
    *now = (how, now.1 + 1);
    Part
}

fn now() -> MutexGuard<'static, (Use, usize)> {
    NOW.lock().unwrap_or_else(PoisonError::into_inner)
}
