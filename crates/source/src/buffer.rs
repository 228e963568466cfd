//! The buffer that rows are read into.

use bytemuck::Pod;
use half::f16;
use hsipack_format::{DType, Result};
use hsipack_store::memory;

/// Rows of one cube in (row, column, band) order and native byte order. One buffer serves many
/// reads.
///
/// The memory is aligned for every element type, so [`as_slice`](Self::as_slice) does not copy.
#[derive(Debug)]
pub struct RowBuffer {
    dtype: DType,
    values: usize,
    words: Vec<u64>,
    scratch: Vec<u64>,
}

impl Default for RowBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl RowBuffer {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { dtype: DType::U8, values: 0, words: Vec::new(), scratch: Vec::new() }
    }

    /// Reserves memory for `bytes` bytes of rows.
    ///
    /// # Errors
    /// If the system does not provide the memory.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        memory::room(&mut self.words, bytes.div_ceil(8), "rows of a cube")
    }

    /// Makes room for `values` elements of `dtype` and returns their bytes, which the caller fills.
    /// They may still hold values from an earlier read.
    pub fn reset(&mut self, dtype: DType, values: usize) -> &mut [u8] {
        self.dtype = dtype;
        self.values = values;
        let bytes = values * dtype.size();
        self.words.resize(bytes.div_ceil(8), 0);
        &mut bytemuck::cast_slice_mut(&mut self.words)[..bytes]
    }

    /// Like [`reset`](Self::reset), but also returns `scratch_bytes` bytes of aligned working
    /// memory, for sources that read in one order and deliver in another.
    pub fn reset_with_scratch(
        &mut self,
        dtype: DType,
        values: usize,
        scratch_bytes: usize,
    ) -> (&mut [u8], &mut [u8]) {
        self.dtype = dtype;
        self.values = values;
        let bytes = values * dtype.size();
        self.words.resize(bytes.div_ceil(8), 0);
        self.scratch.resize(scratch_bytes.div_ceil(8), 0);
        (
            &mut bytemuck::cast_slice_mut(&mut self.words)[..bytes],
            &mut bytemuck::cast_slice_mut(&mut self.scratch)[..scratch_bytes],
        )
    }

    /// Declares the elements to be of `dtype`, which has the same size as their type so far.
    pub(crate) fn relabel(&mut self, dtype: DType) {
        assert_eq!(dtype.size(), self.dtype.size(), "{dtype} does not fit {}", self.dtype);
        self.dtype = dtype;
    }

    /// The elements as `T`, of the same size as the element type.
    pub(crate) fn values_mut<T: Pod>(&mut self) -> &mut [T] {
        assert_eq!(size_of::<T>(), self.dtype.size(), "view does not fit {}", self.dtype);
        let bytes = self.values * self.dtype.size();
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.words);
        bytemuck::cast_slice_mut(&mut all[..bytes])
    }

    /// The element type of the last [`reset`](Self::reset).
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.values
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// The elements as bytes, native byte order.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.values * self.dtype.size()]
    }

    /// The element at index `at` as a number. Large integers are rounded.
    ///
    /// # Panics
    /// If `at` is out of bounds.
    pub fn number(&self, at: usize) -> f64 {
        match self.dtype {
            DType::Bool | DType::U8 => self.bytes()[at].into(),
            DType::I8 => self.as_slice::<i8>()[at].into(),
            DType::U16 => self.as_slice::<u16>()[at].into(),
            DType::I16 => self.as_slice::<i16>()[at].into(),
            DType::U32 => self.as_slice::<u32>()[at].into(),
            DType::I32 => self.as_slice::<i32>()[at].into(),
            DType::U64 => self.as_slice::<u64>()[at] as f64,
            DType::I64 => self.as_slice::<i64>()[at] as f64,
            DType::F16 => self.as_slice::<f16>()[at].to_f64(),
            DType::F32 => self.as_slice::<f32>()[at].into(),
            DType::F64 => self.as_slice::<f64>()[at],
        }
    }

    /// The elements as `T`.
    ///
    /// # Panics
    /// If `T` and the element type differ in size.
    pub fn as_slice<T: Pod>(&self) -> &[T] {
        assert_eq!(size_of::<T>(), self.dtype.size(), "view does not fit {}", self.dtype);
        bytemuck::cast_slice(self.bytes())
    }
}
