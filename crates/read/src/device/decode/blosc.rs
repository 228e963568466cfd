//! The work of the kernels, done by C-Blosc and by plain loops: for tests of what surrounds the
//! kernels.

use hsipack_store::codec::decode_frame;

use super::{Chunk, Decode, Gather, GatherWindow};

/// Decodes all chunks.
///
/// # Safety
/// The memory must be as large as the chunks say, and nobody else may use it meanwhile.
pub(crate) unsafe fn decode_by_blosc(
    decode: &Decode,
    chunks: *const Chunk,
    compressed: *const u8,
    batch: *mut u8,
    statuses: *mut u32,
) {
    for number in 0..(decode.blocks() / decode.slots()) as usize {
        // SAFETY: there are as many chunks, whose frames and places lie in the memory.
        unsafe {
            let chunk = chunks.add(number).read_unaligned();
            let (frame, len) = chunk.frame();
            let frame = std::slice::from_raw_parts(compressed.add(frame as usize), len as usize);
            let mut values = vec![0; chunk.decoded_bytes() as usize];
            if decode_frame(frame, &mut values).is_err() {
                statuses.add(number).write_unaligned(1);
                continue;
            }
            if let Some(conversion) = decode.floats() {
                let mut floats = vec![0; conversion.converted_bytes(values.len())];
                conversion.run(&values, &mut floats);
                values = floats;
            }
            for (row, to) in chunk.kept() {
                let row = &values[row];
                std::ptr::copy_nonoverlapping(row.as_ptr(), batch.add(to as usize), row.len());
            }
        }
    }
}

/// Gathers all windows, which must lie inside their cubes and have all bands.
///
/// # Safety
/// The memory must be as large as the windows say, and nobody else may use it meanwhile.
pub(crate) unsafe fn gather_by_loops(
    gather: &Gather,
    windows: *const GatherWindow,
    cubes: *const u8,
    batch: *mut u8,
) {
    for number in 0..gather.windows() {
        // SAFETY: there are as many windows, whose cubes and places lie in the memory.
        unsafe {
            let window = windows.add(number).read_unaligned();
            for (from, to, bytes) in window.inner_rows() {
                std::ptr::copy_nonoverlapping(
                    cubes.add(from as usize),
                    batch.add(to as usize),
                    bytes,
                );
            }
        }
    }
}
