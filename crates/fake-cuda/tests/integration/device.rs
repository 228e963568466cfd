//! The driver by `cudarc`'s bindings.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUstream};
use hsipack_testing::FakeDriver;

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

/// The stand-in's functions for tests.
pub fn fake() -> FakeDriver {
    FakeDriver::new()
}

/// Queues a consumer's reading of memory that should hold `want`.
pub fn read(stream: CUstream, address: CUdeviceptr, want: &[u8]) {
    fake().read(stream as usize, address, want);
}

/// Queues a consumer's writing.
pub fn write(stream: CUstream, address: CUdeviceptr, bytes: usize, value: u8) {
    fake().write(stream as usize, address, bytes, value);
}
