//! The hsipack dataset: what is on disk, and what it means.
//!
//! A packed dataset is a Zarr v3 store. Cubes of one shape form a *stack*: a group with a 4-D `image`
//! array (sample, y, x, band), masks beside it, and the wavelengths. Arrays are cut into *chunks*, each a
//! Blosc frame with a checksum, and chunks are gathered into *shard* files with an index at their end.
//! `samples.jsonl` says what every sample is. `docs/format.md` has the whole layout with an example.
//!
//! | module | what it knows |
//! |---|---|
//! | `cube`, `dtype` | shapes and element types |
//! | [`codec`] | one chunk: values ↔ Blosc frame + CRC-32C |
//! | [`grid`] | which chunk of which shard holds which pixels |
//! | [`mapping`] | memory maps whose I/O errors are errors |
//! | [`shard`] | shard files and their index |
//! | [`processor`] | whether the processor can run this build |
//! | [`zarr`] | `zarr.json` |
//! | [`small`] | metadata files, read whole, regular ones within bounds only |
//! | [`folder`] | a dataset's folder, which appends exchange while others read |
//! | [`memory`] | how much memory this process can have; asking for it |
//! | [`threads`] | starting threads; a refusal is an error |
//! | [`text`] | names from files, as they may be shown |
//! | [`checksums`] | `SHA256SUMS` |
//! | [`samples`] | `samples.jsonl` |
//! | [`dataset`] | a whole dataset, opened |
//! | [`spectrum`] | normalising a pixel's spectrum |
//! | `error`, [`remedy`](mod@remedy) | what went wrong, and what to do about it, however a surface spells it |
//!
//! ```
//! use hsipack_format::{Codec, Compressor, Shuffle, codec};
//!
//! let codec = Codec { compressor: Compressor::Lz4, level: 5, shuffle: Shuffle::Byte, typesize: 2, blocksize: 0 };
//! let chunk = [1u8, 0, 2, 0, 3, 0, 4, 0];
//! let mut stored = Vec::new();
//! codec.encode(&chunk, &mut stored)?;
//! let mut back = [0; 8];
//! codec::decode_frame(codec::verify(&stored)?, &mut back)?;
//! assert_eq!(back, chunk);
//! # Ok::<(), hsipack_format::Error>(())
//! ```
#![deny(missing_docs)]

#[cfg(target_endian = "big")]
compile_error!(
    "hsipack stores little-endian values and views them in place; big-endian machines are not supported"
);

pub mod checksums;
pub mod codec;
mod crc;
mod cube;
pub mod dataset;
mod dtype;
mod error;
pub mod folder;
pub mod grid;
pub mod mapping;
pub mod memory;
pub mod processor;
pub mod remedy;
pub mod samples;
pub mod shard;
pub mod small;
pub mod spectrum;
pub mod text;
pub mod threads;
pub mod zarr;

pub use codec::{Codec, Compressor, Shuffle};
pub use cube::CubeShape;
pub use dataset::{Dataset, Stack};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use grid::{Grid, Tile};
pub use remedy::{Command, Opt, Remedy};
pub use samples::{Sample, Samples};
pub use spectrum::SpectralNorm;
