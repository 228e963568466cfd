//! Tests of the crate as its users see it.

mod bench;
mod diagnose;
mod machine;
