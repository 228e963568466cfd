//! A `.tar.gz`, which has to be decompressed from the start up to the wanted member.

use std::io::{self, BufReader, ErrorKind, Read};

use flate2::read::MultiGzDecoder;

use super::tar::Forward;
use crate::window::Window;

/// Number of bytes read from the file at a time.
const BUFFER: usize = 256 << 10;
/// Number of bytes at the start of each member that are kept when the archive is listed, to detect
/// the format of the file.
const HEAD: u64 = 4096;

/// The decompressed bytes of an archive, from its start.
pub(super) struct Stream {
    bytes: MultiGzDecoder<BufReader<Window>>,
    position: u64,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Stream {
    pub fn new(file: Window) -> Self {
        let bytes = MultiGzDecoder::new(BufReader::with_capacity(BUFFER, file));
        Self { bytes, position: 0 }
    }

    /// How many bytes were read or skipped.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads to the end of the file, where the checksum is compared.
    pub fn finish(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(drop)
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(out)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Forward for Stream {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.by_ref().take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }

    fn skip_member(&mut self, bytes: u64) -> io::Result<Box<[u8]>> {
        let mut head = vec![0; bytes.min(HEAD) as usize];
        self.read_exact(&mut head)?;
        self.skip(bytes - head.len() as u64)?;
        Ok(head.into())
    }
}
