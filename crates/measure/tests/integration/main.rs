//! Tests of the crate as its users see it.

#[cfg(feature = "torch")]
mod bench_device;
#[cfg(feature = "torch")]
mod diagnose_device;
