//! Values of masks: class ids, or one bit for each boolean layer.

use crate::DType;

/// The value of a pixel of a mask: its class id, or one bit for each boolean layer, the first layer
/// in bit 0.
pub type MaskValue = u64;

/// The most boolean layers in a mask: the number of bits of uint64.
pub const MAX_LAYERS: usize = MaskValue::BITS as usize;

/// The smallest type that holds `greatest`: uint8, uint16, uint32 or uint64.
///
/// ```
/// use hsipack_format::{DType, mask};
///
/// assert_eq!([255, 256, 1 << 31, 1 << 32].map(mask::dtype_for), [DType::U8, DType::U16, DType::U32, DType::U64]);
/// ```
pub fn dtype_for(greatest: MaskValue) -> DType {
    match greatest {
        0..=0xFF => DType::U8,
        0x100..=0xFFFF => DType::U16,
        0x1_0000..=0xFFFF_FFFF => DType::U32,
        _ => DType::U64,
    }
}

/// The value of a pixel that is in all of the first `layers` layers.
pub fn all_layers(layers: usize) -> MaskValue {
    match layers {
        0 => 0,
        _ => MaskValue::MAX >> (MAX_LAYERS - layers.min(MAX_LAYERS)),
    }
}

/// The numbers of the layers that a pixel is in.
pub fn layers_of(value: MaskValue) -> impl Iterator<Item = usize> {
    let mut bits = value;
    std::iter::from_fn(move || {
        let layer = (bits != 0).then_some(bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        layer
    })
}

/// The wider of two types of masks.
pub fn wider(a: DType, b: DType) -> DType {
    if b.size() > a.size() { b } else { a }
}

/// Whether masks are stored in this type.
pub fn is_stored_as(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

/// Appends the values that are stored in `bytes`, little-endian, to `values`. Types other than
/// those of masks are read as unsigned integers of their size.
pub fn read(dtype: DType, bytes: &[u8], values: &mut Vec<MaskValue>) {
    match dtype.size() {
        1 => values.extend(bytes.iter().map(|value| MaskValue::from(*value))),
        2 => values.extend(of(bytes, u16::from_le_bytes)),
        4 => values.extend(of(bytes, u32::from_le_bytes)),
        _ => values.extend(of(bytes, u64::from_le_bytes)),
    }
}

/// The values in `bytes`, whose length is a multiple of their size.
fn of<const SIZE: usize, T: Into<MaskValue>>(
    bytes: &[u8],
    from: fn([u8; SIZE]) -> T,
) -> impl Iterator<Item = MaskValue> {
    bytes.as_chunks::<SIZE>().0.iter().map(move |value| from(*value).into())
}

/// Appends values, little-endian, to `bytes`. They must fit the type.
pub fn write(dtype: DType, values: &[MaskValue], bytes: &mut Vec<u8>) {
    match dtype.size() {
        1 => bytes.extend(values.iter().map(|value| *value as u8)),
        2 => bytes.extend(values.iter().flat_map(|value| (*value as u16).to_le_bytes())),
        4 => bytes.extend(values.iter().flat_map(|value| (*value as u32).to_le_bytes())),
        _ => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_every_type() {
        for dtype in [DType::U8, DType::U16, DType::U32, DType::U64] {
            let greatest = MaskValue::MAX >> (64 - 8 * dtype.size());
            let values = [0, 1, greatest / 3, greatest];
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            write(dtype, &values, &mut bytes);
            assert_eq!(bytes.len(), values.len() * dtype.size());
            read(dtype, &bytes, &mut back);
            assert_eq!((back.as_slice(), dtype_for(greatest)), (&values[..], dtype));
        }
    }

    #[test]
    fn layers_are_bits_of_the_narrowest_type() {
        let types = [1, 8, 9, 16, 17, 32, 33, 64].map(|layers| dtype_for(all_layers(layers)));
        let [narrow, two, four, wide] = [DType::U8, DType::U16, DType::U32, DType::U64];
        assert_eq!(types, [narrow, narrow, two, two, four, four, wide, wide]);
        assert_eq!(layers_of(1 << 63 | 0b101).collect::<Vec<_>>(), [0, 2, 63]);
        assert_eq!((layers_of(0).count(), layers_of(MaskValue::MAX).count()), (0, 64));
    }
}
