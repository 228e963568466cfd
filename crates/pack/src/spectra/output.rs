//! The file that a table is written to.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::output;

use super::csv;
#[cfg(feature = "parquet")]
use super::parquet;
use super::table::Table;

/// A file that a table can be written to.
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    #[cfg(feature = "parquet")]
    Parquet,
    Csv,
}

impl Output {
    /// The file `path`, whose extension selects the format. An existing file is overwritten only
    /// with `force`.
    ///
    /// # Errors
    /// If the extension is not one of a known format, or the file exists.
    pub fn new(path: impl Into<PathBuf>, force: bool) -> Result<Self> {
        let path = path.into();
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        let kind = match ending.as_str() {
            #[cfg(feature = "parquet")]
            "parquet" => Kind::Parquet,
            #[cfg(not(feature = "parquet"))]
            "parquet" => return Err(crate::table::without_parquet::refused().at(&path)),
            "csv" => Kind::Csv,
            _ => {
                return Err(Error::unsupported("no table format has this ending")
                    .at(&path)
                    .with_remedy("use .parquet or .csv"));
            }
        };
        output::check_absent(std::slice::from_ref(&path), force)?;
        Ok(Self { path, kind })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a table to the file, which appears complete or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, table: &Table) -> Result<()> {
        match self.kind {
            #[cfg(feature = "parquet")]
            Kind::Parquet => parquet::write(table, &self.path),
            Kind::Csv => csv::write(table, &self.path),
        }
    }
}
