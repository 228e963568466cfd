//! Reads and writes the bytes of packed datasets, and makes the system calls that all other crates
//! need for it.
//!
//! `hsipack_format` knows what bytes mean, but opens no files. This crate opens files, maps them
//! and decodes their content. Packing, validating and training all use it.
//!
//! | module | contents |
//! |---|---|
//! | [`dataset`] | a packed dataset, opened and checked; its arrays, read by chunks and rows |
//! | [`folder`] | a dataset's folder, which an append exchanges while other processes read |
//! | [`shard`] | shard files, open for reading |
//! | [`rows`] | reading rows of a cube from its chunks |
//! | [`codec`] | one chunk, compressed and decompressed |
//! | [`blocks`] | one chunk, decompressed block by block for readers that convert its values |
//! | [`stores`] | how a loader reads bytes: memory map, pread, O_DIRECT, servers, at a limited rate |
//! | [`output`] | writing files and objects: they appear complete, or not at all |
//! | [`remote`] | datasets on servers |
//! | [`local_cache`] | a cache on the local disk for datasets on servers |
//! | [`mapping`] | memory maps that report I/O errors instead of crashing |
//! | `samples.rs` | the list of samples, from `samples.index` or from its text |
//! | [`bounded_read`] | reading whole metadata files: only regular files up to a maximum size |
//! | [`archive`] | the content of zip and tar archives |
//! | [`mirror`] | objects on servers and members of archives, as files for readers of cubes |
//! | [`window`] | a part of a file that is read like a file |
//! | [`paths`] | paths that stay valid when the program changes its working directory |
//! | [`memory`] | how much memory this process can have; allocating it |
//! | [`pages`] | large memory, which is made ready ahead of its use |
//! | [`processors`] | how busy the processors of this machine are |
//! | [`stopping`] | ending a wait for a server early, when the reader is no longer needed |
//! | [`threads`] | starting threads; if the system refuses, that is an error |
//! | `writeback.rs` | flushing a file to the disk while it is being written; writing in the background |
//!
//! ```
//! use hsipack_format::{Codec, Compressor, DType, Shuffle, codec::verify};
//! use hsipack_store::codec;
//!
//! let settings = Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::F16);
//! let chunk = [1u8, 0, 2, 0, 3, 0, 4, 0];
//! let mut stored = Vec::new();
//! codec::encode(&settings, &chunk, &mut stored)?;
//! let mut back = [0; 8];
//! codec::decode(&settings, verify(&stored)?, &mut back)?;
//! assert_eq!(back, chunk);
//! # Ok::<(), hsipack_format::Error>(())
//! ```
#![deny(missing_docs)]

pub mod archive;
pub mod blocks;
pub mod bounded_read;
pub mod codec;
pub mod dataset;
pub mod folder;
pub mod local_cache;
pub mod mapping;
pub mod memory;
mod metadata;
pub mod mirror;
pub mod output;
pub mod pages;
pub mod paths;
pub mod process;
pub mod processors;
mod regular_file;
pub mod remote;
pub mod rows;
mod samples;
pub mod shard;
mod span_pool;
pub mod stopping;
pub mod stores;
pub mod threads;
mod throttle;
pub mod window;
mod writeback;

pub use dataset::{Dataset, Stack, is_packed};
