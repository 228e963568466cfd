//! Checks the states of the ring and of the hand-over to devices under every interleaving of their
//! threads, with the model checker `loom`. Tests only: `cargo test -p hsipack-models`.
//!
//! The two files of crates/read with these states are compiled here a second time, together with
//! the file of their locks, which are loom's here. So crates/read needs no feature for it, and
//! nothing else is built twice.

#![deny(missing_docs)]
#![cfg(test)]

// These files also contain functions that the models do not call.
#[allow(dead_code)]
#[path = "../../../read/src/device/exchange.rs"]
mod exchange;
#[allow(dead_code)]
#[path = "../../../read/src/ring/slots.rs"]
mod slots;
#[path = "../../../read/src/sync.rs"]
mod sync;

mod ring;
mod transfer;

// Imported here as in crates/read.
use hsipack_format::Error;
