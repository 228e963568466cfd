//! With the feature `torch`: lets test programs find libtorch where it was found while building.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_HSIPACK_TORCH_LIB");
    if let Ok(lib) = std::env::var("DEP_HSIPACK_TORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
