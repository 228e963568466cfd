//! Loading modules, launching kernels, and running them in turn.

use crate::abi::CUresult::{
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_SUPPORTED,
};
use crate::abi::{Arguments, CUdeviceptr, CUfunction, CUmodule, Result, Tag, handle, number};
use crate::faults::Kind;
use crate::kernels::{
    self, Chunk, Decode, DecodeLaunch, Gather, GatherLaunch, Kernel, Launch, Memory, Row, Shape,
    Window,
};
use crate::memory::DeviceRange;
use crate::operation::Work;
use crate::state::State;
use crate::state::memory::Use;

impl State {
    /// Loads the module of an image.
    pub fn load_module(&mut self, context: usize, image: &str) -> Result<CUmodule> {
        // Kernels of other modules have no form here; programs go on without them.
        if image.starts_with("// kernels.cu: ") {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let Some(kernel) = Kernel::ALL.into_iter().find(|kernel| kernel.image() == image) else {
            let first = image.lines().next().unwrap_or_default().to_owned();
            return Err(self.bad_argument(format_args!("the stand-in knows no module {first:?}")));
        };
        if cfg!(not(kernels)) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        Ok(self.modules.load(context, kernel))
    }

    /// A kernel of a module.
    pub fn function(&mut self, module: CUmodule, name: &str) -> Result<CUfunction> {
        let index = self.module(number(Tag::Module, module), module)?;
        if name != self.modules.0[index].kernel.name() {
            let what = format!("the module has no kernel {name:?}");
            return Err(self.wrong(Kind::BadArgument, CUDA_ERROR_NOT_FOUND, what));
        }
        Ok(handle(Tag::Function, index))
    }

    /// Unloads a module.
    pub fn unload_module(&mut self, module: CUmodule) -> Result<()> {
        let index = self.module(number(Tag::Module, module), module)?;
        self.modules.0[index].unloaded = true;
        Ok(())
    }

    fn module(&mut self, index: Option<usize>, raw: usize) -> Result<usize> {
        match index.filter(|index| *index < self.modules.0.len()) {
            Some(index) if !self.modules.0[index].unloaded => Ok(index),
            Some(_) => Err(self.bad_handle("the module was unloaded")),
            None => Err(self.bad_handle(format_args!("{raw:#x} is no module or kernel"))),
        }
    }

    /// Queues a kernel.
    pub fn launch(
        &mut self,
        function: CUfunction,
        shape: Shape,
        stream: usize,
        arguments: &Arguments,
    ) -> Result<()> {
        let index = self.module(number(Tag::Function, function), function)?;
        if self.modules.0[index].context != self.streams.context(stream) {
            let what = "the kernel and the stream are of different contexts";
            return Err(self.wrong(Kind::WrongContext, CUDA_ERROR_INVALID_HANDLE, what));
        }
        if arguments.are_missing() {
            return Err(self.bad_argument("a kernel without arguments"));
        }
        let (launch, used) = match self.modules.0[index].kernel {
            Kernel::Decode => self.decode_launch(shape, stream, arguments)?,
            Kernel::Gather => self.gather_launch(shape, stream, arguments)?,
        };
        let point = self.queue(stream, &[], Work::Launch(launch));
        for (range, how) in used {
            self.uses(range, how, &point, "the kernel");
        }
        Ok(())
    }

    fn decode_launch(
        &mut self,
        shape: Shape,
        stream: usize,
        arguments: &Arguments,
    ) -> Result<(Launch, Vec<(DeviceRange, Use)>)> {
        let decode: Decode = arguments.get(0);
        self.check_shape(shape, u64::from(decode.chunks) * u64::from(decode.slots), decode)?;
        let (chunks, blocks) = (u64::from(decode.chunks), u64::from(shape.grid[0]));
        let launch = DecodeLaunch {
            decode,
            chunks: self.argument(arguments, 1, chunks * size_of::<Chunk>() as u64, 8, stream)?,
            compressed: self.argument(arguments, 2, 1, 1, stream)?,
            batch: self.argument(arguments, 3, 1, 1, stream)?,
            scratch: self.argument(
                arguments,
                4,
                blocks.saturating_mul(decode.scratch),
                16,
                stream,
            )?,
            statuses: self.argument(arguments, 5, 4 * chunks, 4, stream)?,
        };
        let used = [
            (launch.chunks, Use::Read),
            (self.to_the_end(launch.compressed), Use::Read),
            (self.to_the_end(launch.batch), Use::Write),
            (launch.scratch, Use::Write),
            (launch.statuses, Use::Write),
        ];
        let launch = DecodeLaunch { compressed: used[1].0, batch: used[2].0, ..launch };
        Ok((Launch::Decode(launch), used.to_vec()))
    }

    fn gather_launch(
        &mut self,
        shape: Shape,
        stream: usize,
        arguments: &Arguments,
    ) -> Result<(Launch, Vec<(DeviceRange, Use)>)> {
        let gather: Gather = arguments.get(0);
        self.check_shape(shape, u64::from(gather.windows) * u64::from(gather.slots), gather)?;
        let windows = u64::from(gather.windows) * size_of::<Window>() as u64;
        let launch = GatherLaunch {
            gather,
            windows: self.argument(arguments, 1, windows, 8, stream)?,
            // As many bands as the windows say, which is known when they are there.
            bands: self.argument(arguments, 2, 1, 4, stream)?,
            cubes: self.argument(arguments, 3, 1, 1, stream)?,
            batch: self.argument(arguments, 4, 1, 1, stream)?,
        };
        let [bands, cubes, batch] =
            [launch.bands, launch.cubes, launch.batch].map(|range| self.to_the_end(range));
        let used = [launch.windows, bands, cubes].map(|range| (range, Use::Read));
        let launch = GatherLaunch { bands, cubes, batch, ..launch };
        Ok((Launch::Gather(launch), [&used[..], &[(batch, Use::Write)]].concat()))
    }

    /// Checks the number of threads that a launch asks for.
    fn check_shape(&mut self, shape: Shape, blocks: u64, work: impl std::fmt::Debug) -> Result<()> {
        let Shape { grid, block, shared } = shape;
        let fits = u64::from(grid[0]) == blocks && grid[1..] == [1, 1];
        if !fits || blocks == 0 || block != [kernels::THREADS, 1, 1] || shared != 0 {
            return Err(self.bad_argument(format_args!("{shape:?} for {work:?}")));
        }
        Ok(())
    }

    /// The memory at an address that a kernel is given.
    fn argument(
        &mut self,
        arguments: &Arguments,
        number: usize,
        bytes: u64,
        alignment: u64,
        stream: usize,
    ) -> Result<DeviceRange> {
        let address: CUdeviceptr = arguments.get(number);
        if !address.is_multiple_of(alignment) {
            let what = format!("argument {number}, {address:#x}, is no multiple of {alignment}");
            return Err(self.wrong(Kind::BadArgument, CUDA_ERROR_INVALID_VALUE, what));
        }
        self.place_for(address, usize::try_from(bytes).unwrap_or(usize::MAX), stream)
    }

    /// The memory from a place on.
    fn to_the_end(&self, range: DeviceRange) -> DeviceRange {
        DeviceRange { bytes: self.memory.whole(range).bytes - range.first, ..range }
    }

    /// Runs a kernel, unless its memory was freed, which was reported then.
    pub(super) fn perform_launch(&mut self, launch: &Launch) {
        match launch {
            Launch::Decode(launch) => self.perform_decode(launch),
            Launch::Gather(launch) => self.perform_gather(launch),
        }
    }

    fn perform_gather(&mut self, launch: &GatherLaunch) {
        let (Some(windows), Some(bands)) =
            (self.memory.bytes(launch.windows), self.memory.bytes(launch.bands))
        else {
            return;
        };
        let (windows, bands) = (Window::all(windows), u32::all(bands));
        for window in &windows {
            let ends = window.ends(&bands);
            if !ends.is_some_and(|[cube, end]| {
                cube <= launch.cubes.bytes as u64 && end <= launch.batch.bytes as u64
            }) {
                let what = format!("{window:?} reaches beyond the kernel's memory");
                self.note(Kind::OutsideAllocation, what);
                return;
            }
        }
        let Some(cubes) = self.memory.bytes(launch.cubes).map(<[u8]>::as_ptr) else { return };
        let Some(batch) = self.memory.bytes_mut(launch.batch).map(<[u8]>::as_mut_ptr) else {
            return;
        };
        let order = self.dice.roll(u64::MAX);
        // SAFETY: the memory of allocations stays where it is, and only this thread uses it meanwhile. What the kernel reads
        // and writes lies in it, as was checked here.
        unsafe { kernels::run_gather(&launch.gather, &windows, &bands, (cubes, batch), order) };
    }

    fn perform_decode(&mut self, launch: &DecodeLaunch) {
        let DecodeLaunch { decode, .. } = launch;
        let (Some(chunks), Some(statuses)) =
            (self.memory.bytes(launch.chunks), self.memory.bytes(launch.statuses))
        else {
            return;
        };
        let chunks = Chunk::all(chunks);
        let words = statuses.chunks_exact(4).map(|word| word.try_into().expect("four bytes"));
        let mut statuses: Vec<u32> = words.map(u32::from_ne_bytes).collect();
        for chunk in &chunks {
            let frame = chunk.frame.checked_add(chunk.frame_bytes.into());
            let within = |end: Option<u64>, room: usize| end.is_some_and(|end| end <= room as u64);
            if !within(frame, launch.compressed.bytes) || !within(chunk.end(), launch.batch.bytes) {
                let what = format!("{chunk:?} reaches beyond the kernel's memory");
                self.note(Kind::OutsideAllocation, what);
                return;
            }
        }
        let Some(compressed) = self.memory.bytes(launch.compressed).map(<[u8]>::as_ptr) else {
            return;
        };
        let Some(batch) = self.memory.bytes_mut(launch.batch).map(<[u8]>::as_mut_ptr) else {
            return;
        };
        let Some(scratch) = self.memory.bytes_mut(launch.scratch).map(<[u8]>::as_mut_ptr) else {
            return;
        };
        let memory = Memory { compressed, batch, scratch };
        let order = self.dice.roll(u64::MAX);
        // SAFETY: the memory of allocations stays where it is, and only this thread uses it meanwhile. What the kernel reads
        // and writes lies in it: that was checked here for the chunks, and when the kernel was launched for the rest.
        unsafe { kernels::run_decode(decode, &chunks, &memory, &mut statuses, order) };
        let statuses: Vec<u8> = statuses.into_iter().flat_map(u32::to_ne_bytes).collect();
        self.write(launch.statuses, &statuses);
    }
}
