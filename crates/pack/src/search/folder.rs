//! The cubes below a folder.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::{BandPattern, BandsOfCube};
use hsipack_store::{is_packed, mirror};
use walkdir::WalkDir;

use super::passed_over::PassedOver;
use super::{archives, containers};
use crate::convert::staging::is_unfinished;
use crate::convert::{ValueOptions, header, pairs};
use crate::input::Input;
use crate::walk;

/// How folders are searched.
#[derive(Clone, Copy)]
pub(super) struct Search<'a> {
    /// Whether a file or folder is left out.
    pub excluded: &'a dyn Fn(&Path) -> bool,
    /// Options that say which files are cubes.
    pub values: &'a ValueOptions,
    /// Takes errors of paths that cannot be searched. If it returns them, the search ends.
    pub skip: &'a dyn Fn(String, Error) -> Result<()>,
    /// Takes files that may hold cubes, but are not opened.
    pub passed_over: &'a PassedOver,
}

/// Whether a file or folder of this name is hidden. This includes macOS's `._x` files beside `x`,
/// and `__MACOSX`, the folder in which archives from macOS keep them.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX"
}

/// The number of hidden files and folders in a path.
pub(super) fn hidden_parts(path: &Path) -> usize {
    let hidden = |part: &Component<'_>| matches!(part, Component::Normal(name) if is_hidden(name));
    path.components().filter(hidden).count()
}

/// Every cube below `folder`, sorted by path. Archives are searched too, but not archives inside
/// archives.
///
/// These are skipped: packed datasets, finished or not; hidden files and folders; archives whose
/// unpacked contents are beside them; the other files of a sensor's product; and white and dark
/// references beside their cube, which `--white` and `--dark` use.
pub(super) fn find_cubes(folder: &Path, search: &Search<'_>) -> Result<Vec<Input>> {
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
    let folder_kind = if mirror::is_of_archive(folder) { "archive" } else { "folder" };
    let walk = WalkDir::new(folder).follow_links(true).sort_by_file_name().into_iter().flatten();
    let files = walk.filter(|entry| entry.file_type().is_file() && !is_hidden(entry.file_name()));
    let files: Vec<PathBuf> =
        files.take(MAX_COUNTED_FILES).map(walkdir::DirEntry::into_path).collect();
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
        containers::shortened(kinds.into_iter().map(text).collect())
    };
    let error = |contents: String| {
        Error::conflict(format!("no cube in this {folder_kind}{contents}")).at(folder)
    };
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
const MAX_COUNTED_FILES: usize = 1000;

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
                // As links that lead nowhere: editors lock files by hidden ones.
                let is_left_out =
                    path.file_name().is_some_and(is_hidden) || (search.excluded)(&path);
                if path == folder || !is_left_out {
                    (search.skip)(path.display().to_string(), walk::failed(&path, error))?;
                }
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
            if (search.excluded)(path) {
                continue;
            }
            if is_in_archive {
                search.passed_over.add_archive(path, root);
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
        let is_calibrated = search.values.white.is_some() || search.values.dark.is_some();
        let is_no_cube =
            pairs::is_reference(path) || is_calibrated && pairs::is_reflectance_of_scan(path, root);
        if candidate && !(search.excluded)(path) && !is_no_cube {
            inputs.push(Input { root: Some(root.to_owned()), ..Input::of(path) });
        } else if !candidate && entry.file_type().is_file() && !(search.excluded)(path) {
            search.passed_over.add_file(path, root);
        }
    }
    Ok(())
}
