//! A part of a file that is read as if it were a separate file: a whole file, or a member that is
//! stored uncompressed in an archive.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// A range of bytes of a file. Reading never goes beyond it.
#[derive(Debug)]
pub struct Window {
    file: File,
    start: u64,
    len: u64,
    /// Where the next read begins, relative to the start of the window.
    position: u64,
}

impl Window {
    /// The whole of `file`, which has `len` bytes.
    pub fn whole(file: File, len: u64) -> Self {
        Self::new(file, 0, len)
    }

    /// The `len` bytes of `file` from `start` on. `start + len` must not exceed `u64::MAX`.
    pub fn new(file: File, start: u64, len: u64) -> Self {
        debug_assert!(start.checked_add(len).is_some(), "the window ends somewhere");
        Self { file, start, len, position: 0 }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `out` with the bytes from `offset` on. The current position does not matter.
    ///
    /// # Errors
    /// If they cannot be read, or the window ends before them.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        match offset.checked_add(out.len() as u64) {
            Some(end) if end <= self.len => self.file.read_exact_at(out, self.start + offset),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Read for Window {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let remaining = self.len.saturating_sub(self.position);
        let most = usize::try_from(remaining).unwrap_or(usize::MAX).min(out.len());
        let count =
            self.file.read_at(&mut out[..most], self.start + self.position.min(self.len))?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Window {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn window(start: u64, len: u64) -> Window {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        Window::new(file, start, len)
    }

    #[test]
    fn reading_stays_between_its_ends() {
        let mut read = Vec::new();
        window(2, 5).read_to_end(&mut read).unwrap();
        assert_eq!(read, b"23456");
        let (window, mut out) = (window(2, 5), [0; 3]);
        window.read_exact_at(&mut out, 2).unwrap();
        assert_eq!(&out, b"456");
        for offset in [3, 5, u64::MAX] {
            assert!(window.read_exact_at(&mut out, offset).is_err(), "{offset}");
        }
    }

    #[test]
    fn seeking_counts_from_its_start() {
        let mut window = window(2, 5);
        let mut out = [0; 2];
        for (to, position) in
            [(SeekFrom::Start(1), 1), (SeekFrom::Current(-2), 1), (SeekFrom::End(-4), 1)]
        {
            assert_eq!(window.seek(to).unwrap(), position);
            window.read_exact(&mut out).unwrap();
            assert_eq!(&out, b"34");
        }
        assert!(window.seek(SeekFrom::Current(-9)).is_err());
        window.seek(SeekFrom::Start(99)).unwrap();
        assert_eq!(window.read(&mut out).unwrap(), 0);
    }
}
