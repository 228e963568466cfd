//! Bytes of a file that is still being written, on their way to the disk.
//!
//! A system keeps what is written in memory until it has gigabytes of it, or somebody waits for the file. Who writes a
//! shard waits at its end; when only then the disk begins, it has nothing to do before, and who writes nothing after.

use std::fs::File;

/// How many bytes are written before they are sent: enough for a disk to be busy, few enough to begin early.
const STEP: u64 = 8 << 20;

/// How much of a file was sent to the disk.
#[derive(Debug, Default)]
pub struct Writeback {
    sent: u64,
}

impl Writeback {
    /// Says that the first `written` bytes of `file` were written: asks the system to begin bringing them to the disk, if
    /// there are enough of them. It is a hint: nothing waits for the disk, and nothing says that bytes are there.
    pub fn written(&mut self, file: &File, written: u64) {
        if written - self.sent >= STEP {
            begin(file, self.sent, written - self.sent);
            self.sent = written;
        }
    }
}

#[cfg(target_os = "linux")]
fn begin(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd;

    let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
    // SAFETY: the descriptor is open while `file` is borrowed, and the call touches no memory of this process. Where a
    // file system has no such call, its error is no loss: the file is brought to the disk at its end.
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
    fn what_takes_no_such_hint_is_left_alone() {
        let null = File::options().write(true).open("/dev/null").unwrap();
        Writeback::default().written(&null, STEP);
    }
}
