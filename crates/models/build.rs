//! Sets `cfg(loom)`, by which the files of crates/read leave out what needs locks of the system: their unit tests.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
