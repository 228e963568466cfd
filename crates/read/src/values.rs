//! Values as `ndarray` arrays, directly over the memory that holds them.
//!
//! ```text
//! Cube::values   (rows, columns, bands)
//! ArrayView::values   (samples, rows, columns, bands)
//! Values::values   of an Array: its own axes
//! ```

use half::{bf16, f16};
use hsipack_augment::{Array, Device, ElementType};
use ndarray::{ArrayView, ArrayViewD, Dimension, IntoDimension, IxDyn, ShapeBuilder};

/// A Rust type of the values of cubes, masks and arrays. Booleans, which are stored as 0 and 1, can
/// be read as `u8`.
pub trait Value: bytemuck::AnyBitPattern + private::Sealed {
    /// Its element type.
    const ELEMENT: ElementType;
}

// Other crates must not name it.
#[allow(unnameable_types)]
mod private {
    pub trait Sealed {}
}

macro_rules! values {
    ($($rust:ty: $element:ident),*) => {
        $(
            impl private::Sealed for $rust {}
            impl Value for $rust {
                const ELEMENT: ElementType = ElementType::$element;
            }
        )*
    };
}

values!(
    u8: U8, i8: I8, u16: U16, i16: I16, u32: U32, i32: I32, u64: U64, i64: I64,
    f16: F16, bf16: BF16, f32: F32, f64: F64
);

/// Whether values of this element type can be read as `T`.
fn is<T: Value>(element: ElementType) -> bool {
    element == T::ELEMENT || element == ElementType::Bool && T::ELEMENT == ElementType::U8
}

/// Shows contiguous bytes as values, the last axis fastest; `None` if they are of another type.
pub(crate) fn of_bytes<T: Value, D: Dimension>(
    bytes: &[u8],
    element: ElementType,
    shape: impl IntoDimension<Dim = D>,
) -> Option<ArrayView<'_, T, D>> {
    let values = is::<T>(element).then(|| bytemuck::try_cast_slice(bytes).ok())??;
    ArrayView::from_shape(shape.into_dimension(), values).ok()
}

/// Arrays in host memory, shown as `ndarray` arrays.
pub trait Values {
    /// The values, with the array's axes and strides. `None` if they are not of type `T`, lie on a
    /// device, or have a negative stride.
    ///
    /// ```
    /// use hsipack_read::{Array, ElementType, Values};
    ///
    /// let array = Array::of_numbers(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], ElementType::F32)?;
    /// let columns_first = array.permuted(&[1, 0]);
    /// assert_eq!(columns_first.values::<f32>().unwrap()[[2, 0]], 3.0);
    /// assert!(array.values::<f64>().is_none());
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    fn values<T: Value>(&self) -> Option<ArrayViewD<'_, T>>;
}

impl Values for Array {
    fn values<T: Value>(&self) -> Option<ArrayViewD<'_, T>> {
        if !is::<T>(self.element()) || self.device() != Device::Cpu {
            return None;
        }
        if self.is_empty() {
            return ArrayView::from_shape(IxDyn(self.shape()), &[]).ok();
        }
        let strides = self.strides().iter().map(|stride| usize::try_from(*stride).ok());
        let strides: Vec<usize> = strides.collect::<Option<_>>()?;
        let shape = IxDyn(self.shape()).strides(IxDyn(&strides));
        // SAFETY: the array's constructor has seen that all elements lie in its memory and are aligned, no stride is
        // negative, and any bits are a value. The memory is the host's, and it stays as it is as long as an array lies
        // over it (`Memory`): the view borrows this one.
        Some(unsafe { ArrayView::from_shape_ptr(shape, self.address().cast_const().cast::<T>()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{ArrayView3, Axis, Ix3};

    #[test]
    fn arrays_are_seen_with_their_strides() {
        let numbers: Vec<i64> = (0..24).collect();
        let array = Array::of_integers(&numbers, &[2, 3, 4], ElementType::I16).unwrap();
        let all = array.values::<i16>().unwrap();
        let values: Vec<i16> = (0..24).collect();
        assert_eq!(all, ArrayView3::from_shape((2, 3, 4), &values).unwrap().into_dyn());
        let turned = array.permuted(&[2, 0, 1]);
        assert_eq!(turned.values::<i16>().unwrap(), all.view().permuted_axes(IxDyn(&[2, 0, 1])));
        let part = array.narrowed(1, 1, 2).narrowed(2, 3, 1);
        let part = part.values::<i16>().unwrap().into_dimensionality::<Ix3>().unwrap();
        assert_eq!((part.dim(), part[[1, 1, 0]]), ((2, 2, 1), 23));
        let none = array.narrowed(0, 2, 0);
        assert_eq!(none.values::<i16>().unwrap().shape(), [0, 3, 4]);
        assert!(array.values::<u16>().is_none());
    }

    #[test]
    fn booleans_are_bytes_and_other_strides_are_left_to_bytes() {
        let flags = Array::of_integers(&[0, 1, 1], &[3], ElementType::Bool).unwrap();
        assert_eq!(flags.values::<u8>().unwrap().sum(), 2);
        assert!(flags.values::<i8>().is_none());
        let memory = flags.memory().clone();
        let backwards = Array::with_strides(memory.clone(), 2, &[3], &[-1], ElementType::U8);
        assert!(backwards.unwrap().values::<u8>().is_none());
        let repeated = Array::with_strides(memory, 1, &[4, 2], &[0, 1], ElementType::U8).unwrap();
        let sums = repeated.values::<u8>().unwrap().sum_axis(Axis(0));
        assert_eq!(sums.as_slice(), Some(&[4, 4][..]));
    }

    #[test]
    fn bytes_of_another_length_or_alignment_are_no_values() {
        let words = [1u64, 2];
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        assert_eq!(of_bytes::<u64, _>(bytes, ElementType::U64, (2, 1)).unwrap()[[1, 0]], 2);
        assert!(of_bytes::<u64, _>(bytes, ElementType::U64, (3, 1)).is_none());
        assert!(of_bytes::<u64, _>(&bytes[1..9], ElementType::U64, 1).is_none());
        assert!(of_bytes::<i64, _>(bytes, ElementType::U64, 2).is_none());
    }
}
