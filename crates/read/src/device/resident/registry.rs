//! The regions of this process, by device and dataset. Loaders of one dataset, such as those for
//! training and validation, use them together.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::cubes::Cubes;
use super::region::Region;
use crate::dataset::Integers;

/// A region that loaders may use together.
struct Registered {
    owner: Owner,
    region: Weak<Region>,
    cubes: Arc<Cubes>,
}

/// The process, device and dataset of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// A forked process must not use the memory of its parent.
    process: u32,
    device: usize,
    /// Path and fingerprint.
    dataset: (std::path::PathBuf, String),
    /// The form of its images.
    integers: Integers,
}

impl Owner {
    pub(super) fn new(device: usize, dataset: &crate::dataset::Dataset) -> Self {
        let of = (dataset.path().to_owned(), dataset.fingerprint().to_owned());
        Self { process: std::process::id(), device, integers: dataset.integers(), dataset: of }
    }
}

static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Adds a region.
pub(super) fn add(owner: Owner, region: &Arc<Region>, cubes: Arc<Cubes>) {
    let mut all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|entry| entry.region.strong_count() > 0);
    all.push(Registered { owner, region: Arc::downgrade(region), cubes });
}

/// The regions that are there.
pub(super) fn of(owner: &Owner) -> Vec<(Arc<Region>, Arc<Cubes>)> {
    let all = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    let same = all.iter().filter(|entry| entry.owner == *owner);
    let living = same.filter_map(|entry| Some((entry.region.upgrade()?, entry.cubes.clone())));
    living.filter(|(region, _)| !region.is_released()).collect()
}
