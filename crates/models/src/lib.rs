//! The states of the ring and of the hand-over to devices under every interleaving of their threads, by the model checker
//! `loom`. Tests only: `cargo test -p hsipack-models`.
//!
//! The two files of crates/read that hold these states are compiled here once more, with the file of their locks, which are
//! `loom`'s here. So crates/read has no feature for it, and nothing else is built twice.

#![deny(missing_docs)]
#![cfg(test)]

// What the models do not call stands in these files, too.
#[allow(dead_code)]
#[path = "../../read/src/device/handover.rs"]
mod handover;
#[allow(dead_code)]
#[path = "../../read/src/ring/slots.rs"]
mod slots;
#[path = "../../read/src/sync.rs"]
mod sync;

mod ring;
mod transfer;

// As in crates/read.
use hsipack_format::Error;
