//! Decodes the chunks of a batch on a GPU.
//!
//! Chunks are copied to the device as they are stored, and a kernel decodes them there, each to its place in the batch. It
//! decodes LZ4 frames with elements of 1, 2 or 4 bytes, with either shuffle filter or none; [`supports`] says which codecs
//! these are. Other frames are left to the CPU: the entropy coding of zstd and zlib, and the search windows of blosclz, have no
//! form in which a warp could decode them fast enough to be worth a copy.
//!
//! Everything that a frame says is checked, so a damaged frame changes nothing but the place of its own chunk, and gives a
//! [`Status`]. Checksums of chunks are not compared here: who copies the chunks reads their bytes anyway.
//!
//! | file | part |
//! |---|---|
//! | `decode.cu`, `decode.ptx` | the kernel `decode_frames`, as source and as PTX for the driver |
//! | `arguments.rs` | its arguments, with their memory layout: which chunk belongs where |
//! | `blosc.rs` | its work done by C-Blosc, for tests of what surrounds it |
//!
//! `scripts/make_kernels` compiles it. Without a GPU, tests compile it as C++ and compare it with C-Blosc.

mod arguments;
#[cfg(test)]
mod blosc;

pub use arguments::{
    CHUNK_BYTES, Chunk, Decode, FRAME_HEADER, Status, THREADS, block_bytes, copied_frame, supports,
};
#[cfg(test)]
pub(crate) use blosc::decode_by_blosc;
