//! The stand-in, loaded by `cudarc` in the same way as hsipack loads the driver. Each test runs in
//! its own processes.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod device;
mod kernels;
mod misuse;
mod oracle;
mod settings;
mod transfer;
mod use_it_right;
