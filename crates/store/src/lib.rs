//! Where the bytes of packed datasets come from and go to, and what all crates above ask of the system for it.
//!
//! `hsipack_format` knows what bytes mean and touches nothing; this crate opens files, maps them, and decodes what lies in
//! them. Whoever packs, validates or trains stands on it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`dataset`] | a packed dataset, opened and checked; its arrays, by chunks and rows |
//! | [`folder`] | a dataset's folder, which appends exchange while others read |
//! | [`shard`] | shard files, open for reading |
//! | [`rows`] | taking rows of a cube out of its chunks |
//! | [`codec`] | one chunk, compressed and decompressed |
//! | [`stores`] | where a loader's bytes come from: memory map, pread, O_DIRECT, servers, at a limited rate |
//! | [`output`] | files and objects that are written: they appear whole, or not at all |
//! | [`remote`] | datasets on servers |
//! | [`local_cache`] | a cache on the local disk for these |
//! | [`mapping`] | memory maps whose I/O errors are errors |
//! | `samples.rs` | the list of samples, by `samples.index` or by its text |
//! | [`small`] | metadata files, read whole, regular ones within bounds only |
//! | [`archive`] | what lies in zip and tar archives |
//! | [`mirror`] | objects of servers, and members of archives, as files for readers of cubes |
//! | [`window`] | a stretch of a file that is read like a file |
//! | [`memory`] | how much memory this process can have; asking for it |
//! | [`stopping`] | waiting for a server that ends when the reader is wanted no more |
//! | [`threads`] | starting threads; a refusal is an error |
//! | `writeback.rs` | bringing a file to the disk while it is written |
//!
//! ```
//! use hsipack_format::{Codec, Compressor, Shuffle, codec::verify};
//! use hsipack_store::codec;
//!
//! let settings = Codec { compressor: Compressor::Lz4, level: 5, shuffle: Shuffle::Byte, typesize: 2, blocksize: 0 };
//! let chunk = [1u8, 0, 2, 0, 3, 0, 4, 0];
//! let mut stored = Vec::new();
//! codec::encode(&settings, &chunk, &mut stored)?;
//! let mut back = [0; 8];
//! codec::decode_frame(verify(&stored)?, &mut back)?;
//! assert_eq!(back, chunk);
//! # Ok::<(), hsipack_format::Error>(())
//! ```
#![deny(missing_docs)]

pub mod archive;
pub mod codec;
pub mod dataset;
pub mod folder;
pub mod local_cache;
pub mod mapping;
pub mod memory;
mod metadata;
pub mod mirror;
pub mod output;
pub mod process;
pub mod remote;
pub mod rows;
mod samples;
pub mod shard;
pub mod small;
pub mod stopping;
pub mod stores;
pub mod threads;
pub mod window;
mod writeback;

pub use dataset::{Dataset, Stack, is_packed};
