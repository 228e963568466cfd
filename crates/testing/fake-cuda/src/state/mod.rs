//! Everything that the stand-in knows. What calls and queued work do to it is in one file for each
//! subject.

mod contexts;
mod events;
mod kernels;
mod leaks;
mod memory;
mod streams;

use std::fmt::Display;

use crate::abi::CUresult::{self, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE};
use crate::calls::Calls;
use crate::contexts::Contexts;
use crate::events::Events;
use crate::faults::{Faults, Kind};
use crate::host::HostMemory;
use crate::memory::DeviceMemory;
use crate::modules::Modules;
use crate::order::Clock;
use crate::settings::{Dice, Settings};
use crate::streams::Streams;

/// Everything that the stand-in knows.
pub struct State {
    pub settings: Settings,
    pub dice: Dice,
    pub faults: Faults,
    pub calls: Calls,
    pub initialised: bool,
    /// The device is lost: calls that work with it fail, no more work is done, and nothing is a
    /// fault any more.
    pub lost: bool,
    /// The process is ending.
    pub over: bool,
    pub contexts: Contexts,
    pub streams: Streams,
    pub events: Events,
    pub modules: Modules,
    pub memory: DeviceMemory,
    pub host: HostMemory,
    /// Everything that the host has waited for, in any thread; all work queued from now on comes
    /// after it. Which threads have informed which others cannot be known here.
    pub host_clock: Clock,
}

/// The caller of a function.
#[derive(Clone, Copy)]
pub struct Caller {
    pub thread: usize,
    /// The current context.
    pub context: usize,
}

impl State {
    pub fn new(settings: Settings) -> Self {
        let mut calls = Calls::default();
        settings.fail.iter().for_each(|order| calls.order(order.clone()));
        Self {
            dice: Dice::new(settings.seed),
            contexts: Contexts::new(settings.devices, settings.memory),
            settings,
            calls,
            faults: Faults::default(),
            initialised: false,
            lost: false,
            over: false,
            streams: Streams::default(),
            events: Events::default(),
            modules: Modules::default(),
            memory: DeviceMemory::default(),
            host: HostMemory::default(),
            host_clock: Clock::default(),
        }
    }

    /// One of the streams whose next operation can begin.
    pub fn next_stream(&mut self) -> Option<usize> {
        let ready = self.streams.ready();
        if ready.is_empty() || self.lost {
            return None;
        }
        Some(ready[self.dice.roll(ready.len() as u64) as usize])
    }

    /// Reports a fault.
    pub fn note(&mut self, kind: Kind, what: impl Display) {
        if !self.lost {
            self.faults.note(kind, what);
        }
    }

    /// Reports a fault of a call that fails.
    pub fn wrong(&mut self, kind: Kind, result: CUresult, what: impl Display) -> CUresult {
        self.note(kind, what);
        result
    }

    /// Reports an invalid handle.
    pub fn bad_handle(&mut self, what: impl std::fmt::Display) -> CUresult {
        self.wrong(Kind::BadHandle, CUDA_ERROR_INVALID_HANDLE, what)
    }

    /// Reports an argument that the call does not accept.
    pub fn bad_argument(&mut self, what: impl Display) -> CUresult {
        self.wrong(Kind::BadArgument, CUDA_ERROR_INVALID_VALUE, what)
    }
}
