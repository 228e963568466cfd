//! The driver, called through the bindings of `cudarc`.

use std::ffi::{c_int, c_uint, c_void};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUevent, CUstream};
use hsipack_testing::FakeDriver;

/// Calls a driver function, and returns its result.
macro_rules! cu {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the stand-in accepts any handle and any device address, and says what is wrong with it. Values are
        // written to valid memory, and host memory lives until copies are done, unless the test is about that.
        unsafe { ::cudarc::driver::sys::$function($($argument),*) }
    };
}
pub(crate) use cu;

/// Calls a driver function, which must succeed.
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

/// Device `number`, with its context retained and current in this thread.
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

/// An event recorded after everything queued on a stream.
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

/// Queues a copy of the whole of `from`.
pub fn copy(to: CUdeviceptr, from: &[u8], stream: CUstream) {
    ok!(cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream));
}

/// The functions of the stand-in for tests.
pub fn fake() -> FakeDriver {
    FakeDriver::new()
}

/// Queues a read by a consumer of memory that should contain `want`.
pub fn read(stream: CUstream, address: CUdeviceptr, want: &[u8]) {
    fake().read(stream as usize, address, want);
}

/// Queues a write by a consumer.
pub fn write(stream: CUstream, address: CUdeviceptr, bytes: usize, value: u8) {
    fake().write(stream as usize, address, bytes, value);
}

/// A shared, read-only map of a file.
pub struct Mapped {
    pub file: File,
    start: *mut c_void,
    bytes: usize,
}

impl Mapped {
    pub fn of(content: &[u8]) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let (bytes, descriptor) = (content.len(), file.as_raw_fd());
        // SAFETY: a new map, at an address that the system chooses.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0)
        };
        assert!(start != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { file, start, bytes }
    }

    pub fn start(&self) -> *mut c_void {
        self.start
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped once, unmapped once; its address is only given to the stand-in.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}
