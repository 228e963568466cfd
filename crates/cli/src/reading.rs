//! Where a command reads from, as it was asked for on the command line.

use std::sync::Arc;

use clap::ValueEnum;
use hsipack_read::store::{Limited, Store, StoreKind};

/// How files are read.
#[derive(Clone, Copy, ValueEnum)]
pub enum StoreArg {
    Mmap,
    Pread,
    Direct,
}

impl StoreArg {
    /// The store, behind a disk of so many bytes a second if there is a limit.
    pub fn open(self, rate_limit: Option<u64>) -> Arc<dyn Store> {
        let kind = match self {
            StoreArg::Mmap => StoreKind::Mapped,
            StoreArg::Pread => StoreKind::Pread,
            StoreArg::Direct => StoreKind::Direct,
        };
        let store = kind.store();
        match rate_limit {
            Some(rate) => Arc::new(Limited::disk(store, rate)),
            None => store,
        }
    }
}
