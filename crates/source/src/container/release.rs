//! Releases what is kept for further samples of the same arrays.

use crate::flat::{parked_streams, sample_copy};
use crate::labels;

/// Closes the files, and deletes the temporary files, that are kept for further samples of the same
/// arrays, and forgets the labels that are kept for further cubes.
pub fn release_samples() {
    parked_streams::close();
    labels::forget();
    sample_copy::forget();
}
