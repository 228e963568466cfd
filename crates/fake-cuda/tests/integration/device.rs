//! The driver by `cudarc`'s bindings, and the stand-in's functions beside it.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    self, CUcontext, CUdeviceptr, CUevent, CUresult, CUresult::CUDA_SUCCESS, CUstream, culib,
};

/// A call of the driver, and its result.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the stand-in takes any handle and any device address, and says what is wrong with it; values are
        // written where they may be, and host memory lives until copies are done, or the test is about that.
        unsafe { ::cudarc::driver::sys::$function($($argument),*) }
    };
}
pub(crate) use cu;

/// Calls that must succeed.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::device::cu!($function($($argument),*)),
            ::cudarc::driver::sys::CUresult::CUDA_SUCCESS,
            stringify!($function),
        )
    };
}
pub(crate) use ok;

/// Device `number`, its context retained and current in this thread.
pub struct Context {
    pub number: c_int,
    pub context: CUcontext,
}

impl Context {
    pub fn open(number: c_int) -> Self {
        ok!(cuInit(0));
        let mut context = ptr::null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut context, number));
        ok!(cuCtxPushCurrent_v2(context));
        Self { number, context }
    }

    pub fn close(self) {
        ok!(cuCtxPopCurrent_v2(&mut ptr::null_mut()));
        ok!(cuDevicePrimaryCtxRelease_v2(self.number));
    }
}

pub fn stream() -> CUstream {
    let mut stream = ptr::null_mut();
    ok!(cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint));
    stream
}

pub fn event() -> CUevent {
    let mut event = ptr::null_mut();
    ok!(cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint));
    event
}

/// An event behind all that is queued on a stream.
pub fn recorded(stream: CUstream) -> CUevent {
    let event = event();
    ok!(cuEventRecord(event, stream));
    event
}

pub fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&mut address, bytes));
    address
}

pub fn register(memory: &[u8]) {
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
    ok!(cuMemHostRegister_v2(start(memory), memory.len(), flags));
}

pub fn start(memory: &[u8]) -> *mut c_void {
    memory.as_ptr().cast_mut().cast()
}

/// Queues a copy of all of `from`.
pub fn copy(to: CUdeviceptr, from: &[u8], stream: CUstream) {
    ok!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream));
}

/// A function of the stand-in beside the driver's.
fn control<F: Copy>(name: &str) -> F {
    // SAFETY: the callers below give it the type that `control.rs` of the stand-in has.
    unsafe { *culib().get::<F>(name.as_bytes()).expect("the stand-in, not a driver") }
}

/// Queues a consumer's reading of memory that should hold `want`.
pub fn read(stream: CUstream, address: CUdeviceptr, want: &[u8]) {
    type Read = extern "C" fn(CUstream, CUdeviceptr, *const u8, usize, *const c_char) -> CUresult;
    let read: Read = control("fake_cuda_read");
    let what = c"the batch".as_ptr();
    assert_eq!(read(stream, address, want.as_ptr(), want.len(), what), CUDA_SUCCESS);
}

/// Queues a consumer's writing.
pub fn write(stream: CUstream, address: CUdeviceptr, bytes: usize, value: u8) {
    type Write = extern "C" fn(CUstream, CUdeviceptr, usize, u8) -> CUresult;
    let write: Write = control("fake_cuda_write");
    assert_eq!(write(stream, address, bytes, value), CUDA_SUCCESS);
}

pub fn hold(stream: CUstream) {
    let hold: extern "C" fn(CUstream) -> CUresult = control("fake_cuda_hold");
    assert_eq!(hold(stream), CUDA_SUCCESS);
}

pub fn release(stream: CUstream) {
    let release: extern "C" fn(CUstream) -> CUresult = control("fake_cuda_release");
    assert_eq!(release(stream), CUDA_SUCCESS);
}

pub fn finish() {
    let finish: extern "C" fn() -> CUresult = control("fake_cuda_finish");
    assert_eq!(finish(), CUDA_SUCCESS);
}

pub fn lose() {
    let lose: extern "C" fn() = control("fake_cuda_lose");
    lose();
}

pub fn fail(function: &str, nth: u64, result: CUresult) -> CUresult {
    let fail: extern "C" fn(*const c_char, u64, CUresult) -> CUresult = control("fake_cuda_fail");
    let function = CString::new(function).unwrap();
    fail(function.as_ptr(), nth, result)
}

pub fn set_memory(device: c_int, bytes: usize) {
    let set: extern "C" fn(c_int, usize) -> CUresult = control("fake_cuda_set_memory");
    assert_eq!(set(device, bytes), CUDA_SUCCESS);
}

pub fn calls(function: &str) -> u64 {
    let calls: extern "C" fn(*const c_char) -> u64 = control("fake_cuda_calls");
    let function = CString::new(function).unwrap();
    calls(function.as_ptr())
}

/// The texts of all faults so far.
pub fn faults() -> Vec<String> {
    let count: extern "C" fn() -> usize = control("fake_cuda_faults");
    let fault: extern "C" fn(usize, *mut c_char, usize) -> usize = control("fake_cuda_fault");
    let text = |place| {
        let mut text = vec![0_u8; fault(place, ptr::null_mut(), 0) + 1];
        fault(place, text.as_mut_ptr().cast(), text.len());
        text.pop();
        String::from_utf8(text).unwrap()
    };
    (0..count()).map(text).collect()
}
