//! Compresses and decompresses one chunk. For Blosc, with C-Blosc 1.21, through the three calls
//! that are needed.
//!
//! [`hsipack_format::codec`] describes a stored chunk. C-Blosc allocates working memory without
//! checking for failure, so these calls are in the crate that knows how much memory is available.

use std::ffi::CString;
use std::os::raw::{c_char, c_void};

use hsipack_format::codec::{BLOSC_HEADER, CHECKSUM_LEN, MAX_CHUNK, append_checksum_from};
use hsipack_format::{Codec, Compressor, Error, Opt, Result, Shuffle, remedy};

use crate::memory;

/// The largest block size that C-Blosc chooses by itself.
const LARGEST_BLOCK: usize = 1 << 20;

/// Appends the compressed chunk (frame and checksum) to `out` and returns its length in bytes.
///
/// # Errors
/// If `chunk` is larger than [`MAX_CHUNK`], or Blosc refuses the settings.
pub fn encode(codec: &Codec, chunk: &[u8], out: &mut Vec<u8>) -> Result<usize> {
    if chunk.len() > MAX_CHUNK {
        return Err(Error::unsupported(format!(
            "a chunk of {} bytes is more than the 2 GiB a Blosc frame holds",
            chunk.len()
        ))
        .with_remedy(remedy!["choose a smaller ", Opt::Chunk]));
    }
    let start = out.len();
    let need = chunk.len() + BLOSC_HEADER + CHECKSUM_LEN;
    if out.capacity() - start < need {
        // At least double the capacity, because chunks are appended one by one.
        memory::room(out, (start + need).max(2 * start), "compressed chunks")?;
    }
    let name = CString::new(codec.compressor.name()).expect("names have no NUL");
    // Not all of the spare capacity: the frame of a chunk that hardly compresses would depend on how much there is.
    let room = chunk.len() + BLOSC_HEADER;
    // SAFETY: `chunk` is readable for its length; the spare capacity behind `start`, of which there are at least `need` bytes, is
    // writable for `room` bytes; the name is NUL-terminated; the context call uses no global state.
    let compress = || unsafe {
        blosc_src::blosc_compress_ctx(
            codec.level.into(),
            shuffle_code(codec.shuffle),
            codec.typesize.into(),
            chunk.len(),
            chunk.as_ptr().cast::<c_void>(),
            out.as_mut_ptr().add(start).cast::<c_void>(),
            room,
            name.as_ptr().cast::<c_char>(),
            codec.blocksize,
            1,
        )
    };
    let block = codec.blocksize.max(LARGEST_BLOCK).min(chunk.len());
    let written = memory::with_room(scratch(block), "compressing a chunk", compress)?;
    let written = usize::try_from(written).ok().filter(|n| *n > 0).ok_or_else(|| {
        Error::unsupported(format!(
            "Blosc cannot compress with {} level {} (code {written})",
            codec.compressor.name(),
            codec.level
        ))
    })?;
    // SAFETY: C-Blosc initialised `written` bytes behind `start`, no more than the capacity.
    unsafe { out.set_len(start + written) };
    append_checksum_from(start, out);
    Ok(written + CHECKSUM_LEN)
}

/// Blosc's number for a filter.
const fn shuffle_code(shuffle: Shuffle) -> i32 {
    match shuffle {
        Shuffle::None => 0,
        Shuffle::Byte => 1,
        Shuffle::Bit => 2,
    }
}

/// The block size from the header of a frame.
fn block_len(frame: &[u8]) -> usize {
    let field = frame.get(8..).and_then(|tail| tail.first_chunk());
    field.map_or(0, |field| u32::from_le_bytes(*field) as usize)
}

/// The most memory that C-Blosc allocates without checking, for a frame with blocks of `block`
/// bytes: two blocks, and four bytes for each byte of an element. For use with
/// [`memory::with_room`].
pub fn scratch(block: usize) -> usize {
    2 * block + 4 * usize::from(u8::MAX)
}

/// Decompresses a chunk without its checksum into `out`, which it must fill exactly.
///
/// # Errors
/// [`ErrorKind::Damaged`](hsipack_format::ErrorKind::Damaged) if the chunk is invalid or has
/// another size.
pub fn decode(codec: &Codec, frame: &[u8], out: &mut [u8]) -> Result<()> {
    match codec.compressor {
        Compressor::BloscLz
        | Compressor::Lz4
        | Compressor::Lz4Hc
        | Compressor::Zlib
        | Compressor::Zstd => decode_frame(frame, out),
    }
}

/// Decompresses one Blosc-1 frame into `out`. It must fill `out` exactly.
///
/// # Errors
/// [`ErrorKind::Damaged`](hsipack_format::ErrorKind::Damaged) if the frame is invalid or has
/// another size.
pub fn decode_frame(frame: &[u8], out: &mut [u8]) -> Result<()> {
    let mut size = 0usize;
    // SAFETY: `frame` is readable for its length; the call only looks at the header.
    let valid = unsafe {
        blosc_src::blosc_cbuffer_validate(frame.as_ptr().cast::<c_void>(), frame.len(), &mut size)
    };
    if valid < 0 {
        return Err(Error::damaged("not a Blosc frame"));
    }
    if size != out.len() {
        return Err(Error::damaged(format!("a chunk holds {size} bytes instead of {}", out.len())));
    }
    // SAFETY: the header agrees with the length of `frame` (validated above); `out` is writable for
    // its length, which is what C-Blosc is told; the context call uses no global state.
    let decompress = || unsafe {
        blosc_src::blosc_decompress_ctx(
            frame.as_ptr().cast::<c_void>(),
            out.as_mut_ptr().cast::<c_void>(),
            out.len(),
            1,
        )
    };
    let needed = scratch(block_len(frame).min(size));
    let written = memory::with_room(needed, "decompressing a chunk", decompress)?;
    if usize::try_from(written) == Ok(out.len()) {
        Ok(())
    } else {
        Err(Error::damaged(format!("Blosc cannot decompress a chunk (code {written})")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::DType;
    use hsipack_format::codec::verify;
    use proptest::prelude::*;

    fn codecs() -> impl Iterator<Item = Codec> {
        Compressor::ALL.into_iter().flat_map(|compressor| {
            Shuffle::ALL.into_iter().flat_map(move |shuffle| {
                [0, 1, 5, 9].map(move |level| Codec::new(compressor, level, shuffle, DType::F16))
            })
        })
    }

    #[test]
    fn every_codec_gives_back_what_it_took() {
        let chunk: Vec<u8> =
            (0..40_000u32).flat_map(|i| ((i * i) as u16 >> 3).to_le_bytes()).collect();
        for codec in codecs() {
            let mut stored = vec![1, 2, 3];
            let len = encode(&codec, &chunk, &mut stored).unwrap();
            assert_eq!(stored.len(), 3 + len);
            let mut back = vec![0; chunk.len()];
            decode(&codec, verify(&stored[3..]).unwrap(), &mut back).unwrap();
            assert_eq!(back, chunk, "{codec:?}");
        }
    }

    #[test]
    fn frames_do_not_depend_on_the_memory_that_is_there() {
        // Noise with some order, in several blocks: some of its streams become longer.
        let noise =
            |i: u32| i.wrapping_mul(2_654_435_761).rotate_left(i % 31).wrapping_mul(i | 1) >> 9;
        for kept in 0..8 {
            let chunk: Vec<u8> = (0..150_000u32)
                .flat_map(|i| ((noise(i) as u16) & (u16::MAX << kept)).to_le_bytes())
                .collect();
            for codec in codecs() {
                let codec = Codec { blocksize: 64 << 10, ..codec };
                let (mut exact, mut roomy) = (Vec::new(), Vec::with_capacity(4 * chunk.len()));
                exact.reserve_exact(chunk.len() + BLOSC_HEADER + CHECKSUM_LEN);
                encode(&codec, &chunk, &mut exact).unwrap();
                encode(&codec, &chunk, &mut roomy).unwrap();
                assert!(exact == roomy, "{codec:?}, {kept} bits less");
                assert!(exact.len() <= chunk.len() + BLOSC_HEADER + CHECKSUM_LEN);
            }
        }
    }

    proptest! {
        #[test]
        fn a_damaged_frame_is_an_error_or_still_the_right_size(
            seed in any::<u16>(), at in any::<prop::sample::Index>(), flip in 1u8..
        ) {
            let chunk: Vec<u8> = (0..3000u32).map(|i| (i.wrapping_mul(u32::from(seed)) >> 7) as u8).collect();
            let codec = Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::F16);
            let mut stored = Vec::new();
            encode(&codec, &chunk, &mut stored).unwrap();
            let at = at.index(stored.len());
            stored[at] ^= flip;
            prop_assert!(verify(&stored).is_err());
            let mut back = vec![0; chunk.len()];
            let _ = decode_frame(&stored[..stored.len() - CHECKSUM_LEN], &mut back);
        }

        #[test]
        fn arbitrary_bytes_never_panic(frame in prop::collection::vec(any::<u8>(), 0..200), len in 0usize..500) {
            let _ = verify(&frame);
            let _ = decode_frame(&frame, &mut vec![0; len]);
        }
    }
}
