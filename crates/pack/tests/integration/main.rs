//! Tests of the packing crate with files that other software wrote.

mod adding;
mod appending;
mod columns;
#[path = "../../../source/tests/integration/common.rs"]
mod common;
mod conversion;
mod damage;
mod export;
mod grids;
mod images;
mod index;
mod inputs;
mod look;
mod merging;
mod packing;
mod parts;
mod products;
mod servers;
mod spectra;
mod statistics;
mod targets;
