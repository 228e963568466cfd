//! Programs without misuse have no faults, whatever the order of streams.

use std::ptr;

use cudarc::driver::sys::{self, CUresult, CUstream};
use hsipack_testing::FakeCuda;

use crate::device::{
    Context, Mapped, allocate, copy, cu, event, fake, ok, read, recorded, register, start, stream,
    write,
};
use crate::transfer::{Consumer, Without, transfer};

fn runs_clean(test: &str, seed: u64) {
    let cuda = FakeCuda::new();
    let mut command = cuda.test(&format!("use_it_right::{test}"));
    cuda.assert_clean(command.env("FAKE_CUDA_SEED", seed.to_string()));
}

#[test]
fn transfers_to_every_sort_of_stream_have_no_faults() {
    (0..10).for_each(|seed| runs_clean("transfers", seed));
}

#[test]
#[ignore = "run by the test above"]
fn transfers() {
    for consumer in [0, 1, 2].map(Consumer::Default).into_iter().chain([Consumer::Own]) {
        transfer(consumer, Without::Nothing);
    }
    assert_eq!(fake().calls("cuMemcpyHtoDAsync_v2"), 4 * 16);
    assert_eq!(fake().calls("cuStreamSynchronize"), 4);
}

#[test]
fn the_bindings_of_every_function_fit() {
    runs_clean("every_function", 1);
}

#[test]
#[ignore = "run by the test above"]
fn every_function() {
    // SAFETY: loads and unloads the library, like programs that look for a driver.
    assert!(unsafe { sys::is_culib_present() });
    let context = Context::open(0);
    questions();
    pointers();
    copies_of_all_sorts();
    copies_of_mapped_files();
    default_streams_wait_for_others();
    events_and_streams_say_when_they_are_done();
    memory_in_the_order_of_streams();
    memory_that_is_freed_can_be_had_again();
    context.close();
    assert_eq!(fake().faults(), [""; 0]);
}

/// A file that becomes shorter while it is registered keeps the bytes that the device reads. Then
/// it is refused.
fn copies_of_mapped_files() {
    const BYTES: usize = 3 * 4096;
    let content: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (file, to, stream) = (Mapped::of(&content), allocate(BYTES), stream());
    let flags = sys::CU_MEMHOSTREGISTER_READ_ONLY | sys::CU_MEMHOSTREGISTER_PORTABLE;
    // Without the flag, memory must be writable.
    let plain = cu!(cuMemHostRegister_v2(file.start(), BYTES, sys::CU_MEMHOSTREGISTER_PORTABLE));
    assert_eq!(plain, CUresult::CUDA_ERROR_INVALID_VALUE);
    let mut attribute = 0;
    ok!(cuDeviceGetAttribute(
        &mut attribute,
        sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
        0
    ));
    assert_eq!(attribute, 1);
    ok!(cuMemHostRegister_v2(file.start(), BYTES, flags));
    ok!(cuMemcpyHtoDAsync_v2(to, file.start(), BYTES, stream));
    read(stream, to, &content);
    file.file.set_len(4096).unwrap();
    let again = allocate(BYTES);
    ok!(cuMemcpyHtoDAsync_v2(again, file.start(), BYTES, stream));
    read(stream, again, &content);
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemHostUnregister(file.start()));
    let cut = cu!(cuMemHostRegister_v2(file.start(), BYTES, flags));
    assert_eq!(cut, CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemHostRegister_v2(file.start(), 4096, flags));
    ok!(cuMemHostUnregister(file.start()));
    ok!(cuStreamDestroy_v2(stream));
    ok!(cuMemFree_v2(to));
    ok!(cuMemFree_v2(again));
}

fn questions() {
    let mut number = 0;
    ok!(cuDriverGetVersion(&mut number));
    assert_eq!(number, 12080);
    ok!(cuDeviceGetCount(&mut number));
    assert_eq!(number, 1);
    ok!(cuDeviceGet(&mut number, 0));
    assert_eq!(cu!(cuDeviceGet(&mut number, 1)), CUresult::CUDA_ERROR_INVALID_DEVICE);
    let text = |text: &[std::ffi::c_char]| {
        let text: Vec<u8> = text.iter().map(|byte| *byte as u8).take_while(|b| *b > 0).collect();
        String::from_utf8(text).unwrap()
    };
    let mut room = [1; 32];
    ok!(cuDeviceGetPCIBusId(room.as_mut_ptr(), 32, 0));
    assert_eq!(text(&room), "0000:3b:00.0");
    ok!(cuDeviceGetName(room.as_mut_ptr(), 5, 0));
    assert_eq!(text(&room), "Fake");
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    ok!(cuDeviceGetAttribute(&mut number, attribute, 0));
    assert_eq!(number, 9);
    ok!(cuCtxGetDevice(&mut number));
    assert_eq!(number, 0);
    let mut current = ptr::null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    ok!(cuCtxSetCurrent(current));
    let (mut free, mut total, mut bytes) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cuDeviceTotalMem_v2(&mut bytes, 0));
    assert_eq!((free, total, bytes), (1 << 30, 1 << 30, 1 << 30));
    let mut name = ptr::null();
    ok!(cuGetErrorName(CUresult::CUDA_ERROR_OUT_OF_MEMORY, &mut name));
    // SAFETY: the driver's texts end with NUL.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"CUDA_ERROR_OUT_OF_MEMORY");
    ok!(cuGetErrorString(CUresult::CUDA_ERROR_OUT_OF_MEMORY, &mut name));
    // SAFETY: as above.
    assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"out of memory");
}

fn pointers() {
    use sys::CUpointer_attribute as Attribute;
    let memory = allocate(100);
    let mut sort = 0_u32;
    let kind = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ok!(cuPointerGetAttribute(ptr::from_mut(&mut sort).cast(), kind, memory + 99));
    assert_eq!(sort, sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as u32);
    let mut first = 0;
    let range = Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR;
    ok!(cuPointerGetAttribute(ptr::from_mut(&mut first).cast(), range, memory + 99));
    assert_eq!(first, memory);
    let host = [0; 8];
    let address = start(&host) as u64;
    let result = cu!(cuPointerGetAttribute(ptr::from_mut(&mut sort).cast(), kind, address));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
    register(&host);
    ok!(cuPointerGetAttribute(ptr::from_mut(&mut sort).cast(), kind, address));
    assert_eq!(sort, sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32);
    let mut flags = 0;
    ok!(cuMemHostGetFlags(&mut flags, start(&host)));
    assert_eq!(flags, sys::CU_MEMHOSTREGISTER_PORTABLE);
    ok!(cuMemHostUnregister(start(&host)));
    ok!(cuMemFree_v2(memory));
}

fn copies_of_all_sorts() {
    let (memory, other) = (allocate(8), allocate(8));
    let mut back = [0_u8; 8];
    ok!(cuMemcpyHtoD_v2(memory, [1_u8, 2, 3, 4, 5, 6, 7, 8].as_ptr().cast(), 8));
    let stream = stream();
    ok!(cuMemcpyDtoDAsync_v2(other + 4, memory, 4, stream));
    ok!(cuStreamSynchronize(stream));
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), other, 8));
    assert_eq!(back, [0xAB, 0xAB, 0xAB, 0xAB, 1, 2, 3, 4]);
    register(&back);
    fake().hold(stream as usize);
    ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), memory, 8, stream));
    assert_eq!(back, [0xDB; 8], "nobody may look at it yet");
    fake().release(stream as usize);
    ok!(cuStreamSynchronize(stream));
    assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
    ok!(cuMemHostUnregister(start(&back)));
    ok!(cuStreamDestroy_v2(stream));
    for memory in [memory, other] {
        ok!(cuMemFree_v2(memory));
    }
}

/// Streams that are not non-blocking wait for the default stream, and the default stream waits for
/// them.
fn default_streams_wait_for_others() {
    let mut blocking = ptr::null_mut();
    ok!(cuStreamCreate(&mut blocking, 0));
    let memory = allocate(8);
    let streams = [blocking, ptr::null_mut(), 2 as CUstream, 1 as CUstream, blocking];
    for (value, stream) in streams.into_iter().enumerate() {
        write(stream, memory, 8, value as u8);
        read(stream, memory, &[value as u8; 8]);
    }
    // Work queued on it is still done.
    ok!(cuStreamDestroy_v2(blocking));
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(memory));
}

fn events_and_streams_say_when_they_are_done() {
    let (stream, never) = (stream(), event());
    ok!(cuEventQuery(never));
    ok!(cuEventSynchronize(never));
    fake().hold(stream as usize);
    let event = recorded(stream);
    assert_eq!(cu!(cuEventQuery(event)), CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!(cu!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_NOT_READY);
    fake().finish();
    ok!(cuEventQuery(event));
    ok!(cuStreamQuery(stream));
    times_are_measured_between_events(stream);
    for event in [event, never] {
        ok!(cuEventDestroy_v2(event));
    }
    ok!(cuStreamDestroy_v2(stream));
}

fn times_are_measured_between_events(stream: CUstream) {
    let timed = || {
        let mut event = ptr::null_mut();
        ok!(cuEventCreate(&mut event, 0));
        ok!(cuEventRecord(event, stream));
        event
    };
    let first = timed();
    ok!(cuEventSynchronize(first));
    std::thread::sleep(std::time::Duration::from_millis(5));
    fake().hold(stream as usize);
    let second = timed();
    let mut milliseconds = 0.0;
    let early = cu!(cuEventElapsedTime(&mut milliseconds, first, second));
    assert_eq!(early, CUresult::CUDA_ERROR_NOT_READY);
    fake().release(stream as usize);
    ok!(cuEventSynchronize(second));
    ok!(cuEventElapsedTime(&mut milliseconds, first, second));
    assert!(milliseconds >= 5.0, "{milliseconds} ms");
    for event in [first, second] {
        ok!(cuEventDestroy_v2(event));
    }
}

/// Stream-ordered memory: work queued before the free can still use it.
fn memory_in_the_order_of_streams() {
    let (first, second) = (stream(), stream());
    fake().hold(first as usize);
    let mut memory = 0;
    ok!(cuMemAllocAsync(&mut memory, 8, first));
    write(first, memory, 8, 3);
    let written = recorded(first);
    ok!(cuStreamWaitEvent(second, written, 0));
    read(second, memory, &[3; 8]);
    ok!(cuMemFreeAsync(memory, second));
    fake().release(first as usize);
    ok!(cuEventDestroy_v2(written));
    for stream in [first, second] {
        ok!(cuStreamDestroy_v2(stream));
    }
    fake().finish();
}

/// Operations that the host has waited for need no further ordering.
fn memory_that_is_freed_can_be_had_again() {
    let host = [7; 64];
    register(&host);
    for _ in 0..20 {
        let (memory, first, second) = (allocate(64), stream(), stream());
        copy(memory, &host, first);
        ok!(cuStreamSynchronize(first));
        copy(memory, &host, second);
        ok!(cuStreamSynchronize(second));
        ok!(cuMemFree_v2(memory));
        for stream in [first, second] {
            ok!(cuStreamDestroy_v2(stream));
        }
    }
    ok!(cuMemHostUnregister(start(&host)));
}
