//! Operations on memory: the checks when they are queued, and executing them in turn.

use crate::abi::CUresult::{
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
};
use crate::abi::{CUdeviceptr, REGISTER_PORTABLE, REGISTER_READ_ONLY, Result};
use crate::faults::Kind;
use crate::host::{Registered, Registration, Stretch, hash};
use crate::memory::DeviceRange;
use crate::operation::{Operation, Work};
use crate::order::{Point, Stamp};
use crate::state::{Caller, State};

/// Contents of host memory to which a copy has not been written yet.
const NOT_COPIED_YET: u8 = 0xDB;

/// How a stream uses memory.
#[derive(Clone, Copy)]
pub(super) enum Use {
    Read,
    Write,
}

impl State {
    /// Allocates memory, at once or for the work that follows on a stream.
    pub fn allocate(
        &mut self,
        context: usize,
        bytes: usize,
        stream: Option<usize>,
    ) -> Result<CUdeviceptr> {
        if bytes == 0 {
            return Err(self.bad_argument("0 bytes of device memory"));
        }
        if self.free_memory(context) < bytes {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let address = self.memory.allocate(context, bytes);
        if let Some(stream) = stream {
            let range = DeviceRange { allocation: address, first: 0, bytes };
            let point = self.mark(stream, &[]);
            self.uses(range, Use::Write, &point, "the allocation");
        }
        Ok(address)
    }

    /// Free bytes on the device of a context.
    pub fn free_memory(&self, context: usize) -> usize {
        let device = self.contexts.device_of(context);
        let used = self.memory.used(|other| self.contexts.device_of(other) == device);
        self.contexts.memory(device).saturating_sub(used)
    }

    /// Frees memory: after everything queued on a stream, or at once, for which the host must have
    /// seen all work on it done.
    pub fn free(&mut self, address: CUdeviceptr, stream: Option<usize>) -> Result<()> {
        if self.memory.is_freed(address) {
            let what = format!("the memory at {address:#x} was freed before");
            return Err(self.wrong(Kind::DoubleFree, CUDA_ERROR_INVALID_VALUE, what));
        }
        let range = self.place(address, 1)?;
        let range = self.memory.whole(range);
        if range.allocation != address {
            let what = format!("{address:#x} is not the start of an allocation");
            return Err(self.wrong(Kind::OutsideAllocation, CUDA_ERROR_INVALID_VALUE, what));
        }
        match stream {
            Some(stream) => {
                self.place_for(address, range.bytes, stream)?;
                let point = self.queue(stream, &[], Work::Free { range });
                self.uses(range, Use::Write, &point, "the free");
            }
            None => {
                for user in self.memory.in_use(range, &self.host_clock) {
                    self.note(Kind::FreedInUse, format_args!("nobody has waited for {user}"));
                }
                self.memory.empty(range);
            }
        }
        self.memory.free(range);
        Ok(())
    }

    /// Registers host memory.
    pub fn register(&mut self, context: usize, memory: Stretch, flags: u32) -> Result<()> {
        if memory.start == 0 || memory.bytes == 0 {
            return Err(self.bad_argument("no host memory"));
        }
        if self.host.is_taken(memory) {
            let what = format!("some of {} was registered before", shown(memory));
            let result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            return Err(self.wrong(Kind::BadArgument, result, what));
        }
        let portable = flags & REGISTER_PORTABLE != 0;
        let pinned = match flags & REGISTER_READ_ONLY {
            0 => None,
            _ => Some(self.pinned(memory)?),
        };
        let is_writable = || {
            let rights = memory.rights();
            rights.is_some_and(|rights| rights.iter().all(|rights| rights.starts_with("rw")))
        };
        if pinned.is_none() && !is_writable() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.host.register(Registration { memory, context, flags, portable, pinned });
        Ok(())
    }

    /// The bytes of memory that is about to be registered as read-only.
    fn pinned(&mut self, memory: Stretch) -> Result<Vec<u8>> {
        if !self.settings.read_only {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let rights = memory.rights().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if rights.iter().any(|rights| rights.ends_with('p')) {
            let what =
                format!("{} is private, and registering it as read-only hangs", shown(memory));
            return Err(self.wrong(Kind::PrivateMemory, CUDA_ERROR_INVALID_VALUE, what));
        }
        // The driver fails like this for pages of a file that has become shorter.
        if !memory.is_readable() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(memory.bytes())
    }

    /// Unregisters host memory; no copy may still use it.
    pub fn unregister(&mut self, start: usize) -> Result<()> {
        let Some(memory) = self.host.unregister(start) else {
            let what = format!("{start:#x} was not registered");
            let result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
            return Err(self.wrong(Kind::BadArgument, result, what));
        };
        let copies = self.host.forget(memory);
        if copies > 0 {
            let what = format!("nobody has waited for {copies} copies of {}", shown(memory));
            self.note(Kind::UnregisteredInUse, what);
        }
        if !memory.is_mapped() {
            let what = format!("{} was unmapped before", shown(memory));
            self.note(Kind::UnregisteredInUse, what);
        }
        Ok(())
    }

    /// Queues a copy of host memory to the device. If it is not `at_once`, it needs registered
    /// memory.
    pub fn copy_to_device(
        &mut self,
        stream: usize,
        to: CUdeviceptr,
        from: Stretch,
        at_once: bool,
    ) -> Result<Point> {
        if from.bytes == 0 {
            return Ok(self.mark(stream, &[]));
        }
        let to = self.place_for(to, from.bytes, stream)?;
        let point = if self.is_registered(stream, from, at_once)? {
            let point = self.queue(stream, &[], Work::ToDevice { to });
            self.host.note_use(from, point.stamp, true);
            point
        } else {
            self.queue(stream, &[], Work::Staged { from: from.bytes(), to })
        };
        self.uses(to, Use::Write, &point, "the copy from the host");
        Ok(point)
    }

    /// Queues a copy of device memory to the host. Also returns whether the caller must wait for
    /// it, because the host memory is not registered.
    pub fn copy_to_host(
        &mut self,
        stream: usize,
        to: Stretch,
        from: CUdeviceptr,
        at_once: bool,
    ) -> Result<(Point, bool)> {
        if to.bytes == 0 {
            return Ok((self.mark(stream, &[]), at_once));
        }
        let from = self.place_for(from, to.bytes, stream)?;
        let registered = self.is_registered(stream, to, at_once)?;
        if self.host.is_read_only(to) {
            let what = format!("{} is registered as read-only", shown(to));
            return Err(self.wrong(Kind::BadArgument, CUDA_ERROR_INVALID_VALUE, what));
        }
        to.write(&vec![NOT_COPIED_YET; to.bytes]);
        let point = self.queue(stream, &[], Work::ToHost { from });
        self.host.note_use(to, point.stamp, false);
        self.uses(from, Use::Read, &point, "the copy to the host");
        Ok((point, at_once || !registered))
    }

    /// Queues a copy within the device.
    pub fn copy_within(
        &mut self,
        stream: usize,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let to = self.place_for(to, bytes, stream)?;
        let from = self.place_for(from, bytes, stream)?;
        let point = self.queue(stream, &[], Work::Within { from, to });
        self.uses(from, Use::Read, &point, "the copy within the device");
        self.uses(to, Use::Write, &point, "the copy within the device");
        Ok(())
    }

    /// Queues work of a consumer in a test that reads memory, which should then contain `want`.
    pub fn compare(
        &mut self,
        stream: usize,
        address: CUdeviceptr,
        want: Vec<u8>,
        what: String,
    ) -> Result<()> {
        let range = self.place_for(address, want.len(), stream)?;
        let reader = format!("the consumer's reading of {what}");
        let point = self.queue(stream, &[], Work::Compare { range, want, what });
        self.uses(range, Use::Read, &point, &reader);
        Ok(())
    }

    /// Queues work of a consumer in a test that writes memory.
    pub fn fill(
        &mut self,
        stream: usize,
        address: CUdeviceptr,
        bytes: usize,
        value: u8,
    ) -> Result<()> {
        let range = self.place_for(address, bytes, stream)?;
        let point = self.queue(stream, &[], Work::Fill { range, value });
        self.uses(range, Use::Write, &point, "the consumer's writing");
        Ok(())
    }

    /// The place of an address in device memory.
    pub fn place(&mut self, address: CUdeviceptr, bytes: usize) -> Result<DeviceRange> {
        let found = self.memory.find(address, bytes);
        found.map_err(|(kind, what)| self.wrong(kind, CUDA_ERROR_INVALID_VALUE, what))
    }

    /// The place of an address in device memory that a stream of the same context uses.
    pub(super) fn place_for(
        &mut self,
        address: CUdeviceptr,
        bytes: usize,
        stream: usize,
    ) -> Result<DeviceRange> {
        let range = self.place(address, bytes)?;
        if self.memory.context(range) != self.streams.context(stream) {
            let what = "the memory and the stream are of different contexts";
            return Err(self.wrong(Kind::WrongContext, CUDA_ERROR_INVALID_VALUE, what));
        }
        Ok(range)
    }

    /// Whether host memory is registered, which copies that are not done at once require.
    fn is_registered(&mut self, stream: usize, memory: Stretch, at_once: bool) -> Result<bool> {
        let registered = self.host.registered(memory, self.streams.context(stream));
        if registered == Registered::Part {
            let what = format!("{} reaches beyond what is registered", shown(memory));
            return Err(self.wrong(Kind::UnregisteredMemory, CUDA_ERROR_INVALID_VALUE, what));
        }
        if registered == Registered::None && !at_once {
            let what = format!("{} is not registered", shown(memory));
            self.note(Kind::UnregisteredMemory, what);
        }
        Ok(registered == Registered::All)
    }

    /// Records that an operation uses memory, and reports the operations with which its order is
    /// undefined.
    pub(super) fn uses(&mut self, range: DeviceRange, how: Use, by: &Point, what: &str) {
        let name = self.streams.name(by.stamp.stream);
        let description = format!("{what} on {name}");
        let writes = matches!(how, Use::Write);
        for other in self.memory.access(range, writes, by, &self.host_clock, description) {
            let what = format!("{what} on {name} is not ordered behind {other}");
            self.note(Kind::Unordered, what);
        }
    }

    /// Executes an operation.
    pub fn perform(&mut self, operation: Operation) {
        let Operation { stamp, work, .. } = operation;
        match work {
            Work::Nothing => {}
            Work::ToDevice { to } => self.perform_to_device(stamp, to),
            Work::Staged { from, to } => self.write(to, &from),
            Work::ToHost { from } => self.perform_to_host(stamp, from),
            Work::Launch(launch) => self.perform_launch(&launch),
            Work::Free { range } => self.memory.empty(range),
            Work::Within { from, to } => {
                let bytes = self.memory.bytes(from).unwrap_or_default().to_vec();
                self.write(to, &bytes);
            }
            Work::Compare { range, want, what } => {
                if self.memory.bytes(range).is_some_and(|have| have != want) {
                    self.note(Kind::WrongBytes, format_args!("{what} holds other bytes"));
                }
            }
            Work::Fill { range, value } => self.write(range, &vec![value; range.bytes]),
        }
    }

    fn perform_to_device(&mut self, stamp: Stamp, to: DeviceRange) {
        let Some((memory, want)) = self.used_by(stamp) else { return };
        let bytes = self.host.bytes(memory);
        if Some(hash(&bytes)) != want {
            self.note_changed(memory);
        }
        self.write(to, &bytes);
    }

    fn perform_to_host(&mut self, stamp: Stamp, from: DeviceRange) {
        let Some((memory, _)) = self.used_by(stamp) else { return };
        if let Some(bytes) = self.memory.bytes(from) {
            memory.write(bytes);
        }
    }

    /// The host memory of a copy. `None` if it is gone; if that was not reported before, it is
    /// reported now.
    fn used_by(&mut self, stamp: Stamp) -> Option<(Stretch, Option<u64>)> {
        let (memory, hash) = self.host.used_by(stamp)?;
        if memory.is_mapped() {
            return Some((memory, hash));
        }
        let what = format!("{} was unmapped while a copy was queued", shown(memory));
        self.note(Kind::UnregisteredInUse, what);
        self.host.forget(memory);
        None
    }

    /// Writes device memory, unless it was freed, which was reported then.
    pub(super) fn write(&mut self, to: DeviceRange, bytes: &[u8]) {
        if let Some(memory) = self.memory.bytes_mut(to)
            && memory.len() == bytes.len()
        {
            memory.copy_from_slice(bytes);
        }
    }

    /// Records that the host has seen an operation done, and all operations before it.
    pub fn observe(&mut self, point: &Point) {
        self.host_clock.join(&point.clock);
        for memory in self.host.settle(&self.host_clock) {
            self.note_changed(memory);
        }
    }

    fn note_changed(&mut self, memory: Stretch) {
        let what = format!("{} was written while a copy read it", shown(memory));
        self.note(Kind::HostMemoryChanged, what);
    }

    /// The caller for a default stream, in the context of some memory.
    pub fn caller_for(&mut self, thread: usize, address: CUdeviceptr) -> Result<Caller> {
        let range = self.place(address, 1)?;
        Ok(Caller { thread, context: self.memory.context(range) })
    }
}

fn shown(memory: Stretch) -> String {
    format!("{} bytes of host memory at {:#x}", memory.bytes, memory.start)
}
