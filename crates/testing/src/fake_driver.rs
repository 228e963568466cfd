//! The functions that the stand-in for the CUDA driver exports for tests, for a process that runs
//! over it.

use std::ffi::{CString, c_char};
use std::time::Duration;

use libloading::Library;

/// The stand-in, in a process started by [`FakeCuda`](crate::FakeCuda). Streams and addresses are
/// those of the driver. Calls made here order nothing: they do not count as waiting by the program.
pub struct FakeDriver(Library);

impl FakeDriver {
    /// Finds the library, even if the process has not loaded it yet.
    ///
    /// # Panics
    /// If the library is missing, or is the real driver.
    #[expect(clippy::new_without_default, reason = "it loads a library")]
    pub fn new() -> Self {
        // SAFETY: loading the stand-in has no effect, and the driver's initialisers only set it up.
        let library = unsafe { Library::new("libcuda.so.1") }.expect("started by FakeCuda");
        // SAFETY: the symbol is only looked up, not called.
        unsafe { library.get::<fn()>(b"fake_cuda_finish") }.expect("the stand-in, not a driver");
        Self(library)
    }

    /// Queues a consumer's work on a stream that reads device memory, which should then contain
    /// `want`.
    ///
    /// # Panics
    /// As for all functions here, if the stand-in returns an error.
    pub fn read(&self, stream: usize, address: u64, want: &[u8]) {
        type Read = extern "C" fn(usize, u64, *const u8, usize, *const c_char) -> u32;
        let read: Read = self.function("fake_cuda_read");
        let what = c"the batch".as_ptr();
        check(read(stream, address, want.as_ptr(), want.len(), what));
    }

    /// Queues a consumer's work on a stream that fills device memory with `value`.
    pub fn write(&self, stream: usize, address: u64, bytes: usize, value: u8) {
        type Write = extern "C" fn(usize, u64, usize, u8) -> u32;
        let write: Write = self.function("fake_cuda_write");
        check(write(stream, address, bytes, value));
    }

    /// Pauses a stream.
    pub fn hold(&self, stream: usize) {
        let hold: extern "C" fn(usize) -> u32 = self.function("fake_cuda_hold");
        check(hold(stream));
    }

    /// Resumes a stream.
    pub fn release(&self, stream: usize) {
        let release: extern "C" fn(usize) -> u32 = self.function("fake_cuda_release");
        check(release(stream));
    }

    /// Resumes all streams, and waits until all queued work is done.
    pub fn finish(&self) {
        let finish: extern "C" fn() -> u32 = self.function("fake_cuda_finish");
        check(finish());
    }

    /// Makes the `nth` call of a driver function, counted from now and from 1, fail with the result
    /// of this number.
    pub fn fail(&self, function: &str, nth: u64, result: u32) {
        let fail: extern "C" fn(*const c_char, u64, u32) -> u32 = self.function("fake_cuda_fail");
        check(fail(c_text(function).as_ptr(), nth, result));
    }

    /// Loses the device: from now on, every call that works with it fails.
    pub fn lose(&self) {
        let lose: extern "C" fn() = self.function("fake_cuda_lose");
        lose();
    }

    /// Sets the total memory of a device in bytes.
    pub fn set_memory(&self, device: i32, bytes: usize) {
        let set: extern "C" fn(i32, usize) -> u32 = self.function("fake_cuda_set_memory");
        check(set(device, bytes));
    }

    /// Number of calls of a driver function.
    pub fn calls(&self, function: &str) -> u64 {
        let calls: extern "C" fn(*const c_char) -> u64 = self.function("fake_cuda_calls");
        calls(c_text(function).as_ptr())
    }

    /// Processor time that the program's threads spent in calls of the driver, which a measurement
    /// leaves out.
    pub fn time_in_calls(&self) -> Duration {
        let nanoseconds: extern "C" fn() -> u64 = self.function("fake_cuda_nanoseconds");
        Duration::from_nanos(nanoseconds())
    }

    /// The faults so far, such as `[unordered] fake_cuda_read: …`.
    pub fn faults(&self) -> Vec<String> {
        let count: extern "C" fn() -> usize = self.function("fake_cuda_faults");
        (0..count()).map(|index| self.fault(index)).collect()
    }

    fn fault(&self, index: usize) -> String {
        type Fault = extern "C" fn(usize, *mut c_char, usize) -> usize;
        let fault: Fault = self.function("fake_cuda_fault");
        let mut text = vec![0_u8; fault(index, std::ptr::null_mut(), 0) + 1];
        fault(index, text.as_mut_ptr().cast(), text.len());
        text.pop();
        String::from_utf8(text).expect("faults are UTF-8")
    }

    /// The function with this name; `F` must be its type in
    /// `crates/testing/fake-cuda/src/control.rs`.
    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the functions above pass the type that it has there; the library is the stand-in, and is never
        // unloaded.
        unsafe { *self.0.get::<F>(name).expect("the stand-in exports it") }
    }
}

fn check(result: u32) {
    assert_eq!(result, 0, "the stand-in refuses");
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("a name without NUL")
}
