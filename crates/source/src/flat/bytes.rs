//! Where the bytes of an array come from.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;

use super::parked_streams::{self, Stream};
use crate::Access;
use crate::recent::Identity;

/// Where the bytes of an array come from. Offsets count from the first byte of the source.
pub trait ByteSource: Send + Sync {
    /// Fills `out` with the bytes at `offset`.
    ///
    /// # Errors
    /// If they cannot be read, or the source ends too early.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Whether all offsets are equally cheap to read, or only those after the last one read.
    fn access(&self) -> Access;

    /// Where the source starts in its file, which tells the streams of a file apart.
    fn start(&self) -> u64 {
        0
    }

    /// Says that further sources will read the same bytes: other samples of an array.
    fn share(&mut self) {}
}

/// A plain file, or an uncompressed member of an archive.
#[derive(Debug)]
pub struct FileBytes {
    file: Window,
    path: PathBuf,
}

impl FileBytes {
    /// Opens `path`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { file: bounded_read::window(path)?, path: path.to_owned() })
    }

    /// The size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }
}

impl ByteSource for FileBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::malformed(format!(
                "the file ends before byte {}; it has {} bytes",
                offset + out.len() as u64,
                self.len()
            ))
            .at(&self.path)
            .with_remedy("copy the file again; it is cut short"),
            _ => Error::io(&self.path, "cannot read", error),
        })
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

/// Bytes in memory.
pub struct MemoryBytes(pub Vec<u8>);

impl ByteSource for MemoryBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(out.len())?))
            .ok_or_else(|| Error::malformed("the array ends before its last value"))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

type OpenStream = dyn Fn() -> Result<Box<dyn Read + Send>> + Send + Sync;

/// A stream that can only be read from its start, such as gzip. To go back, it is opened again.
pub struct StreamBytes {
    path: PathBuf,
    start: u64,
    open: Box<OpenStream>,
    state: Mutex<Option<Stream>>,
    /// Whose stream it is, if other sources continue to read it.
    shared: Option<Identity>,
}

impl StreamBytes {
    /// A stream that `open` starts, and that begins `start` bytes after the start of the file
    /// `path`. Errors name this file.
    pub fn new(
        path: impl Into<PathBuf>,
        start: u64,
        open: impl Fn() -> Result<Box<dyn Read + Send>> + Send + Sync + 'static,
    ) -> Self {
        let (path, open, state) = (path.into(), Box::new(open), Mutex::new(None));
        Self { path, start, open, state, shared: None }
    }

    /// A stream that has read at most `offset` bytes: the farthest that another source left, or a
    /// new one.
    fn stream_before(&self, offset: u64) -> Result<Stream> {
        let parked = || parked_streams::take(self.shared.as_ref()?, self.start, offset);
        match parked() {
            Some(stream) => Ok(stream),
            None => Ok((0, (self.open)()?)),
        }
    }

    fn fail(&self, error: std::io::Error, end: u64) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::malformed(format!("the compressed data end before byte {end}"))
            }
            _ => Error::malformed(format!("cannot decompress: {error}")),
        }
        .at(&self.path)
        .with_remedy("copy the file again; it is cut short or damaged")
    }
}

impl ByteSource for StreamBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        // A poisoned lock only means that another reader panicked. The stream is then opened again.
        let mut state = self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            *state = None;
            state
        });
        let end = offset + out.len() as u64;
        let (mut position, mut stream) = match state.take() {
            Some((position, stream)) if position <= offset => (position, stream),
            _ => self.stream_before(offset)?,
        };
        let skip = offset - position;
        position += std::io::copy(&mut (&mut stream).take(skip), &mut std::io::sink())
            .map_err(|error| self.fail(error, end))?;
        if position < offset {
            return Err(self.fail(std::io::ErrorKind::UnexpectedEof.into(), end));
        }
        stream.read_exact(out).map_err(|error| self.fail(error, end))?;
        *state = Some((end, stream));
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Sequential
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn share(&mut self) {
        self.shared = Identity::of(&self.path);
    }
}

impl Drop for StreamBytes {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(file), Some(stream)) = (self.shared.take(), state) {
            parked_streams::park(file, self.start, stream);
        }
    }
}
