//! Tests of the crate as its users see it.

#[cfg(feature = "torch")]
mod bench_device;
#[cfg(feature = "torch")]
mod diagnose_device;

/// Who judges times has the machine alone; the others share it.
#[cfg(feature = "torch")]
static MACHINE: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// The machine for a test that judges times: no other test of this program runs meanwhile.
#[cfg(feature = "torch")]
fn alone() -> impl Drop {
    MACHINE.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The machine for a test that does not mind others.
#[cfg(feature = "torch")]
fn beside_others() -> impl Drop {
    MACHINE.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}
