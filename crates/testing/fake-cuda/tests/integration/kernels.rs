//! Modules are loaded, and the kernel is run, on its stream.

use std::ffi::{CString, c_void};
use std::ptr;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};
use hsipack_testing::{FakeCuda, skipped};

use crate::device::{
    Context, allocate, copy, cu, fake, ok, read, recorded, register, start, stream,
};

/// The module with the kernel `decode_frames`.
const IMAGE: &str = include_str!("../../../../read/src/device/decode/decode.ptx");
/// Bytes of a decoded chunk.
const BYTES: usize = 64;
/// Bytes of a frame's header, and of a chunk in the kernel's table.
const HEADER: usize = 16;
const CHUNK: usize = 64;
/// Where the table and the status lie behind the frame.
const TABLE: usize = HEADER + BYTES;
const STATUS: usize = TABLE + CHUNK;

/// A loaded kernel.
pub struct Kernel {
    module: CUmodule,
    function: CUfunction,
}

impl Kernel {
    /// `None` if the stand-in was built without a compiler for kernels.
    pub fn load() -> Option<Self> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let image = CString::new(IMAGE).unwrap();
        let loaded = cu!(cuModuleLoadData(&mut module, image.as_ptr().cast()));
        if loaded == CUresult::CUDA_ERROR_NOT_SUPPORTED {
            skipped("the stand-in was built without a C++ compiler");
            return None;
        }
        assert_eq!(loaded, CUresult::CUDA_SUCCESS);
        ok!(cuModuleGetFunction(&mut function, module, c"decode_frames".as_ptr()));
        Some(Self { module, function })
    }

    pub fn unload(self) {
        ok!(cuModuleUnload(self.module));
    }

    /// Launches the kernel for the frame at `compressed`, with `blocks` blocks of threads.
    pub fn launch(
        &self,
        stream: CUstream,
        [compressed, batch, scratch]: [CUdeviceptr; 3],
        blocks: u32,
    ) -> CUresult {
        // One chunk with two blocks of threads, which need no scratch memory for a stored frame.
        // Values stay as they are.
        let mut decode: [u32; 12] = [1, 2, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let table = compressed + TABLE as u64;
        let mut addresses = [table, compressed, batch, scratch, compressed + STATUS as u64];
        let mut arguments: Vec<*mut c_void> = vec![decode.as_mut_ptr().cast()];
        arguments.extend(addresses.iter_mut().map(|address| (&raw mut *address).cast::<c_void>()));
        let arguments = arguments.as_mut_ptr();
        let function = self.function;
        cu!(cuLaunchKernel(function, blocks, 1, 1, 64, 1, 1, 0, stream, arguments, ptr::null_mut()))
    }
}

/// A frame that is stored as it is, the table of its chunk, and room for a status. The chunk's rows
/// are written to `into`.
pub fn frame(into: u64, content: &[u8; BYTES]) -> Vec<u8> {
    let mut bytes = vec![2, 1, 0x02, 1];
    for number in [BYTES, BYTES, HEADER + BYTES] {
        bytes.extend((number as u32).to_le_bytes());
    }
    bytes.extend(content);
    for number in [0, into, 16] {
        bytes.extend(number.to_le_bytes());
    }
    // Two rows of 32 bytes, of which the right halves are kept.
    for number in [HEADER + BYTES, BYTES, 32, 0, 2, 16, 16, 16, 16, 16] {
        bytes.extend((number as u32).to_le_bytes());
    }
    bytes.extend([0; 4]);
    bytes
}

#[test]
fn a_kernel_runs_on_its_stream() {
    for seed in 0..8 {
        let cuda = FakeCuda::new();
        let mut command = cuda.test("kernels::decoding");
        cuda.assert_clean(command.env("FAKE_CUDA_SEED", seed.to_string()));
    }
}

#[test]
#[ignore = "run by the test above"]
fn decoding() {
    let context = Context::open(0);
    let Some(kernel) = Kernel::load() else {
        context.close();
        return;
    };
    let (copies, decodes) = (stream(), stream());
    let content: [u8; BYTES] = std::array::from_fn(|index| index as u8);
    let host = frame(8, &content);
    register(&host);
    let addresses = [host.len(), 40, 32].map(allocate);
    copy(addresses[0], &host, copies);
    let copied = recorded(copies);
    ok!(cuStreamWaitEvent(decodes, copied, 0));
    assert_eq!(kernel.launch(decodes, addresses, 2), CUresult::CUDA_SUCCESS);
    read(decodes, addresses[1] + 8, &[&content[16..32], &content[48..]].concat());
    read(decodes, addresses[0] + STATUS as u64, &[0; 4]);
    ok!(cuStreamSynchronize(decodes));
    ok!(cuEventDestroy_v2(copied));
    ok!(cuMemHostUnregister(start(&host)));
    for address in addresses {
        ok!(cuMemFree_v2(address));
    }
    for stream in [copies, decodes] {
        ok!(cuStreamDestroy_v2(stream));
    }
    assert_eq!(fake().calls("cuLaunchKernel"), 1);
    kernel.unload();
    context.close();
}
