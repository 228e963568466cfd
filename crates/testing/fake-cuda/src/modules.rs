//! Modules of kernels that were loaded.

use crate::abi::{CUmodule, Tag, handle};
use crate::kernels::Kernel;

/// All modules ever loaded; a handle contains the module's index. The handle of a function contains
/// that of its module, because no module has a second kernel that can be run here.
#[derive(Default)]
pub struct Modules(pub Vec<Module>);

/// A module.
pub struct Module {
    pub context: usize,
    pub kernel: Kernel,
    pub unloaded: bool,
}

impl Modules {
    /// Loads the module of a kernel in a context.
    pub fn load(&mut self, context: usize, kernel: Kernel) -> CUmodule {
        self.0.push(Module { context, kernel, unloaded: false });
        handle(Tag::Module, self.0.len() - 1)
    }

    /// Number of modules of a context that are not unloaded.
    pub fn alive(&self, context: usize) -> usize {
        self.0.iter().filter(|module| module.context == context && !module.unloaded).count()
    }

    /// Unloads all modules of a context.
    pub fn unload_all(&mut self, context: usize) {
        let modules = self.0.iter_mut().filter(|module| module.context == context);
        modules.for_each(|module| module.unloaded = true);
    }
}
