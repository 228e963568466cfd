//! Arrays from lists of numbers.

use hsipack_format::Result;

use super::{Array, Buffer, ElementType};

/// The bytes of one element: `number` for floating-point types, otherwise `whole`, truncated to the element's width.
/// Finite numbers stay finite.
pub(crate) fn bytes_of(number: f64, whole: i64, element: ElementType) -> Vec<u8> {
    let number = element.bounded(number);
    match element {
        ElementType::Bool => vec![u8::from(whole != 0)],
        ElementType::U8 | ElementType::I8 => vec![whole as u8],
        ElementType::U16 | ElementType::I16 => (whole as u16).to_le_bytes().to_vec(),
        ElementType::U32 | ElementType::I32 => (whole as u32).to_le_bytes().to_vec(),
        ElementType::U64 | ElementType::I64 => (whole as u64).to_le_bytes().to_vec(),
        ElementType::F16 => half::f16::from_f64(number).to_le_bytes().to_vec(),
        ElementType::BF16 => half::bf16::from_f64(number).to_le_bytes().to_vec(),
        ElementType::F32 => (number as f32).to_le_bytes().to_vec(),
        ElementType::F64 => number.to_le_bytes().to_vec(),
    }
}

impl Array {
    /// A contiguous array of these numbers in host memory, with the given element type. Finite numbers that are too large
    /// for it become its largest finite value.
    ///
    /// # Errors
    /// If the shape has more elements, or there is no memory.
    pub fn of_numbers(numbers: &[f64], shape: &[usize], element: ElementType) -> Result<Self> {
        let bytes: Vec<u8> =
            numbers.iter().flat_map(|number| bytes_of(*number, *number as i64, element)).collect();
        Buffer::of(&bytes)?.array(shape, element)
    }

    /// As [`of_numbers`](Self::of_numbers), for whole numbers.
    ///
    /// # Errors
    /// As [`of_numbers`](Self::of_numbers).
    pub fn of_integers(numbers: &[i64], shape: &[usize], element: ElementType) -> Result<Self> {
        let bytes: Vec<u8> =
            numbers.iter().flat_map(|number| bytes_of(*number as f64, *number, element)).collect();
        Buffer::of(&bytes)?.array(shape, element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_as_any_type() {
        let numbers = [1.0, -2.0, 1e9, f64::INFINITY];
        let array = Array::of_numbers(&numbers, &[4], ElementType::F16).unwrap();
        let half = [1.0, -2.0, 65504.0, f32::INFINITY].map(half::f16::from_f32);
        assert_eq!(array.elements::<half::f16>().unwrap(), half);
        let array = Array::of_integers(&[i64::MAX, -1], &[2], ElementType::I64).unwrap();
        assert_eq!(array.elements::<i64>().unwrap(), [i64::MAX, -1]);
        let array = Array::of_integers(&[0, 7], &[1, 2], ElementType::Bool).unwrap();
        assert_eq!((array.shape(), array.bytes().unwrap()), (&[1, 2][..], &[0, 1][..]));
        assert!(Array::of_numbers(&[1.0], &[2], ElementType::F64).is_err());
    }
}
