//! The kernels that can be launched: their source is compiled as C++, in which a loop in random order takes the place of a
//! device's threads. There is one, `decode_frames` of `decode.cu`.

use std::ffi::c_uint;

use crate::memory::DeviceRange;

/// The image of the module that holds the kernel, as programs load it.
pub const IMAGE: &str = include_str!("../../../read/src/device/decode/decode.ptx");
/// The kernel's name.
pub const NAME: &str = "decode_frames";
/// Threads of a block.
pub const THREADS: c_uint = 64;

/// How many threads a launch asks for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
}

/// `Decode` of `decode.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Decode {
    pub chunks: u32,
    pub slots: u32,
    pub scratch: u64,
}

/// `Chunk` of `decode.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Chunk {
    pub frame: u64,
    pub into: u64,
    pub pitch: u64,
    pub frame_bytes: u32,
    bytes: u32,
    row_bytes: u32,
    first_row: u32,
    pub rows: u32,
    remaining: u32,
    pub width: u32,
    unused: u32,
}

/// A launch, and the memory from each of its addresses to the end of the allocation.
pub struct Launch {
    pub decode: Decode,
    pub chunks: DeviceRange,
    pub compressed: DeviceRange,
    pub batch: DeviceRange,
    pub scratch: DeviceRange,
    pub statuses: DeviceRange,
}

/// Addresses of the memory of a launch.
pub struct Memory {
    pub compressed: *const u8,
    pub batch: *mut u8,
    pub scratch: *mut u8,
}

impl Chunk {
    /// The chunks of a table.
    pub fn all(bytes: &[u8]) -> Vec<Self> {
        let size = size_of::<Self>();
        let chunk = |bytes: &[u8]| {
            // SAFETY: there are as many bytes, and every value of them is a chunk.
            unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() }
        };
        bytes.chunks_exact(size).map(chunk).collect()
    }

    /// The first byte of the batch that is not written to any more; `None` if there is no such number.
    pub fn end(&self) -> Option<u64> {
        let rows = u64::from(self.rows).saturating_sub(1).checked_mul(self.pitch)?;
        self.into.checked_add(rows)?.checked_add(self.width.into())
    }
}

/// Runs the kernel.
///
/// # Safety
/// The memory must be as large as the chunks and `decode` say.
#[cfg(kernels)]
pub unsafe fn run(
    decode: &Decode,
    chunks: &[Chunk],
    memory: &Memory,
    statuses: &mut [u32],
    order: u64,
) {
    unsafe extern "C" {
        fn decode_order(seed: u64);
        fn decode_frames(
            decode: *const Decode,
            chunks: *const Chunk,
            compressed: *const u8,
            batch: *mut u8,
            scratch: *mut u8,
            statuses: *mut u32,
        );
    }
    let Memory { compressed, batch, scratch } = *memory;
    let (chunks, statuses) = (chunks.as_ptr(), statuses.as_mut_ptr());
    // SAFETY: the caller is responsible for the memory.
    unsafe {
        decode_order(order);
        decode_frames(decode, chunks, compressed, batch, scratch, statuses);
    }
}

/// There is no kernel, so no module was loaded, and nothing could be launched.
///
/// # Safety
/// As above.
#[cfg(not(kernels))]
pub unsafe fn run(_: &Decode, _: &[Chunk], _: &Memory, _: &mut [u32], _: u64) {
    unreachable!("no module was loaded");
}
