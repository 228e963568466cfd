//! Inputs: turns what the user typed into a list of cubes to open.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use hsipack_format::{Error, ErrorKind, Geo, Opt, Result, Sample, remedy};
use hsipack_source::{Axes, BandPattern, BandsOfCube, SpectraTable, number_of_samples};
use hsipack_store::archive::Kind;
use hsipack_store::remote::is_url;
use hsipack_store::{is_packed, mirror};
use serde_json::{Map, Value};
use walkdir::WalkDir;

use crate::convert::staging::is_unfinished;
use crate::convert::{ValueOptions, header, pairs};
use crate::exclusion::Exclusion;
use crate::pattern::Fields;
use crate::wildcards::Wildcards;
use crate::{archives, container_inputs, table, walk};

/// One cube to open.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The file, or the folder of a Zarr store.
    pub file: PathBuf,
    /// The variable inside it.
    pub variable: Option<String>,
    /// The order of the axes of its array, if other files than its own say it, or if it is a sample of an array.
    pub axes: Option<String>,
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
            axes: None,
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

    /// Whether it is a folder that is no container: that of a cube with a file for each band.
    pub fn is_folder_of_bands(&self) -> bool {
        self.file.is_dir()
            && !hsipack_source::is_container_folder(&self.file)
            && !hsipack_source::is_product_folder(&self.file)
    }

    /// The index of its sample, if its variable is one of an array of samples: 3 in `data[3]`.
    pub fn sample(&self) -> Option<usize> {
        self.array_and_sample().1
    }

    /// The name of its array and the index of its sample.
    pub fn array_and_sample(&self) -> (Option<&str>, Option<usize>) {
        let Some(variable) = self.variable.as_deref() else { return (None, None) };
        let indexed = variable.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        match indexed.and_then(|(name, index)| Some((name, index.parse().ok()?))) {
            Some((name, index)) => ((!name.is_empty()).then_some(name), Some(index)),
            None => (Some(variable), None),
        }
    }

    /// The number of samples in its array, if it is one of them and its axes are known.
    ///
    /// # Errors
    /// If the file cannot be listed.
    pub fn number_of_samples(&self) -> Result<Option<usize>> {
        let (name, Some(_)) = self.array_and_sample() else { return Ok(None) };
        match self.axes.as_deref().and_then(Axes::parse) {
            Some(axes) => number_of_samples(&self.file, name, &axes),
            None => Ok(None),
        }
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
        let path = self.below_root();
        let stem = path.with_extension("").to_string_lossy().replace('\\', "/");
        if self.is_folder_of_bands() {
            // The searched folder itself may be the cube, or hold the bands of several.
            let own = || self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = path.to_string_lossy().into_owned();
            return match &self.variable {
                Some(name) if path.is_empty() && !name.is_empty() => name.clone(),
                Some(name) if name.is_empty() => {
                    if path.is_empty() {
                        own()
                    } else {
                        path
                    }
                }
                Some(name) => format!("{path}/{name}"),
                None if path.is_empty() => own(),
                None => path,
            };
        }
        match &self.variable {
            Some(index) if index.starts_with('[') => format!("{stem}{index}"),
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
pub fn expand(inputs: &[String], exclude: &[String], values: &ValueOptions) -> Result<Vec<Input>> {
    expand_skipping(inputs, exclude, values, &|_, error| Err(error))
}

/// [`expand`], where `skip` takes the errors of inputs that cannot be searched, and their paths.
///
/// # Errors
/// Those of `skip`; if an option is invalid.
pub(crate) fn expand_skipping(
    inputs: &[String],
    exclude: &[String],
    values: &ValueOptions,
    skip: &dyn Fn(String, Error) -> Result<()>,
) -> Result<Vec<Input>> {
    let exclusion = Exclusion::parse(exclude)?;
    let excluded = |path: &Path| exclusion.matches(path);
    let axes = values.axes()?;
    let search = Search { excluded: &excluded, values, skip };
    let mut all = Vec::new();
    for text in inputs {
        let found = match expand_one(text, &search) {
            Ok(found) => found,
            Err(error) => {
                skip(text.clone(), error)?;
                continue;
            }
        };
        for input in found {
            let text = input.text();
            let cubes = match values.bands_from.is_some() && !input.is_folder_of_bands() {
                true => Err(not_a_folder(&input)),
                false => container_inputs::expand(input, axes.as_ref()),
            };
            match cubes {
                Ok(cubes) => all.extend(cubes),
                Err(error) => skip(text, error)?,
            }
        }
    }
    if let Some(pattern) = &values.header {
        // The header of many files is not a cube by itself.
        let whole = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let headers = all.iter().filter_map(|input| header::of(pattern, input).ok().flatten());
        let headers: HashSet<PathBuf> = headers.map(whole).collect();
        all.retain(|input| !headers.contains(&whole(input.file.clone())));
    }
    Ok(all)
}

/// The error for a file that is given instead of a folder of bands.
fn not_a_folder(input: &Input) -> Error {
    Error::conflict("this is a file, not a folder with a file for each band")
        .at(&input.file)
        .with_remedy(remedy!["give the folder, in which ", Opt::BandsFrom, " finds the files"])
}

/// How folders are searched.
#[derive(Clone, Copy)]
pub(crate) struct Search<'a> {
    /// Whether a file or folder is left out.
    pub excluded: &'a dyn Fn(&Path) -> bool,
    /// Options that say which files are cubes.
    pub values: &'a ValueOptions,
    /// Takes errors of paths that cannot be searched. If it returns them, the search ends.
    pub skip: &'a dyn Fn(String, Error) -> Result<()>,
}

pub(crate) fn parse_glob(pattern: &str) -> Result<glob::Pattern> {
    glob::Pattern::new(pattern).map_err(|error| {
        Error::conflict(format!("{pattern:?} is not a glob pattern: {error}")).caused_by(error)
    })
}

fn expand_one(text: &str, search: &Search<'_>) -> Result<Vec<Input>> {
    let input = Input::parse(text);
    let has_pattern_for_files = input.file.to_string_lossy().contains(WILD);
    if let Some(variable) = input
        .variable
        .clone()
        .filter(|_| has_pattern_for_files && (is_url(&input.file) || !input.file.exists()))
    {
        // The variable of every file that matches.
        let files = expand_one(&input.file.to_string_lossy(), search)?;
        let of_file = |file: Input| Input { variable: Some(variable.clone()), ..file };
        return Ok(files.into_iter().map(of_file).collect());
    }
    if is_url(&input.file) && has_pattern_for_files {
        return expand_glob(&glob_of_files(text)?, search);
    }
    let input = input.here()?;
    if !input.file.exists() {
        return match archives::glob_inside(text)? {
            Some(glob) => expand_glob(&glob, search),
            None => expand_glob(text, search),
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
        return find_cubes(&input.file, search);
    }
    if let Some(table) = SpectraTable::open(&input.file)? {
        return table::spectra(&table, &input.file);
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

fn expand_glob(text: &str, search: &Search<'_>) -> Result<Vec<Input>> {
    let missing = || mirror::error_with_urls(missing(&Input::parse(text).file));
    if !text.contains(WILD) {
        return Err(missing());
    }
    let found = glob::glob(text)
        .map_err(|error| Error::conflict(format!("{text:?} is not a glob pattern: {error}")))?;
    let wildcards = Wildcards::of(text);
    let mut inputs = Vec::new();
    for path in found {
        let path = match path {
            Ok(path) => path,
            Err(error) => {
                let path = error.path().to_owned();
                let name = path.display().to_string();
                (search.skip)(name, Error::io(path, "cannot list", error.into()))?;
                continue;
            }
        };
        // As in a shell, a wildcard does not match hidden files or folders.
        if (search.excluded)(&path) || hidden_parts(&path) > hidden_parts(Path::new(text)) {
            continue;
        }
        // A path that cannot be read is kept: opening it later gives an error with its name.
        let mut fields = Fields::new();
        wildcards.add(&path.to_string_lossy(), &mut fields);
        let path = Input::of(&path).here().map_or(path, |input| input.file);
        if path.is_dir() && !hsipack_source::is_container_folder(&path) {
            let found = find_cubes(&path, search)?.into_iter();
            inputs.extend(found.map(|input| Input { fields: fields.clone(), ..input }));
        } else if let Some(table) = SpectraTable::open(&path)? {
            let found = table::spectra(&table, &path)?.into_iter();
            inputs.extend(found.map(|input| Input { fields: fields.clone(), ..input }));
        } else {
            inputs.push(Input { fields, ..Input::of(&path) });
        }
    }
    if !names_pictures(text) && inputs.iter().any(|input| !hsipack_source::is_picture(&input.file))
    {
        // Pictures beside cubes are not cubes, unless the pattern asks for them.
        inputs.retain(|input| !hsipack_source::is_picture(&input.file));
    }
    if inputs.is_empty() { Err(missing()) } else { Ok(inputs) }
}

/// Whether a pattern ends like the names of pictures.
fn names_pictures(pattern: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    [".png", ".jpg", ".jpeg"].iter().any(|ending| pattern.ends_with(ending))
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
pub(crate) fn find_cubes(folder: &Path, search: &Search<'_>) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    if let Some(pattern) = &search.values.bands_from {
        return folders_of_bands(folder, &BandPattern::parse(pattern)?, search);
    }
    search_below(folder, folder, search, &mut inputs)?;
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
    Err(no_cube(folder, search))
}

/// The cubes below `folder` that have a file for each band.
fn folders_of_bands(
    folder: &Path,
    pattern: &BandPattern,
    search: &Search<'_>,
) -> Result<Vec<Input>> {
    let is_searched = |entry: &walkdir::DirEntry| {
        let is_top = entry.depth() == 0;
        entry.file_type().is_dir()
            && (is_top || !is_hidden(entry.file_name()) && !(search.excluded)(entry.path()))
    };
    let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    let mut found: Vec<(Input, BandsOfCube)> = Vec::new();
    for entry in walk.filter_entry(is_searched) {
        let cubes = match entry {
            Ok(entry) => {
                pattern.cubes_in(entry.path(), search.excluded).map(|cubes| (entry, cubes))
            }
            Err(error) => {
                let path = error.path().unwrap_or(folder).to_owned();
                Err(walk::failed(&path, error))
            }
        };
        let (entry, cubes) = match cubes {
            Ok(found) => found,
            Err(error) => {
                (search.skip)(folder.display().to_string(), error)?;
                continue;
            }
        };
        let is_alone = cubes.len() == 1;
        for cube in cubes {
            let variable = (!is_alone).then(|| cube.name.clone());
            let root = Some(folder.to_owned());
            found.push((Input { variable, root, ..Input::of(entry.path()) }, cube));
        }
    }
    // All bands that any cube has, in the cube with the most of them.
    let most = found.iter().max_by_key(|(_, cube)| cube.bands()).map(|(_, cube)| cube.clone());
    let Some(most) = most else { return Err(no_cube(folder, search)) };
    let mut complete = Vec::with_capacity(found.len());
    for (input, cube) in found {
        let missing = cube.lacks(&most);
        if missing.is_empty() {
            complete.push(input);
            continue;
        }
        let error = cube.missing(missing).at(&input.file).with_remedy(remedy![
            "add the files; other cubes have them; or leave the cube out with ",
            Opt::Exclude
        ]);
        (search.skip)(input.text(), error)?;
    }
    Ok(complete)
}

/// How many kinds of files, or names, a message about a folder without cubes lists.
const LISTED: usize = 5;

/// The error for a folder without cubes. It says which files are there, and what they may be.
fn no_cube(folder: &Path, search: &Search<'_>) -> Error {
    let place = if mirror::is_of_archive(folder) { "archive" } else { "folder" };
    let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter().flatten();
    let files = walk.filter(|entry| entry.file_type().is_file() && !is_hidden(entry.file_name()));
    let files: Vec<PathBuf> =
        files.take(MOST_LOOKED_AT).map(walkdir::DirEntry::into_path).collect();
    let (mut left_out, mut way_out, mut pictures) = (false, None, 0);
    let mut described = |path: &Path| {
        if is_left_out(path, folder, search) {
            left_out = true;
            return Some("excluded".to_owned());
        }
        let other = hsipack_source::other(path);
        pictures += usize::from(hsipack_source::is_picture(path));
        way_out = way_out.take().or(other.way_out);
        other.format.map(str::to_owned)
    };
    let named = |name: &str, format: Option<String>| match format {
        Some(format) => format!("{name} ({format})"),
        None => name.to_owned(),
    };
    let listed = if files.len() <= LISTED {
        let name = |path: &PathBuf| {
            let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            named(&name, described(path))
        };
        files.iter().map(name).collect()
    } else {
        // Counts of the endings, those of most files first.
        let mut kinds: Vec<(String, Option<String>, usize)> = Vec::new();
        for path in &files {
            let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
            let ending = ending.unwrap_or_else(|| "files without an ending".to_owned());
            let format = described(path);
            match kinds.iter_mut().find(|kind| (&kind.0, &kind.1) == (&ending, &format)) {
                Some(kind) => kind.2 += 1,
                None => kinds.push((ending, format, 1)),
            }
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.2));
        let text = |(ending, format, count): (String, Option<String>, usize)| {
            named(&format!("{count} {ending}"), format)
        };
        container_inputs::shortened(kinds.into_iter().map(text).collect())
    };
    let error =
        |there: String| Error::conflict(format!("no cube in this {place}{there}")).at(folder);
    if listed.is_empty() {
        return error(", which has no files".to_owned())
            .with_remedy("check the path; hidden files are packed only if they are named");
    }
    let error = error(format!("; it has {}", listed.join(", ")));
    if search.values.bands_from.is_some() {
        return error.with_remedy(remedy!["correct the pattern of ", Opt::BandsFrom]);
    }
    match way_out {
        // Pictures are most often bands, or cubes of their own.
        _ if pictures > 0 => error.with_remedy(remedy![
            "if each picture is a band, say so with ",
            Opt::BandsFrom.to("*_{band}.png"),
            "; if each is a cube, name them: 'FOLDER/*.png'"
        ]),
        Some(way_out) => error.with_remedy(way_out),
        None if left_out => error.with_remedy(remedy!["check the path, and ", Opt::Exclude]),
        None => error.with_remedy(
            "check the path; cubes are ENVI headers with their data, .npy, .npz, .mat, HDF5, NetCDF-4, TIFF, Zarr, \
             Tivita and HTC files; read other formats in Python, and pack the arrays with hsipack.pack",
        ),
    }
}

/// The most files that a message about a folder without cubes counts.
const MOST_LOOKED_AT: usize = 1000;

/// Whether a file, or a folder around it below `root`, is excluded.
fn is_left_out(path: &Path, root: &Path, search: &Search<'_>) -> bool {
    path.ancestors().take_while(|ancestor| *ancestor != root).any(|path| (search.excluded)(path))
}

/// Adds the cubes below `folder` to `inputs`; their names are relative to `root`.
fn search_below(
    folder: &Path,
    root: &Path,
    search: &Search<'_>,
    inputs: &mut Vec<Input>,
) -> Result<()> {
    let is_in_archive = mirror::is_of_archive(folder);
    let mut walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let path = error.path().unwrap_or(folder).to_owned();
                (search.skip)(path.display().to_string(), walk::failed(&path, error))?;
                continue;
            }
        };
        let path = entry.path();
        // The user named the top folder, so it is searched even if it is hidden.
        if entry.depth() > 0 && is_hidden(entry.file_name()) {
            if entry.file_type().is_dir() {
                walk.skip_current_dir();
            }
            continue;
        }
        let is_left_out = || entry.depth() > 0 && (search.excluded)(path);
        if entry.file_type().is_dir() && (is_packed(path) || is_unfinished(path) || is_left_out()) {
            walk.skip_current_dir();
            continue;
        }
        if entry.file_type().is_file() && mirror::is_archive(path) {
            if is_in_archive || (search.excluded)(path) {
                continue;
            }
            match archives::to_search(path) {
                Ok(Some(inside)) => search_below(&inside, root, search, inputs)?,
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
        let is_raw = |path: &Path| {
            let pattern = search.values.header.as_ref();
            let header = pattern.and_then(|pattern| header::of(pattern, &Input::of(path)).ok()?);
            header.is_some_and(|header| hsipack_source::is_raw_data_of(path, &header))
        };
        let is_frame =
            |path: &Path| search.values.mosaic.is_some() && hsipack_source::is_picture(path);
        let is_cube =
            |path: &Path| hsipack_source::is_cube_file(path) || is_raw(path) || is_frame(path);
        let candidate = container || entry.file_type().is_file() && is_cube(path);
        if candidate && !(search.excluded)(path) && !pairs::is_reference(path) {
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
    fn samples_have_an_index() {
        let parts = |text: &str| {
            let input = Input::parse(text);
            let (array, index) = input.array_and_sample();
            (array.map(str::to_owned), index, input.default_name())
        };
        let name = |text: &str| Some(text.to_owned());
        assert_eq!(parts("x.npz::data[3]"), (name("data"), Some(3), "x::data[3]".to_owned()));
        assert_eq!(parts("x.npy::[12]"), (None, Some(12), "x[12]".to_owned()));
        assert_eq!(parts("x.npz::data"), (name("data"), None, "x::data".to_owned()));
        assert_eq!(parts("x.npz::a[b]").1, None);
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
    fn missing_inputs_are_named() {
        let error = expand(&["no/such.hdr".into()], &[], &ValueOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("no/such.hdr: no such file"), "{error}");
        let error = expand(&["no/such*.hdr".into()], &[], &ValueOptions::default()).unwrap_err();
        assert!(error.to_string().contains("no/such*.hdr"), "{error}");
    }
}
