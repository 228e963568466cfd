//! The reader over datasets of every layout.

mod access;
mod band_groups;
mod classes;
mod device;
mod device_decode;
mod device_loading;
mod device_table;
mod driver;
mod further_images;
mod images;
mod joined;
mod loading;
mod local_cache;
mod page_cache;
mod prefetch;
mod remote;
mod replay;
mod shared_cache;
mod shuffle_window;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod targets;
mod windows;
