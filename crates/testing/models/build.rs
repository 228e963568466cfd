//! Sets `cfg(loom)`. With it, the files of crates/read use the locks of `loom`, and leave out their
//! unit tests, which need those of the system.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=loom");
}
