//! One Blosc-1 frame, read in pieces: a safe interface to C-Blosc's `blosc_getitem`.
//!
//! ```text
//! u8 version = 2, u8 codec version, u8 flags, u8 typesize, u32 nbytes, u32 blocksize, u32 cbytes
//! i32 start of every block (not if the frame is a plain copy), blocks
//! ```

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hsipack_format::{Error, Result};
use hsipack_store::{bounded_read, codec, memory};

use crate::Access;
use crate::flat::ByteSource;

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 16;
const VERSION: u8 = 2;
/// Flag: the frame is a plain copy.
const COPIED: u8 = 2;
/// The largest block that is accepted. By default, C-Blosc makes none above a few MiB, and decoding
/// one takes three times its size.
const LARGEST_BLOCK: usize = 64 << 20;
const CODECS: [&str; 8] = ["blosclz", "lz4", "snappy", "zlib", "zstd", "5", "6", "7"];

/// Entries of a frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    flags: u8,
    typesize: usize,
    nbytes: usize,
    blocksize: usize,
    cbytes: usize,
}

fn damaged(what: &str) -> Error {
    Error::malformed(format!("the Blosc frame {what}"))
        .with_remedy("copy the file again; it is cut short or damaged")
}

impl FrameHeader {
    /// Reads a header and checks that it does not contradict itself.
    pub fn parse(raw: &[u8; HEADER]) -> Result<Self> {
        let word = |at: usize| {
            let word = u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
            // C-Blosc holds sizes as signed 32-bit numbers.
            usize::try_from(word).ok().filter(|word| *word <= c_int::MAX as usize - HEADER)
        };
        if raw[0] != VERSION {
            return Err(damaged(&format!("is of version {}, not {VERSION}", raw[0])));
        }
        let (Some(nbytes), Some(blocksize), Some(cbytes)) = (word(4), word(8), word(12)) else {
            return Err(damaged("states a size of more than 2 GiB"));
        };
        let header =
            Self { flags: raw[2], typesize: usize::from(raw[3]), nbytes, blocksize, cbytes };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<()> {
        let Self { typesize, nbytes, blocksize, cbytes, .. } = *self;
        // C-Blosc always makes blocks of whole elements. With other blocks, some bytes would never
        // be written.
        if typesize == 0 || nbytes == 0 || nbytes % typesize != 0 {
            return Err(damaged("states an impossible element size"));
        }
        if blocksize == 0 || blocksize > nbytes || blocksize % typesize != 0 {
            return Err(damaged("states an impossible block size"));
        }
        if blocksize > LARGEST_BLOCK {
            return Err(Error::unsupported(format!(
                "the Blosc frame has blocks of {blocksize} bytes"
            ))
            .with_remedy("write it with Blosc's own choice of block size"));
        }
        let least = match self.copied() {
            true => nbytes,
            false => nbytes.div_ceil(blocksize).saturating_mul(4).saturating_add(1),
        };
        if cbytes < HEADER.saturating_add(least) {
            return Err(damaged("is shorter than its own table of blocks"));
        }
        // C-Blosc copies data that do not get smaller, so no frame is longer than this. The frame
        // is held in memory.
        if cbytes > nbytes.saturating_add(HEADER) {
            return Err(damaged("is longer than what it decodes to"));
        }
        Ok(())
    }

    fn copied(&self) -> bool {
        self.flags & COPIED != 0
    }

    /// Bytes that the frame decodes to.
    pub fn decoded_len(&self) -> u64 {
        self.nbytes as u64
    }

    /// Bytes that the frame takes in the file.
    pub fn encoded_len(&self) -> u64 {
        self.cbytes as u64
    }

    /// Bytes that are decoded together.
    pub fn block_len(&self) -> usize {
        self.blocksize
    }
}

/// A frame in memory, known to be safe to decode.
#[derive(Debug)]
pub(super) struct Frame {
    header: FrameHeader,
    bytes: Vec<u8>,
}

impl Frame {
    /// Checks a whole frame.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        let raw = bytes.first_chunk::<HEADER>().ok_or_else(|| damaged("is cut short"))?;
        let header = FrameHeader::parse(raw)?;
        let mut nbytes = 0;
        // SAFETY: the pointer and the length are those of `bytes`, which holds the 16-byte header
        // that the function reads, and `nbytes` is a valid place for its one output.
        let code = unsafe {
            blosc_src::blosc_cbuffer_validate(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                &raw mut nbytes,
            )
        };
        if code != 0 || nbytes != header.nbytes || bytes.len() != header.cbytes {
            return Err(damaged("is not as long as its header says"));
        }
        let frame = Self { header, bytes };
        frame.check_blocks()?;
        Ok(frame)
    }

    /// Checks that every block begins after the table of blocks and inside the frame.
    fn check_blocks(&self) -> Result<()> {
        if self.header.copied() {
            return Ok(());
        }
        let table = self.header.nbytes.div_ceil(self.header.blocksize) * 4;
        let starts =
            self.bytes.get(HEADER..HEADER + table).ok_or_else(|| damaged("is cut short"))?;
        let first = HEADER + table;
        let sound = starts.as_chunks::<4>().0.iter().all(|raw| {
            usize::try_from(i32::from_le_bytes(*raw))
                .is_ok_and(|start| start >= first && start < self.bytes.len())
        });
        if sound { Ok(()) } else { Err(damaged("has a block outside of itself")) }
    }

    /// Decodes the elements from `first` on into `out`, whose length is a multiple of their size.
    fn get_items(&self, first: usize, out: &mut [u8]) -> Result<()> {
        let typesize = self.header.typesize;
        let count = out.len() / typesize;
        assert_eq!(out.len() % typesize, 0, "whole elements");
        let end = first.checked_add(count).and_then(|end| end.checked_mul(typesize));
        if end.is_none_or(|end| end > self.header.nbytes) {
            return Err(damaged("ends before the array's last value"));
        }
        // SAFETY: `bytes` passed `blosc_cbuffer_validate` with its whole length when it was made
        // and has not changed. `first` and `first + count` times the element size are at most
        // `nbytes`, hence fit a C int, and `blosc_getitem` writes exactly `count` elements of the
        // header's size, which is the length of `out`. The two do not overlap, since one is
        // borrowed mutably. The function keeps no state between calls.
        let decode = || unsafe {
            blosc_src::blosc_getitem(
                self.bytes.as_ptr().cast::<c_void>(),
                first as c_int,
                count as c_int,
                out.as_mut_ptr().cast::<c_void>(),
            )
        };
        let needed = codec::scratch(self.header.blocksize);
        let written = memory::with_room(needed, "decoding a Blosc frame", decode)?;
        match usize::try_from(written) {
            Ok(written) if written == out.len() => Ok(()),
            _ if written == -5 => {
                let codec = CODECS[usize::from(self.header.flags >> 5)];
                Err(Error::unsupported(format!("the Blosc frame uses the codec {codec}"))
                    .with_remedy("write it with lz4 or zstd"))
            }
            _ => Err(damaged(&format!("cannot be decoded (C-Blosc error {written})"))),
        }
    }
}

impl ByteSource for Frame {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let typesize = self.header.typesize;
        let start = usize::try_from(offset).map_err(|_| damaged("is too short"))?;
        let end = start.checked_add(out.len()).ok_or_else(|| damaged("is too short"))?;
        if start % typesize == 0 && end % typesize == 0 {
            return self.get_items(start / typesize, out);
        }
        // The frame's elements differ from the array's: decode the elements around the range, then
        // cut.
        let first = start / typesize;
        let mut around = vec![0; (end.div_ceil(typesize) - first) * typesize];
        self.get_items(first, &mut around)?;
        out.copy_from_slice(&around[start - first * typesize..][..out.len()]);
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

/// A frame in a file, loaded (compressed as it is) when it is first read.
pub(super) struct FrameInFile {
    path: PathBuf,
    offset: u64,
    len: usize,
    frame: OnceLock<Frame>,
}

impl FrameInFile {
    /// The frame with this `header` at `offset`.
    pub fn new(path: &Path, offset: u64, header: &FrameHeader) -> Self {
        Self { path: path.to_owned(), offset, len: header.cbytes, frame: OnceLock::new() }
    }

    fn load(&self) -> Result<&Frame> {
        if let Some(frame) = self.frame.get() {
            return Ok(frame);
        }
        let fail = |error| Error::io(&self.path, "cannot read", error);
        let mut bytes = vec![0; self.len];
        let file = bounded_read::window(&self.path)?;
        file.read_exact_at(&mut bytes, self.offset).map_err(fail)?;
        let frame = Frame::new(bytes)?;
        // Two threads may load it at once; the first one's stays.
        Ok(self.frame.get_or_init(|| frame))
    }
}

impl ByteSource for FrameInFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.load().and_then(|frame| frame.read_at(offset, out)).map_err(|e| e.at(&self.path))
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values of 2 bytes that compress well, but not to nothing.
    fn values(count: usize) -> Vec<u8> {
        (0..count).flat_map(|index| ((index / 3 % 500) as u16).to_le_bytes()).collect()
    }

    fn compress(
        data: &[u8],
        typesize: usize,
        level: c_int,
        shuffle: c_int,
        codec: &std::ffi::CStr,
    ) -> Vec<u8> {
        let mut out = vec![0; data.len() + HEADER];
        // SAFETY: both pointers come with the lengths of their buffers; the name is a C string.
        let len = unsafe {
            blosc_src::blosc_compress_ctx(
                level,
                shuffle,
                typesize,
                data.len(),
                data.as_ptr().cast::<c_void>(),
                out.as_mut_ptr().cast::<c_void>(),
                out.len(),
                codec.as_ptr(),
                4096,
                1,
            )
        };
        out.truncate(usize::try_from(len).unwrap());
        assert!(!out.is_empty());
        out
    }

    fn frames(data: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for codec in [c"blosclz", c"lz4", c"zlib", c"zstd"] {
            for (typesize, level, shuffle) in
                [(2, 5, 1), (2, 5, 2), (2, 5, 0), (8, 9, 1), (1, 0, 0)]
            {
                frames.push(compress(data, typesize, level, shuffle, codec));
            }
        }
        frames
    }

    #[test]
    fn any_piece_of_a_frame_is_read() {
        let data = values(20_000);
        for bytes in frames(&data) {
            let frame = Frame::new(bytes).unwrap();
            for (start, len) in
                [(0, 40_000), (0, 1), (4095, 3), (39_990, 10), (12_345, 9_999), (7, 0)]
            {
                let mut out = vec![0; len];
                frame.read_at(start as u64, &mut out).unwrap();
                assert_eq!(out, data[start..start + len]);
            }
            assert!(frame.read_at(39_999, &mut [0; 2]).is_err());
            assert!(frame.read_at(u64::MAX, &mut [0; 2]).is_err());
        }
    }

    #[test]
    fn a_frame_cut_anywhere_is_an_error() {
        let bytes = compress(&values(5000), 2, 5, 1, c"lz4");
        for len in 0..bytes.len() {
            assert!(Frame::new(bytes[..len].to_vec()).is_err());
        }
    }

    #[test]
    fn header_contradictions_are_found() {
        let sound = compress(&values(5000), 2, 5, 1, c"lz4");
        for (at, value) in
            [(0, 1), (3, 0), (3, 3), (6, 255), (7, 255), (8, 1), (11, 255), (15, 127)]
        {
            let mut bytes = sound.clone();
            bytes[at] = value;
            assert!(Frame::new(bytes).is_err(), "byte {at} = {value}");
        }
    }

    #[test]
    fn blocks_of_broken_elements_are_refused() {
        // The data are whole elements of 3 bytes, but the blocks, whose size is a power of two, are
        // not.
        let mut bytes = compress(&values(3 << 17), 2, 5, 1, c"zstd");
        let block_len = FrameHeader::parse(bytes.first_chunk().unwrap()).unwrap().block_len();
        assert!(block_len.is_power_of_two(), "{block_len}");
        bytes[3] = 3;
        assert!(Frame::new(bytes).is_err());
    }

    proptest! {
        #[test]
        fn damaged_frames_never_crash(
            which in 0usize..20,
            changes in prop::collection::vec((0usize..4000, any::<u8>()), 1..5),
            in_table in any::<bool>(),
        ) {
            let mut bytes = frames(&values(5000)).swap_remove(which);
            for (at, value) in changes {
                let at = if in_table { at % 40 } else { at };
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Ok(frame) = Frame::new(bytes) {
                let mut out = vec![0; 2000];
                for start in [0, 3001, 8000] {
                    let _ = frame.read_at(start, &mut out);
                }
            }
        }
    }
}
