//! The filter "deflate" (gzip) for libhdf5, limited to the size of a chunk.
//!
//! libhdf5's own filter doubles its memory again and again while the stream goes on: a few hundred
//! KB in a file can take a few hundred MB. This one allocates the memory of one chunk, and a stream
//! that is longer is an error.

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;

use flate2::{Decompress, FlushDecompress, Status};
use hdf5_sys::h5::{H5allocate_memory, H5free_memory};
use hdf5_sys::h5z::{H5Z_CLASS_T_VERS, H5Z_FILTER_DEFLATE, H5Z_FLAG_REVERSE, H5Z_class2_t};

/// Bytes that other filters (checksums) may add to a chunk before it is compressed.
const EXTRA: usize = 64;

unsafe extern "C" {
    /// Like `H5Zregister`, which refuses to replace libhdf5's own filters. `H5Z_register` is not
    /// part of libhdf5's public interface, but of the library that is built in: without it, the
    /// program could not be linked.
    fn H5Z_register(class: *const H5Z_class2_t) -> c_int;
}

thread_local! {
    /// The size of a chunk, in bytes, of the dataset that this thread reads.
    static CHUNK: Cell<usize> = const { Cell::new(0) };
}

/// Runs `read`, which reads a dataset whose decoded chunks have `bytes` bytes.
pub(super) fn with_chunks_of<T>(bytes: usize, read: impl FnOnce() -> T) -> T {
    let before = CHUNK.replace(bytes);
    let result = read();
    CHUNK.set(before);
    result
}

/// Makes libhdf5 use this filter.
///
/// # Safety
/// libhdf5 must be initialised, and no other thread may be in it.
pub(super) unsafe fn register() {
    let class = H5Z_class2_t {
        version: H5Z_CLASS_T_VERS as _,
        id: H5Z_FILTER_DEFLATE,
        encoder_present: 0,
        decoder_present: 1,
        name: c"deflate".as_ptr(),
        can_apply: None,
        set_local: None,
        filter: Some(filter),
    };
    // SAFETY: libhdf5 copies the class, whose name and function live as long as the process, over that of its own
    // filter. If it refused it, its own would stay.
    unsafe { H5Z_register(&raw const class) };
}

/// Replaces the `len` bytes in `buffer`, which has room for `room`, by the inflated bytes. Returns
/// their length, or 0 for an error, as the interface of libhdf5's filters requires.
unsafe extern "C" fn filter(
    flags: c_uint,
    _: usize,
    _: *const c_uint,
    len: usize,
    room: *mut usize,
    buffer: *mut *mut c_void,
) -> usize {
    if flags & H5Z_FLAG_REVERSE == 0 {
        return 0; // This filter only decompresses.
    }
    // SAFETY: libhdf5 gives valid pointers to the buffer and to its size; the size is at least that of a chunk,
    // unless another filter came before.
    let (input, size) = unsafe { (*buffer, *room) };
    let most = size.max(len).max(CHUNK.get()).saturating_add(EXTRA);
    // SAFETY: the function gives `most` bytes, or null; the memory is libhdf5's, as it has to be.
    let output = unsafe { H5allocate_memory(most, false as _) };
    if output.is_null() {
        return 0;
    }
    // SAFETY: `input` has `len` bytes that libhdf5 has filled, `output` has `most` that nobody has read, and
    // the two do not overlap; both live until the end of this function.
    let inflated = unsafe {
        inflate(
            std::slice::from_raw_parts(input.cast(), len),
            std::slice::from_raw_parts_mut(output.cast(), most),
        )
    };
    let Some(inflated) = inflated else {
        // SAFETY: allocated above, and given to nobody.
        unsafe { H5free_memory(output) };
        return 0;
    };
    // SAFETY: both pointers are libhdf5's and valid; a filter that succeeds frees the old buffer.
    unsafe {
        H5free_memory(input);
        *buffer = output;
        *room = most;
    }
    inflated
}

/// Inflates a whole zlib stream; `None` if it is damaged, or is longer than `output`.
fn inflate(input: &[u8], output: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let mut stream = Decompress::new(true);
    loop {
        let (read, written) = (stream.total_in() as usize, stream.total_out() as usize);
        let status = stream
            .decompress_uninit(&input[read..], &mut output[written..], FlushDecompress::None)
            .ok()?;
        if status == Status::StreamEnd {
            return Some(stream.total_out() as usize);
        }
        if (stream.total_in() as usize, stream.total_out() as usize) == (read, written) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_stream_is_inflated_as_far_as_there_is_room() {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), Default::default());
        encoder.write_all(&[7; 10_000]).unwrap();
        let bytes = encoder.finish().unwrap();
        let into = |bytes: &[u8], room: usize| {
            let mut output = vec![MaybeUninit::new(0); room];
            inflate(bytes, &mut output)
        };
        assert_eq!(into(&bytes, 10_000), Some(10_000));
        assert_eq!(into(&bytes, 20_000), Some(10_000));
        assert_eq!(into(&bytes, 9_999), None);
        assert_eq!(into(&bytes[..bytes.len() - 1], 10_000), None);
        assert_eq!(into(b"no zlib stream", 10_000), None);
    }
}
