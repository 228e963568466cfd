//! From cubes in the files of cameras, satellites and benchmarks to a packed dataset, and back to trust
//! in it: source readers, conversion, validation.
//!
//! ```text
//! cube file → source → cube rows → calibrate/scale → fp16 → chunk → compress → shard → index → commit
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`source`] | reads cubes, one file a format |
//! | [`input`], [`table`] | what the user typed, and tables, become a list of cubes |
//! | [`convert`] | plans and runs a conversion |
//! | [`validate`], [`repair`] | proves a packed dataset intact, and mends it |
//! | [`fingerprint`] | tells whether a source changed |
#![deny(missing_docs)]

pub mod convert;
pub mod fingerprint;
pub mod input;
pub mod progress;
pub mod repair;
pub mod source;
pub mod table;
pub mod validate;
