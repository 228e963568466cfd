//! Sets `cfg(loom)`, by which the files of crates/read take `loom`'s locks, and leave out what needs those of the system: their
//! unit tests.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
