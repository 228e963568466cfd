//! Errors that are requested, and other settings for tests.

use std::os::unix::process::ExitStatusExt as _;

use cudarc::driver::sys::CUresult;
use hsipack_testing::FakeCuda;

use crate::device::{
    Context, allocate, copy, cu, event, fake, ok, recorded, register, start, stream,
};

#[test]
fn calls_fail_that_are_told_to() {
    let cuda = FakeCuda::new();
    let mut command = cuda.test("settings::calls_that_fail");
    let fail = "cuMemHostRegister_v2:2:CUDA_ERROR_OPERATING_SYSTEM,cuInit:1:CUDA_ERROR_NO_DEVICE";
    cuda.assert_clean(command.env("FAKE_CUDA_FAIL", fail));
}

#[test]
#[ignore = "run by the test above"]
fn calls_that_fail() {
    assert_eq!(cu!(cuInit(0)), CUresult::CUDA_ERROR_NO_DEVICE);
    let context = Context::open(0);
    let (buffer, other) = ([0; 8], [0; 8]);
    register(&buffer);
    let result = cu!(cuMemHostRegister_v2(start(&other), 8, 0));
    assert_eq!(result, CUresult::CUDA_ERROR_OPERATING_SYSTEM);
    // A call that frees something does so even if it fails.
    fake().fail("cuMemHostUnregister", 1, CUresult::CUDA_ERROR_LAUNCH_FAILED as u32);
    let result = cu!(cuMemHostUnregister(start(&buffer)));
    assert_eq!(result, CUresult::CUDA_ERROR_LAUNCH_FAILED);
    // Counted from now on.
    allocate_and_free();
    fake().fail("cuMemAlloc_v2", 2, CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    allocate_and_free();
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 8)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    allocate_and_free();
    assert_eq!(fake().calls("cuMemAlloc_v2"), 4);
    context.close();
}

fn allocate_and_free() {
    ok!(cuMemFree_v2(allocate(8)));
}

#[test]
fn an_order_that_cannot_be_carried_out_is_refused() {
    for (order, why) in [
        ("cuMemAlloc:1:CUDA_ERROR_OUT_OF_MEMORY", "'cuMemAlloc' is no function of the stand-in"),
        ("cuMemAlloc_v2:1:OOPS", "'OOPS' is no result"),
        ("cuMemAlloc_v2:1", "is not function:nth:result"),
    ] {
        let cuda = FakeCuda::new();
        let mut command = cuda.test("settings::memory_that_is_out");
        let output = command.env("FAKE_CUDA_FAIL", order).output().unwrap();
        assert!(output.status.signal().is_some(), "{order}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{order}: {output:?}");
    }
}

#[test]
fn memory_is_as_large_as_it_is_said_to_be() {
    let cuda = FakeCuda::new();
    cuda.assert_clean(cuda.test("settings::memory_that_is_out").env("FAKE_CUDA_MEMORY", "1000"));
}

#[test]
#[ignore = "run by the test above"]
fn memory_that_is_out() {
    let context = Context::open(0);
    let memory = allocate(600);
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 401)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    fake().set_memory(0, 1001);
    let other = allocate(401);
    for memory in [memory, other] {
        ok!(cuMemFree_v2(memory));
    }
    context.close();
}

#[test]
fn drivers_can_be_old_and_have_no_device() {
    let cuda = FakeCuda::new();
    let mut command = cuda.test("settings::an_old_driver_without_a_device");
    let command = command.env("FAKE_CUDA_VERSION", "11040").env("FAKE_CUDA_DEVICES", "0");
    cuda.assert_clean(command);
}

#[test]
#[ignore = "run by the test above"]
fn an_old_driver_without_a_device() {
    let mut version = 0;
    ok!(cuDriverGetVersion(&mut version));
    assert_eq!(version, 11040);
    assert_eq!(cu!(cuInit(0)), CUresult::CUDA_ERROR_NO_DEVICE);
}

/// Nothing that happens with a lost device is a fault, because a program cannot free anything.
#[test]
fn a_device_can_be_lost() {
    for fail in ["cuEventQuery:1:lost", ""] {
        let cuda = FakeCuda::new();
        cuda.assert_clean(cuda.test("settings::lost_device").env("FAKE_CUDA_FAIL", fail));
    }
}

#[test]
#[ignore = "run by the test above"]
fn lost_device() {
    let _context = Context::open(0);
    let (host, memory, stream) = ([0; 8], allocate(8), stream());
    register(&host);
    let event = event();
    if std::env::var("FAKE_CUDA_FAIL").unwrap().is_empty() {
        fake().lose();
    }
    let lost = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    assert_eq!(cu!(cuEventQuery(event)), lost);
    assert_eq!(cu!(cuMemcpyHtoDAsync_v2(memory, start(&host), 8, stream)), lost);
    assert_eq!(cu!(cuStreamSynchronize(stream)), lost);
    assert_eq!(cu!(cuMemFree_v2(memory)), lost);
    ok!(cuCtxPopCurrent_v2(&mut std::ptr::null_mut()));
}

/// A wait ends with an error if the device is lost meanwhile.
#[test]
fn a_wait_ends_when_the_device_is_lost() {
    let cuda = FakeCuda::new();
    cuda.assert_clean(&mut cuda.test("settings::lost_while_waiting"));
}

#[test]
#[ignore = "run by the test above"]
fn lost_while_waiting() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    let stream = stream();
    fake().hold(stream as usize);
    copy(allocate(8), &host, stream);
    let copied = recorded(stream);
    let lost = std::thread::spawn(|| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        fake().lose();
    });
    assert_eq!(cu!(cuEventSynchronize(copied)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    lost.join().unwrap();
}

/// Programs may unload the driver, even after using it.
#[test]
fn the_library_stays_when_it_is_unloaded() {
    let cuda = FakeCuda::new();
    cuda.assert_clean(&mut cuda.test("settings::unload_it"));
}

#[test]
#[ignore = "run by the test above"]
fn unload_it() {
    // SAFETY: the function has the type from `cuda.h`, and is called while the library is loaded.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let function = libc::dlsym(library, c"cuInit".as_ptr());
        assert!(!function.is_null());
        let init: extern "C" fn(u32) -> u32 = std::mem::transmute(function);
        assert_eq!(init(0), 0);
        assert_eq!(libc::dlclose(library), 0);
    }
    std::thread::sleep(std::time::Duration::from_millis(5));
    Context::open(0).close();
}

/// As with a real device, the host cannot access its memory.
#[test]
fn reading_device_memory_from_the_host_crashes() {
    let cuda = FakeCuda::new();
    let output = cuda.test("settings::look_at_device_memory").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
}

#[test]
#[ignore = "run by the test above"]
fn look_at_device_memory() {
    let _context = Context::open(0);
    let memory = allocate(8);
    // SAFETY: not safe: it crashes, and this is what is tested.
    let byte = unsafe { std::ptr::read_volatile(memory as *const u8) };
    println!("{byte}");
}

/// Without settings, a program keeps its own exit status, and the report goes to standard error.
#[test]
fn without_settings_faults_are_told_and_change_nothing() {
    let cuda = FakeCuda::new();
    let mut command = cuda.test("settings::a_leak");
    let command = command.env_remove("FAKE_CUDA_REPORT").env_remove("FAKE_CUDA_EXIT_STATUS");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("fake CUDA: fault [leak] exit: 1 event(s) not given back"), "{stderr}");
    assert!(stderr.contains("fake CUDA: end: 2 faults"), "{stderr}");
}

#[test]
#[ignore = "run by the test above"]
fn a_leak() {
    let _context = Context::open(0);
    event();
    ok!(cuCtxPopCurrent_v2(&mut std::ptr::null_mut()));
}
