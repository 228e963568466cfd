//! Streams a packed dataset into training.
//!
//! ```text
//! index → plan (shuffle, rank) → fetch → decode into a ring slot → batch
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | [`store`] | where stored bytes come from: memory map, pread, O_DIRECT, at a limited rate |
//! | [`plan`] | which sample or crop comes when, on which rank; what to resume with |
#![deny(missing_docs)]

pub mod plan;
pub mod store;

pub use hsipack_format::{DType, Error, ErrorKind, Result};
