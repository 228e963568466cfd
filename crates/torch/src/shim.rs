//! Safe functions for parts of libtorch that `tch` does not offer; see `shim.cpp`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use hsipack_augment::array::{DlPack, Stream};
use hsipack_format::{Error, Opt, Result, remedy};
use tch::{TchError, Tensor};
use torch_sys::C_tensor;

/// Bytes for a message from the C++ side.
const ERROR_BYTES: usize = 512;

// SAFETY: these are the signatures in `shim.cpp`, which is compiled with this crate.
unsafe extern "C" {
    fn hsipack_current_stream(device: c_int, error: *mut c_char) -> *mut c_void;
    fn hsipack_fill_random(tensor: *mut C_tensor, seed: u64, normal: c_int, error: *mut c_char);
    fn hsipack_to_dlpack(tensor: *const C_tensor, error: *mut c_char) -> *mut c_void;
    fn hsipack_from_dlpack(managed: *mut c_void, error: *mut c_char) -> *mut C_tensor;
}

/// Calls a function of the shim, and turns its message into an error.
fn checked<T>(call: impl FnOnce(*mut c_char) -> T) -> Result<T> {
    let mut error: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
    let result = call(error.as_mut_ptr());
    // SAFETY: the shim ends every message, even an empty one, with NUL within these bytes.
    let message = unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy();
    match message.lines().next() {
        None => Ok(result),
        Some(line) => Err(failed(line)),
    }
}

/// The error for a message from libtorch.
fn failed(message: &str) -> Error {
    let message = message.lines().next().unwrap_or("it failed").trim_end_matches('.');
    let what = format!("libtorch: {message}");
    if message.contains("out of memory") {
        return Error::device_memory(what).with_remedy(remedy![
            "use a smaller ",
            Opt::BatchSize,
            " or crops"
        ]);
    }
    Error::device(what)
}

/// Runs tensor operations without gradients, and converts libtorch's errors to ours.
pub(crate) fn run<T>(work: impl FnOnce() -> Result<T, TchError>) -> Result<T> {
    tch::no_grad(work).map_err(|error| failed(&error.to_string()).caused_by(error))
}

/// The calling thread's current stream of a CUDA device.
pub(crate) fn current_stream(device: usize) -> Result<Stream> {
    let device = c_int::try_from(device).map_err(|_| {
        Error::conflict(format!("there is no CUDA device {device}"))
            .with_remedy("give the number of a device that there is")
    })?;
    // SAFETY: the buffer for the message has the size that the shim expects.
    checked(|error| unsafe { hsipack_current_stream(device, error) }).map(Stream::of)
}

/// The distribution of random numbers that fill a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Random {
    /// Standard normal numbers.
    Normal,
    /// Uniform numbers in [-1, 1).
    Uniform,
}

/// Fills a tensor with random numbers that depend only on `seed`, the tensor's shape and the
/// device. The global generators are not affected.
pub(crate) fn fill(tensor: &mut Tensor, random: Random, seed: u64) -> Result<()> {
    let normal = c_int::from(random == Random::Normal);
    // SAFETY: the tensor is ours alone during the call.
    checked(|error| unsafe { hsipack_fill_random(tensor.as_mut_ptr(), seed, normal, error) })
}

/// Shares the memory of a tensor.
pub(crate) fn to_dlpack(tensor: &Tensor) -> Result<DlPack> {
    // SAFETY: the tensor lives until the call returns.
    let managed = checked(|error| unsafe { hsipack_to_dlpack(tensor.as_ptr(), error) })?;
    let managed = NonNull::new(managed).expect("an export without an error");
    // SAFETY: libtorch has just made it for us alone; its tensors may be freed in any thread.
    Ok(unsafe { DlPack::from_raw(managed) })
}

/// A tensor over memory of another library.
pub(crate) fn from_dlpack(shared: DlPack) -> Result<Tensor> {
    let managed = shared.into_raw();
    // SAFETY: we own the managed tensor; if the call succeeds, libtorch owns it and frees it later.
    match checked(|error| unsafe { hsipack_from_dlpack(managed.as_ptr(), error) }) {
        // SAFETY: the shim made the tensor with `new` for us alone.
        Ok(tensor) => Ok(unsafe { Tensor::from_ptr(tensor) }),
        Err(error) => {
            // SAFETY: libtorch did not take ownership, so it is still ours alone.
            drop(unsafe { DlPack::from_raw(managed) });
            Err(error)
        }
    }
}
