//! Merges packed datasets into a new one, without their source files.
//!
//! Chunks are copied as they are stored, and whole shards are hard links where they fit; no cube is
//! decoded. The samples of each dataset follow those of the one before it. A mask that a dataset
//! lacks has one class id in its samples.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | options, samples and metadata |
//! | `stacks.rs` | whether stacks of the same shape fit together, and what they become |
//! | `shards.rs` | writes the shards of an array |

mod shards;
mod stacks;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hsipack_format::metadata::Root;
use hsipack_format::samples::Sample;
use hsipack_format::{Error, Opt, Result, checksums, remedy};
use hsipack_store::{Dataset, remote};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::shards::Shards;
use self::stacks::MergedStack;
use crate::columns::ColumnTypes;
use crate::convert::metadata::{self, Metadata};
use crate::convert::output_exists;
use crate::convert::staging::{self, Claim, Staging};
use crate::progress::Progress;

/// A merge of datasets. As in `convert/options/mod.rs`, an option is a field, here and nowhere
/// else.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct MergeOptions {
    /// Packed datasets, in the order of their samples
    #[cfg_attr(feature = "clap", arg(required = true, num_args = 2.., value_name = "DATASET"))]
    pub datasets: Vec<PathBuf>,
    /// Dataset to write: a folder that does not exist yet
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "OUT"))]
    pub output: PathBuf,
    /// Column that gets the name of each sample's dataset [default: none]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub column: Option<String>,
    /// Put the name of its dataset and a slash before the name of each sample
    #[cfg_attr(feature = "clap", arg(long))]
    pub prefix: bool,
    /// Class id of the pixels of a mask that a dataset lacks
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID", default_value_t = 0))]
    pub mask_fill: u16,
    /// Maximum difference of the wavelengths of cubes of one shape, in nm
    #[cfg_attr(feature = "clap", arg(long, value_name = "NM", default_value_t = 0.01))]
    pub wavelength_tolerance: f64,
    /// The command, which the dataset records.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            datasets: Vec::new(),
            output: PathBuf::new(),
            column: None,
            prefix: false,
            mask_fill: 0,
            wavelength_tolerance: 0.01,
            command: String::new(),
        }
    }
}

/// The result of merging datasets.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub output: PathBuf,
    /// Number of its samples.
    pub samples: usize,
    /// Number of samples of each merged dataset.
    pub parts: Vec<usize>,
    /// Names of its stacks.
    pub stacks: Vec<String>,
    /// Names of its masks.
    pub masks: Vec<String>,
    /// Number of shards that are hard links to those of a merged dataset.
    pub linked_shards: usize,
    /// Number of shards that were written.
    pub written_shards: usize,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Merges datasets into a new one.
///
/// # Errors
/// If a dataset cannot be opened; two have a sample of the same name; their stacks or masks do not
/// fit together; the output exists, or a file cannot be read or written. Nothing is then left at
/// the output.
pub fn merge(options: &MergeOptions, progress: &Progress) -> Result<Report> {
    let start = Instant::now();
    let output = &options.output;
    remote::refuse(output, "merging datasets into")?;
    if options.datasets.len() < 2 {
        return Err(
            Error::conflict("merging takes at least two datasets").with_remedy("name all of them")
        );
    }
    if staging::is_there(output)? {
        return Err(output_exists(output));
    }
    let datasets = options.datasets.iter().map(Dataset::open).collect::<Result<Vec<_>>>()?;
    let mut notes = Vec::new();
    let stacks = stacks::merged(&datasets, options, &mut notes)?;
    let samples = samples(&datasets, options, &mut notes)?;
    let folder = staging::parent(output);
    if !folder.is_dir() {
        return Err(Error::conflict("the folder for the output does not exist")
            .at(folder)
            .with_remedy("create it first"));
    }
    let claim = Claim::of(output)?;
    claim.recover()?;
    let staging = Staging::fresh(claim)?;
    let mut report = Report {
        output: output.clone(),
        samples: samples.len(),
        parts: datasets.iter().map(|dataset| dataset.samples().len()).collect(),
        stacks: stacks.iter().map(|stack| stack.planned.name.clone()).collect(),
        masks: stacks::mask_names(&datasets).into_iter().collect(),
        linked_shards: 0,
        written_shards: 0,
        notes: Vec::new(),
        seconds: 0.0,
    };
    let work = write(&datasets, &stacks, samples, options, &staging, progress);
    match work {
        Ok(shards) => {
            (report.linked_shards, report.written_shards) = (shards.linked, shards.written);
            staging.commit()?;
            let seconds = start.elapsed().as_secs_f64();
            Ok(Report { notes, seconds, ..report })
        }
        Err(error) => {
            // Report the error of the work, not one of the clean-up.
            let _ = staging.discard();
            Err(error)
        }
    }
}

/// The name of a dataset: that of its folder, without the ending `.hsipack`.
fn title(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_suffix(".hsipack").map_or(name.clone(), str::to_owned)
}

/// All samples, with their new ids and positions.
fn samples(
    datasets: &[Dataset],
    options: &MergeOptions,
    notes: &mut Vec<String>,
) -> Result<Vec<Sample>> {
    let mut types = ColumnTypes::default();
    let mut all: Vec<Sample> = Vec::new();
    let mut names = HashSet::new();
    let mut ends: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    if let Some(column) = &options.column {
        check_column(datasets, column)?;
    }
    for dataset in datasets {
        let title = title(dataset.path());
        for id in 0..dataset.samples().len() {
            let mut sample = dataset.samples().get(id)?;
            if options.prefix {
                // Patterns of its masks and references keep the name that found them.
                let name = std::mem::take(&mut sample.name);
                sample.name = format!("{title}/{name}");
                sample.source.fields.entry("name".to_owned()).or_insert(Some(name));
            }
            if !names.insert(sample.name.clone()) {
                return Err(Error::conflict(format!("two datasets have a sample {}", sample.name))
                    .at(dataset.path())
                    .with_remedy(if options.prefix {
                        remedy!["rename the folder of one of them, and give each dataset once"]
                    } else {
                        remedy![
                            "pass ",
                            Opt::Prefix,
                            ", so that names begin with that of the dataset; if both are the same sample, merge other datasets"
                        ]
                    }));
            }
            types.fit(&mut sample.columns);
            if let Some(label) = &mut sample.label {
                types.fit_value("label", label);
            }
            sample.id = all.len();
            sample.index += ends.get(&sample.stack).copied().unwrap_or(0);
            if let Some(column) = &options.column {
                match column.as_str() {
                    "split" => sample.split = Some(title.clone()),
                    "group" => sample.group = Some(title.clone()),
                    "label" => sample.label = Some(Value::from(title.as_str())),
                    _ => drop(sample.columns.insert(column.clone(), Value::from(title.as_str()))),
                }
            }
            all.push(sample);
        }
        notes.extend(types.notes("other datasets").iter().map(|note| format!("{title}: {note}")));
        types.extend(ColumnTypes::of(dataset, |_, _| true)?);
        for stack in dataset.stacks() {
            *ends.entry(stack.name.clone()).or_default() += stack.image.len();
        }
    }
    Ok(all)
}

/// Refuses a column for the names of the datasets that cannot have them, or whose values would be
/// lost.
fn check_column(datasets: &[Dataset], column: &str) -> Result<()> {
    if column.is_empty() || crate::table::is_reserved(column) {
        let what = match column {
            "" => "the column has no name".to_owned(),
            column => format!("hsipack itself uses the column {column:?}"),
        };
        return Err(Error::conflict(what).with_remedy("give the column another name"));
    }
    for dataset in datasets {
        for id in 0..dataset.samples().len() {
            let sample = dataset.samples().get(id)?;
            let has_value = match column {
                "split" => sample.split.is_some(),
                "group" => sample.group.is_some(),
                "label" => sample.label.is_some(),
                _ => sample.columns.get(column).is_some_and(|value| !value.is_null()),
            };
            if has_value {
                return Err(Error::conflict(format!(
                    "sample {} has a value in the column {column:?} already, which would be lost",
                    sample.name
                ))
                .at(dataset.path())
                .with_remedy("give the column another name, or remove its values first"));
            }
        }
    }
    Ok(())
}

/// Writes the merged dataset to its staging folder.
fn write<'a>(
    datasets: &[Dataset],
    stacks: &[MergedStack],
    samples: Vec<Sample>,
    options: &MergeOptions,
    staging: &Staging,
    progress: &'a Progress,
) -> Result<Shards<'a>> {
    let mut shards = Shards::new(staging.dataset(), options.mask_fill, progress);
    let mut files = Metadata::new();
    for stack in stacks {
        shards.write(stack, datasets)?;
        let (values, len) = (&stack.values, stack.len(datasets));
        files.add_stack(&stack.planned, values, len, &stack.stats, stack.geo.as_ref());
    }
    let recipes = recipes(datasets);
    files.add_samples(None, samples)?;
    let (now, command) = (metadata::now(), &options.command);
    let inputs: Vec<&str> = datasets.iter().map(Dataset::fingerprint).collect();
    let request = checksums::sha256(json!({ "merge": inputs }).to_string().as_bytes());
    files.add_root(Root::merged(metadata::CREATED_BY, &now, command, recipes, &request));
    let planned: Vec<_> = stacks.iter().map(|stack| &stack.planned).collect();
    staging.write_metadata(files.into_files(&planned), &[])?;
    Ok(shards)
}

/// How the samples were converted: recipes, each with the number of samples after it.
fn recipes(datasets: &[Dataset]) -> Vec<(Value, usize)> {
    let (mut all, mut before) = (Vec::new(), 0);
    for dataset in datasets {
        let count = dataset.samples().len();
        match dataset.root().recipes() {
            Some(recipes) => {
                let recipes = recipes.into_iter();
                all.extend(
                    recipes.map(|(recipe, until)| (recipe.clone(), before + until.min(count))),
                );
            }
            None => all.push((Value::Null, before + count)),
        }
        before += count;
    }
    all
}
