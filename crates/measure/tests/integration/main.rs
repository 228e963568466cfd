//! Tests of the crate as its users see it.

/// Tests that judge times. `scripts/test` runs tests in modules of this name after all others.
mod alone {
    mod diagnose;
}
mod bench;
mod machine;
