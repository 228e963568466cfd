//! Tests of the crate as its users see it.

mod bench;
mod diagnose;

/// Who judges times has the machine alone; the others share it.
static MACHINE: std::sync::RwLock<()> = std::sync::RwLock::new(());

/// The machine for a test that judges times: no other test of this program runs meanwhile.
fn alone() -> impl Drop {
    MACHINE.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The machine for a test that does not mind others.
fn beside_others() -> impl Drop {
    MACHINE.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}
