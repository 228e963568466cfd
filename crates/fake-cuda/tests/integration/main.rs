//! The stand-in, loaded by `cudarc` as hsipack loads the driver: each test runs in processes of its own.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod device;
mod misuse;
mod oracle;
mod settings;
mod transfer;
mod use_it_right;
