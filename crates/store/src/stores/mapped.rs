//! The store that maps files into memory.

use std::path::Path;
use std::sync::Arc;

use hsipack_format::Result;

use super::mapped_file::FileMapper;
use super::store::Store;
use super::stored_file::StoredFile;

/// A store that maps files into memory.
#[derive(Clone, Debug, Default)]
pub struct MappedStore(FileMapper);

impl MappedStore {
    /// Creates the store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for MappedStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        self.0.open(path)
    }
}
