//! Validation by several processes: each checks the samples of some shards, and one combines the
//! results.

use std::path::Path;
use std::time::Instant;

use hsipack_format::{Error, Result, remedy};
use hsipack_store::Dataset;
use serde::{Deserialize, Serialize};

use super::share::Share;
use super::{
    Found, Report, ValidateOptions, conclude, finish, inspect, look, new_report, structure,
};
use crate::convert::parts::Part;
use crate::progress::Progress;
use crate::session::Session;

/// Results of one process for its part.
#[derive(Debug, Serialize, Deserialize)]
pub struct PartFound {
    /// Fingerprint of the dataset.
    fingerprint: String,
    found: Found,
}

impl PartFound {
    /// Bytes of the decoded chunks.
    pub fn bytes(&self) -> u64 {
        self.found.bytes()
    }
}

/// The most parts into which the validation of the dataset at `path` can be divided: the number of
/// its image shards.
///
/// # Errors
/// If the dataset cannot be opened.
pub fn most_parts(path: &Path) -> Result<usize> {
    Ok(Share::most_parts(&Dataset::open_unverified(path)?))
}

/// Checks a part of the dataset at `path`: the chunks of its samples and, if requested, their
/// values against their sources.
///
/// # Errors
/// The same as those of [`validate`](super::validate), and if the dataset cannot be opened.
pub fn validate_part(
    path: &Path,
    options: &ValidateOptions,
    part: Part,
    progress: &Progress,
) -> Result<PartFound> {
    let _inputs = Session::begin();
    let dataset = Dataset::open_unverified(path)?;
    let share = Share::of(&dataset, part);
    let (problems, broken) = structure::check_shards(&dataset, &share)?;
    let found = inspect(&dataset, &share, &problems, &broken, options, progress)?;
    Ok(PartFound { fingerprint: dataset.fingerprint().to_owned(), found })
}

/// Combines all parts that other processes have checked into the same report that one process would
/// give. Metadata, shard indexes, and what was recorded about all samples together are checked
/// here.
///
/// # Errors
/// The same as those of [`validate`](super::validate), and if the dataset is not the one that was
/// checked.
pub fn put_together(
    path: &Path,
    options: &ValidateOptions,
    parts: Vec<PartFound>,
) -> Result<Report> {
    let start = Instant::now();
    let mut report = new_report(path, options)?;
    let opened = look(path, &mut report)?;
    if let Some((dataset, broken)) = opened {
        if parts.iter().any(|part| part.fingerprint != dataset.fingerprint()) {
            return Err(Error::conflict("the dataset was changed while it was checked")
                .at(path)
                .with_remedy(remedy!["check it again when no other program is writing to it"]));
        }
        let found = parts.into_iter().map(|part| part.found).reduce(Found::merged);
        conclude(&dataset, &broken, found.unwrap_or_default(), &mut report);
    }
    finish(&mut report, start);
    Ok(report)
}
