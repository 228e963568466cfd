//! Kernels for NVIDIA GPUs. In one pass over memory, they do work for which a library needs many
//! operations: moving pixels, applying factors and summands to bands, blurring, drawing noise.
//!
//! `scripts/dev/make_kernels.py` compiles them to PTX, and the driver compiles this for its GPU. If
//! a driver cannot load them, or if `HSIPACK_KERNELS=0` is set, the library's operations do the
//! work; the results are equal up to rounding, but for noise: kernels draw the host's, operations
//! the library's own.
//!
//! | file | part |
//! |---|---|
//! | `kernels.cu`, `kernels.ptx` | the kernels, as source and as PTX for the driver |
//! | `arguments.rs` | arguments of kernels, with their memory layout |
//! | `launcher.rs` | the interface for running kernels |
//! | `cuda.rs` | runs them with the driver |
//!
//! `tensors/kernels.rs` decides which kernel is used for what.

pub mod arguments;
mod cuda;
mod launcher;

pub use cuda::of_device;
pub use launcher::{Kernels, Launcher};
