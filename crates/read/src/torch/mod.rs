//! What `tch` does not offer of libtorch, behind safe functions; see `shim.cpp`.

pub(crate) mod dlpack;
pub(crate) mod pool;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

use tch::{Device, Kind, TchError, Tensor};
use torch_sys::C_tensor;

use self::pool::Pool;
use crate::store::StoredFile;
use crate::{Error, Result};
use hsipack_format::{Opt, remedy};

/// Bytes for a message of the C++ side.
const ERROR_BYTES: usize = 512;

// SAFETY: these are the signatures in `shim.cpp`, which is compiled with this crate.
unsafe extern "C" {
    fn hsipack_current_stream(device: c_int, error: *mut c_char) -> *mut c_void;
    fn hsipack_record_stream(tensor: *const C_tensor, device: c_int, error: *mut c_char);
    fn hsipack_storage_uses(tensor: *const C_tensor, error: *mut c_char) -> usize;
    fn hsipack_from_memory(
        data: *mut c_void,
        sizes: *const i64,
        dimensions: usize,
        kind: c_int,
        release: unsafe extern "C" fn(*mut c_void),
        context: *mut c_void,
        error: *mut c_char,
    ) -> *mut C_tensor;
    fn hsipack_fill_random(tensor: *mut C_tensor, seed: u64, normal: c_int, error: *mut c_char);
}

/// Calls a function of the shim and turns its message into an error.
fn told<T>(call: impl FnOnce(*mut c_char) -> T) -> Result<T> {
    let mut error: [c_char; ERROR_BYTES] = [0; ERROR_BYTES];
    let result = call(error.as_mut_ptr());
    // SAFETY: the shim ends every message, an empty one too, with NUL within these bytes.
    let message = unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy();
    match message.lines().next() {
        None => Ok(result),
        Some(line) => Err(failed(line)),
    }
}

/// An error that libtorch told of.
fn failed(message: &str) -> Error {
    let message = message.lines().next().unwrap_or("it failed").trim_end_matches('.');
    let error = Error::device(format!("libtorch: {message}"));
    if message.contains("out of memory") {
        return error.with_remedy(remedy!["use a smaller ", Opt::BatchSize, " or crops"]);
    }
    error
}

/// Runs tensor operations, and makes the crate's error of libtorch's.
pub(crate) fn run<T>(work: impl FnOnce() -> Result<T, TchError>) -> Result<T> {
    tch::no_grad(work).map_err(|error| failed(&error.to_string()).caused_by(error))
}

/// The calling thread's current stream of a CUDA device, as the driver knows it.
pub(crate) fn current_stream(device: usize) -> Result<*mut c_void> {
    let device = c_int::try_from(device).map_err(|_| Error::conflict("no such device"))?;
    // SAFETY: the message's bytes are as long as the shim expects.
    told(|error| unsafe { hsipack_current_stream(device, error) })
}

/// Tells the allocator that the calling thread's current stream of that CUDA device uses the memory of `tensor`: once
/// it is freed, it is not given to others before that stream has done what is queued on it by then.
pub(crate) fn record_stream(tensor: &Tensor, device: usize) -> Result<()> {
    let device = c_int::try_from(device).map_err(|_| Error::conflict("no such device"))?;
    // SAFETY: the tensor lives through the call; the message's bytes are as long as the shim expects.
    told(|error| unsafe { hsipack_record_stream(tensor.as_ptr(), device, error) })
}

/// Tensors and others that share the memory of `tensor`; 1 if nobody else does.
pub(crate) fn storage_uses(tensor: &Tensor) -> Result<usize> {
    // SAFETY: the tensor lives through the call, which only looks at it.
    told(|error| unsafe { hsipack_storage_uses(tensor.as_ptr(), error) })
}

/// Fills a tensor with standard normal numbers of a stream that depends on `seed`, the tensor's shape and the
/// device alone. The global generators stay as they are.
pub(crate) fn fill_normal(tensor: &mut Tensor, seed: u64) -> Result<()> {
    // SAFETY: the tensor is ours alone for the time of the call.
    told(|error| unsafe { hsipack_fill_random(tensor.as_mut_ptr(), seed, 1, error) })
}

/// As [`fill_normal`], with uniform numbers in [-1, 1).
pub(crate) fn fill_uniform(tensor: &mut Tensor, seed: u64) -> Result<()> {
    // SAFETY: as above.
    told(|error| unsafe { hsipack_fill_random(tensor.as_mut_ptr(), seed, 0, error) })
}

/// A CPU tensor over `data`, which lives in `owner`; the owner is dropped with the last tensor that refers to it, in
/// whichever thread that is.
///
/// # Safety
/// The memory must hold `shape`'s elements of `kind`, aligned, stay where it is as long as `owner` lives, wherever
/// that moves, and nobody else may write to it in that time.
pub(crate) unsafe fn tensor_over<T: Send>(
    data: *mut u8,
    shape: &[i64],
    kind: Kind,
    owner: T,
) -> Result<Tensor> {
    unsafe extern "C" fn release<T>(context: *mut c_void) {
        // SAFETY: made by `Box::into_raw` below, and called once.
        let owner = unsafe { Box::from_raw(context.cast::<T>()) };
        // A panic must not unwind into C++.
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(owner)));
        if dropped.is_err() {
            std::process::abort();
        }
    }
    let context = Box::into_raw(Box::new(owner)).cast();
    // SAFETY: the memory is as the caller promises; `release` is called exactly once, also if the call fails.
    let made = told(|error| unsafe {
        hsipack_from_memory(
            data.cast(),
            shape.as_ptr(),
            shape.len(),
            scalar_type(kind),
            release::<T>,
            context,
            error,
        )
    })?;
    // SAFETY: the shim made the tensor with `new` for us alone.
    Ok(unsafe { Tensor::from_ptr(made) })
}

/// Bytes from which on page faults matter.
const LARGE: usize = 8 << 20;

/// A new tensor whose values are whatever lies there; large ones on the CPU come from the current [`Pool`], if there is
/// one.
pub(crate) fn empty(shape: &[i64], kind: Kind, device: Device) -> Result<Tensor, TchError> {
    let bytes = shape.iter().product::<i64>() as usize * kind.elt_size_in_bytes();
    if device == Device::Cpu
        && bytes >= LARGE
        && let Some(memory) = Pool::take(bytes)?
    {
        return memory.f_view_dtype(kind)?.f_view(shape);
    }
    fresh(shape, kind, device)
}

/// As [`empty`], of new memory. On the CPU large ones ask for huge pages, whose faults are fewer.
fn fresh(shape: &[i64], kind: Kind, device: Device) -> Result<Tensor, TchError> {
    const PAGE: usize = 4096;
    let tensor = Tensor::f_empty(shape, (kind, device))?;
    let bytes = tensor.numel() * kind.elt_size_in_bytes();
    if device == Device::Cpu && bytes >= LARGE {
        let start = (tensor.data_ptr() as usize).next_multiple_of(PAGE);
        let end = (tensor.data_ptr() as usize + bytes) / PAGE * PAGE;
        // SAFETY: whole pages of the tensor's own memory; advice changes no content, and may be refused.
        unsafe { libc::madvise(start as *mut c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    Ok(tensor)
}

/// Bytes of a file as a new tensor on the CPU, read straight into its memory.
///
/// # Errors
/// If they are not as many as the shape takes, cannot be read, or there is no memory for them.
pub fn read_tensor(
    file: &dyn StoredFile,
    span: Range<u64>,
    shape: &[i64],
    kind: Kind,
) -> Result<Tensor> {
    written(shape, kind, |bytes| file.read_into(span, bytes))
}

/// A new contiguous tensor on the CPU, whose memory `write` is given, with whatever lies there, before anybody else
/// sees it.
pub(crate) fn written(
    shape: &[i64],
    kind: Kind,
    write: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Tensor> {
    let mut tensor = run(|| empty(shape, kind, Device::Cpu))?;
    // SAFETY: the memory is new, or of a pool that gives it out when nobody looks at it any more.
    write(unsafe { bytes_of_mut(&mut tensor) })?;
    Ok(tensor)
}

/// The memory of a contiguous tensor on the CPU.
pub(crate) fn bytes_of(tensor: &Tensor) -> &[u8] {
    let bytes = checked_bytes(tensor);
    // SAFETY: the tensor's elements lie there, without gaps, as long as it is borrowed.
    unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast_const().cast(), bytes) }
}

/// The memory of a contiguous tensor on the CPU, to be written to.
///
/// # Safety
/// Other tensors may share the memory, as ever with tensors: nobody may read or write it through one of them as long as
/// the bytes are borrowed.
pub(crate) unsafe fn bytes_of_mut(tensor: &mut Tensor) -> &mut [u8] {
    let bytes = checked_bytes(tensor);
    // SAFETY: as above; and the borrower alone looks at the memory, as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), bytes) }
}

/// Has threads work through pieces of `out`, `piece` elements each but for the last: `work(number, piece)`. As many
/// threads as libtorch uses.
pub(crate) fn each_piece<T: Send>(
    out: &mut [T],
    piece: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let pieces = out.len().div_ceil(piece);
    let threads = usize::try_from(tch::get_num_threads()).unwrap_or(1).clamp(1, pieces);
    let queue = std::sync::Mutex::new(out.chunks_mut(piece).enumerate());
    let run = || {
        loop {
            // The lock is held for a step of an iterator, which cannot panic.
            let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
            let Some((number, piece)) = next else { return };
            work(number, piece);
        }
    };
    hsipack_store::threads::share(threads, "augment", run);
}

fn checked_bytes(tensor: &Tensor) -> usize {
    assert!(tensor.device() == Device::Cpu && tensor.is_contiguous(), "not in the host's memory");
    tensor.numel() * tensor.kind().elt_size_in_bytes()
}

/// The number that libtorch gives to an element type (c10's `ScalarType`), for those that memory can hold.
fn scalar_type(kind: Kind) -> c_int {
    match kind {
        Kind::Uint8 => 0,
        Kind::Int8 => 1,
        Kind::Int16 => 2,
        Kind::Int => 3,
        Kind::Int64 => 4,
        Kind::Half => 5,
        Kind::Float => 6,
        Kind::Double => 7,
        Kind::Bool => 11,
        Kind::BFloat16 => 15,
        other => unreachable!("no array of a batch has elements of {other:?}"),
    }
}

/// Whether a CUDA device can be used. The linker drops libtorch's CUDA part as unneeded, so it is loaded here.
pub fn cuda_is_available() -> bool {
    static LOADED: OnceLock<bool> = OnceLock::new();
    let loaded = *LOADED.get_or_init(|| {
        // SAFETY: libtorch's own library, found beside it by the run path; its initialisers register CUDA.
        let library = unsafe {
            libc::dlopen(c"libtorch_cuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL)
        };
        !library.is_null()
    });
    loaded && tch::Cuda::is_available()
}

/// The first CUDA device, or the CPU where there is none.
pub fn best_device() -> Device {
    if cuda_is_available() { Device::Cuda(0) } else { Device::Cpu }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_tensor_over_memory_keeps_its_owner_as_long_as_anyone_looks_at_it() {
        let owner = Arc::new(vec![1.0f32, 2.0, 3.0, 4.0]);
        // SAFETY: the vector has four floats and stays where it is as long as the owner lives.
        let tensor = unsafe {
            tensor_over(owner.as_ptr() as *mut u8, &[2, 2], Kind::Float, owner.clone()).unwrap()
        };
        assert_eq!(storage_uses(&tensor).unwrap(), 1);
        let row = tensor.get(1);
        assert_eq!(storage_uses(&tensor).unwrap(), 2);
        drop(tensor);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(Vec::<f32>::try_from(&row).unwrap(), [3.0, 4.0]);
        drop(row);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn random_numbers_depend_on_the_seed_alone() {
        let numbers = |seed| {
            let mut tensor = Tensor::zeros([100], (Kind::Float, Device::Cpu));
            fill_normal(&mut tensor, seed).unwrap();
            Vec::<f32>::try_from(&tensor).unwrap()
        };
        tch::manual_seed(1);
        let first = numbers(7);
        let global = f64::try_from(Tensor::rand([1], (Kind::Float, Device::Cpu))).unwrap();
        tch::manual_seed(1);
        assert_eq!(f64::try_from(Tensor::rand([1], (Kind::Float, Device::Cpu))).unwrap(), global);
        assert_eq!(first, numbers(7));
        assert_ne!(first, numbers(8));
        let mut uniform = Tensor::zeros([1000], (Kind::Float, Device::Cpu));
        fill_uniform(&mut uniform, 3).unwrap();
        assert!(f64::try_from(uniform.abs().max()).unwrap() < 1.0);
        assert!(f64::try_from(uniform.min()).unwrap() < -0.9);
    }

    #[test]
    fn what_libtorch_throws_becomes_an_error() {
        let mut tensor = Tensor::zeros([3], (Kind::Int, Device::Cpu));
        let error = fill_normal(&mut tensor, 1).unwrap_err();
        assert!(error.to_string().starts_with("libtorch: "), "{error}");
        if !cuda_is_available() {
            assert!(current_stream(0).is_err());
            assert_eq!(best_device(), Device::Cpu);
        }
    }
}
