//! Devices, their primary contexts, and the current context of each thread.

use std::collections::HashMap;

use crate::abi::CUresult::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE,
};
use crate::abi::{CUcontext, CUdevice, Result, Tag, handle, number};
use crate::faults::Kind;
use crate::world::State;

/// Devices and contexts.
pub struct Contexts {
    devices: Vec<Device>,
    /// All contexts ever made; a handle contains the context's index.
    all: Vec<Context>,
    /// For each thread its stack of contexts, with the current one last.
    stacks: HashMap<usize, Vec<Entry>>,
}

struct Device {
    memory: usize,
    /// How often the primary context is retained.
    retained: usize,
    primary: usize,
}

struct Context {
    device: usize,
    alive: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    context: usize,
    /// Whether the context was pushed; otherwise it was set.
    pushed: bool,
}

impl Contexts {
    pub fn new(devices: usize, memory: usize) -> Self {
        let device = || Device { memory, retained: 0, primary: usize::MAX };
        let devices = (0..devices).map(|_| device()).collect();
        Self { devices, all: Vec::new(), stacks: HashMap::new() }
    }

    /// Number of devices.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The number of a device.
    ///
    /// # Errors
    /// If there is no such device: programs may ask for any number.
    pub fn device(&self, device: CUdevice) -> Result<usize> {
        let number = usize::try_from(device).ok().filter(|number| *number < self.devices.len());
        number.ok_or(CUDA_ERROR_INVALID_DEVICE)
    }

    /// A device's memory.
    pub fn memory_mut(&mut self, device: usize) -> &mut usize {
        &mut self.devices[device].memory
    }

    /// Memory of a device in bytes.
    pub fn memory(&self, device: usize) -> usize {
        self.devices[device].memory
    }

    /// The device of a context.
    pub fn device_of(&self, context: usize) -> usize {
        self.all[context].device
    }

    /// Whether a context is still retained.
    pub fn is_alive(&self, context: usize) -> bool {
        self.all[context].alive
    }

    /// The primary context of a device, if it is retained, and how often.
    pub fn primary(&self, device: usize) -> Option<(usize, usize)> {
        let device = &self.devices[device];
        (device.retained > 0).then_some((device.primary, device.retained))
    }

    /// The current context of a thread, even if it was released.
    pub fn current(&self, thread: usize) -> Option<usize> {
        Some(self.stacks.get(&thread)?.last()?.context)
    }

    /// Number of contexts that threads have pushed and not popped.
    pub fn pushed(&self) -> usize {
        self.stacks.values().flatten().filter(|entry| entry.pushed).count()
    }

    /// Retains the primary context of a device.
    pub fn retain(&mut self, device: usize) -> CUcontext {
        let own = &mut self.devices[device];
        if own.retained == 0 {
            own.primary = self.all.len();
            self.all.push(Context { device, alive: true });
        }
        own.retained += 1;
        handle(Tag::Context, own.primary)
    }
}

impl State {
    /// The current context of a thread, or an error.
    pub fn demand_context(&mut self, thread: usize) -> Result<usize> {
        match self.contexts.current(thread) {
            Some(context) if self.contexts.is_alive(context) => Ok(context),
            Some(_) => {
                let what = "the current context was released";
                Err(self.wrong(Kind::BadHandle, CUDA_ERROR_CONTEXT_IS_DESTROYED, what))
            }
            None => {
                let what = "no context is current in the calling thread";
                Err(self.wrong(Kind::NoContext, CUDA_ERROR_INVALID_CONTEXT, what))
            }
        }
    }

    fn context(&mut self, context: CUcontext) -> Result<usize> {
        let place = number(Tag::Context, context).filter(|place| *place < self.contexts.all.len());
        match place {
            Some(place) if self.contexts.is_alive(place) => Ok(place),
            _ => {
                let what = format!("{context:#x} is no context, or was released");
                Err(self.wrong(Kind::BadHandle, CUDA_ERROR_INVALID_CONTEXT, what))
            }
        }
    }

    /// Releases the primary context of a device. The last release destroys everything in it.
    pub fn release(&mut self, device: usize) -> Result<()> {
        let Some((context, retained)) = self.contexts.primary(device) else {
            let what = "the primary context is not retained";
            return Err(self.wrong(Kind::BadHandle, CUDA_ERROR_INVALID_CONTEXT, what));
        };
        self.contexts.devices[device].retained -= 1;
        if retained == 1 {
            self.note_leaks(context);
            self.contexts.all[context].alive = false;
            self.memory.free_all(context);
            self.host.unregister_all(context);
            self.events.destroy_all(context);
            for stream in self.streams.of_context(context) {
                self.streams.destroy(stream);
            }
        }
        Ok(())
    }

    /// Reports everything that a context still holds.
    pub fn note_leaks(&mut self, context: usize) {
        let left = [
            (self.memory.alive(context), "allocation(s) of device memory"),
            (self.host.alive(context), "registration(s) of host memory"),
            (self.streams.alive(context), "stream(s)"),
            (self.events.alive(context), "event(s)"),
        ];
        for (count, what) in left {
            if count > 0 {
                self.note(Kind::Leak, format_args!("{count} {what} not given back"));
            }
        }
    }

    /// Makes a context current.
    pub fn push(&mut self, thread: usize, context: CUcontext) -> Result<()> {
        let context = self.context(context)?;
        let stack = self.contexts.stacks.entry(thread).or_default();
        stack.push(Entry { context, pushed: true });
        Ok(())
    }

    /// Makes the previous context current again.
    pub fn pop(&mut self, thread: usize) -> Result<CUcontext> {
        match self.contexts.stacks.entry(thread).or_default().pop() {
            Some(entry) => Ok(handle(Tag::Context, entry.context)),
            None => {
                let what = "nothing to pop in the calling thread";
                Err(self.wrong(Kind::NoContext, CUDA_ERROR_INVALID_CONTEXT, what))
            }
        }
    }

    /// Replaces the current context; null removes it.
    pub fn set_current(&mut self, thread: usize, context: CUcontext) -> Result<()> {
        let entry = match context {
            0 => None,
            context => Some(self.context(context)?),
        };
        let stack = self.contexts.stacks.entry(thread).or_default();
        let pushed = stack.pop().is_some_and(|entry| entry.pushed);
        stack.extend(entry.map(|context| Entry { context, pushed }));
        Ok(())
    }
}
