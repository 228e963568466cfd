//! With the feature `torch`: builds the few C++ functions that `tch` lacks, and lets test programs find libtorch.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "torch")]
    torch::build();
}

#[cfg(feature = "torch")]
mod torch {
    use std::path::{Path, PathBuf};

    pub fn build() {
        const SOURCE: &str = "src/torch/shim.cpp";
        println!("cargo:rerun-if-changed={SOURCE}");
        // Told by torch-sys, which has found libtorch already.
        let lib =
            std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch lies");
        println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
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
}
