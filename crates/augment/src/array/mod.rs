//! Arrays independent of any library: a shape over memory, on any device and from any source.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | element types, arrays |
//! | `device.rs` | devices |
//! | `memory.rs` | the memory behind arrays, and how its use is announced |
//! | `buffer.rs` | host memory, and reusing it for the next batch |
//! | `dlpack.rs` | exporting arrays to other libraries, and importing theirs |

pub mod buffer;
mod device;
pub mod dlpack;
pub mod memory;
pub(crate) mod numbers;

use std::fmt;
use std::sync::Arc;

use hsipack_format::{DType, Error, Result, option_names};

pub use buffer::{Buffer, Pool};
pub use device::Device;
pub use dlpack::DlPack;
pub use memory::{Memory, Stream};

/// The type of an array's elements. A boolean is one byte, 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it all
pub enum ElementType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl ElementType {
    /// Size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether this is a floating-point type, so that values may have a fraction, NaN or infinity.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// The range of whole numbers in which every whole number is a value of this type; `None` for
    /// unsigned 64-bit integers, whose maximum does not fit into `i64`.
    pub const fn whole_numbers(self) -> Option<(i64, i64)> {
        Some(match self {
            Self::Bool => (0, 1),
            Self::U8 => (0, u8::MAX as i64),
            Self::I8 => (i8::MIN as i64, i8::MAX as i64),
            Self::U16 => (0, u16::MAX as i64),
            Self::I16 => (i16::MIN as i64, i16::MAX as i64),
            Self::U32 => (0, u32::MAX as i64),
            Self::I32 => (i32::MIN as i64, i32::MAX as i64),
            Self::I64 => (i64::MIN, i64::MAX),
            Self::U64 => return None,
            Self::BF16 => (-(1 << 8), 1 << 8),
            Self::F16 => (-(1 << 11), 1 << 11),
            Self::F32 => (-(1 << 24), 1 << 24),
            Self::F64 => (-(1 << 53), 1 << 53),
        })
    }

    /// The largest finite value of a floating-point type; infinity for other types.
    pub const fn greatest(self) -> f64 {
        match self {
            Self::F16 => 65504.0,
            Self::BF16 => f32::from_bits(0x7f7f_0000) as f64,
            Self::F32 => f32::MAX as f64,
            Self::F64 => f64::MAX,
            _ => f64::INFINITY,
        }
    }

    /// The number, or the [`greatest`](Self::greatest) of its sign if it is finite and too large
    /// for this type.
    pub const fn bounded(self, number: f64) -> f64 {
        let most = self.greatest();
        if number.is_finite() { number.clamp(-most, most) } else { number }
    }

    /// Whether this type can hold a label.
    pub fn holds(self, label: i64) -> bool {
        match self.whole_numbers() {
            Some((least, greatest)) => (least..=greatest).contains(&label),
            None => label >= 0,
        }
    }

    /// The signed type of the same size: the type that libraries without unsigned types use for the
    /// same bits.
    pub const fn signed(self) -> Self {
        match self {
            Self::U16 => Self::I16,
            Self::U32 => Self::I32,
            Self::U64 => Self::I64,
            other => other,
        }
    }
}

// The names in NumPy and torch.
option_names!(ElementType, "dtype", {
    Bool => "bool",
    U8 => "uint8",
    I8 => "int8",
    U16 => "uint16",
    I16 => "int16",
    U32 => "uint32",
    I32 => "int32",
    U64 => "uint64",
    I64 => "int64",
    F16 => "float16",
    BF16 => "bfloat16",
    F32 => "float32",
    F64 => "float64",
});

impl From<DType> for ElementType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::Bool => Self::Bool,
            DType::U8 => Self::U8,
            DType::I8 => Self::I8,
            DType::U16 => Self::U16,
            DType::I16 => Self::I16,
            DType::U32 => Self::U32,
            DType::I32 => Self::I32,
            DType::U64 => Self::U64,
            DType::I64 => Self::I64,
            DType::F16 => Self::F16,
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

/// A shape over memory. Clones share the memory, which lives until the last of them is dropped.
#[derive(Clone)]
pub struct Array {
    memory: Arc<dyn Memory>,
    /// Offset of the first element from the start of the memory, in bytes.
    start: usize,
    shape: Vec<usize>,
    /// Strides in elements, one per axis.
    strides: Vec<isize>,
    element: ElementType,
}

impl Array {
    /// An array of contiguous elements, last axis fastest, from byte `start` of the memory on.
    ///
    /// # Errors
    /// If the memory is too short, or the elements would not be aligned.
    pub fn new(
        memory: Arc<dyn Memory>,
        start: usize,
        shape: &[usize],
        element: ElementType,
    ) -> Result<Self> {
        let strides = contiguous(shape);
        Self::with_strides(memory, start, shape, &strides, element)
    }

    /// As [`new`](Self::new), with arbitrary `strides` in elements.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_strides(
        memory: Arc<dyn Memory>,
        start: usize,
        shape: &[usize],
        strides: &[isize],
        element: ElementType,
    ) -> Result<Self> {
        let array =
            Self { memory, start, shape: shape.to_vec(), strides: strides.to_vec(), element };
        let inside = array.span().is_some_and(|(first, end)| {
            array.is_empty() || (first >= 0 && end as usize <= array.memory.bytes())
        });
        let address = (array.memory.start() as usize).wrapping_add(start);
        if !inside || shape.len() != strides.len() {
            return Err(Error::bug(format!(
                "an array {shape:?} of {element} from byte {start} of {}",
                array.memory.bytes()
            )));
        }
        if !address.is_multiple_of(element.size()) && !array.is_empty() {
            return Err(Error::bug(format!("an array of {element} at address {address:#x}")));
        }
        Ok(array)
    }

    /// Offsets of the first byte and of the byte after the last one, from the start of the memory.
    fn span(&self) -> Option<(isize, isize)> {
        let size = self.element.size() as isize;
        let start = isize::try_from(self.start).ok()?;
        let (mut first, mut last) = (start, start);
        for (length, stride) in self.shape.iter().zip(&self.strides) {
            let reach = isize::try_from(length.saturating_sub(1)).ok()?;
            let reach = reach.checked_mul(*stride)?.checked_mul(size)?;
            if reach < 0 {
                first = first.checked_add(reach)?;
            } else {
                last = last.checked_add(reach)?;
            }
        }
        Some((first, last.checked_add(size)?))
    }

    /// Lengths of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Strides in elements, one per axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The device on which the memory is.
    pub fn device(&self) -> Device {
        self.memory.device()
    }

    /// The memory behind the array.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Address of the first element; for memory of a device, an address on the device.
    pub fn address(&self) -> *mut u8 {
        self.memory.start().wrapping_add(self.start)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether the elements are contiguous, with the last axis fastest.
    pub fn is_contiguous(&self) -> bool {
        let wanted = contiguous(&self.shape);
        let strides = self.strides.iter().zip(&wanted).zip(&self.shape);
        self.is_empty()
            || strides.into_iter().all(|((stride, want), len)| *len == 1 || stride == want)
    }

    /// The same elements with the axes in another order: axis `i` of the result is axis `axes[i]`.
    ///
    /// # Panics
    /// If `axes` does not contain every axis once.
    pub fn permuted(&self, axes: &[usize]) -> Self {
        let mut named = axes.to_vec();
        named.sort_unstable();
        assert!(named.into_iter().eq(0..self.shape.len()), "not an order of the axes: {axes:?}");
        let mut array = self.clone();
        array.shape = axes.iter().map(|axis| self.shape[*axis]).collect();
        array.strides = axes.iter().map(|axis| self.strides[*axis]).collect();
        array
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// If the number of elements differs, or the array is not contiguous.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self> {
        if !self.is_contiguous() || shape.iter().product::<usize>() != self.len() {
            return Err(Error::bug(format!("an array {:?} seen as {shape:?}", self.shape)));
        }
        let mut array = self.clone();
        (array.shape, array.strides) = (shape.to_vec(), contiguous(shape));
        Ok(array)
    }

    /// A range of one axis: `len` indices from `first` on.
    ///
    /// # Panics
    /// If the axis is shorter.
    pub fn narrowed(&self, axis: usize, first: usize, len: usize) -> Self {
        assert!(first + len <= self.shape[axis], "indices beyond the axis");
        let mut array = self.clone();
        let by = self.strides[axis] * first as isize * self.element.size() as isize;
        if len > 0 {
            array.start = array.start.wrapping_add_signed(by);
        }
        array.shape[axis] = len;
        array
    }

    /// The same bits as elements of another type of the same size.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn reinterpreted(&self, element: ElementType) -> Self {
        assert_eq!(element.size(), self.element.size(), "elements of another size");
        Self { element, ..self.clone() }
    }

    /// The bytes of a contiguous array in host memory; `None` for other arrays.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.device() != Device::Cpu || !self.is_contiguous() {
            return None;
        }
        let len = self.len() * self.element.size();
        if len == 0 {
            return Some(&[]);
        }
        // SAFETY: the constructor checked that the elements lie in the memory. This is host memory, and it does not
        // change as long as an array over it lives (`Memory`).
        Some(unsafe { std::slice::from_raw_parts(self.address(), len) })
    }

    /// The elements of a contiguous array of this type in host memory; `None` for other arrays.
    pub fn elements<T: bytemuck::AnyBitPattern>(&self) -> Option<&[T]> {
        bytemuck::try_cast_slice(self.bytes()?).ok()
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, strides, element, .. } = self;
        write!(f, "Array({shape:?} of {element} on {}", self.device())?;
        if !self.is_contiguous() {
            write!(f, ", strides {strides:?}")?;
        }
        f.write_str(")")
    }
}

/// How many elements an array spans before its first element, and from it on; both are 0 if it has
/// no elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Before the first element, if strides are negative.
    pub before: usize,
    /// From the first element on.
    pub after: usize,
}

impl Reach {
    /// The reach for a shape and its strides in elements; values too large for `usize` are limited
    /// to its maximum.
    pub fn of(shape: &[usize], strides: &[isize]) -> Self {
        if shape.contains(&0) {
            return Self { before: 0, after: 0 };
        }
        let mut reach = Self { before: 0, after: 1 };
        for (length, stride) in shape.iter().zip(strides) {
            let side = if *stride < 0 { &mut reach.before } else { &mut reach.after };
            *side = side.saturating_add((length - 1).saturating_mul(stride.unsigned_abs()));
        }
        reach
    }
}

/// The strides of contiguous elements, last axis fastest.
pub fn contiguous(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1isize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1) as isize);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> Array {
        let values: Vec<i32> = (0..shape.iter().product::<usize>() as i32).collect();
        Buffer::of(bytemuck::cast_slice(&values)).unwrap().array(shape, ElementType::I32).unwrap()
    }

    #[test]
    fn views_see_the_same_memory() {
        let array = counted(&[2, 3, 4]);
        assert!(array.is_contiguous());
        let turned = array.permuted(&[0, 2, 1]);
        assert_eq!((turned.shape(), turned.strides()), (&[2, 4, 3][..], &[12, 1, 4][..]));
        assert!(!turned.is_contiguous() && turned.bytes().is_none());
        let second = array.narrowed(0, 1, 1);
        assert_eq!(second.elements::<i32>().unwrap()[..2], [12, 13]);
        assert_eq!(second.reshaped(&[12]).unwrap().shape(), [12]);
        assert!(turned.reshaped(&[24]).is_err());
        // The stride of an axis with one element does not matter.
        assert!(counted(&[3, 1, 4]).permuted(&[1, 0, 2]).is_contiguous());
    }

    #[test]
    fn views_outside_their_memory_or_misaligned_are_refused() {
        let memory = Buffer::of(&[0; 64]).unwrap().shared();
        let of =
            |start, shape: &[usize]| Array::new(memory.clone(), start, shape, ElementType::I32);
        assert!(of(0, &[16]).is_ok() && of(60, &[1]).is_ok() && of(1, &[0]).is_ok());
        assert!(of(0, &[17]).is_err() && of(2, &[3]).is_err() && of(usize::MAX, &[1]).is_err());
        let strided = |start, shape: &[usize], strides: &[isize]| {
            Array::with_strides(memory.clone(), start, shape, strides, ElementType::I32)
        };
        assert!(strided(60, &[16], &[-1]).is_ok() && strided(56, &[16], &[-1]).is_err());
        assert!(strided(0, &[2, 2], &[isize::MAX, 1]).is_err());
    }

    #[test]
    fn every_type_holds_what_it_says() {
        for element in ElementType::ALL {
            assert_eq!(element.name().parse::<ElementType>().unwrap(), element);
            assert_eq!(element.signed().size(), element.size());
        }
        assert!(
            ElementType::U8.holds(255)
                && !ElementType::U8.holds(256)
                && !ElementType::U64.holds(-1)
        );
        assert!("float8".parse::<ElementType>().is_err());
    }
}
