//! Stand-in for Parquet in a build without the feature `parquet`.

use hsipack_format::{Error, Result};

use super::Rows;

/// The error about a file in Parquet.
pub(crate) fn refused() -> Error {
    Error::unsupported("this build of hsipack reads and writes no Parquet files")
        .with_remedy("use CSV, or build hsipack with the feature 'parquet', a default one")
}

/// Reads no table.
///
/// # Errors
/// Always.
pub(crate) fn read(_bytes: Vec<u8>) -> Result<Rows> {
    Err(refused())
}

#[cfg(test)]
mod tests {
    use crate::spectra::Output;
    use crate::table::Table;

    #[test]
    fn parquet_files_are_refused_with_the_feature_that_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("table.parquet");
        let written = Output::new(&file, false).unwrap_err().to_string();
        std::fs::write(&file, b"PAR1 and more PAR1").unwrap();
        let read = Table::read(&file, "name").unwrap_err().to_string();
        for text in [read, written] {
            assert!(text.contains("table.parquet") && text.contains("'parquet'"), "{text}");
        }
    }
}
