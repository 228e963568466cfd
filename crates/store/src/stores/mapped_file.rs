//! Maps files into memory: spans are views of the page cache, without a copy.
//!
//! The system's own read-ahead stays on, and so does its mapping of sixteen pages per page fault:
//! with them, cached bytes are read faster than with pages populated in advance. Bytes that are not
//! cached are read ahead by threads of the store (see `page_prefetch.rs`). Only these threads hold
//! a few descriptors, so the number of files is limited only by the system's number of maps
//! (`vm.max_map_count`, usually 65530).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::memory;

use super::buffer::ReadBuffer;
use super::page_prefetch::PagePrefetcher;
use super::stored_file::{StoredFile, readable};
use hsipack_format::{Error, Opt, Result, remedy};

/// Maps files, and reads ahead for them with threads of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileMapper(Arc<PagePrefetcher>);

impl FileMapper {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// If it cannot be opened or mapped.
    pub(crate) fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        self.file(Mapping::open(path), path)
    }

    /// Maps an open file at `path`. The file may be closed afterwards.
    ///
    /// # Errors
    /// If it cannot be mapped.
    pub(crate) fn open_file(&self, file: &File, path: &Path) -> Result<Arc<dyn StoredFile>> {
        self.file(Mapping::of(file, path), path)
    }

    fn file(&self, map: Result<Mapping>, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let map = map.map_err(|error| {
            let bytes = path.metadata().map_or(0, |meta| meta.len());
            explained(error, memory::exceeds_address_space(bytes))
        })?;
        Ok(Arc::new(MappedFile {
            map: Arc::new(map),
            path: path.into(),
            prefetcher: self.0.clone(),
        }))
    }
}

/// Adds a remedy if there are too many maps or (`full`) too little address space for one more: to
/// choose another store.
fn explained(error: Error, full: bool) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    if source.and_then(io::Error::raw_os_error) != Some(libc::ENOMEM) {
        return error;
    }
    let limit = if full {
        "the limit of the address space with `ulimit -v`"
    } else {
        "the limit of maps with `sysctl vm.max_map_count=1048576`"
    };
    error.with_remedy(remedy!["raise ", limit, ", or choose ", Opt::Store.to("pread")])
}

#[derive(Debug)]
struct MappedFile {
    map: Arc<Mapping>,
    path: Arc<Path>,
    prefetcher: Arc<PagePrefetcher>,
}

impl StoredFile for MappedFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.map.len()
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        _: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.prefetcher.wait_for(&self.path, &span);
        self.map.with(span, take)
    }

    fn prefetch(&self, span: Range<u64>) {
        if let Some(span) = readable(&span, self.len()) {
            self.prefetcher.ask(&self.path, span);
        }
    }

    fn release(&self) {
        self.map.release();
    }

    fn mapping(&self) -> Option<&Arc<Mapping>> {
        Some(&self.map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_maps_are_explained() {
        let error = |full| {
            let error = io::Error::from_raw_os_error(libc::ENOMEM);
            explained(Error::io("a", "cannot map into memory", error), full).to_string()
        };
        assert!(error(false).contains("max_map_count") && error(false).contains("pread"));
        assert!(error(true).contains("ulimit -v") && error(true).contains("pread"));
        assert!(!error(true).contains("max_map_count"));
        let other = io::Error::from_raw_os_error(libc::ENOENT);
        let other = explained(Error::io("a", "b", other), true);
        assert_eq!(other.remedy(), Some(&"check the path".into()));
    }
}
