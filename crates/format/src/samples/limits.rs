//! Limits of lists of samples.

/// Maximum length of a name in bytes.
pub const MAX_NAME: usize = 4096;
/// Maximum length of a line in bytes.
pub(super) const MAX_LINE: usize = 4 << 20;
/// Maximum number of samples: ids are stored in 32 bits.
pub(super) const MAX_SAMPLES: usize = u32::MAX as usize;
