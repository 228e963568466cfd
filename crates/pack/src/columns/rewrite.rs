//! Writes the new state of a dataset whose samples get other columns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::{Result, Sample};
use hsipack_store::folder::aside;
use hsipack_store::{Dataset, bounded_read, remote};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::convert::metadata::{self, Metadata};
use crate::convert::plan::MAX_SPLITS;
use crate::convert::staging::{Claim, Staging};
use crate::convert::stats::{BandStats, StackStats};
use crate::progress::Progress;
use crate::statistics::{StatisticsOptions, statistics};

/// The result of changing columns.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// Number of samples whose columns changed.
    pub samples: usize,
    /// Names of the columns that changed.
    pub columns: Vec<String>,
    /// Number of samples in each split.
    pub splits: BTreeMap<String, usize>,
    /// The fingerprint of the dataset.
    pub fingerprint: String,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// New values of columns.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Columns of samples, by their ids. Null removes a split, a group or a label.
    pub columns: BTreeMap<usize, Map<String, Value>>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Changes the columns of the dataset at `path`. `decide` gets the dataset while no other process
/// can change it.
///
/// # Errors
/// Those of `decide`; if the dataset is not an intact one that hsipack wrote, another process
/// writes it, or a file cannot be read or written. The dataset is then unchanged.
pub(crate) fn change(
    path: &Path,
    command: &str,
    threads: usize,
    progress: &Progress,
    decide: &mut dyn FnMut(&Dataset) -> Result<Changes>,
) -> Result<Report> {
    let start = Instant::now();
    remote::refuse(path, "changing columns of")?;
    // A claim creates a folder. So first check that there is a dataset to claim, unless an interrupted commit has to be
    // recovered.
    if !aside(path).exists() {
        Dataset::open(path)?;
    }
    let claim = Claim::of(path)?;
    claim.recover()?;
    let staging = Staging::scratch(claim)?;
    let mut rewrite = || -> Result<Report> {
        let dataset = Dataset::open(path)?;
        let changes = decide(&dataset)?;
        let mut notes = changes.notes;
        let (samples, columns, changed) = changed_samples(&dataset, &changes.columns)?;
        let mut report = Report {
            dataset: path.to_owned(),
            samples: changed,
            columns: columns.into_iter().collect(),
            splits: BTreeMap::new(),
            fingerprint: dataset.fingerprint().to_owned(),
            notes: Vec::new(),
            seconds: 0.0,
        };
        for split in samples.iter().filter_map(|sample| sample.split.clone()) {
            *report.splits.entry(split).or_default() += 1;
        }
        if changed > 0 {
            let stats = Splits { dataset: &dataset, samples: &samples, threads }
                .statistics(progress, &mut notes)?;
            report.fingerprint =
                write(&dataset, &staging, samples, &stats, (command, &report.columns))?;
        }
        report.notes = notes;
        Ok(report)
    };
    match rewrite() {
        Ok(report) if report.samples > 0 => {
            staging.commit()?;
            Ok(Report { seconds: start.elapsed().as_secs_f64(), ..report })
        }
        result => {
            // Report the error of the work, not one of the clean-up: the next process that writes there removes what remains.
            let _ = staging.discard();
            result
        }
    }
}

/// All samples with their new columns, the names of the columns that changed, and the number of
/// samples that changed.
fn changed_samples(
    dataset: &Dataset,
    changes: &BTreeMap<usize, Map<String, Value>>,
) -> Result<(Vec<Sample>, BTreeSet<String>, usize)> {
    let mut names = BTreeSet::new();
    let mut is_changed = vec![false; dataset.samples().len()];
    let mut samples = Vec::with_capacity(is_changed.len());
    for (id, is_changed) in is_changed.iter_mut().enumerate() {
        let mut sample = dataset.samples().get(id)?;
        for (column, value) in changes.get(&id).into_iter().flatten() {
            if set(&mut sample, column, value) {
                names.insert(column.clone());
                *is_changed = true;
            }
        }
        samples.push(sample);
    }
    // A column whose values were all removed is no column any more.
    let has_value = |sample: &Sample, name: &str| {
        sample.columns.get(name).is_some_and(|value| !value.is_null())
    };
    for name in &names {
        if !samples.iter().any(|sample| has_value(sample, name)) {
            samples.iter_mut().for_each(|sample| drop(sample.columns.shift_remove(name)));
        }
    }
    Ok((samples, names, is_changed.into_iter().filter(|is_changed| *is_changed).count()))
}

/// Gives a sample a value in a column. Returns whether it had another one before.
fn set(sample: &mut Sample, column: &str, value: &Value) -> bool {
    fn replace<T: PartialEq>(current: &mut T, value: T) -> bool {
        let is_other = *current != value;
        *current = value;
        is_other
    }
    match column {
        "split" => replace(&mut sample.split, crate::pattern::text_of(value)),
        "group" => replace(&mut sample.group, crate::pattern::text_of(value)),
        "label" => replace(&mut sample.label, Some(value.clone()).filter(|label| !label.is_null())),
        _ => {
            let previous = sample.columns.insert(column.to_owned(), value.clone());
            previous.as_ref() != Some(value)
        }
    }
}

/// The splits of samples after a change.
struct Splits<'a> {
    dataset: &'a Dataset,
    samples: &'a [Sample],
    threads: usize,
}

impl Splits<'_> {
    /// The statistics of the splits of each stack, in the order of the stacks. Those of splits
    /// whose samples stay the same are kept, if they were recorded.
    fn statistics(&self, progress: &Progress, notes: &mut Vec<String>) -> Result<Vec<StackStats>> {
        let dataset = self.dataset;
        let stacks = dataset.stacks().iter();
        let stats = stacks.map(|stack| {
            StackStats::of(stack.image.meta()).map_err(|error| error.at(stack.image.folder()))
        });
        let mut stats = stats.collect::<Result<Vec<_>>>()?;
        let (before, after) = (self.members(false), self.members(true));
        if after.len() > MAX_SPLITS {
            notes.push(format!(
                "there are {} splits, so no statistics of splits are recorded (at most {MAX_SPLITS} splits can have them)",
                after.len()
            ));
            stats.iter_mut().for_each(|stats| stats.splits.clear());
            return Ok(stats);
        }
        for stats in &mut stats {
            stats.splits.retain(|split, _| after.contains_key(split));
        }
        for (split, ids) in &after {
            let is_recorded = stats.iter().any(|stats| stats.splits.contains_key(split));
            if is_recorded && before.get(split) == Some(ids) {
                continue;
            }
            stats.iter_mut().for_each(|stats| drop(stats.splits.remove(split)));
            for (stack, split_stats) in self.of(ids, progress)? {
                stats[stack].splits.insert(split.clone(), split_stats);
            }
        }
        Ok(stats)
    }

    /// The ids of the samples of each split, as recorded or after the change.
    fn members(&self, is_changed: bool) -> BTreeMap<String, Vec<usize>> {
        let mut members: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for sample in self.samples {
            let recorded = self.dataset.samples().splits().get(sample.id);
            let split = if is_changed { sample.split.as_ref() } else { recorded };
            if let Some(split) = split {
                members.entry(split.clone()).or_default().push(sample.id);
            }
        }
        members
    }

    /// The statistics of some samples, for each stack that has such samples.
    fn of(&self, ids: &[usize], progress: &Progress) -> Result<Vec<(usize, BandStats)>> {
        let options = StatisticsOptions {
            samples: Some(ids.to_vec()),
            threads: self.threads,
            ..StatisticsOptions::new(self.dataset.path())
        };
        statistics(&options, progress, &AtomicU64::new(0))
    }
}

/// Writes the metadata of the new state. Returns its fingerprint.
fn write(
    dataset: &Dataset,
    staging: &Staging,
    samples: Vec<Sample>,
    stats: &[StackStats],
    (command, columns): (&str, &[String]),
) -> Result<String> {
    let mut files = Metadata::new();
    for (stack, stats) in dataset.stacks().iter().zip(stats) {
        files.keep_stack_with(dataset, stack, stats)?;
    }
    let count = samples.len();
    files.add_samples(None, samples)?;
    let (now, root) = (metadata::now(), dataset.root().clone());
    files.add_root(root.with_columns(dataset.fingerprint(), &now, command, columns, count));
    staging.link_unchanged(dataset.path(), &[])?;
    staging.write_metadata(files.into_files(&[]), &[])?;
    let sums = bounded_read::read(&staging.dataset().join(SHA256SUMS), bounded_read::SUMS)?;
    Ok(checksums::sha256(&sums))
}
