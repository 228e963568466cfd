//! Decodes the chunks of a batch on a GPU, and gathers windows from cubes in its memory.
//!
//! Chunks are copied to the device as they are stored, and a kernel decodes them there, each to its
//! place in the batch. It decodes LZ4 frames with elements of 1, 2 or 4 bytes, with either shuffle
//! filter or none; [`supports`] says which codecs these are. Integers become floats on the way
//! ([`Floats`]), with the same bits as on the host. Other frames are left to the CPU: the entropy
//! coding of zstd and zlib, and the search windows of blosclz, have no form in which a warp could
//! decode them fast enough to be worth a copy.
//!
//! Everything that a frame says is checked, so a damaged frame changes nothing but the place of its
//! own chunk, and gives a [`Status`]. Checksums of chunks are not compared here: who copies the
//! chunks reads their bytes anyway.
//!
//! | file | part |
//! |---|---|
//! | `decode.cu`, `decode.ptx` | the kernel `decode_frames`, as source and as PTX for the driver |
//! | `gather.cu`, `gather.ptx` | the kernel `gather_windows`, likewise |
//! | `threads.h` | the threads of a kernel, on a GPU and in loops on the host |
//! | `arguments.rs` | arguments of `decode_frames`, with their memory layout: which chunk belongs where |
//! | `gather.rs` | arguments of `gather_windows`, likewise |
//! | `blosc.rs` | their work done by C-Blosc and by plain loops, for tests of what surrounds them |
//!
//! `scripts/dev/make_kernels.py` compiles them. Without a GPU, tests compile them as C++ and
//! compare them with C-Blosc, and with a plain computation.

mod arguments;
#[cfg(test)]
mod blosc;
mod gather;

pub(crate) use arguments::slots_of;
pub use arguments::{
    CHUNK_BYTES, Chunk, Decode, FRAME_HEADER, Floats, STATUS_BYTES, Status, THREADS, block_bytes,
    copied_frame, supports,
};
#[cfg(test)]
pub(crate) use blosc::{decode_by_blosc, gather_by_loops};
pub use gather::{Gather, GatherWindow, WINDOW_BYTES};
