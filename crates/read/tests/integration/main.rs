//! The reader over datasets of every layout.

mod access;
mod loading;
mod soak;
#[path = "../support/mod.rs"]
mod support;
