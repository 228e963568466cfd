//! The reader over datasets of every layout.

mod access;
#[cfg(feature = "torch")]
mod augment;
#[cfg(feature = "torch")]
mod device;
#[cfg(feature = "torch")]
mod kornia;
#[cfg(feature = "torch")]
mod kornia_draws;
mod loading;
mod soak;
#[path = "../support/mod.rs"]
mod support;
