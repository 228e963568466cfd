//! Archives that a search meets: which are skipped, and globs into them.
//!
//! All readers treat an archive as a folder ([`mirror::folder_of_archive`]). This module has the
//! rules that apply to archives only.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::mirror;

use super::wildcards::first_wildcard;

/// How many names a message lists.
const NAMED: usize = 5;

/// If the glob `text` begins with the path of an archive, the glob rewritten for the local files
/// that mirror its members.
///
/// # Errors
/// If the archive cannot be read.
pub(super) fn glob_inside(text: &str) -> Result<Option<String>> {
    let Some(wild) = first_wildcard(text) else { return Ok(None) };
    let Some(slash) = text[..wild].rfind('/') else { return Ok(None) };
    let folder = mirror::inside_archive(Path::new(&text[..slash]))?;
    Ok(folder.map(|folder| {
        format!("{}{}", glob::Pattern::escape(&folder.to_string_lossy()), &text[slash..])
    }))
}

/// The folder that mirrors an archive found by a search. It is `None` if the unpacked contents lie
/// beside the archive, directly or in a folder of its name: the search finds them there.
///
/// # Errors
/// If the archive cannot be read.
pub(super) fn to_search(path: &Path) -> Result<Option<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let lower = name.to_ascii_lowercase();
    let stem = [".tar.gz", ".tgz", ".tar", ".zip"].iter().find_map(|end| lower.strip_suffix(end));
    let stem = stem.map_or("", |stem| &name[..stem.len()]);
    if !stem.is_empty() && path.with_file_name(stem).is_dir() {
        return Ok(None);
    }
    let folder = mirror::folder_of_archive(path)?;
    let fail = |error| Error::io(&folder, "cannot list", error);
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&folder).map_err(fail)? {
        names.insert(entry.map_err(fail)?.file_name());
    }
    let is_unpacked =
        !names.is_empty() && names.iter().all(|name| path.with_file_name(name).exists());
    Ok((!is_unpacked).then_some(folder))
}

/// Archives inside `folder`, a folder of an archive. The message that there is no cube lists them.
pub(super) fn nested(folder: &Path) -> Vec<String> {
    let files = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().flatten();
    let names = files.filter(|file| {
        mirror::is_archive(file.path()) || hsipack_source::is_unread_archive(file.path())
    });
    names.take(NAMED).map(|file| file.file_name().to_string_lossy().into_owned()).collect()
}
