//! CRC-32C, at the speed of memory.
//!
//! Every stored chunk is checked on every read, so the checksum must cost little compared with
//! decoding. The `crc32c` crate processes 8 bytes per cycle with the CRC instruction. If the
//! processor has 256-bit carry-less multiplication (Intel since Ice Lake, AMD since Zen 3), this
//! module processes about twice as much:
//!
//! ```text
//! state = first 128 bytes, the checksum so far added to their first 4
//! for each 128 bytes that follow:
//!     state = state · x¹⁰²⁴ mod P, added to them        (fold; 4 vectors side by side)
//! the 4 vectors are folded onto the last, its halves onto 16 bytes; the CRC instruction ends it
//! ```
//!
//! A fold multiplies the halves of each 128 bits by two constants, powers of x modulo the
//! polynomial, as in Gopal and others, "Fast CRC Computation for Generic Polynomials Using
//! PCLMULQDQ Instruction" (2009).

/// The CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= x86::LEAST
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("sse4.2")
    {
        // SAFETY: the processor has the features that the function requires.
        return unsafe { x86::crc32c(bytes) };
    }
    crc32c::crc32c(bytes)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Bytes per fold.
    const BLOCK: usize = 128;
    /// Below this number of bytes, starting and finishing costs more than folding saves.
    pub const LEAST: usize = 4 * BLOCK;

    /// x to the power of `exponent` modulo the polynomial, with reversed bits, as in the CRC.
    const fn power(exponent: u32) -> i64 {
        let (mut power, mut step) = (1u64, 0);
        while step < exponent {
            power <<= 1;
            if power >> 32 == 1 {
                power ^= 0x1_1EDC_6F41;
            }
            step += 1;
        }
        (power as u32).reverse_bits() as i64
    }

    /// The constants that fold 128 bits onto the 128 bits that are `bits` further on: one for the
    /// low half and one for the high half.
    const fn fold_by(bits: u32) -> (i64, i64) {
        (power(bits + 31), power(bits - 33))
    }

    const BY_BLOCK: (i64, i64) = fold_by(8 * BLOCK as u32);
    const BY_VECTOR: (i64, i64) = fold_by(256);
    const BY_HALF: (i64, i64) = fold_by(128);

    #[target_feature(enable = "avx2,vpclmulqdq")]
    fn fold(state: __m256i, by: (i64, i64), next: __m256i) -> __m256i {
        let by = _mm256_set_epi64x(by.1, by.0, by.1, by.0);
        let low = _mm256_clmulepi64_epi128::<0x00>(state, by);
        let high = _mm256_clmulepi64_epi128::<0x11>(state, by);
        _mm256_xor_si256(_mm256_xor_si256(low, high), next)
    }

    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK]) -> [__m256i; 4] {
        let (vectors, []) = block.as_chunks::<32>() else { unreachable!("whole vectors") };
        std::array::from_fn(|at| {
            // SAFETY: 32 bytes are read, and no alignment is required.
            unsafe { _mm256_loadu_si256(vectors[at].as_ptr().cast()) }
        })
    }

    /// The CRC-32C of at least [`BLOCK`] bytes.
    #[target_feature(enable = "avx2,pclmulqdq,vpclmulqdq,sse4.2")]
    pub fn crc32c(bytes: &[u8]) -> u32 {
        debug_assert!(bytes.len() >= BLOCK);
        let (blocks, tail) = bytes.as_chunks::<BLOCK>();
        let mut state = load(&blocks[0]);
        // The CRC starts with all ones.
        state[0] = _mm256_xor_si256(state[0], _mm256_set_epi64x(0, 0, 0, 0xFFFF_FFFF));
        for block in &blocks[1..] {
            let next = load(block);
            state = [
                fold(state[0], BY_BLOCK, next[0]),
                fold(state[1], BY_BLOCK, next[1]),
                fold(state[2], BY_BLOCK, next[2]),
                fold(state[3], BY_BLOCK, next[3]),
            ];
        }
        let [first, second, third, last] = state;
        let vector = fold(fold(fold(first, BY_VECTOR, second), BY_VECTOR, third), BY_VECTOR, last);
        // The CRC crate inverts at the start and at the end, as the CRC itself does.
        crc32c::crc32c_append(!end(vector), tail)
    }

    /// The remainder of 32 bytes.
    #[target_feature(enable = "avx2,pclmulqdq,sse4.2")]
    fn end(vector: __m256i) -> u32 {
        let (first, last) = (_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector));
        let by = _mm_set_epi64x(BY_HALF.1, BY_HALF.0);
        let low = _mm_clmulepi64_si128::<0x00>(first, by);
        let high = _mm_clmulepi64_si128::<0x11>(first, by);
        let half = _mm_xor_si128(_mm_xor_si128(low, high), last);
        let remainder = _mm_crc32_u64(0, _mm_extract_epi64::<0>(half) as u64);
        _mm_crc32_u64(remainder, _mm_extract_epi64::<1>(half) as u64) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // RFC 3720, B.4: 32 bytes of zeros. The tests below compare other bytes with the `crc32c` crate.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
    }

    #[test]
    fn every_length_and_start_gives_the_checksum_of_the_crate() {
        let bytes: Vec<u8> = (0..3000u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
        for start in [0, 1, 31] {
            for len in 0..bytes.len() - start {
                let bytes = &bytes[start..start + len];
                assert_eq!(crc32c(bytes), ::crc32c::crc32c(bytes), "{start} {len}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_the_checksum_of_the_crate(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert_eq!(crc32c(&bytes), ::crc32c::crc32c(&bytes));
        }
    }
}
