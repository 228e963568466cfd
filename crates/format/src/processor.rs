//! Whether the processor can run this build.

/// The build asks for AVX2 (see `.cargo/config.toml`); on an older processor, commands say so instead of dying of an
/// illegal instruction.
///
/// # Errors
/// If the processor is too old; what to do about it.
pub fn check() -> Result<(), &'static str> {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    {
        // `is_x86_feature_detected!` is constant where the build assumes the feature, so ask the
        // processor itself: leaf 7, EBX bit 5.
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let avx2 = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 5) != 0;
        if !avx2 {
            return Err(
                "this build needs a processor with AVX2 (2013 or later); build it from source with RUSTFLAGS=\"\"",
            );
        }
    }
    Ok(())
}
