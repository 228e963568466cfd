//! Kernels for NVIDIA GPUs, which do in one pass over memory what takes a library's operations many: moving pixels,
//! products and sums by band, blurring.
//!
//! They are compiled to PTX once (`scripts/make_kernels`), and by the driver for its GPU. Where a driver does not take
//! them, or `HSIPACK_KERNELS=0` says so, the library's operations do the work; both give the same up to rounding.
//!
//! | file | part |
//! |---|---|
//! | `kernels.cu`, `kernels.ptx` | the kernels, as source and as what a driver takes |
//! | `arguments.rs` | what kernels are given, as they have it in memory |
//! | `launcher.rs` | whoever runs kernels |
//! | `cuda.rs` | the driver, running them |
//!
//! `tensors/kernels.rs` decides which of them does what.

pub mod arguments;
mod cuda;
mod launcher;

pub use cuda::of_device;
pub use launcher::{Kernels, Launcher};
