//! Options that say which rows of a table, and which lists, belong to a sample.

// The help of arguments: `[default: …]` in it is not a link.
#![allow(rustdoc::broken_intra_doc_links)]

use serde::{Deserialize, Serialize};

use super::SplitList;
use crate::convert::Assignment;

/// How rows of a table and lists belong to samples. The table itself is an option named `table`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct TableOptions {
    /// Column of the table that identifies a sample, and the text that it has for the sample, such as file={stem}.npy
    /// [default: name={name}]
    ///
    /// The pattern has fields: the columns of the sample, and its {name}, {path}, {dir}, {stem} and {parent}.
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN=PATTERN", requires = "table"))]
    pub table_key: Option<Assignment>,
    /// Add the columns of another table (repeatable): OTHER is a key of the same JSON file, or another file; its rows are
    /// found by the equal value in COLUMN of the table, as in annotations.record_id=id
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "OTHER.COLUMN=COLUMN", requires = "table")
    )]
    pub table_join: Vec<Assignment>,
    /// List of the samples of a split (repeatable): names, stems or paths, one a line, or a JSON list; or a JSON file with
    /// such lists by the names of splits
    ///
    /// Lists of folds, as in [{"train": [...], "val": [...]}, ...], become the columns fold0/train, fold0/val, fold1/train, ...,
    /// which are true for the samples in a list and false for others.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=FILE|FILE.json"))]
    pub split: Vec<SplitList>,
    /// Column that becomes the label of each sample [default: label]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN"))]
    pub label_column: Option<String>,
}

impl TableOptions {
    /// The column of the table that identifies samples.
    pub(crate) fn key_column(&self) -> &str {
        self.table_key.as_ref().map_or("name", |key| &key.name)
    }
}
