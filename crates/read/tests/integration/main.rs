//! The reader over datasets of every layout.

mod access;
mod loading;
#[path = "../support/mod.rs"]
mod support;
