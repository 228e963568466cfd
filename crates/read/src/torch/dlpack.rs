//! Tensors handed to other libraries, and taken from them, in the form of DLPack: memory is shared, not copied.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use tch::Tensor;
use torch_sys::C_tensor;

use super::told;
use crate::Result;

// SAFETY: these are the signatures in `shim.cpp`, which is compiled with this crate.
unsafe extern "C" {
    fn hsipack_to_dlpack(
        tensor: *const C_tensor,
        unsigned: c_int,
        error: *mut c_char,
    ) -> *mut c_void;
    fn hsipack_from_dlpack(managed: *mut c_void, error: *mut c_char) -> *mut C_tensor;
    fn hsipack_dlpack_delete(managed: *mut c_void);
    fn hsipack_dlpack_device(
        tensor: *const C_tensor,
        number: *mut c_int,
        error: *mut c_char,
    ) -> c_int;
}

/// A tensor as DLPack's `DLManagedTensor`, owned. Dropped, it gives its share of the memory back.
#[derive(Debug)]
pub struct DlPack(NonNull<c_void>);

// SAFETY: libtorch's tensors may be used and freed in any thread, and so may what exports them.
unsafe impl Send for DlPack {}

impl DlPack {
    /// Shares the memory of `tensor`. With `unsigned`, its signed integers are told to be unsigned ones of that width:
    /// what [`Dataset::mask_tensor`](crate::Dataset::mask_tensor) gives of uint16.
    ///
    /// # Errors
    /// If libtorch cannot export it.
    pub fn of(tensor: &Tensor, unsigned: bool) -> Result<Self> {
        // SAFETY: the tensor lives through the call.
        let managed = told(|error| unsafe {
            hsipack_to_dlpack(tensor.as_ptr(), c_int::from(unsigned), error)
        })?;
        Ok(Self(NonNull::new(managed).expect("an export without an error")))
    }

    /// DLPack's numbers of the tensor's kind of device (1 the CPU, 2 CUDA) and of the device.
    ///
    /// # Errors
    /// If DLPack has no number for it.
    pub fn device(tensor: &Tensor) -> Result<(i32, i32)> {
        let mut number = 0;
        // SAFETY: the tensor and the number live through the call.
        let kind =
            told(|error| unsafe { hsipack_dlpack_device(tensor.as_ptr(), &mut number, error) })?;
        Ok((kind, number))
    }

    /// The tensor; it shares the memory of whoever exported it.
    ///
    /// # Errors
    /// If libtorch has no such device or element type.
    pub fn into_tensor(self) -> Result<Tensor> {
        // SAFETY: a managed tensor of ours; libtorch owns it if the call succeeds, which frees it later.
        let made = told(|error| unsafe { hsipack_from_dlpack(self.0.as_ptr(), error) })?;
        std::mem::forget(self);
        // SAFETY: the shim made the tensor with `new` for us alone.
        Ok(unsafe { Tensor::from_ptr(made) })
    }

    /// A pointer to the `DLManagedTensor`, for whoever takes it and calls its `deleter` in the end.
    pub fn into_raw(self) -> *mut c_void {
        let managed = self.0.as_ptr();
        std::mem::forget(self);
        managed
    }

    /// Takes a `DLManagedTensor` over.
    ///
    /// # Safety
    /// It must be a valid one that nobody else will free; its `deleter` must be safe to call in any thread.
    pub unsafe fn from_raw(managed: NonNull<c_void>) -> Self {
        Self(managed)
    }
}

impl Drop for DlPack {
    fn drop(&mut self) {
        // SAFETY: a managed tensor that is ours.
        unsafe { hsipack_dlpack_delete(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::storage_uses;
    use super::*;
    use tch::{Device, Kind};

    #[test]
    fn a_tensor_goes_round_without_a_copy_and_keeps_its_strides() {
        let tensor =
            Tensor::arange(24, (Kind::Half, Device::Cpu)).view([2, 3, 4]).permute([0, 2, 1]);
        let shared = DlPack::of(&tensor, false).unwrap();
        assert!(storage_uses(&tensor).unwrap() >= 2, "nothing keeps the memory");
        let back = shared.into_tensor().unwrap();
        assert_eq!(back.data_ptr(), tensor.data_ptr());
        assert_eq!((back.size(), back.stride()), (tensor.size(), tensor.stride()));
        drop(back);
        drop(DlPack::of(&tensor, false).unwrap());
        assert_eq!(DlPack::device(&tensor).unwrap(), (1, 0));
    }

    #[test]
    fn bits_of_unsigned_integers_are_told_as_such() {
        let tensor = Tensor::from_slice(&[-1i16, 2]);
        // tch has no name for uint16, but libtorch computes with it.
        let back = DlPack::of(&tensor, true).unwrap().into_tensor().unwrap();
        assert_eq!(Vec::<i64>::try_from(back.to_kind(Kind::Int64)).unwrap(), [65535, 2]);
    }
}
