//! Credentials, endpoints and similar options that a user gives for a URL (`storage_options`), in
//! addition to those of the environment.
//!
//! They are stored separately from the datasets, so that no dataset, report or error can reveal
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;

/// Names and values. They are never displayed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct StorageOptions(pub(super) BTreeMap<String, String>);

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Options by the URL of the bucket, container or host. Not behind a lock, because a forked child
/// may find any lock taken for ever.
static OPTIONS: LazyLock<ArcSwap<BTreeMap<String, Arc<StorageOptions>>>> =
    LazyLock::new(ArcSwap::default);

/// The options for an address.
pub(super) fn of(base: &str) -> Arc<StorageOptions> {
    OPTIONS.load().get(base).cloned().unwrap_or_default()
}

/// Replaces the options for an address.
pub(super) fn store(base: String, options: StorageOptions) {
    let options = Arc::new(options);
    OPTIONS.rcu(|all| {
        let mut all = BTreeMap::clone(all);
        all.insert(base.clone(), options.clone());
        all
    });
}

/// A variable of the environment, without spaces and line feeds around it, which job scripts leave.
/// One that is then empty counts as not set.
pub(super) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?.trim().to_owned();
    (!value.is_empty()).then_some(value)
}
