//! Which context a call works in; making contexts current, and releasing them.

use crate::abi::CUresult::{CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_INVALID_CONTEXT};
use crate::abi::{CUcontext, Result, Tag, handle, number};
use crate::contexts::Entry;
use crate::faults::Kind;
use crate::state::State;

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
        let index = number(Tag::Context, context).filter(|index| self.contexts.exists(*index));
        match index {
            Some(index) if self.contexts.is_alive(index) => Ok(index),
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
        if retained == 1 {
            self.note_leaks(context);
        }
        self.contexts.release(device);
        if retained == 1 {
            self.memory.free_all(context);
            self.host.unregister_all(context);
            self.events.destroy_all(context);
            self.modules.unload_all(context);
            for stream in self.streams.of_context(context) {
                self.streams.destroy(stream);
            }
        }
        Ok(())
    }

    /// Makes a context current.
    pub fn push(&mut self, thread: usize, context: CUcontext) -> Result<()> {
        let context = self.context(context)?;
        let stack = self.contexts.stack(thread);
        stack.push(Entry { context, pushed: true });
        Ok(())
    }

    /// Makes the previous context current again.
    pub fn pop(&mut self, thread: usize) -> Result<CUcontext> {
        match self.contexts.stack(thread).pop() {
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
        let stack = self.contexts.stack(thread);
        let pushed = stack.pop().is_some_and(|entry| entry.pushed);
        stack.extend(entry.map(|context| Entry { context, pushed }));
        Ok(())
    }
}
