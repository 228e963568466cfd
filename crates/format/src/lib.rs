//! The hsipack dataset: what is on disk and what it means.
//!
//! A packed dataset is a Zarr v3 store. Cubes of one shape form a *stack*: a group with a 4-D
//! `image` array (sample, y, x, band), masks beside it, and the wavelengths. Arrays are cut into
//! *chunks*, each a Blosc frame with a checksum. Chunks are gathered into *shard* files with an
//! index at their end. `samples.jsonl` describes every sample. `docs/format.md` has the whole
//! layout with an example.
//!
//! | module | contents |
//! |---|---|
//! | `cube`, `dtype` | shapes and element types |
//! | [`codec`] | a stored chunk: a Blosc frame and its CRC-32C |
//! | [`grid`] | which chunk of which shard holds which pixels |
//! | [`shard`] | the index of a shard file |
//! | [`processor`] | whether the processor can run this build |
//! | [`zarr`] | `zarr.json` |
//! | [`text`] | text from files: decoded, and made safe to display |
//! | [`checksums`] | `SHA256SUMS` |
//! | [`samples`] | `samples.jsonl` |
//! | [`geo`] | where the pixels of a cube lie on Earth |
//! | [`metadata`] | the attributes of a dataset and its arrays |
//! | [`statistics`] | recorded per-band statistics |
//! | `ratio` | the resolution of an array beside the image |
//! | [`random`] | random numbers that never change |
//! | [`spectrum`] | normalising a pixel's spectrum |
//! | [`spectral_response`] | resampling spectra to the bands of another sensor |
//! | [`mask`] | values of masks: class ids and boolean layers |
//! | [`names`] | names of option values |
//! | `arguments` | feature `clap`: option values as they are typed on a command line |
//! | `error`, [`remedy`](mod@remedy) | what went wrong and what to do about it, as the command line or Python spells it |
//!
//! The crate is pure: it turns bytes into values and back. It opens no files, starts no threads and
//! makes no system calls. `hsipack_store` does that, and it compresses and decompresses chunks.
//!
//! ```
//! use hsipack_format::{CubeShape, Grid, Tile, codec};
//!
//! // Cubes of 480 × 640 pixels × 100 bands, in chunks of 16 whole rows, 8 cubes in a shard.
//! let grid = Grid::new(CubeShape::new(480, 640, 100), Tile { rows: 16, columns: 640 }, 8)?;
//! assert_eq!((grid.locate(9), grid.region(2).rows), ((1, 30), 32..48));
//!
//! let mut stored = b"a compressed chunk".to_vec();
//! codec::append_checksum(&mut stored);
//! assert_eq!(codec::verify(&stored)?, b"a compressed chunk");
//! # Ok::<(), hsipack_format::Error>(())
//! ```
#![deny(missing_docs)]

#[cfg(target_endian = "big")]
compile_error!(
    "hsipack stores little-endian values and views them in place; big-endian machines are not supported"
);

#[cfg(feature = "clap")]
pub mod arguments;
pub mod checksums;
pub mod codec;
pub mod colors;
pub mod crc;
mod cube;
mod dtype;
mod error;
pub mod geo;
pub mod grid;
pub mod mask;
pub mod metadata;
pub mod names;
pub mod processor;
pub mod random;
mod ratio;
pub mod remedy;
pub mod samples;
pub mod shard;
pub mod spectral_response;
pub mod spectrum;
pub mod statistics;
pub mod text;
pub mod zarr;

pub use codec::{Codec, Compressor, Shuffle};
pub use colors::Color;
pub use cube::CubeShape;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use geo::Geo;
pub use grid::{Grid, Tile};
pub use mask::MaskValue;
pub use ratio::Ratio;
pub use remedy::{Command, Opt, Remedy};
pub use samples::{Sample, Samples};
pub use spectrum::SpectralNorm;
