//! Options that say which rows of a table, and which lists, belong to a sample.

// The help of arguments: `[default: …]` in it is not a link.
#![allow(rustdoc::broken_intra_doc_links)]

use hsipack_format::{Error, Opt, Result, remedy};
use serde::{Deserialize, Serialize};

use super::SplitList;
use crate::convert::{Assignment, one_or_several};

/// How rows of tables and lists belong to samples. The tables themselves are an option named
/// `table`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct TableOptions {
    /// Column of the table that identifies a sample, and the text that it has for the sample, such
    /// as file={stem}.npy [default: name={name}]
    ///
    /// The pattern has fields: the columns of the sample, and its {name}, {path}, {dir}, {stem} and
    /// {parent}. With several tables, give one that all of them have, or one for each in the order
    /// of the tables; the columns of earlier tables are fields for later ones, as in id={patient}.
    #[serde(with = "one_or_several")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN=PATTERN", requires = "table"))]
    pub table_key: Vec<Assignment>,
    /// Add the columns of another table (repeatable): OTHER is a key of the same JSON file, or
    /// another file; its rows are found by the equal value in COLUMN of the table, as in
    /// annotations.record_id=id
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "OTHER.COLUMN=COLUMN", requires = "table")
    )]
    pub table_join: Vec<Assignment>,
    /// List of the samples of a split (repeatable): names, stems or paths, one a line, or a JSON
    /// list; or a JSON file with such lists by the names of splits
    ///
    /// Lists of folds, as in [{"train": [...], "val": [...]}, ...], become the columns fold0/train,
    /// fold0/val, fold1/train, ..., which are true for the samples in a list and false for others.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=FILE|FILE.json"))]
    pub split: Vec<SplitList>,
    /// Column that becomes the label of each sample [default: label]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN"))]
    pub label_column: Option<String>,
}

impl TableOptions {
    /// The user's `--table-key` for a table, by its number.
    pub(crate) fn key(&self, table: usize) -> Option<&Assignment> {
        match &self.table_key[..] {
            [all] => Some(all),
            several => several.get(table),
        }
    }

    /// The column of a table that identifies samples.
    pub(crate) fn key_column(&self, table: usize) -> &str {
        self.key(table).map_or("name", |key| &key.name)
    }

    /// Refuses keys of which it is not known to which of so many tables they belong.
    pub(crate) fn check(&self, tables: usize) -> Result<()> {
        let keys = self.table_key.len();
        if keys > 1 && keys != tables {
            let tables =
                if tables == 1 { "1 table".to_owned() } else { format!("{tables} tables") };
            return Err(Error::conflict(format!("there are {keys} keys for {tables}")).with_remedy(
                remedy![
                    "give one ",
                    Opt::TableKey,
                    " for all tables, or one for each, in the same order; that of a table without another key is ",
                    Opt::TableKey.to("name={name}")
                ],
            ));
        }
        Ok(())
    }
}
