//! Compares the bytes of a member of a zip archive with the length and checksum that the archive
//! records.

use std::io::{Error, ErrorKind, Read, Result};

use flate2::Crc;

/// Gives as many bytes as the archive says. When the last byte is read, it compares the CRC-32 and
/// checks that no more bytes follow.
#[derive(Debug)]
pub struct Checked<R> {
    inner: R,
    crc: Crc,
    remaining: u64,
    expected: u32,
}

impl<R: Read> Checked<R> {
    /// The `size` bytes of `inner`, whose CRC-32 must be `expected`.
    pub fn new(inner: R, size: u64, expected: u32) -> Self {
        Self { inner, crc: Crc::new(), remaining: size, expected }
    }
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let most = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(out.len());
        let count = self.inner.read(&mut out[..most])?;
        self.crc.update(&out[..count]);
        self.remaining -= count as u64;
        if count > 0 && self.remaining == 0 {
            let invalid = |what| Error::new(ErrorKind::InvalidData, what);
            if self.crc.sum() != self.expected {
                return Err(invalid("the checksum in the zip archive does not match"));
            }
            if self.inner.read(&mut [0])? != 0 {
                return Err(invalid("the file is longer than the zip archive says"));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_size_or_checksum_is_an_error() {
        let mut crc = Crc::new();
        crc.update(b"cube");
        let read = |size, crc| {
            let mut out = Vec::new();
            Checked::new(b"cube".as_slice(), size, crc).read_to_end(&mut out).map(|_| out)
        };
        assert_eq!(read(4, crc.sum()).unwrap(), b"cube");
        assert!(read(4, crc.sum() + 1).is_err());
        assert!(read(3, crc.sum()).is_err());
    }
}
