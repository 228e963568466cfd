//! Where a command reads from, as it was asked for on the command line.

use std::sync::Arc;

use hsipack_read::store::{Limited, Store, StoreKind};

/// The store of this kind, behind a disk of so many bytes a second if there is a limit.
pub fn store(kind: StoreKind, rate_limit: Option<u64>) -> Arc<dyn Store> {
    match rate_limit {
        Some(rate) => Arc::new(Limited::disk(kind.store(), rate)),
        None => kind.store(),
    }
}
