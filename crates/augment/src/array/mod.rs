//! Arrays that belong to no library: a shape over memory, wherever that is and whoever made it.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | element types, devices, arrays |
//! | `memory.rs` | what arrays lie over, and who has to be told of its use |
//! | `buffer.rs` | memory of the host's, and keeping it for the next batch |
//! | `dlpack.rs` | arrays handed to other libraries, and taken from them |

pub mod buffer;
pub mod dlpack;
pub mod memory;
pub(crate) mod numbers;

use std::fmt;
use std::sync::Arc;

use hsipack_format::{DType, Error, Result, option_names};

pub use buffer::{Buffer, Pool};
pub use dlpack::DlPack;
pub use memory::{Memory, Stream};

/// Where an array's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// In the host's memory.
    #[default]
    Cpu,
    /// On the CUDA device of that number.
    Cuda(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

/// What an array's elements are. Booleans are one byte, 0 or 1.
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
    /// Bytes an element takes.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether values may have a fraction, NaN or infinity.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// The least and the greatest whole number up to which all whole numbers are values; `None` for 64 bits without a
    /// sign, whose greatest is no `i64`.
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

    /// Whether a label is a value of this type.
    pub fn holds(self, label: i64) -> bool {
        match self.whole_numbers() {
            Some((least, greatest)) => (least..=greatest).contains(&label),
            None => label >= 0,
        }
    }

    /// The type whose elements have the same bits and a sign: what libraries without unsigned types see.
    pub const fn signed(self) -> Self {
        match self {
            Self::U16 => Self::I16,
            Self::U32 => Self::I32,
            Self::U64 => Self::I64,
            other => other,
        }
    }
}

// The names that NumPy and torch use.
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

/// A shape over memory. Clones share the memory, which lives as long as one of them does.
#[derive(Clone)]
pub struct Array {
    memory: Arc<dyn Memory>,
    /// Bytes from the memory's start to the first element.
    start: usize,
    shape: Vec<usize>,
    /// Elements from one index to the next, for every axis.
    strides: Vec<isize>,
    element: ElementType,
}

impl Array {
    /// Elements that follow one another without gaps, the last axis fastest, from byte `start` of the memory on.
    ///
    /// # Errors
    /// If the memory is too short for them, or they would not be aligned.
    pub fn new(
        memory: Arc<dyn Memory>,
        start: usize,
        shape: &[usize],
        element: ElementType,
    ) -> Result<Self> {
        let strides = contiguous(shape);
        Self::with_strides(memory, start, shape, &strides, element)
    }

    /// As [`new`](Self::new), with elements anywhere: `strides` are elements from one index to the next.
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

    /// First byte and the byte behind the last one, from the memory's start.
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

    /// Elements from one index to the next, for every axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// What the elements are.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Where the memory is.
    pub fn device(&self) -> Device {
        self.memory.device()
    }

    /// What it lies over.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Address of the first element; on a device, the device's.
    pub fn address(&self) -> *mut u8 {
        self.memory.start().wrapping_add(self.start)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Whether elements follow one another without gaps, the last axis fastest.
    pub fn is_contiguous(&self) -> bool {
        let wanted = contiguous(&self.shape);
        let strides = self.strides.iter().zip(&wanted).zip(&self.shape);
        self.is_empty()
            || strides.into_iter().all(|((stride, want), len)| *len == 1 || stride == want)
    }

    /// The same elements with the axes in another order: axis `i` is the present `axes[i]`.
    ///
    /// # Panics
    /// If `axes` does not name every axis once.
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
    /// If it has another number of elements, or there are gaps between the present ones.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self> {
        if !self.is_contiguous() || shape.iter().product::<usize>() != self.len() {
            return Err(Error::bug(format!("an array {:?} seen as {shape:?}", self.shape)));
        }
        let mut array = self.clone();
        (array.shape, array.strides) = (shape.to_vec(), contiguous(shape));
        Ok(array)
    }

    /// A window of one axis: `len` indices from `first` on.
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

    /// The same bits as elements of another type of that size.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn reinterpreted(&self, element: ElementType) -> Self {
        assert_eq!(element.size(), self.element.size(), "elements of another size");
        Self { element, ..self.clone() }
    }

    /// The bytes of an array in the host's memory whose elements follow one another; `None` for others.
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.device() != Device::Cpu || !self.is_contiguous() {
            return None;
        }
        let len = self.len() * self.element.size();
        if len == 0 {
            return Some(&[]);
        }
        // SAFETY: the constructor has seen that the elements lie in the memory, which is the host's and stays as it
        // is as long as an array lies over it (`Memory`).
        Some(unsafe { std::slice::from_raw_parts(self.address(), len) })
    }

    /// The elements of an array of one type in the host's memory, one after the other; `None` for others.
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

/// Elements that an array spans before its first one, and from that on; none if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Before the first element: where strides are negative.
    pub before: usize,
    /// From the first element on.
    pub behind: usize,
}

impl Reach {
    /// That of a shape and its strides, in elements; lengths beyond the memory there can be end at the greatest number.
    pub fn of(shape: &[usize], strides: &[isize]) -> Self {
        if shape.contains(&0) {
            return Self { before: 0, behind: 0 };
        }
        let mut reach = Self { before: 0, behind: 1 };
        for (length, stride) in shape.iter().zip(strides) {
            let side = if *stride < 0 { &mut reach.before } else { &mut reach.behind };
            *side = side.saturating_add((length - 1).saturating_mul(stride.unsigned_abs()));
        }
        reach
    }
}

/// The strides of elements that follow one another, the last axis fastest.
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
        // An axis of one element has no stride to speak of.
        assert!(counted(&[3, 1, 4]).permuted(&[1, 0, 2]).is_contiguous());
    }

    #[test]
    fn what_lies_outside_its_memory_or_askew_is_refused() {
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
