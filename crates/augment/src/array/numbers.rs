//! Arrays from lists of numbers.

use std::ops::Deref;

use hsipack_format::Result;

use super::{Array, Buffer, ElementType};

/// The bytes of one element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementBytes {
    bytes: [u8; 8],
    len: usize,
}

impl ElementBytes {
    fn new<const N: usize>(of: [u8; N]) -> Self {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&of);
        Self { bytes, len: N }
    }
}

impl Deref for ElementBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl IntoIterator for ElementBytes {
    type Item = u8;
    type IntoIter = std::iter::Take<std::array::IntoIter<u8, 8>>;

    fn into_iter(self) -> Self::IntoIter {
        self.bytes.into_iter().take(self.len)
    }
}

/// The bytes of one element: `number` for floating-point types, otherwise `whole`, truncated to the
/// element's width. Finite numbers stay finite.
#[inline]
pub(crate) fn bytes_of(number: f64, whole: i64, element: ElementType) -> ElementBytes {
    let number = element.bounded(number);
    match element {
        ElementType::Bool => ElementBytes::new([u8::from(whole != 0)]),
        ElementType::U8 | ElementType::I8 => ElementBytes::new([whole as u8]),
        ElementType::U16 | ElementType::I16 => ElementBytes::new((whole as u16).to_le_bytes()),
        ElementType::U32 | ElementType::I32 => ElementBytes::new((whole as u32).to_le_bytes()),
        ElementType::U64 | ElementType::I64 => ElementBytes::new((whole as u64).to_le_bytes()),
        ElementType::F16 => ElementBytes::new(half::f16::from_f64(number).to_le_bytes()),
        ElementType::BF16 => ElementBytes::new(half::bf16::from_f64(number).to_le_bytes()),
        ElementType::F32 => ElementBytes::new((number as f32).to_le_bytes()),
        ElementType::F64 => ElementBytes::new(number.to_le_bytes()),
    }
}

impl Array {
    /// A contiguous array of these numbers in host memory, with the given element type. Finite
    /// numbers that are too large for it become its largest finite value.
    ///
    /// # Errors
    /// If the shape has more elements, or there is no memory.
    pub fn of_numbers(numbers: &[f64], shape: &[usize], element: ElementType) -> Result<Self> {
        Self::of_elements(numbers.iter().map(|number| (*number, *number as i64)), shape, element)
    }

    /// As [`of_numbers`](Self::of_numbers), for whole numbers.
    ///
    /// # Errors
    /// As [`of_numbers`](Self::of_numbers).
    pub fn of_integers(numbers: &[i64], shape: &[usize], element: ElementType) -> Result<Self> {
        Self::of_elements(numbers.iter().map(|number| (*number as f64, *number)), shape, element)
    }

    /// Numbers as floating-point and as whole numbers. Their bytes are written to their places at
    /// once, because a batch on a device may need hundreds of thousands.
    fn of_elements(
        numbers: impl ExactSizeIterator<Item = (f64, i64)>,
        shape: &[usize],
        element: ElementType,
    ) -> Result<Self> {
        let mut buffer = Buffer::zeroed(numbers.len() * element.size())?;
        let bytes = buffer.bytes_mut();
        match element {
            // Nearly all numbers are of this type, and the compiler makes vector instructions of this loop.
            ElementType::F32 => {
                for (slot, (number, _)) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                    *slot = (ElementType::F32.bounded(number) as f32).to_le_bytes();
                }
            }
            _ => write(numbers, element, bytes),
        }
        buffer.array(shape, element)
    }
}

fn write(numbers: impl Iterator<Item = (f64, i64)>, element: ElementType, bytes: &mut [u8]) {
    for (slot, (number, whole)) in bytes.chunks_exact_mut(element.size()).zip(numbers) {
        slot.copy_from_slice(&bytes_of(number, whole, element));
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
