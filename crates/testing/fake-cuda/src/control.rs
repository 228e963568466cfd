//! Functions for tests, in addition to the driver's. All names begin with `fake_cuda_`. They can be
//! called from any thread, with or without a current context. They order nothing: the host does not
//! count as having seen their work done.

use std::ffi::{c_char, c_uint};

use crate::abi::CUresult::{
    self, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE,
    CUDA_SUCCESS,
};
use crate::abi::{CUdeviceptr, CUstream, Out, Result, TextIn};
use crate::calls::{How, Order};
use crate::driver::{FUNCTIONS, WORLD};
use crate::host::Stretch;
use crate::state::{Caller, State};
use crate::world::{nanoseconds_in_calls, thread};

/// Number of faults.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_faults() -> usize {
    WORLD.lock("fake_cuda_faults").faults.count()
}

/// Writes the text of a fault, counted from 0, as far as it fits into `room` characters, and
/// returns its length; 0 if there is no such fault.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_fault(index: usize, text: Out<c_char>, room: usize) -> usize {
    let state = WORLD.lock("fake_cuda_fault");
    let fault = state.faults.text(index).unwrap_or_default();
    text.set_text(fault, room);
    fault.len()
}

/// Number of calls of a driver function.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_calls(function: TextIn) -> u64 {
    WORLD.lock("fake_cuda_calls").calls.made(&function.text())
}

/// Nanoseconds of processor time that the program's threads spent in calls of the driver, without
/// waiting.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_nanoseconds() -> u64 {
    nanoseconds_in_calls()
}

/// Queues a consumer's work on a stream: it reads device memory and compares it with `want`, which
/// is copied. `what` is its name in a fault.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_read(
    stream: CUstream,
    address: CUdeviceptr,
    want: usize,
    bytes: usize,
    what: TextIn,
) -> CUresult {
    WORLD.control("fake_cuda_read", |state| {
        let stream = state.consumer(stream, address)?;
        state.compare(stream, address, Stretch { start: want, bytes }.bytes(), what.text())
    })
}

/// Queues a consumer's work on a stream: it fills device memory with `value`.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_write(
    stream: CUstream,
    address: CUdeviceptr,
    bytes: usize,
    value: u8,
) -> CUresult {
    WORLD.control("fake_cuda_write", |state| {
        let stream = state.consumer(stream, address)?;
        state.fill(stream, address, bytes, value)
    })
}

/// Pauses a stream until it is released.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_hold(stream: CUstream) -> CUresult {
    WORLD.control("fake_cuda_hold", |state| state.hold(stream, true))
}

/// Resumes a stream.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_release(stream: CUstream) -> CUresult {
    WORLD.control("fake_cuda_release", |state| state.hold(stream, false))
}

/// Resumes all streams, and waits until all queued work is done.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_finish() -> CUresult {
    WORLD.finish("fake_cuda_finish").err().unwrap_or(CUDA_SUCCESS)
}

/// Makes the `nth` call of a driver function, counted from now and from 1, fail with a result.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_fail(function: TextIn, nth: u64, result: c_uint) -> CUresult {
    WORLD.control("fake_cuda_fail", |state| {
        let how = How::Result(CUresult::numbered(result).ok_or(CUDA_ERROR_INVALID_VALUE)?);
        let order = Order { function: function.text(), nth, how };
        let order = order.checked(FUNCTIONS).map_err(|why| state.bad_argument(why))?;
        state.calls.order(order);
        Ok(())
    })
}

/// Loses the device: from now on every call that works with it fails, and no queued work is done
/// any more.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_lose() {
    WORLD.control("fake_cuda_lose", |state| {
        state.lost = true;
        Ok(())
    });
}

/// Sets the total memory of a device in bytes.
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_set_memory(device: i32, bytes: usize) -> CUresult {
    WORLD.control("fake_cuda_set_memory", |state| {
        let device = state.contexts.device(device)?;
        *state.contexts.memory_mut(device) = bytes;
        Ok(())
    })
}

impl State {
    /// The stream of a consumer of some memory. Default streams belong to the memory's context.
    fn consumer(&mut self, stream: CUstream, address: CUdeviceptr) -> Result<usize> {
        if self.lost {
            return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        let caller = self.caller_for(thread(), address)?;
        self.stream(caller, stream)
    }

    /// Pauses or resumes a stream. Default streams belong to the current context, or to device 0.
    fn hold(&mut self, stream: CUstream, held: bool) -> Result<()> {
        let thread = thread();
        let primary = || self.contexts.primary(0).map(|(context, _)| context);
        let context = self.contexts.current(thread).or_else(primary);
        let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let stream = self.stream(Caller { thread, context }, stream)?;
        self.streams.hold(stream, held);
        Ok(())
    }
}

/// Tests look for this function's name in the library: it has it only if it can run kernels.
#[cfg(kernels)]
#[unsafe(no_mangle)]
extern "C" fn fake_cuda_runs_kernels() {}
