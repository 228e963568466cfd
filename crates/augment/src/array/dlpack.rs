//! Exports arrays to other libraries and imports theirs with DLPack: memory is shared, not copied.
//!
//! This is the first version of the protocol (`DLManagedTensor`), which every library accepts:
//! <https://dmlc.github.io/dlpack/latest/c_api.html>.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use hsipack_format::{Error, Result};

use super::{Array, Device, ElementType, Memory, Reach, contiguous};

const CPU: i32 = 1;
const CUDA: i32 = 2;
/// Host memory that is page-locked for CUDA; used like any other host memory.
const CUDA_HOST: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    axes: i32,
    dtype: DlType,
    shape: *mut i64,
    /// In elements; null if the elements are contiguous.
    strides: *mut i64,
    byte_offset: u64,
}

/// DLPack's `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// Everything that an exported array needs while it is in use.
struct Context {
    managed: Managed,
    shape: Vec<i64>,
    strides: Vec<i64>,
    _array: Array,
}

/// An owned DLPack `DLManagedTensor`. When it is dropped, it releases its share of the memory.
#[derive(Debug)]
pub struct DlPack(NonNull<Managed>);

// SAFETY: whoever creates one promises that its deleter may be called in any thread, and its fields are plain data.
unsafe impl Send for DlPack {}
// SAFETY: through a shared reference, it is only read.
unsafe impl Sync for DlPack {}

impl DlPack {
    /// Shares the memory of an array. Before using it on a device, [lend](Memory::lend) the memory
    /// to a stream.
    pub fn of(array: &Array) -> Self {
        unsafe extern "C" fn delete(managed: *mut Managed) {
            // SAFETY: `of` made the context with `Box::into_raw`, and DLPack calls this once.
            let context = unsafe { Box::from_raw((*managed).context.cast::<Context>()) };
            // A panic must not unwind into C.
            let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(context)));
            if dropped.is_err() {
                std::process::abort();
            }
        }
        let device = match array.device() {
            Device::Cpu => DlDevice { kind: CPU, number: 0 },
            Device::Cuda(number) => DlDevice { kind: CUDA, number: number as i32 },
        };
        let tensor = DlTensor {
            data: array.address().cast(),
            device,
            axes: array.shape().len() as i32,
            dtype: type_of(array.element()),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let mut context = Box::new(Context {
            managed: Managed { tensor, context: std::ptr::null_mut(), deleter: Some(delete) },
            shape: array.shape().iter().map(|length| *length as i64).collect(),
            strides: array.strides().iter().map(|stride| *stride as i64).collect(),
            _array: array.clone(),
        });
        context.managed.tensor.shape = context.shape.as_mut_ptr();
        context.managed.tensor.strides = context.strides.as_mut_ptr();
        let context = Box::into_raw(context);
        // SAFETY: the box is not null, it is ours alone, and it does not move.
        let managed = unsafe {
            (*context).managed.context = context.cast();
            NonNull::new_unchecked(&raw mut (*context).managed)
        };
        Self(managed)
    }

    /// A pointer to the `DLManagedTensor`, for code that takes ownership and finally calls its
    /// `deleter`.
    pub fn into_raw(self) -> NonNull<c_void> {
        let managed = self.0.cast();
        std::mem::forget(self);
        managed
    }

    /// Takes ownership of a `DLManagedTensor`.
    ///
    /// # Safety
    /// It must be valid, nobody else may free it, and its `deleter` must be safe to call in any
    /// thread.
    pub unsafe fn from_raw(managed: NonNull<c_void>) -> Self {
        Self(managed.cast())
    }

    fn tensor(&self) -> &DlTensor {
        // SAFETY: we own the managed tensor, and nobody writes to it.
        unsafe { &self.0.as_ref().tensor }
    }

    /// The array; it shares the memory of the exporter. Memory of a device is used as it is: the
    /// exporter has already ordered its work before that of the intended stream.
    ///
    /// # Errors
    /// If the device or the element type is not supported.
    ///
    /// # Safety
    /// Nobody may write to the memory while the array, or another one that shares its memory, is
    /// alive.
    pub unsafe fn into_array(self) -> Result<Array> {
        let tensor = self.tensor();
        let device = match tensor.device.kind {
            CPU | CUDA_HOST => Device::Cpu,
            CUDA => Device::Cuda(tensor.device.number.max(0) as usize),
            other => {
                return Err(Error::unsupported(format!(
                    "the array is on a device of DLPack's type {other}"
                ))
                .with_remedy("copy it to the CPU or to a CUDA device first"));
            }
        };
        let element =
            ElementType::ALL.into_iter().find(|element| type_of(*element) == tensor.dtype);
        let element = element.ok_or_else(|| {
            let DlType { code, bits, lanes } = tensor.dtype;
            Error::unsupported(format!(
                "the array has a type that cannot be used (DLPack's code {code}, {bits} bits, {lanes} lanes)"
            ))
            .with_remedy("convert it first, with mask.int() or image.float() for example")
        })?;
        let axes = tensor.axes.max(0) as usize;
        let numbers = |first: *const i64| -> Vec<i64> {
            if axes == 0 || first.is_null() {
                return Vec::new();
            }
            // SAFETY: in DLPack, these arrays have one number per axis.
            unsafe { std::slice::from_raw_parts(first, axes) }.to_vec()
        };
        let shape = numbers(tensor.shape);
        let shape =
            shape.iter().map(|length| usize::try_from(*length).ok()).collect::<Option<Vec<_>>>();
        let shape =
            shape.ok_or_else(|| Error::malformed("an axis of the array has a negative length"))?;
        let strides = if tensor.strides.is_null() {
            contiguous(&shape)
        } else {
            numbers(tensor.strides).into_iter().map(|stride| stride as isize).collect()
        };
        // If strides are negative, the memory before the first element also belongs to the array.
        let (size, reach) = (element.size(), Reach::of(&shape, &strides));
        let before = reach.before.saturating_mul(size);
        let after = reach.after.saturating_mul(size);
        let first = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
        let memory = Foreign {
            _shared: self,
            device,
            start: first.wrapping_sub(before),
            bytes: before.saturating_add(after),
        };
        Array::with_strides(Arc::new(memory), before, &shape, &strides, element)
    }
}

impl Drop for DlPack {
    fn drop(&mut self) {
        // SAFETY: we own the managed tensor, and its deleter is called once.
        unsafe {
            if let Some(delete) = self.0.as_ref().deleter {
                delete(self.0.as_ptr());
            }
        }
    }
}

/// Memory of another library.
struct Foreign {
    _shared: DlPack,
    device: Device,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is only read, and its owner may be dropped in any thread.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

// SAFETY: the exporter keeps the memory as long as the managed tensor lives, and whoever made an array of it promised
// that nobody writes to it.
unsafe impl Memory for Foreign {
    fn device(&self) -> Device {
        self.device
    }

    fn start(&self) -> *mut u8 {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

fn type_of(element: ElementType) -> DlType {
    let code = match element {
        ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => 0,
        ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => 1,
        ElementType::F16 | ElementType::F32 | ElementType::F64 => 2,
        ElementType::BF16 => 4,
        ElementType::Bool => 6,
    };
    DlType { code, bits: 8 * element.size() as u8, lanes: 1 }
}

/// DLPack's identification of a device: its type (1 for the CPU, 2 for CUDA) and its number.
pub fn device_numbers(device: Device) -> (i32, i32) {
    match device {
        Device::Cpu => (CPU, 0),
        Device::Cuda(number) => (CUDA, number as i32),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Buffer;
    use super::*;

    #[test]
    fn an_array_goes_round_without_a_copy_and_keeps_its_strides() {
        for element in ElementType::ALL {
            let array =
                Buffer::zeroed(24 * element.size()).unwrap().array(&[2, 3, 4], element).unwrap();
            let turned = array.permuted(&[0, 2, 1]);
            let raw = DlPack::of(&turned).into_raw();
            // SAFETY: the pointer is from the line above, and nobody writes to the memory.
            let back = unsafe { DlPack::from_raw(raw).into_array().unwrap() };
            assert_eq!((back.shape(), back.strides()), (turned.shape(), turned.strides()));
            assert_eq!((back.address(), back.element()), (array.address(), element));
            assert_eq!(Arc::strong_count(array.memory()), 3);
            drop((back, turned));
            assert_eq!(Arc::strong_count(array.memory()), 1);
        }
    }

    #[test]
    fn arrays_with_negative_strides_are_copied_whole() {
        let array = Buffer::of(&[1, 2, 3, 4]).unwrap().array(&[4], ElementType::U8).unwrap();
        let back =
            Array::with_strides(array.memory().clone(), 3, &[4], &[-1], ElementType::U8).unwrap();
        // SAFETY: nobody writes to the memory.
        let back = unsafe { DlPack::of(&back).into_array().unwrap() };
        assert_eq!((back.strides(), back.address()), (&[-1][..], array.address().wrapping_add(3)));
        assert_eq!(back.memory().start(), array.address());
    }
}
