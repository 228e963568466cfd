//! Where a command reads from, as it was asked for on the command line.

use std::path::Path;
use std::sync::Arc;

use hsipack_format::Result;
use hsipack_read::store::{Limited, Store, StoreKind};

/// The store of this kind for the dataset at `path`, behind a disk of so many bytes a second if there is a limit.
///
/// # Errors
/// If it is a URL, and the kind is for files of this machine.
pub fn store(path: &Path, kind: StoreKind, rate_limit: Option<u64>) -> Result<Arc<dyn Store>> {
    let store = kind.store_for(path)?;
    Ok(match rate_limit {
        Some(rate) => Arc::new(Limited::disk(store, rate)),
        None => store,
    })
}
