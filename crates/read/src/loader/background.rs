//! Keeps the loader's threads from delaying the consumer.
//!
//! A consumer needs a processor only for moments: to take the next batch, to give a slot back, to
//! start the device. If all cores decode, Linux lets a thread that the consumer wakes take the
//! consumer's processor at once. When the consumer itself wakes, Linux lets the running thread
//! finish its slice first, and looks again only at the next tick. So the consumer was up to 4 ms
//! late, in a step of 12 ms. Threads that are scheduled as batch work preempt nobody. A thread with
//! a longer slice than others is preempted as soon as these wake (Linux 6.12; earlier versions
//! ignore slices). Both leave every thread its share of the time.

use std::time::Duration;

/// The slice that the loader's threads ask for. The usual slice is shorter than 3 ms.
const SLICE: Duration = Duration::from_millis(20);

/// Schedules the calling thread as batch work, in long slices. If the system refuses, or the user
/// chose another scheduling policy than the usual one, nothing changes.
pub(crate) fn wait_for_turns() {
    #[cfg(target_os = "linux")]
    let _ = linux::as_batch_work(SLICE);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::time::Duration;

    use libc::{SCHED_BATCH, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, sched_attr};

    /// Changes how the calling thread is scheduled, if it is scheduled in the usual way. Its
    /// niceness stays the same.
    pub(super) fn as_batch_work(slice: Duration) -> io::Result<()> {
        let mut attributes = get()?;
        if attributes.sched_policy != SCHED_OTHER as u32 {
            return Ok(());
        }
        attributes.sched_policy = SCHED_BATCH as u32;
        attributes.sched_runtime = slice.as_nanos() as u64;
        // SAFETY: the system reads as many bytes as `size` says, which is the structure's own size; 0 is this thread.
        let done = unsafe { libc::syscall(SYS_sched_setattr, 0, &raw const attributes, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn get() -> io::Result<sched_attr> {
        const SIZE: u32 = size_of::<sched_attr>() as u32;
        // SAFETY: integers, for which zeros are values.
        let mut attributes: sched_attr = unsafe { std::mem::zeroed() };
        // SAFETY: the system writes at most as many bytes as it is told, all of them within the structure.
        let done = unsafe { libc::syscall(SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
        attributes.size = SIZE;
        if done == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use hsipack_testing::skipped;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_turns_is_batch_work_and_as_nice_as_before() {
        let looked = std::thread::spawn(|| {
            let before = linux::get().ok()?;
            wait_for_turns();
            Some((before, linux::get().ok()?))
        });
        let Some((before, after)) = looked.join().unwrap() else {
            return skipped("the system does not tell how threads are scheduled");
        };
        assert_eq!(before.sched_nice, after.sched_nice);
        if before.sched_policy != libc::SCHED_OTHER as u32 {
            assert_eq!(before.sched_policy, after.sched_policy);
            return skipped("these tests are scheduled in an unusual way");
        }
        assert_eq!(after.sched_policy, libc::SCHED_BATCH as u32);
        // Systems that support slices report the usual one.
        if before.sched_runtime > 0 {
            assert_eq!(Duration::from_nanos(after.sched_runtime), SLICE);
        }
    }
}
