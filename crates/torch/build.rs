//! Builds the few C++ functions that `tch` lacks, and lets test programs find libtorch.

use std::path::{Path, PathBuf};

const SOURCE: &str = "src/shim.cpp";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    // torch-sys has found libtorch already.
    let lib = std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch lies");
    let lib = PathBuf::from(lib);
    let include = lib.parent().unwrap_or(Path::new("/")).join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .pic(true)
        .flag_if_supported("-Wno-unused-parameter")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .file(SOURCE)
        .compile("hsipack_torch_shim");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
    println!("cargo:lib={}", lib.display());
}
