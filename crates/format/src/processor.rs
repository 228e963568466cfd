//! Checks whether the processor can run this build.

/// Checks that the processor supports AVX2, which the build requires (see `.cargo/config.toml`). On
/// an older processor, commands then fail with a message instead of an illegal instruction.
///
/// # Errors
/// If the processor is too old; the error says what to do.
pub fn check() -> Result<(), &'static str> {
    #[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
    {
        // `is_x86_feature_detected!` is constant if the build assumes the feature, so ask the processor itself: leaf
        // 7, EBX bit 5.
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
