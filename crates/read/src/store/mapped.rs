//! Files mapped into memory: spans are views of the page cache, without a copy.
//!
//! The system's own read-ahead and its mapping of sixteen pages at a fault stay on: with them, warm bytes
//! are read faster than with pages populated beforehand. No descriptors are held, so the number of files
//! is bounded by the system's number of maps (`vm.max_map_count`, usually 65530) only.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::mapping::Mapping;

use super::{ReadBuffer, Store, StoredFile, readable};
use crate::Result;

/// Maps files into memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappedStore;

impl MappedStore {
    /// The store.
    pub fn new() -> Self {
        Self
    }
}

impl Store for MappedStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        Ok(Arc::new(MappedFile(Mapping::open(path)?)))
    }
}

#[derive(Debug)]
struct MappedFile(Mapping);

impl StoredFile for MappedFile {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        _: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.0.with(span, take)
    }

    fn prefetch(&self, span: Range<u64>) {
        if let Some(span) = readable(&span, self.len()) {
            self.0.advise_will_need(span);
        }
    }
}
