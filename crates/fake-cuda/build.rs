//! Keeps the library in a process that has unloaded it, as programs do that only look whether there is a driver: its thread
//! and its work at exit need its code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
