//! Inputs: turns what the user typed into a list of cubes to open.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use hsipack_format::{Error, ErrorKind, Geo, Opt, Result, Sample, remedy};
use hsipack_store::archive::Kind;
use hsipack_store::remote::is_url;
use hsipack_store::{is_packed, mirror};
use serde_json::{Map, Value};
use walkdir::WalkDir;

use crate::convert::pairs;
use crate::convert::staging::is_unfinished;
use crate::pattern::Fields;
use crate::wildcards::Wildcards;
use crate::{archives, table, walk};

/// One cube to open.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The file, or the folder of a Zarr store.
    pub file: PathBuf,
    /// The variable inside it.
    pub variable: Option<String>,
    /// The folder that was given as input and searched; names are relative to it.
    pub root: Option<PathBuf>,
    /// Columns of the CSV list it came from.
    pub columns: Map<String, Value>,
    /// If a program gave the cube as an array, its name for that array. The file then holds the array only for a while,
    /// so messages and records use this name instead of the path.
    pub stands_for: Option<String>,
    /// The georeferencing that a program gave. It takes precedence over that of the file.
    pub geo: Option<Box<Geo>>,
    /// Values of fields of patterns.
    pub fields: Fields,
}

/// The format that is recorded as the source of samples that a program gave as arrays.
pub const ARRAY: &str = "array";

impl Input {
    /// The file without a variable, columns or other details.
    pub fn of(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            variable: None,
            root: None,
            columns: Map::new(),
            stands_for: None,
            geo: None,
            fields: Fields::new(),
        }
    }

    /// The source of a sample, at the recorded path, with the fields that its patterns use.
    pub fn of_sample(sample: &Sample) -> Self {
        Self::parse(&sample.source.path).with_fields_of(sample)
    }

    /// This input with the recorded fields of a sample, whose source it is.
    pub fn with_fields_of(self, sample: &Sample) -> Self {
        let mut fields = sample.source.fields.clone();
        fields.entry("name".to_owned()).or_insert_with(|| Some(sample.name.clone()));
        Self { fields, ..self }
    }

    /// Parses `file` or `file::variable`. If a file exists whose own name contains `::`, the whole text is its path.
    pub fn parse(text: &str) -> Self {
        let whole = Self::of(Path::new(text));
        if is_url(&whole.file) {
            // Skips the colons of the URL's scheme and host.
            let path = text.match_indices('/').nth(2).map_or(text.len(), |(slash, _)| slash);
            return match text[path..].split_once("::") {
                Some((file, variable)) if !variable.is_empty() => {
                    let file = Path::new(&text[..path + file.len()]);
                    Self { variable: Some(variable.to_owned()), ..Self::of(file) }
                }
                _ => whole,
            };
        }
        match text.split_once("::") {
            Some((file, variable)) if !whole.file.exists() && !variable.is_empty() => {
                Self { variable: Some(variable.to_owned()), ..Self::of(Path::new(file)) }
            }
            _ => whole,
        }
    }

    /// Replaces a URL, or a path into an archive, by the local file or folder that mirrors it. An archive itself
    /// becomes the folder of its contents.
    ///
    /// # Errors
    /// If there is no such object, the server does not answer, or the archive cannot be read.
    pub fn here(self) -> Result<Self> {
        let beside = mirror::beside_archive(&self.file);
        let file = if is_url(&beside) { object(&beside)? } else { beside };
        mirror::look(&file)?;
        let file = mirror::inside_archive(&file)?.unwrap_or(file);
        Ok(Self { file, ..self })
    }

    /// The input as the user would type it.
    pub fn text(&self) -> String {
        if let Some(name) = &self.stands_for {
            return name.clone();
        }
        let url = mirror::url_of(&self.file);
        let file = url.as_deref().unwrap_or(&self.file).display();
        match &self.variable {
            Some(variable) => format!("{file}::{variable}"),
            None => file.to_string(),
        }
    }

    /// The path below the searched folder, or the file's name, with `/` between its parts.
    pub fn relative(&self) -> String {
        self.below_root().to_string_lossy().replace('\\', "/")
    }

    fn below_root(&self) -> PathBuf {
        let url = |path: &Path| mirror::url_of(path).unwrap_or_else(|| path.to_owned());
        let file = url(&self.file);
        match &self.root {
            Some(root) => file.strip_prefix(url(root)).unwrap_or(&file).to_owned(),
            None => file.file_name().unwrap_or(file.as_os_str()).into(),
        }
    }

    /// The name of the sample: the path below the searched folder, or the file's name. It has no file extension, but
    /// ends in the variable if one was given.
    pub fn default_name(&self) -> String {
        let stem = self.below_root().with_extension("").to_string_lossy().replace('\\', "/");
        match &self.variable {
            Some(variable) => format!("{stem}::{}", variable.trim_start_matches('/')),
            None => stem,
        }
    }
}

/// Turns files, folders, globs and CSV lists into inputs. They stay in the order given; the cubes of a folder or a glob
/// are sorted.
///
/// # Errors
/// If an input does not exist, or a folder, glob or list contains no cube.
pub fn expand(inputs: &[String], exclude: &[String]) -> Result<Vec<Input>> {
    let patterns = exclude.iter().map(|pattern| parse_glob(pattern)).collect::<Result<Vec<_>>>()?;
    let excluded = |path: &Path| {
        let url = mirror::url_of(path);
        let path = url.as_deref().unwrap_or(path);
        let name = path.file_name().unwrap_or_default();
        patterns
            .iter()
            .any(|pattern| pattern.matches_path(path) || pattern.matches_path(Path::new(name)))
    };
    let mut all = Vec::new();
    for text in inputs {
        all.extend(expand_one(text, &excluded)?);
    }
    Ok(all)
}

fn parse_glob(pattern: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(pattern).map_err(|error| {
        Error::conflict(format!("{pattern:?} is not a glob pattern: {error}")).caused_by(error)
    })
}

fn expand_one(text: &str, excluded: &dyn Fn(&Path) -> bool) -> Result<Vec<Input>> {
    let input = Input::parse(text);
    if is_url(&input.file) && text.contains(WILD) {
        return expand_glob(&glob_of_files(text)?, excluded);
    }
    let input = input.here()?;
    if !input.file.exists() {
        return match archives::glob_inside(text)? {
            Some(glob) => expand_glob(&glob, excluded),
            None => expand_glob(text, excluded),
        };
    }
    if input.variable.is_some() {
        return archives::only_cube(input).map(|input| vec![input]);
    }
    let images = hsipack_source::images_of_metadata(&input.file);
    if !images.is_empty() {
        return Ok(images.iter().map(|image| Input::of(image)).collect());
    }
    if input.file.is_dir() && !hsipack_source::is_container_folder(&input.file) {
        return search(&input.file, excluded);
    }
    if input.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
        let cube = |input: Input| archives::only_cube(input.here()?);
        return table::read_list(&input.file)?.into_iter().map(cube).collect();
    }
    Ok(vec![input])
}

/// The characters that make a path a glob.
pub(crate) const WILD: [char; 3] = ['*', '?', '['];

/// The local file or folder that mirrors the object at a URL, or a member of an archive at a URL.
fn object(url: &Path) -> Result<PathBuf> {
    if let Some(file) = mirror::file(url)? {
        return Ok(file);
    }
    let archives = url.ancestors().skip(1).filter(|path| Kind::of(path).is_some());
    for archive in archives.filter(|path| is_url(path)) {
        if let Some(file) = mirror::file(archive)?.filter(|file| file.is_file()) {
            let below = url.strip_prefix(archive).unwrap_or(Path::new(""));
            return Ok(file.join(below));
        }
    }
    Err(missing(url))
}

/// The glob `url`, rewritten for the local files that mirror objects.
fn glob_of_files(url: &str) -> Result<String> {
    let wild = url.find(WILD).unwrap_or(url.len());
    let (folder, rest) = url.split_at(url[..wild].rfind('/').map_or(wild, |slash| slash + 1));
    if !is_url(Path::new(folder)) {
        return Err(missing(Path::new(url)));
    }
    let path = match mirror::folder(Path::new(folder))? {
        Some(path) => path,
        None => Input::of(Path::new(folder)).here().map_err(|error| error.at(url))?.file,
    };
    Ok(format!("{}/{rest}", glob::Pattern::escape(&path.to_string_lossy())))
}

fn missing(file: &Path) -> Error {
    if !is_url(file) {
        return Error::new(ErrorKind::Io, "no such file or folder")
            .at(file)
            .with_remedy("check the path");
    }
    let nothing = io::Error::new(io::ErrorKind::NotFound, "there is no such object");
    Error::io(file, "cannot read", nothing)
        .with_remedy("check the URL; a plain web server cannot list its files, so name each file")
}

fn expand_glob(text: &str, excluded: &dyn Fn(&Path) -> bool) -> Result<Vec<Input>> {
    let missing = || mirror::error_with_urls(missing(&Input::parse(text).file));
    if !text.contains(WILD) {
        return Err(missing());
    }
    let found = glob::glob(text)
        .map_err(|error| Error::conflict(format!("{text:?} is not a glob pattern: {error}")))?;
    let wildcards = Wildcards::of(text);
    let mut inputs = Vec::new();
    for path in found {
        let path =
            path.map_err(|error| Error::io(error.path().to_owned(), "cannot list", error.into()))?;
        // As in a shell, a wildcard does not match hidden files or folders.
        if excluded(&path) || hidden_parts(&path) > hidden_parts(Path::new(text)) {
            continue;
        }
        // A path that cannot be read is kept: opening it later gives an error with its name.
        let mut fields = Fields::new();
        wildcards.add(&path.to_string_lossy(), &mut fields);
        let path = Input::of(&path).here().map_or(path, |input| input.file);
        if path.is_dir() && !hsipack_source::is_container_folder(&path) {
            let found = search(&path, excluded)?.into_iter();
            inputs.extend(found.map(|input| Input { fields: fields.clone(), ..input }));
        } else {
            inputs.push(Input { fields, ..Input::of(&path) });
        }
    }
    if inputs.is_empty() { Err(missing()) } else { Ok(inputs) }
}

/// Whether a file or folder of this name is hidden. This includes macOS's `._x` files beside `x`, and `__MACOSX`, the
/// folder in which archives from macOS keep them.
pub(crate) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX"
}

/// The number of hidden files and folders in a path.
fn hidden_parts(path: &Path) -> usize {
    let hidden = |part: &Component<'_>| matches!(part, Component::Normal(name) if is_hidden(name));
    path.components().filter(hidden).count()
}

/// Every cube below `folder`, sorted by path. Archives are searched too, but not archives inside archives.
///
/// These are skipped: packed datasets, finished or not; hidden files and folders; archives whose unpacked contents are
/// beside them; the other files of a sensor's product; and white and dark references beside their cube, which `--white`
/// and `--dark` use.
pub(crate) fn search(folder: &Path, excluded: &dyn Fn(&Path) -> bool) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    search_below(folder, folder, excluded, &mut inputs)?;
    if !inputs.is_empty() {
        return Ok(inputs);
    }
    let nested = if mirror::is_of_archive(folder) { archives::nested(folder) } else { Vec::new() };
    if !nested.is_empty() {
        return Err(Error::conflict(format!(
            "the archive contains no cube, but other archives, which are not opened: {}",
            nested.join(", ")
        ))
        .at(folder)
        .with_remedy("unpack it, and give the folder"));
    }
    Err(no_cube(folder, excluded))
}

/// How many files a message about a folder without cubes lists.
const LISTED: usize = 5;

/// The error for a folder without cubes. It lists files that are there.
fn no_cube(folder: &Path, excluded: &dyn Fn(&Path) -> bool) -> Error {
    let place = if mirror::is_of_archive(folder) { "archive" } else { "folder" };
    let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter().flatten();
    let files = walk.filter(|entry| entry.file_type().is_file());
    let (mut listed, mut left_out, mut way_out) = (Vec::new(), false, None);
    for file in files {
        let path = file.path();
        if is_hidden(file.file_name()) {
            continue;
        }
        if listed.len() == LISTED {
            listed.push("…".to_owned());
            break;
        }
        let name = path.strip_prefix(folder).unwrap_or(path).display();
        let is_excluded = excluded(path);
        let other = (!is_excluded).then(|| hsipack_source::other(path));
        let format = other.as_ref().and_then(|other| other.format);
        left_out |= is_excluded;
        listed.push(match format {
            _ if is_excluded => format!("{name} (excluded)"),
            Some(format) => format!("{name} ({format})"),
            None => name.to_string(),
        });
        way_out = way_out.or(other.and_then(|other| other.way_out));
    }
    let error =
        |there: String| Error::conflict(format!("no cube in this {place}{there}")).at(folder);
    if listed.is_empty() {
        return error(", which has no files".to_owned())
            .with_remedy("check the path; hidden files are packed only if they are named");
    }
    let error = error(format!("; it has {}", listed.join(", ")));
    match way_out {
        Some(way_out) => error.with_remedy(way_out),
        None if left_out => error.with_remedy(remedy!["check the path, and ", Opt::Exclude]),
        None => error.with_remedy(
            "check the path; cubes are ENVI headers with their data, .npy, .npz, .mat, HDF5, NetCDF-4, TIFF, Zarr, \
             Tivita and HTC files; hidden files are packed only if they are named",
        ),
    }
}

/// Adds the cubes below `folder` to `inputs`; their names are relative to `root`.
fn search_below(
    folder: &Path,
    root: &Path,
    excluded: &dyn Fn(&Path) -> bool,
    inputs: &mut Vec<Input>,
) -> Result<()> {
    let is_in_archive = mirror::is_of_archive(folder);
    let mut walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(folder).to_owned();
            walk::failed(&path, error)
        })?;
        let path = entry.path();
        // The user named the top folder, so it is searched even if it is hidden.
        if entry.depth() > 0 && is_hidden(entry.file_name()) {
            if entry.file_type().is_dir() {
                walk.skip_current_dir();
            }
            continue;
        }
        if entry.file_type().is_dir() && (is_packed(path) || is_unfinished(path)) {
            walk.skip_current_dir();
            continue;
        }
        if entry.file_type().is_file() && mirror::is_archive(path) {
            if is_in_archive || excluded(path) {
                continue;
            }
            match archives::to_search(path) {
                Ok(Some(inside)) => search_below(&inside, root, excluded, inputs)?,
                Ok(None) => {}
                // The archive is kept, like a cube that cannot be read: opening it later gives an error with its name.
                Err(_) => inputs.push(Input { root: Some(root.to_owned()), ..Input::of(path) }),
            }
            continue;
        }
        let container = entry.file_type().is_dir() && hsipack_source::is_container_folder(path);
        if container {
            walk.skip_current_dir();
        }
        let candidate =
            container || (entry.file_type().is_file() && hsipack_source::is_cube_file(path));
        if candidate && !excluded(path) && !pairs::is_reference(path) {
            inputs.push(Input { root: Some(root.to_owned()), ..Input::of(path) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_stands_behind_two_colons() {
        let input = Input::parse("scene.h5::/a/b");
        assert_eq!(
            (input.file.to_str(), input.variable.as_deref()),
            (Some("scene.h5"), Some("/a/b"))
        );
        assert_eq!(input.default_name(), "scene::a/b");
        assert_eq!(input.text(), "scene.h5::/a/b");
        assert_eq!(Input::parse("dir/scene.hdr").default_name(), "scene");
    }

    #[test]
    fn a_variable_stands_behind_the_path_of_a_url() {
        for (text, file, variable) in [
            ("s3://b/a/x.h5::/cube", "s3://b/a/x.h5", Some("/cube")),
            ("s3://b/a/x.npy", "s3://b/a/x.npy", None),
            ("http://[::1]:80/x.h5::a", "http://[::1]:80/x.h5", Some("a")),
            ("http://[::1]:80/x.h5", "http://[::1]:80/x.h5", None),
        ] {
            let input = Input::parse(text);
            assert_eq!((input.file.to_str(), input.variable.as_deref()), (Some(file), variable));
            assert_eq!(input.text(), text);
        }
    }

    #[test]
    fn names_keep_the_path_below_a_searched_folder() {
        let input =
            Input { root: Some("data".into()), ..Input::of(Path::new("data/day 1/scene.raw.hdr")) };
        assert_eq!(input.default_name(), "day 1/scene.raw");
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let error = expand(&["no/such.hdr".into()], &[]).unwrap_err();
        assert!(error.to_string().starts_with("no/such.hdr: no such file"), "{error}");
        let error = expand(&["no/such*.hdr".into()], &[]).unwrap_err();
        assert!(error.to_string().contains("no/such*.hdr"), "{error}");
    }
}
