//! Each kind of misuse is found, in its own process.

use std::ptr;

use cudarc::driver::sys::{self, CUresult};
use hsipack_testing::{FakeCuda, skipped};

use crate::device::{
    Context, Mapped, allocate, copy, cu, event, fake, ok, read, recorded, register, start, stream,
    write,
};
use crate::kernels::{Kernel, frame};
use crate::transfer::{Consumer, Without, transfer};

/// Name, program, beginning of the fault's text, and other words in that text.
type Misuse = (&'static str, fn(), &'static str, &'static str);

const MISUSES: &[Misuse] = &[
    ("before cuInit", before_init, "[bad-argument] cuDeviceGetCount", "cuInit was not called"),
    ("no context", no_context, "[no-context] cuMemAlloc_v2", "no context is current"),
    ("nothing to pop", nothing_to_pop, "[no-context] cuCtxPopCurrent_v2", "nothing to pop"),
    ("event elsewhere", event_elsewhere, "[wrong-context] cuEventRecord", "different contexts"),
    ("event without times", untimed_event, "[bad-argument] cuEventElapsedTime", "without times"),
    ("memory elsewhere", memory_elsewhere, "[wrong-context] cuMemcpyHtoDAsync_v2", "the memory"),
    ("registered elsewhere", registered_elsewhere, "[unregistered-memory]", "is not registered"),
    ("unregistered", unregistered, "[unregistered-memory] cuMemcpyHtoDAsync_v2", "64 bytes"),
    ("back to unregistered", back_to_unregistered, "[unregistered-memory] cuMemcpyDtoHAsync", "8 "),
    ("beyond", beyond, "[unregistered-memory] cuMemcpyHtoDAsync_v2", "beyond what is registered"),
    ("across two", across_two, "[unregistered-memory] cuMemcpyHtoDAsync_v2", "beyond what is"),
    ("private memory", private_memory, "[private-memory] cuMemHostRegister_v2", "hangs"),
    ("written by the device", written_back, "[bad-argument] cuMemcpyDtoHAsync_v2", "read-only"),
    ("file left", file_left, "[leak] exit", "1 registration(s)"),
    ("file unmapped", file_unmapped, "[unregistered-in-use] cuMemHostUnregister", "was unmapped"),
    ("registered twice", registered_twice, "[bad-argument] cuMemHostRegister_v2", "before"),
    ("unregistered twice", unregistered_twice, "[bad-argument] cuMemHostUnregister", "was not"),
    ("unregistered in use", in_use, "[unregistered-in-use] cuMemHostUnregister", "1 copies"),
    ("unmapped", unmapped, "[unregistered-in-use] cuMemHostUnregister", "was unmapped"),
    ("unmapped in use", unmapped_in_use, "[unregistered-in-use] the device", "a copy was queued"),
    ("no wait of the host", no_wait_of_host, "[host-memory-changed]", "while a copy read it"),
    ("written too early", written_too_early, "[host-memory-changed] cuEventSynchronize", "4 bytes"),
    (
        "no fence",
        no_fence,
        "[unordered] cuMemcpyHtoDAsync_v2",
        "the consumer's reading of the batch",
    ),
    ("no wait", no_wait, "[unordered] fake_cuda_read", "behind the copy from the host on stream"),
    ("no wait at the end", no_wait_at_end, "[freed-in-use] cuMemFree_v2", "nobody has waited"),
    ("early event", early_event, "[unordered] fake_cuda_write", "the consumer's reading"),
    ("beyond the memory", beyond_memory, "[outside-allocation] cuMemcpyHtoDAsync_v2", "65 bytes"),
    ("used after free", used_after_free, "[use-after-free] cuMemcpyHtoDAsync_v2", "was freed"),
    ("freed twice", freed_twice, "[double-free] cuMemFree_v2", "was freed before"),
    ("freed inside", freed_inside, "[outside-allocation] cuMemFree_v2", "not the start"),
    ("freed before", freed_before_use, "[unordered] cuMemFreeAsync", "the copy from the host"),
    ("used before", used_before_allocation, "[unordered] cuMemcpyHtoDAsync_v2", "the allocation"),
    ("dead event", dead_event, "[bad-handle] cuEventQuery", "the event was destroyed"),
    ("dead stream", dead_stream, "[bad-handle] cuStreamQuery", "the stream was destroyed"),
    ("no stream", no_stream, "[bad-handle] cuStreamQuery", "is no stream"),
    ("dead context", dead_context, "[bad-handle] cuCtxPushCurrent_v2", "was released"),
    ("current, but dead", current_but_dead, "[bad-handle] cuMemAlloc_v2", "context was released"),
    ("released twice", released_twice, "[bad-handle] cuDevicePrimaryCtxRelease_v2", "not retained"),
    ("memory left", memory_left, "[leak] exit", "1 allocation(s)"),
    ("registration left", registration_left, "[leak] exit", "1 registration(s)"),
    ("stream left", stream_left, "[leak] exit", "1 stream(s)"),
    ("event left", event_left, "[leak] cuDevicePrimaryCtxRelease_v2", "1 event(s)"),
    ("context left", context_left, "[leak] exit", "still retained 1 times"),
    ("context pushed", context_pushed, "[leak] exit", "pushed and not popped"),
    ("other bytes", other_bytes, "[wrong-bytes] the device", "the batch holds other bytes"),
    ("stuck", stuck, "[stuck] cuStreamSynchronize", "not done after 1s"),
    ("no module", no_module, "[bad-argument] cuModuleLoadData", "knows no module \"// other"),
    ("no kernel", no_kernel, "[bad-argument] cuModuleGetFunction", "no kernel \"decode\""),
    ("other grid", other_grid, "[bad-argument] cuLaunchKernel", "grid: [3, 1, 1]"),
    ("unordered kernel", unordered_kernel, "[unordered] cuLaunchKernel", "copy from the host"),
    ("kernel beyond", kernel_beyond, "[outside-allocation] the device", "beyond the kernel's"),
    ("module left", module_left, "[leak] cuDevicePrimaryCtxRelease_v2", "1 module(s)"),
    ("forked", forked, "[forked] cuCtxGetCurrent", "called in a forked process"),
];

/// Misuses that need a kernel, for which the stand-in needs a compiler.
const KERNELS: &[&str] =
    &["no kernel", "other grid", "unordered kernel", "kernel beyond", "module left"];

#[test]
fn each_misuse_is_found() {
    let has_kernels = FakeCuda::has_kernels();
    if !has_kernels {
        skipped("misuse of kernels: there is no C++ compiler");
    }
    for (name, _, begins, says) in MISUSES {
        if !has_kernels && KERNELS.contains(name) {
            continue;
        }
        let cuda = FakeCuda::new();
        let mut command = cuda.test("misuse::misuse_in_a_process_of_its_own");
        let command = command.env("MISUSE", name).env("FAKE_CUDA_DEVICES", "2");
        let output = command.env("FAKE_CUDA_PATIENCE", "1").output().unwrap();
        let faults = cuda.faults();
        let first = faults.first().unwrap_or_else(|| panic!("{name}: no fault; {output:?}"));
        assert!(first.starts_with(begins) && first.contains(says), "{name}: {faults:?}");
        let wants = if *name == "forked" { 0 } else { FakeCuda::FAULTS };
        assert_eq!(output.status.code(), Some(wants), "{name}: {output:?}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn misuse_in_a_process_of_its_own() {
    let name = std::env::var("MISUSE").expect("the test above sets it");
    let (_, plant, ..) = MISUSES.iter().find(|(candidate, ..)| *candidate == name).unwrap();
    plant();
}

fn before_init() {
    assert_eq!(cu!(cuDeviceGetCount(&mut 0)), CUresult::CUDA_ERROR_NOT_INITIALIZED);
}

fn no_context() {
    ok!(cuInit(0));
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 64)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

fn nothing_to_pop() {
    ok!(cuInit(0));
    let result = cu!(cuCtxPopCurrent_v2(&mut ptr::null_mut()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

fn event_elsewhere() {
    let _first = Context::open(0);
    let stream = stream();
    let _second = Context::open(1);
    let result = cu!(cuEventRecord(event(), stream));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_HANDLE);
}

fn untimed_event() {
    let context = Context::open(0);
    let stream = stream();
    let event = recorded(stream);
    let mut milliseconds = 0.0;
    let result = cu!(cuEventElapsedTime(&mut milliseconds, event, event));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_HANDLE);
    ok!(cuEventDestroy_v2(event));
    ok!(cuStreamDestroy_v2(stream));
    context.close();
}

fn memory_elsewhere() {
    let _first = Context::open(0);
    let memory = allocate(8);
    let _second = Context::open(1);
    let host = [0; 8];
    register(&host);
    let result = cu!(cuMemcpyHtoDAsync_v2(memory, start(&host), 8, ptr::null_mut()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn registered_elsewhere() {
    let _first = Context::open(0);
    let host = [0; 8];
    ok!(cuMemHostRegister_v2(start(&host), 8, 0));
    let _second = Context::open(1);
    copy(allocate(8), &host, stream());
}

fn unregistered() {
    let _context = Context::open(0);
    copy(allocate(64), &[0; 64], stream());
}

fn back_to_unregistered() {
    let _context = Context::open(0);
    let (memory, mut host, stream) = (allocate(8), [0_u8; 8], stream());
    ok!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), memory, 8, stream));
}

fn beyond() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host[..7]);
    let result = cu!(cuMemcpyHtoDAsync_v2(allocate(8), start(&host), 8, stream()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn across_two() {
    let _context = Context::open(0);
    let host = [0; 16];
    register(&host[..8]);
    register(&host[8..]);
    let to = allocate(16);
    copy(to, &host[..8], stream());
    let result = cu!(cuMemcpyHtoDAsync_v2(to, start(&host[4..]), 8, stream()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn private_memory() {
    let _context = Context::open(0);
    let host = [0; 8];
    let flags = sys::CU_MEMHOSTREGISTER_READ_ONLY;
    let result = cu!(cuMemHostRegister_v2(start(&host), 8, flags));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn written_back() {
    let _context = Context::open(0);
    let file = Mapped::of(&[3; 100]);
    ok!(cuMemHostRegister_v2(file.start(), 100, sys::CU_MEMHOSTREGISTER_READ_ONLY));
    let result = cu!(cuMemcpyDtoHAsync_v2(file.start(), allocate(8), 8, stream()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn file_left() {
    let _context = Context::open(0);
    let file = Mapped::of(&[3; 100]);
    ok!(cuMemHostRegister_v2(file.start(), 100, sys::CU_MEMHOSTREGISTER_READ_ONLY));
}

fn file_unmapped() {
    let _context = Context::open(0);
    let file = Mapped::of(&[3; 100]);
    let start = file.start();
    ok!(cuMemHostRegister_v2(start, 100, sys::CU_MEMHOSTREGISTER_READ_ONLY));
    drop(file);
    ok!(cuMemHostUnregister(start));
}

fn registered_twice() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    let result = cu!(cuMemHostRegister_v2(start(&host[4..]), 4, 0));
    assert_eq!(result, CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

fn unregistered_twice() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    ok!(cuMemHostUnregister(start(&host)));
    let result = cu!(cuMemHostUnregister(start(&host)));
    assert_eq!(result, CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

/// A fault even if the copy is done, because the program has not waited for it.
fn in_use() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    copy(allocate(8), &host, stream());
    fake().finish();
    ok!(cuMemHostUnregister(start(&host)));
}

/// A registered page.
fn page() -> &'static [u8] {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping of one page.
    let page = unsafe {
        let page =
            libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        std::slice::from_raw_parts(page.cast(), 4096)
    };
    register(page);
    page
}

fn unmap(page: &'static [u8]) {
    // SAFETY: the page is not accessed again.
    assert_eq!(unsafe { libc::munmap(start(page), page.len()) }, 0);
}

fn unmapped() {
    let _context = Context::open(0);
    let page = page();
    unmap(page);
    ok!(cuMemHostUnregister(start(page)));
}

fn unmapped_in_use() {
    let _context = Context::open(0);
    let (page, stream) = (page(), stream());
    fake().hold(stream as usize);
    copy(allocate(page.len()), page, stream);
    unmap(page);
    fake().finish();
}

fn no_wait_of_host() {
    transfer(Consumer::Own, Without::WaitOfHost);
}

/// Written after the copy is done, but before the program can know that.
fn written_too_early() {
    let _context = Context::open(0);
    let mut host = vec![0; 4];
    register(&host);
    let stream = stream();
    copy(allocate(4), &host, stream);
    let copied = recorded(stream);
    fake().finish();
    host.fill(1);
    ok!(cuEventSynchronize(copied));
}

fn no_fence() {
    transfer(Consumer::Own, Without::Fence);
}

fn no_wait() {
    transfer(Consumer::Default(0), Without::WaitForCopy);
}

fn no_wait_at_end() {
    transfer(Consumer::Own, Without::WaitAtEnd);
}

/// An event that was recorded before the work that it should cover.
fn early_event() {
    let _context = Context::open(0);
    let (memory, first, second) = (allocate(8), stream(), stream());
    let fence = recorded(first);
    read(first, memory, &[0xAB; 8]);
    ok!(cuStreamWaitEvent(second, fence, 0));
    write(second, memory, 8, 1);
}

fn beyond_memory() {
    let _context = Context::open(0);
    let host = [0; 65];
    register(&host);
    let result = cu!(cuMemcpyHtoDAsync_v2(allocate(64), start(&host), 65, stream()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn used_after_free() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    let memory = allocate(8);
    ok!(cuMemFree_v2(memory));
    let result = cu!(cuMemcpyHtoDAsync_v2(memory, start(&host), 8, stream()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn freed_twice() {
    let _context = Context::open(0);
    let memory = allocate(8);
    ok!(cuMemFree_v2(memory));
    assert_eq!(cu!(cuMemFree_v2(memory)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn freed_inside() {
    let _context = Context::open(0);
    let result = cu!(cuMemFree_v2(allocate(8) + 4));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
}

fn freed_before_use() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    let memory = allocate(8);
    copy(memory, &host, stream());
    ok!(cuMemFreeAsync(memory, stream()));
}

fn used_before_allocation() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
    let mut memory = 0;
    ok!(cuMemAllocAsync(&mut memory, 8, stream()));
    copy(memory, &host, stream());
}

fn dead_event() {
    let _context = Context::open(0);
    let event = event();
    ok!(cuEventDestroy_v2(event));
    assert_eq!(cu!(cuEventQuery(event)), CUresult::CUDA_ERROR_INVALID_HANDLE);
}

fn dead_stream() {
    let _context = Context::open(0);
    let stream = stream();
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(cu!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_INVALID_HANDLE);
}

fn no_stream() {
    let _context = Context::open(0);
    let event = event() as sys::CUstream;
    assert_eq!(cu!(cuStreamQuery(event)), CUresult::CUDA_ERROR_INVALID_HANDLE);
}

fn dead_context() {
    let context = Context::open(0);
    let handle = context.context;
    context.close();
    assert_eq!(cu!(cuCtxPushCurrent_v2(handle)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

fn current_but_dead() {
    let _context = Context::open(0);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(cu!(cuMemAlloc_v2(&mut 0, 8)), CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

fn released_twice() {
    Context::open(0).close();
    let result = cu!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

fn memory_left() {
    let _context = Context::open(0);
    allocate(8);
}

fn registration_left() {
    let _context = Context::open(0);
    let host = [0; 8];
    register(&host);
}

fn stream_left() {
    let _context = Context::open(0);
    stream();
}

fn event_left() {
    let context = Context::open(0);
    event();
    context.close();
}

fn context_left() {
    let _context = Context::open(0);
    ok!(cuCtxPopCurrent_v2(&mut ptr::null_mut()));
}

fn context_pushed() {
    let _context = Context::open(0);
    ok!(cuDevicePrimaryCtxRelease_v2(0));
}

fn other_bytes() {
    let context = Context::open(0);
    let memory = allocate(8);
    read(ptr::null_mut(), memory, &[1; 8]);
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(memory));
    context.close();
}

fn stuck() {
    let context = Context::open(0);
    let stream = stream();
    fake().hold(stream as usize);
    assert_eq!(cu!(cuStreamSynchronize(stream)), CUresult::CUDA_ERROR_LAUNCH_TIMEOUT);
    ok!(cuStreamDestroy_v2(stream));
    context.close();
}

/// The parent checks the child's exit status, and the test checks that of the parent.
fn forked() {
    let context = Context::open(0);
    // SAFETY: the child makes one call, which takes no lock, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let result = sys::cuCtxGetCurrent(&mut ptr::null_mut());
            libc::_exit(i32::from(result != CUresult::CUDA_ERROR_NOT_INITIALIZED));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 0, "the driver refuses");
    }
    context.close();
}

fn no_module() {
    let _context = Context::open(0);
    let image = c"// other.cu: 0".as_ptr().cast();
    assert_ne!(cu!(cuModuleLoadData(&mut ptr::null_mut(), image)), CUresult::CUDA_SUCCESS);
}

fn no_kernel() {
    let _context = Context::open(0);
    let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
    let image = include_str!("../../../../read/src/device/decode/decode.ptx").to_owned() + "\0";
    ok!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
    let found = cu!(cuModuleGetFunction(&mut function, module, c"decode".as_ptr()));
    assert_eq!(found, CUresult::CUDA_ERROR_NOT_FOUND);
}

/// Launches the kernel with `blocks` blocks of threads, for a chunk that belongs at `into` in a
/// batch of 40 bytes.
fn launched(into: u64, blocks: u32, ordered: bool) {
    let _context = Context::open(0);
    let kernel = Kernel::load().unwrap();
    let host = frame(into, &[7; 64]);
    register(&host);
    let (copies, decodes) = (stream(), stream());
    let addresses = [host.len(), 40, 32].map(allocate);
    copy(addresses[0], &host, copies);
    let stream = if ordered { copies } else { decodes };
    let _ = kernel.launch(stream, addresses, blocks);
    ok!(cuStreamSynchronize(stream));
}

fn other_grid() {
    launched(8, 3, true);
}

fn unordered_kernel() {
    launched(8, 2, false);
}

fn kernel_beyond() {
    launched(9, 2, true);
}

fn module_left() {
    let context = Context::open(0);
    Kernel::load().unwrap();
    context.close();
}
