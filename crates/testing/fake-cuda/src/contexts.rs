//! Devices, their primary contexts, and the current context of each thread.

use std::collections::HashMap;

use crate::abi::CUresult::CUDA_ERROR_INVALID_DEVICE;
use crate::abi::{CUcontext, CUdevice, Result, Tag, handle};

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

/// A context in the stack of a thread.
#[derive(Clone, Copy)]
pub struct Entry {
    pub context: usize,
    /// Whether the context was pushed; otherwise it was set.
    pub pushed: bool,
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
        let state = &mut self.devices[device];
        if state.retained == 0 {
            state.primary = self.all.len();
            self.all.push(Context { device, alive: true });
        }
        state.retained += 1;
        handle(Tag::Context, state.primary)
    }

    /// Whether a context was ever made.
    pub fn exists(&self, context: usize) -> bool {
        context < self.all.len()
    }

    /// Releases the primary context of a device once. After the last release, the context is not
    /// alive.
    pub fn release(&mut self, device: usize) {
        let state = &mut self.devices[device];
        state.retained -= 1;
        self.all[state.primary].alive = state.retained > 0;
    }

    /// The stack of a thread.
    pub fn stack(&mut self, thread: usize) -> &mut Vec<Entry> {
        self.stacks.entry(thread).or_default()
    }
}
