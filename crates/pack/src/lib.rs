//! From cubes in the files of cameras, satellites and benchmarks to a packed dataset, and back to trust
//! in it: source readers, conversion, validation.
//!
//! ```text
//! cube file → source → cube rows → calibrate/scale → fp16 → chunk → compress → shard → index → commit
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`source`] | reads cubes, a folder or file a format |
//! | [`array_geo`] | where the pixels of a program's array lie |
//! | [`input`], [`table`] | what the user typed, and tables, become a list of cubes |
//! | [`convert`] | plans and runs a conversion |
//! | [`validate`], [`repair`] | proves a packed dataset intact, and mends it |
//! | [`split`] | labelled pixels divided among training, validation and test |
//! | [`add_mask`] | masks added to a packed dataset |
//! | [`fingerprint`] | tells whether a source changed |
//! | [`info`] | what is known about a cube or a dataset |
//! | [`precision`] | how many mantissa bits values need, and rounding to so many |
//! | [`preview`] | a picture of a cube or a dataset |
//! | [`export`] | a sample back into an ENVI, NumPy, TIFF or PNG file |
//! | [`spectra`] | mean and median spectra of the regions of a mask |
//! | [`target`], [`physical`] | what a path names, and its physical values |
#![deny(missing_docs)]

pub mod add_mask;
mod archives;
pub mod array_geo;
pub mod convert;
pub mod deviation;
pub mod export;
pub mod fingerprint;
pub mod info;
pub mod input;
pub mod physical;
pub mod precision;
pub mod preview;
pub mod progress;
pub mod repair;
pub mod source;
pub mod spectra;
pub mod split;
mod staged;
pub mod table;
pub mod target;
pub mod validate;
mod walk;
