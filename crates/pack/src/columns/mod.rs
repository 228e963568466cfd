//! Changes the columns of the samples of a packed dataset: split, label, group and any others.
//!
//! As when masks are added, a new state of the dataset is prepared beside it: `samples.jsonl` and
//! its index, and the statistics of splits whose samples change. All other files are hard links.
//! The new state then replaces the dataset in one step, with another fingerprint. A process that
//! has the dataset open keeps the columns that it read: the cubes are the same. States of loaders,
//! `as_of`, pickled datasets and processes that are forked later do not go back beyond the change.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | options, and the columns that tables and lists give |
//! | `rewrite.rs` | writes the new state |
//! | `types.rs` | one type for each column |

mod rewrite;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use hsipack_format::{Error, Opt, Result, Sample, remedy};
use hsipack_store::Dataset;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::rewrite::Report;
pub(crate) use self::rewrite::{Changes, change};
pub(crate) use self::types::ColumnTypes;
use crate::convert::one_or_several;
use crate::convert::plan::assign_lists;
use crate::input::Input;
use crate::pattern::{self, Fields};
use crate::progress::Progress;
use crate::table::{self, TableOptions, Tables};

/// A change of columns. As in `convert/options/mod.rs`, an option is a field, here and nowhere
/// else.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ColumnsOptions {
    /// A packed dataset
    pub dataset: PathBuf,
    /// CSV, TSV, JSON, JSON lines or Parquet with a column `name`, or FILE.json::KEY; several add
    /// their columns. The samples get the other columns (split, label, group, any); an empty cell
    /// removes the value
    #[serde(with = "one_or_several")]
    #[cfg_attr(feature = "clap", arg(value_name = "FILE", required_unless_present = "split"))]
    pub table: Vec<PathBuf>,
    /// How rows of tables and lists belong to samples.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub joins: TableOptions,
    /// Number of threads that compute the statistics of splits [default: one per core]
    #[cfg_attr(feature = "clap", arg(short = 'j', long, alias = "jobs", value_parser = clap::value_parser!(u16).range(1..=1024)))]
    pub threads: Option<u16>,
    /// The command, which the dataset records.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

impl Default for ColumnsOptions {
    fn default() -> Self {
        Self {
            dataset: PathBuf::new(),
            table: Vec::new(),
            joins: TableOptions::default(),
            threads: None,
            command: String::new(),
        }
    }
}

impl ColumnsOptions {
    /// Number of threads.
    fn threads(&self) -> usize {
        self.threads
            .map_or_else(hsipack_store::threads::cores, |threads| usize::from(threads).max(1))
    }
}

/// Gives samples the columns of a table and of lists. `json` is a table of a program, as JSON; each
/// of its rows must belong to a sample.
///
/// # Errors
/// If the dataset is not an intact one that hsipack wrote, or another process writes it; if a table
/// or list cannot be read, or belongs to no sample. The dataset is then unchanged.
pub fn set_columns(
    options: &ColumnsOptions,
    json: Option<&[u8]>,
    progress: &Progress,
) -> Result<Report> {
    let mut tables = match json {
        Some(text) => Tables::of_json(text, &options.joins)?,
        None => Tables::read(&options.table, &options.joins)?,
    };
    let lists = table::read_lists(&options.joins.split)?;
    if tables.is_empty() && lists.is_empty() {
        return Err(Error::conflict("no table was given")
            .with_remedy(remedy!["give a table, or lists with ", Opt::Split]));
    }
    change(&options.dataset, &options.command, options.threads(), progress, &mut |dataset| {
        let mut changes = Changes { notes: tables.notes.clone(), ..Changes::default() };
        of_tables(dataset, &mut tables, &mut changes)?;
        for member in tables.iter() {
            let unused = member.table.remaining();
            let shown = unused[..unused.len().min(3)].join(", ");
            if json.is_some() && !unused.is_empty() {
                return Err(Error::conflict(format!(
                    "{} of the table belong to no sample, such as {shown}",
                    counted(unused.len(), "row")
                ))
                .at(dataset.path())
                .with_remedy("give names of samples, as in samples.jsonl"));
            }
            if !member.table.is_used() {
                let key = member.table.key();
                return Err(Error::conflict(format!(
                    "no row of the table belongs to a sample; the first is {shown}"
                ))
                .at(&member.file)
                .with_remedy(remedy![
                    "say what the column has for each sample, such as ",
                    Opt::TableKey.to(format!("{key}={{stem}}"))
                ]));
            }
            if !unused.is_empty() {
                let rows = counted(unused.len(), "row");
                let table = match tables.len() {
                    1 => "the table".to_owned(),
                    _ => format!("the table {}", member.file.display()),
                };
                changes.notes.push(format!("{rows} of {table} belong to no sample: {shown}"));
            }
        }
        of_lists(dataset, &lists, &mut changes)?;
        if let Some(column) = &options.joins.label_column {
            label(dataset, column, &mut changes)?;
        }
        let is_kept = |id: usize, column: &str| {
            !changes.columns.get(&id).is_some_and(|columns| columns.contains_key(column))
        };
        let mut types = ColumnTypes::of(dataset, is_kept)?;
        changes.columns.values_mut().for_each(|columns| types.fit(columns));
        changes.notes.extend(types.notes("the dataset"));
        Ok(changes)
    })
}

fn counted(count: usize, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// Adds the rows of tables to the changes.
fn of_tables(dataset: &Dataset, tables: &mut Tables, changes: &mut Changes) -> Result<()> {
    let samples = dataset.samples();
    for id in 0..samples.len() {
        let mut cells = Map::new();
        let mut sample = None;
        for number in 0..tables.len() {
            let earlier = fields_of(tables, number, &cells);
            let member = tables.get_mut(number);
            let text = match member.is_by_name() {
                true => Some(samples.name(id).to_owned()),
                false => {
                    let sample = match &mut sample {
                        Some(sample) => sample,
                        None => sample.insert(input(&samples.get(id)?)),
                    };
                    sample.fields.extend(earlier.clone());
                    member.pattern().of(sample)?
                }
            };
            let row = text.and_then(|text| member.table.row_with_nulls(&text));
            if let Some(row) = row {
                let merged = tables.merge(number, row, &mut cells);
                merged.map_err(|error| error.within(samples.name(id)))?;
            }
        }
        if cells.is_empty() {
            continue;
        }
        let columns = changes.columns.entry(id).or_default();
        for (column, value) in cells {
            let is_own = table::is_reserved(&column);
            columns.insert(if is_own { format!("table.{column}") } else { column }, value);
        }
    }
    Ok(())
}

/// The columns of the tables before table `number` as fields. A sample without a row has no value
/// in them.
fn fields_of(tables: &Tables, number: usize, cells: &Map<String, Value>) -> Fields {
    let used: Vec<&str> = tables
        .iter()
        .nth(number)
        .into_iter()
        .flat_map(|member| member.pattern().fields())
        .collect();
    let columns = tables.iter().take(number).flat_map(|member| member.table.columns());
    let used = columns.filter(|column| used.contains(column));
    used.map(|column| (column.to_owned(), cells.get(column).and_then(pattern::text_of))).collect()
}

/// A sample as an input whose fields are its columns.
fn input(sample: &Sample) -> Input {
    let mut input = Input::of_sample(sample);
    for (column, value) in columns_of(sample) {
        input.fields.entry(column).or_insert_with(|| pattern::text_of(&value));
    }
    input.columns.insert("name".to_owned(), Value::from(sample.name.as_str()));
    input
}

/// The columns of a sample that a table may have.
fn columns_of(sample: &Sample) -> Map<String, Value> {
    let mut columns = sample.columns.clone();
    let text = |value: &Option<String>| value.clone().map_or(Value::Null, Value::from);
    columns.insert("split".to_owned(), text(&sample.split));
    columns.insert("group".to_owned(), text(&sample.group));
    columns.insert("label".to_owned(), sample.label.clone().unwrap_or_default());
    columns
}

/// Adds what lists say to the changes.
fn of_lists(dataset: &Dataset, lists: &[table::NameList], changes: &mut Changes) -> Result<()> {
    if lists.is_empty() {
        return Ok(());
    }
    let samples = dataset.samples();
    let inputs = (0..samples.len()).map(|id| {
        let input = input(&samples.get(id)?);
        Ok(Input {
            columns: Map::from_iter(
                input.columns.get_key_value("name").map(|(key, name)| (key.clone(), name.clone())),
            ),
            ..input
        })
    });
    let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
    let listed = assign_lists(lists, &mut inputs)?;
    changes.notes.extend(listed.notes);
    for (id, mut input) in inputs.into_iter().enumerate() {
        input.columns.remove("name");
        if !input.columns.is_empty() {
            changes.columns.entry(id).or_default().extend(input.columns);
        }
    }
    Ok(())
}

/// Makes labels of a column, as it is after the other changes.
fn label(dataset: &Dataset, column: &str, changes: &mut Changes) -> Result<()> {
    let samples = dataset.samples();
    let mut labels = BTreeMap::new();
    let mut names = BTreeSet::new();
    for id in 0..samples.len() {
        let mut columns = columns_of(&samples.get(id)?);
        columns.extend(changes.columns.get(&id).cloned().unwrap_or_default());
        // An empty cell removes the label, but a sample without the column keeps it.
        if let Some(value) = columns.get(column) {
            labels.insert(id, value.clone());
        }
        names.extend(columns.keys().cloned());
    }
    if labels.values().all(Value::is_null) {
        let names: Vec<String> = names.into_iter().take(20).collect();
        return Err(Error::conflict(format!("no sample has a value in a column {column:?}"))
            .at(dataset.path())
            .with_remedy(format!("give one of the columns that there are: {}", names.join(", "))));
    }
    for (id, value) in labels {
        changes.columns.entry(id).or_default().insert("label".to_owned(), value);
    }
    Ok(())
}
