//! With the feature `torch`: lets tests and benches find libtorch where it was found while
//! building.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // From hsipack-torch, which has found it already.
    if let Ok(lib) = std::env::var("DEP_HSIPACK_TORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{lib}");
    }
}
