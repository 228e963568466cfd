//! Finds the header of a data file and the data file of a header, by name and by size.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::header::{Header, Interleave};
use super::kind::Kind;
use super::{DataFile, is_there, kind_of};
use crate::raster::tiff::directory::has_signature;

/// Suffixes of data files, in the order in which they are tried. The names of the interleaves
/// follow them.
const DATA_SUFFIXES: [&str; 11] =
    ["", "img", "dat", "raw", "bin", "hyspex", "cube", "gz", "img.gz", "dat.gz", "raw.gz"];

/// Suffixes of TIFF files.
pub(super) const TIFF_SUFFIXES: [&str; 5] = ["tif", "tiff", "TIF", "TIFF", "Tif"];

/// Whether the file at `path` is a TIFF file, by its name and its first bytes.
pub(super) fn is_tiff(path: &Path) -> bool {
    let is_named = TIFF_SUFFIXES.iter().any(|suffix| has_suffix(path, suffix));
    is_named && bounded_read::head(path, 8).is_ok_and(|head| has_signature(&head))
}

/// Where the header of the data file `path` may be, nearest name first.
pub(super) fn header_names(path: &Path) -> Vec<PathBuf> {
    let mut bases = vec![path.to_owned()];
    if path.extension().is_some() {
        bases.push(path.with_extension(""));
    }
    if has_suffix(path, "gz") {
        bases.push(path.with_extension("").with_extension(""));
    }
    let mut names: Vec<PathBuf> = bases
        .iter()
        .flat_map(|base| ["hdr", "HDR", "Hdr"].map(|suffix| append(base, suffix)))
        .collect();
    names.dedup();
    names
}

/// Where the data of the header `path` may be, most likely name first.
fn data_names(path: &Path, interleave: Interleave) -> Vec<PathBuf> {
    let mut bases = vec![path.with_extension("")];
    if !has_suffix(path, "hdr") {
        bases.push(path.to_owned());
    }
    let others = Interleave::ALL.into_iter().filter(|other| *other != interleave);
    let interleaves = std::iter::once(interleave).chain(others).map(Interleave::name);
    let suffixes: Vec<&str> = DATA_SUFFIXES.into_iter().chain(interleaves).collect();
    bases.iter().flat_map(|base| suffixes.iter().map(move |suffix| append(base, suffix))).collect()
}

/// `path` with its suffix in upper case, if it has one.
fn upper_case(path: &Path, base_len: usize) -> PathBuf {
    let name = file_name(path);
    match name.split_at_checked(base_len) {
        Some((base, suffix)) => path.with_file_name(format!("{base}{}", suffix.to_uppercase())),
        None => path.to_owned(),
    }
}

/// `path` with `.suffix` appended; `path` itself if the suffix is empty.
pub(super) fn append(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if !suffix.is_empty() {
        name.push(".");
        name.push(suffix);
    }
    name.into()
}

pub(super) fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(suffix))
}

pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The data file of the header at `path`.
pub(super) fn find_data(path: &Path, header: &Header) -> Result<(PathBuf, DataFile)> {
    let names = data_names(path, header.interleave);
    let mut found = Candidates::new(path);
    let base_len = file_name(&path.with_extension("")).len();
    for name in &names {
        found.add(name.clone());
        found.add(upper_case(name, base_len));
    }
    if !found.files.iter().any(|(_, data)| data.fits_plain(header)) {
        found.add_same_stem(header);
    }
    found.choose(header)?.ok_or_else(|| no_data(path, &names))
}

fn no_data(path: &Path, names: &[PathBuf]) -> Error {
    let names: Vec<String> = names.iter().map(|name| file_name(name)).collect();
    Error::malformed("the data file of this header is missing").at(path).with_remedy(format!(
        "put it beside the header, under one of the names {} (suffix in lower or upper case), or \
         any other suffix if it has exactly the size that the header says",
        names.join(", ")
    ))
}

/// Files that may be the data of a header, the most likely first.
struct Candidates<'a> {
    header_path: &'a Path,
    files: Vec<(PathBuf, DataFile)>,
    visited: BTreeSet<(u64, u64)>,
}

impl<'a> Candidates<'a> {
    fn new(header_path: &'a Path) -> Self {
        let identity = header_path.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        Self { header_path, files: Vec::new(), visited: identity.into_iter().collect() }
    }

    /// Adds `path` if it is a file that was not added before, and neither a header nor a TIFF file.
    fn add(&mut self, path: PathBuf) {
        if !is_there(&path) || kind_of(&path) != Kind::Other || is_tiff(&path) {
            return;
        }
        if let Ok(data) = DataFile::measure(&path)
            && self.visited.insert(data.identity)
        {
            self.files.push((path, data));
        }
    }

    /// Adds files with the same stem and any suffix whose size is exactly right.
    fn add_same_stem(&mut self, header: &Header) {
        let folder = match self.header_path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let Some(stem) = self.header_path.file_stem() else { return };
        let Ok(entries) = folder.read_dir() else { return };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .filter(|name| {
                let of_stem = |stem: &OsStr| Path::new(name).file_stem() == Some(stem);
                of_stem(stem)
                    || Path::new(name).file_stem().is_some_and(|s| s.eq_ignore_ascii_case(stem))
            })
            .map(|name| self.header_path.with_file_name(name))
            .filter(|path| path.metadata().is_ok_and(|m| m.len() == header.file_len()))
            .collect();
        paths.sort();
        paths.into_iter().for_each(|path| self.add(path));
    }

    /// The file to use: plain data of the right size, otherwise gzip, otherwise the most likely
    /// file that is large enough, otherwise the most likely file.
    fn choose(mut self, header: &Header) -> Result<Option<(PathBuf, DataFile)>> {
        let plain = self.positions(|data| data.fits_plain(header));
        let gzip = self.positions(|data| data.is_gzip_for(header));
        let fitting = if plain.is_empty() { gzip } else { plain };
        let best = match fitting.as_slice() {
            [] => {
                let large = self.positions(|data| data.len >= header.file_len());
                large.first().copied().unwrap_or(0)
            }
            [index] => *index,
            several => self.by_interleave(several, header.interleave)?,
        };
        Ok((best < self.files.len()).then(|| self.files.swap_remove(best)))
    }

    fn positions(&self, wanted: impl Fn(&DataFile) -> bool) -> Vec<usize> {
        (0..self.files.len()).filter(|index| wanted(&self.files[*index].1)).collect()
    }

    /// If several files fit, the one whose suffix is the interleave, or the only one whose suffix
    /// is not another interleave.
    fn by_interleave(&self, several: &[usize], interleave: Interleave) -> Result<usize> {
        let path = |index: &usize| self.files[*index].0.as_path();
        if let Some(named) = several.iter().find(|i| has_suffix(path(i), interleave.name())) {
            return Ok(*named);
        }
        let contradicts =
            |i: &&usize| Interleave::ALL.iter().any(|other| has_suffix(path(i), other.name()));
        let remaining: Vec<&usize> = several.iter().filter(|index| !contradicts(index)).collect();
        if let [only] = remaining.as_slice() {
            return Ok(**only);
        }
        let names: Vec<String> = several.iter().map(|index| file_name(path(index))).collect();
        Err(Error::ambiguous(format!(
            "several files have exactly the size this header says: {}",
            names.join(", ")
        ))
        .at(self.header_path)
        .with_remedy("give the data file itself; its header is found beside it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(paths: Vec<PathBuf>) -> Vec<String> {
        paths.iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn headers_are_looked_for_under_the_whole_name_first() {
        assert_eq!(
            names(header_names(Path::new("d.x/a.img"))),
            [
                "d.x/a.img.hdr",
                "d.x/a.img.HDR",
                "d.x/a.img.Hdr",
                "d.x/a.hdr",
                "d.x/a.HDR",
                "d.x/a.Hdr"
            ]
        );
        assert_eq!(
            names(header_names(Path::new("d.x/a"))),
            ["d.x/a.hdr", "d.x/a.HDR", "d.x/a.Hdr"]
        );
        assert!(names(header_names(Path::new("a.img.gz"))).contains(&"a.hdr".to_owned()));
    }

    #[test]
    fn data_are_looked_for_under_the_bare_name_first_and_the_own_interleave_before_others() {
        let found = names(data_names(Path::new("d/a.raw.HDR"), Interleave::Bil));
        assert_eq!(found[..2], ["d/a.raw", "d/a.raw.img"]);
        assert_eq!(found[found.len() - 3..], ["d/a.raw.bil", "d/a.raw.bsq", "d/a.raw.bip"]);
        assert_eq!(upper_case(Path::new("d/a.img"), 1), Path::new("d/a.IMG"));
        assert_eq!(upper_case(Path::new("d/é.img"), 1), Path::new("d/é.img"));
    }
}
