//! `--exclude`: files and folders that a search for cubes leaves out.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::mirror;

/// Patterns of paths and names.
#[derive(Debug, Default)]
pub(crate) struct Exclusion(Vec<glob::Pattern>);

impl Exclusion {
    /// # Errors
    /// If a text is not a pattern.
    pub fn parse(texts: &[String]) -> Result<Self> {
        // A slash at the end says that a folder is meant, as in git.
        let parse = |text: &String| parse_glob(text.strip_suffix('/').unwrap_or(text));
        texts.iter().map(parse).collect::<Result<_>>().map(Self)
    }

    /// Whether a file or folder is left out, by its path or its name.
    pub fn matches(&self, path: &Path) -> bool {
        let url = mirror::url_of(path);
        let path = url.as_deref().unwrap_or(path);
        let name = Path::new(path.file_name().unwrap_or_default());
        self.0.iter().any(|pattern| pattern.matches_path(path) || pattern.matches_path(name))
    }
}

fn parse_glob(pattern: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(pattern).map_err(|error| {
        Error::conflict(format!("{pattern:?} is not a glob pattern: {error}")).caused_by(error)
    })
}
