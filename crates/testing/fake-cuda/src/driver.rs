//! The driver's functions, under the names that its library exports, and the global state that they
//! work on.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::LazyLock;

use crate::abi::CUresult::{
    self, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_READY,
};
use crate::abi::{
    Arguments, CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream,
    EVENT_DISABLE_TIMING, Out, Result, STREAM_LEGACY, STREAM_NON_BLOCKING, Tag, TextIn, handle,
};
use crate::exit;
use crate::host::Stretch;
use crate::kernels::Shape;
use crate::order::Point;
use crate::settings::Settings;
use crate::state::State;
use crate::streams::StreamKind;
use crate::world::World;

/// The global state. The first call starts the device's thread.
pub static WORLD: LazyLock<World> = LazyLock::new(|| {
    exit::prepare(|| WORLD.lock("exit").end());
    let builder = std::thread::Builder::new().name("fake-cuda".to_owned());
    builder.spawn(|| run()).expect("a thread for the fake device");
    World::new(Settings::of_environment(FUNCTIONS))
});

/// The device's thread. A panic ends the process.
extern "C" fn run() {
    WORLD.run();
}

/// Defines one function per line. The word before `fn` is the entry point of `World` through which
/// its calls pass.
macro_rules! driver {
    ($($door:ident fn $name:ident($($argument:ident: $type:ty),*) $call:expr;)*) => {
        /// The names of all functions.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];

        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> CUresult {
                WORLD.$door(stringify!($name), $call)
            }
        )*
    };
}

driver! {
    any fn cuInit(_flags: c_uint) |state| state.initialise();
    any fn cuDriverGetVersion(version: Out<c_int>) |state| version.set(state.settings.version);
    any fn cuGetErrorName(error: c_uint, text: Out<*const c_char>)
        |_| describe(error, &text, |(_, name, _)| name);
    any fn cuGetErrorString(error: c_uint, text: Out<*const c_char>)
        |_| describe(error, &text, |(_, _, text)| text);

    device fn cuDeviceGetCount(count: Out<c_int>)
        |state, _| count.set(state.contexts.devices() as c_int);
    device fn cuDeviceGet(device: Out<CUdevice>, number: c_int)
        |state, _| device.set(state.contexts.device(number)? as CUdevice);
    device fn cuDeviceGetName(name: Out<c_char>, room: c_int, device: CUdevice)
        |state, _| {
            let number = state.contexts.device(device)?;
            name.set_text(&format!("Fake device {number}"), room as usize);
            Ok(())
        };
    device fn cuDeviceGetPCIBusId(id: Out<c_char>, room: c_int, device: CUdevice)
        |state, _| {
            let bus = pci_bus(state.contexts.device(device)?);
            id.set_text(&format!("0000:{bus:02x}:00.0"), room as usize);
            Ok(())
        };
    device fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_uint, device: CUdevice)
        |state, _| {
            let number = state.contexts.device(device)?;
            value.set(state.device_attribute(attribute, number)?)
        };
    device fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice)
        |state, _| {
            let number = state.contexts.device(device)?;
            bytes.set(state.contexts.memory(number))
        };
    device fn cuDevicePrimaryCtxRetain(context: Out<CUcontext>, device: CUdevice)
        |state, _| {
            let number = state.contexts.device(device)?;
            context.set(state.contexts.retain(number))
        };
    device fn cuDevicePrimaryCtxRelease_v2(device: CUdevice)
        |state, _| {
            let number = state.contexts.device(device)?;
            state.release(number)
        };
    device fn cuCtxPushCurrent_v2(context: CUcontext)
        |state, thread| state.push(thread, context);
    device fn cuCtxPopCurrent_v2(context: Out<CUcontext>)
        |state, thread| {
            context.set_if_wanted(state.pop(thread)?);
            Ok(())
        };
    device fn cuCtxSetCurrent(context: CUcontext)
        |state, thread| state.set_current(thread, context);
    device fn cuCtxGetCurrent(context: Out<CUcontext>)
        |state, thread| {
            let current = state.contexts.current(thread);
            context.set(current.map_or(0, |current| handle(Tag::Context, current)))
        };
    device fn cuPointerGetAttribute(value: Out<c_void>, attribute: c_uint, address: CUdeviceptr)
        |state, _| state.pointer_attribute(&value, attribute, address);

    work fn cuCtxGetDevice(device: Out<CUdevice>)
        |state, caller| device.set(state.contexts.device_of(caller.context) as CUdevice);
    work fn cuCtxSynchronize()
        |state, caller| {
            let streams = state.streams.of_context(caller.context);
            Ok(streams.into_iter().map(|stream| state.streams.last(stream)).collect::<Vec<_>>())
        };

    // No graphs are captured here.
    any fn cuThreadExchangeStreamCaptureMode(_mode: Out<c_uint>) |_| Ok(());

    work fn cuStreamCreate(stream: Out<CUstream>, flags: c_uint)
        |state, caller| {
            let non_blocking = flags & STREAM_NON_BLOCKING != 0;
            let kind = if non_blocking { StreamKind::NonBlocking } else { StreamKind::Blocking };
            stream.set(handle(Tag::Stream, state.streams.create(caller.context, kind)))
        };
    back fn cuStreamDestroy_v2(stream: CUstream)
        |state, _| {
            let stream = state.made_stream(stream)?;
            state.streams.destroy(stream);
            Ok(())
        };
    work fn cuStreamWaitEvent(stream: CUstream, event: CUevent, _flags: c_uint)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            let point = state.point(event)?;
            state.mark(stream, point.as_slice());
            Ok(())
        };
    work fn cuStreamQuery(stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            let last = state.streams.last(stream);
            state.query(&last)
        };
    work fn cuStreamSynchronize(stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            Ok(vec![state.mark(stream, &[])])
        };

    work fn cuEventCreate(event: Out<CUevent>, flags: c_uint)
        |state, caller| {
            let is_timed = flags & EVENT_DISABLE_TIMING == 0;
            event.set(state.events.create(caller.context, is_timed))
        };
    work fn cuEventRecord(event: CUevent, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            state.record(event, stream)
        };
    work fn cuEventQuery(event: CUevent)
        |state, _| match state.point(event)? {
            Some(point) => state.query(&point),
            None => Ok(()),
        };
    work fn cuEventSynchronize(event: CUevent)
        |state, _| Ok(state.point(event)?.into_iter().collect::<Vec<_>>());
    work fn cuEventElapsedTime(milliseconds: Out<f32>, from: CUevent, to: CUevent)
        |state, _| {
            let [from, to] = [state.time(from)?, state.time(to)?];
            let time = to.saturating_duration_since(from).as_secs_f32()
                - from.saturating_duration_since(to).as_secs_f32();
            milliseconds.set(time * 1e3)
        };
    back fn cuEventDestroy_v2(event: CUevent) |state, _| state.destroy_event(event);

    work fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>)
        |state, caller| {
            free.set(state.free_memory(caller.context))?;
            total.set(state.contexts.memory(state.contexts.device_of(caller.context)))
        };
    work fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize)
        |state, caller| address.set(state.allocate(caller.context, bytes, None)?);
    back fn cuMemFree_v2(address: CUdeviceptr) |state, _| state.free(address, None);
    work fn cuMemAllocAsync(address: Out<CUdeviceptr>, bytes: usize, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            address.set(state.allocate(state.streams.context(stream), bytes, Some(stream))?)
        };
    back fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            state.free(address, Some(stream))
        };

    work fn cuMemHostRegister_v2(start: usize, bytes: usize, flags: c_uint)
        |state, caller| state.register(caller.context, Stretch { start, bytes }, flags);
    back fn cuMemHostUnregister(start: usize) |state, _| state.unregister(start);
    work fn cuMemHostGetFlags(flags: Out<c_uint>, start: usize)
        |state, _| {
            let registration = state.host.holding(start).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            flags.set(registration.flags)
        };

    work fn cuModuleLoadData(module: Out<CUmodule>, image: TextIn)
        |state, caller| module.set(state.load_module(caller.context, &image.text())?);
    work fn cuModuleGetFunction(function: Out<CUfunction>, module: CUmodule, name: TextIn)
        |state, _| function.set(state.function(module, &name.text())?);
    back fn cuModuleUnload(module: CUmodule) |state, _| state.unload_module(module);
    work fn cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, arguments: Arguments, extra: usize
    )
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
            if extra != 0 {
                return Err(state.bad_argument("the stand-in knows no extra arguments of kernels"));
            }
            state.launch(function, shape, stream, &arguments)
        };
    work fn cuMemcpyHtoDAsync_v2(to: CUdeviceptr, start: usize, bytes: usize, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            state.copy_to_device(stream, to, Stretch { start, bytes }, false).map(drop)
        };
    work fn cuMemcpyHtoD_v2(to: CUdeviceptr, start: usize, bytes: usize)
        |state, caller| {
            let stream = state.stream(caller, STREAM_LEGACY)?;
            Ok(vec![state.copy_to_device(stream, to, Stretch { start, bytes }, true)?])
        };
    work fn cuMemcpyDtoHAsync_v2(start: usize, from: CUdeviceptr, bytes: usize, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            state.copy_out(stream, Stretch { start, bytes }, from, false)
        };
    work fn cuMemcpyDtoH_v2(start: usize, from: CUdeviceptr, bytes: usize)
        |state, caller| {
            let stream = state.stream(caller, STREAM_LEGACY)?;
            state.copy_out(stream, Stretch { start, bytes }, from, true)
        };
    work fn cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
        |state, caller| {
            let stream = state.stream(caller, stream)?;
            state.copy_within(stream, to, from, bytes)
        };
}

type Described = &'static (CUresult, &'static CStr, &'static CStr);

/// Writes a text about a result.
fn describe(
    error: c_uint,
    text: &Out<*const c_char>,
    choose: impl Fn(Described) -> &'static CStr,
) -> Result<()> {
    let entry = CUresult::ALL.iter().find(|(result, ..)| *result as c_uint == error);
    let entry = entry.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    text.set(choose(entry).as_ptr())
}

/// The PCI bus number of a device.
fn pci_bus(device: usize) -> c_int {
    0x3B + device as c_int
}

impl State {
    fn initialise(&mut self) -> Result<()> {
        if self.contexts.devices() == 0 {
            return Err(CUDA_ERROR_NO_DEVICE);
        }
        self.initialised = true;
        Ok(())
    }

    fn query(&mut self, point: &Point) -> Result<()> {
        if !self.streams.is_done(point.stamp) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        self.observe(point);
        Ok(())
    }

    /// A copy to the host, and the points that the caller must wait for.
    fn copy_out(
        &mut self,
        stream: usize,
        to: Stretch,
        from: CUdeviceptr,
        at_once: bool,
    ) -> Result<Vec<Point>> {
        let (point, wait) = self.copy_to_host(stream, to, from, at_once)?;
        Ok(if wait { vec![point] } else { Vec::new() })
    }

    /// `CU_DEVICE_ATTRIBUTE_`...
    fn device_attribute(&mut self, attribute: c_uint, device: usize) -> Result<c_int> {
        Ok(match attribute {
            // INTEGRATED, PCI_DEVICE_ID, PCI_DOMAIN_ID, PAGEABLE_MEMORY_ACCESS
            18 | 34 | 50 | 88 => 0,
            // MULTIPROCESSOR_COUNT, CAN_MAP_HOST_MEMORY, UNIFIED_ADDRESSING
            16 | 19 | 41 => 1,
            // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, HOST_REGISTER_SUPPORTED, MEMORY_POOLS_SUPPORTED
            91 | 99 | 115 => 1,
            // READ_ONLY_HOST_REGISTER_SUPPORTED
            113 => c_int::from(self.settings.read_only),
            // PCI_BUS_ID
            33 => pci_bus(device),
            // ASYNC_ENGINE_COUNT
            40 => 2,
            // COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR
            75 => 9,
            76 => 0,
            _ => {
                let what = format!("the stand-in knows no device attribute {attribute}");
                return Err(self.bad_argument(what));
            }
        })
    }

    /// `CU_POINTER_ATTRIBUTE_`... of device memory, or of registered host memory.
    fn pointer_attribute(
        &mut self,
        value: &Out<c_void>,
        attribute: c_uint,
        address: CUdeviceptr,
    ) -> Result<()> {
        const HOST: c_uint = 1;
        const DEVICE: c_uint = 2;
        let found = match self.memory.find(address, 1) {
            Ok(range) => {
                let whole = self.memory.whole(range);
                Some((self.memory.context(range), DEVICE, whole.allocation, whole.bytes))
            }
            Err(_) => self.host.holding(address as usize).map(|registration| {
                (
                    registration.context,
                    HOST,
                    registration.memory.start as CUdeviceptr,
                    registration.memory.bytes,
                )
            }),
        };
        // Programs may ask this about any address.
        let (context, sort, start, bytes) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match attribute {
            // CONTEXT
            1 => value.cast().set(handle(Tag::Context, context)),
            // MEMORY_TYPE
            2 => value.cast().set(sort),
            // DEVICE_POINTER
            3 => value.cast().set(address),
            // HOST_POINTER
            4 if sort == HOST => value.cast().set(address),
            4 => Err(CUDA_ERROR_INVALID_VALUE),
            // IS_MANAGED
            8 => value.cast::<c_uint>().set(0),
            // DEVICE_ORDINAL
            9 => value.cast().set(self.contexts.device_of(context) as c_int),
            // RANGE_START_ADDR, RANGE_SIZE
            11 => value.cast().set(start),
            12 => value.cast().set(bytes),
            _ => {
                let what = format!("the stand-in knows no pointer attribute {attribute}");
                Err(self.bad_argument(what))
            }
        }
    }
}
