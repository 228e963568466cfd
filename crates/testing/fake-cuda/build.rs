//! Keeps the library loaded in a process that has unloaded it, because its thread and its work at exit need its code.
//! Programs unload it if they only check for a driver.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
