//! Flushing a file to the disk while it is still being written, and writing in the background.
//!
//! The system keeps written data in memory until there are gigabytes of it, or until a program
//! waits for the file. A program that writes a shard waits at the end of the shard. If the disk
//! began only then, it would be idle before, and the program would be idle afterwards.
//!
//! A thread that copies data to the disk while others decode must not slow them down.
//! [`in_background`] gives it the processor mostly when no other thread wants it.

use std::fs::File;

/// The number of bytes that are written before they are flushed: enough to keep a disk busy, few
/// enough to begin early.
const STEP: u64 = 8 << 20;

/// Records how much of a file was flushed to the disk.
#[derive(Debug, Default)]
pub struct Writeback {
    sent: u64,
}

impl Writeback {
    /// Call this when the first `written` bytes of `file` were written. If enough of them are new,
    /// it asks the system to begin writing them to the disk. This is only a hint: it does not wait
    /// for the disk, and does not guarantee that the bytes are on it.
    pub fn written(&mut self, file: &File, written: u64) {
        if written - self.sent >= STEP {
            begin(file, self.sent, written - self.sent);
            self.sent = written;
        }
    }
}

/// Asks the system to begin writing the first `written` bytes of `file` to the disk. Otherwise the
/// system writes many files at once later, with threads of its own, which have the priority of
/// decoding threads.
pub(crate) fn begin_all(file: &File, written: u64) {
    begin(file, 0, written);
}

/// The niceness of threads that work in the background. Beside a thread of usual niceness on the
/// same processor, such a thread gets about a tenth of the time. So it also makes progress if all
/// processors are always busy.
const BACKGROUND: libc::c_int = 10;

/// Gives other threads precedence over the calling thread, from now on. If the system refuses,
/// nothing changes.
pub(crate) fn in_background() {
    // Elsewhere, the call changes the whole process.
    #[cfg(target_os = "linux")]
    {
        // SAFETY: the calls touch no memory of this process; 0 is the calling thread. Its niceness is only ever raised.
        unsafe {
            if libc::getpriority(libc::PRIO_PROCESS, 0) < BACKGROUND {
                libc::setpriority(libc::PRIO_PROCESS, 0, BACKGROUND);
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn begin(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd;

    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open while `file` is borrowed, and the call touches no memory of this process. If a file
    // system does not support the call, its error does no harm: the file is flushed to the disk at its end.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
}

#[cfg(not(target_os = "linux"))]
fn begin(_file: &File, _offset: u64, _len: u64) {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bytes_are_sent_by_steps_and_the_file_is_what_was_written() {
        let mut file = tempfile::tempfile().unwrap();
        let mut writeback = Writeback::default();
        let piece = vec![7; 3 << 20];
        let sent: Vec<u64> = (1..=7)
            .map(|count| {
                file.write_all(&piece).unwrap();
                writeback.written(&file, count * piece.len() as u64);
                writeback.sent >> 20
            })
            .collect();
        assert_eq!(sent, [0, 0, 9, 9, 9, 18, 18]);
        assert_eq!(file.metadata().unwrap().len(), 21 << 20);
    }

    #[test]
    fn files_without_writeback_are_ignored() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        Writeback::default().written(&null, STEP);
        begin_all(&null, STEP);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_thread_that_asks_is_in_the_background() {
        // SAFETY: the call touches no memory of this process.
        let niceness = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = niceness();
        let changed = std::thread::spawn(move || {
            in_background();
            niceness()
        });
        assert_eq!(changed.join().unwrap(), before.max(BACKGROUND));
        assert_eq!(niceness(), before);
    }
}
