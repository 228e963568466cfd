//! Keeps the library loaded in a process that has unloaded it, because its thread and its work at
//! exit need its code. Programs unload it if they only check for a driver.
//!
//! Compiles the kernels that the stand-in can run, as C++. Without a compiler, programs cannot load
//! them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rustc-check-cfg=cfg(kernels)");
    let folder = "../../read/src/device/decode";
    println!("cargo::rerun-if-changed={folder}");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").cpp_link_stdlib(None).opt_level(2).flag("-x").flag("c++");
    build.define("HSIPACK_ON_HOST", None).cargo_warnings(false);
    build.files(["decode.cu", "gather.cu"].map(|file| format!("{folder}/{file}")));
    if build.try_compile("kernels").is_ok() {
        println!("cargo::rustc-cfg=kernels");
    }
}
