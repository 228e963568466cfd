//! Divides whole samples among splits, and records the splits with the samples.

use std::collections::BTreeMap;
use std::time::Instant;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::Dataset;
use serde::Serialize;
use serde_json::{Map, Value};

use super::SplitOptions;
use super::decide::{By, NONE, split_of_samples};
use super::report::share;
use crate::columns::{Changes, change};
use crate::progress::Progress;

/// The result of dividing samples. The field names are the keys of `hsipack split --json` and must
/// not change.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// The dataset.
    pub dataset: String,
    /// Units that were not divided: `samples` or `groups`.
    pub by: &'static str,
    /// Number of samples or groups.
    pub units: usize,
    /// The seed of the random choices.
    pub seed: u64,
    /// Number of samples of the dataset.
    pub samples: usize,
    /// The splits. The first one is for training.
    pub splits: Vec<SampleSplit>,
    /// The labels, in the order in which they first occur; none if the splits are not balanced by
    /// labels.
    pub labels: Vec<LabelReport>,
    /// Number of samples in no split.
    pub unused: usize,
    /// Whether this was a dry run that wrote nothing.
    pub dry_run: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// One split.
#[derive(Clone, Debug, Serialize)]
pub struct SampleSplit {
    /// Its name.
    pub name: String,
    /// Number of its samples.
    pub samples: usize,
    /// Its share of all samples.
    pub share: f64,
}

/// One label.
#[derive(Clone, Debug, Serialize)]
pub struct LabelReport {
    /// The label.
    pub label: Value,
    /// Number of its samples.
    pub samples: usize,
    /// Number of its samples in each split.
    pub splits: Vec<usize>,
}

/// Divides samples among splits by their groups and labels, and records the splits.
///
/// # Errors
/// If options contradict each other, the dataset has splits that may not be replaced, samples have
/// no groups, or a file cannot be read or written. The dataset is then unchanged.
pub fn split_samples(options: &SplitOptions, progress: &Progress) -> Result<SampleReport> {
    let start = Instant::now();
    check(options)?;
    if options.dry_run {
        let (report, _) = decide(&Dataset::open(&options.dataset)?, options)?;
        let seconds = start.elapsed().as_secs_f64();
        return Ok(SampleReport { dry_run: true, seconds, ..report });
    }
    let mut report = None;
    let threads = hsipack_store::threads::cores();
    let changed = change(&options.dataset, &options.command, threads, progress, &mut |dataset| {
        let (sample_report, splits) = decide(dataset, options)?;
        report = Some(sample_report);
        let value = |split: Option<&str>| split.map_or(Value::Null, Value::from);
        let columns = splits.iter().enumerate().map(|(id, split)| {
            (id, Map::from_iter([("split".to_owned(), value(split.as_deref()))]))
        });
        Ok(Changes { columns: columns.collect(), notes: Vec::new() })
    })?;
    let mut report = report.ok_or_else(|| Error::bug("a split without a decision"))?;
    report.notes.extend(changed.notes);
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

fn check(options: &SplitOptions) -> Result<()> {
    options.shares.check(None)?;
    let defaults = SplitOptions::default();
    let pixels_only = [
        (!options.mask.is_empty(), Opt::Mask),
        (options.per_class.is_some(), Opt::PerClass),
        (options.block.is_some(), Opt::Block),
        (!options.ignore.is_empty(), Opt::Ignore),
        (options.buffer != defaults.buffer, Opt::Buffer),
        (options.name.is_some(), Opt::Name),
    ];
    match pixels_only.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Error::conflict(format!(
            "{option} is about pixels of a mask, but the split is by {}",
            options.by.name()
        ))
        .with_remedy(remedy!["leave out ", option])),
        None => Ok(()),
    }
}

/// The report, and the split of each sample.
fn decide(
    dataset: &Dataset,
    options: &SplitOptions,
) -> Result<(SampleReport, Vec<Option<String>>)> {
    let samples = dataset.samples();
    let count = samples.len();
    let has_splits = (0..count).any(|id| samples.splits().get(id).is_some());
    if has_splits && !options.force {
        return Err(Error::conflict("the samples already have splits")
            .at(dataset.path())
            .with_remedy(remedy!["pass ", Opt::Force, " to replace them"]));
    }
    let mut notes = Vec::new();
    let (unit_of, units) = match options.by {
        By::Groups => groups(dataset, &mut notes)?,
        _ => ((0..count as u32).collect(), count),
    };
    let (label_of, values) = labels(dataset, &mut notes);
    let numbers = split_of_samples(&label_of, &unit_of, units, &options.shares, options.seed);
    let names: Vec<&str> = options.shares.names().collect();
    // Number of samples of each label in each split, and in none.
    let mut counts = vec![vec![0; names.len() + 1]; values.len() + 1];
    for (label, split) in label_of.iter().zip(&numbers) {
        let label = usize::from(*label).min(values.len());
        counts[label][usize::from(*split).min(names.len())] += 1;
    }
    let splits = names.iter().enumerate().map(|(split, name)| {
        let samples = counts.iter().map(|of_label| of_label[split]).sum();
        SampleSplit {
            name: (*name).to_owned(),
            samples,
            share: share(samples as u64, count as u64),
        }
    });
    let splits: Vec<SampleSplit> = splits.collect();
    for empty in splits.iter().filter(|split| split.samples == 0) {
        notes.push(format!("{} has no samples", empty.name));
    }
    let labels = values.into_iter().zip(&counts).map(|(label, of_label)| LabelReport {
        label,
        samples: of_label.iter().sum(),
        splits: of_label[..names.len()].to_vec(),
    });
    let report = SampleReport {
        dataset: dataset.path().display().to_string(),
        by: options.by.name(),
        units,
        seed: options.seed,
        samples: count,
        labels: labels.collect(),
        unused: numbers.iter().filter(|split| **split == NONE).count(),
        splits,
        dry_run: false,
        seconds: 0.0,
        notes,
    };
    let name = |split: &u8| names.get(usize::from(*split)).map(|name| (*name).to_owned());
    Ok((report, numbers.iter().map(name).collect()))
}

/// The number of each sample's group, and the number of groups. A sample without a group is a group
/// of its own.
fn groups(dataset: &Dataset, notes: &mut Vec<String>) -> Result<(Vec<u32>, usize)> {
    let groups = dataset.samples().groups();
    let mut count = groups.different().len();
    if count == 0 {
        return Err(Error::conflict("the samples have no groups").at(dataset.path()).with_remedy(
            remedy!["give them a column group, or divide by ", Opt::By.to("samples")],
        ));
    }
    let mut alone = 0;
    let of_sample = groups.numbers().map(|number| {
        number.unwrap_or_else(|| {
            alone += 1;
            count += 1;
            count as u32 - 1
        })
    });
    let of_sample: Vec<u32> = of_sample.collect();
    if alone > 0 {
        notes.push(format!("{alone} samples without a group are divided one by one"));
    }
    // Groups of samples that were not appended yet do not count.
    let present: std::collections::BTreeSet<u32> = of_sample.iter().copied().collect();
    let number: BTreeMap<u32, u32> =
        present.iter().zip(0..).map(|(group, number)| (*group, number)).collect();
    Ok((of_sample.iter().map(|group| number[group]).collect(), present.len()))
}

/// The number of each sample's label, and the labels. Samples without a label have the number after
/// the last one. If almost every sample has a label of its own, as measured numbers are, all have
/// the same number, and there are no labels.
fn labels(dataset: &Dataset, notes: &mut Vec<String>) -> (Vec<u16>, Vec<Value>) {
    let labels = dataset.samples().labels();
    let (count, different) = (dataset.samples().len(), labels.different());
    if different.is_empty() {
        return (vec![0; count], Vec::new());
    }
    if different.len() > (count / 2).max(1) || different.len() >= usize::from(u16::MAX) {
        notes.push(format!(
            "the splits are not balanced by labels: {count} samples have {} different ones",
            different.len()
        ));
        return (vec![0; count], Vec::new());
    }
    let none = different.len() as u16;
    let of_sample = labels.numbers().map(|number| number.map_or(none, |number| number as u16));
    (of_sample.collect(), different.to_vec())
}
