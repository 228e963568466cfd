//! Files that are kept while a command reads cubes: copies of objects on servers, open streams and
//! temporary copies of arrays of samples, the labels of several cubes, and which files were seen.

use hsipack_store::mirror;

use crate::fingerprint;

/// Keeps these files until it is dropped.
pub(crate) struct Session {
    _mirrors: mirror::Session,
}

impl Session {
    pub fn begin() -> Self {
        Self { _mirrors: mirror::session() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        hsipack_source::release_samples();
        fingerprint::forget();
    }
}
