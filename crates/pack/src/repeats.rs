//! Inputs that name the same cube: a folder and a file in it, a header and its data file, as a
//! shell expands `scans/*`.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use crate::input::Input;

/// Endings of files that belong to a raster of the same name and are no cubes.
const SIDE_ENDINGS: [&str; 14] = [
    "prj", "blw", "bpw", "bqw", "tfw", "tifw", "wld", "stx", "sta", "clr", "ovr", "enp", "rrd",
    "dim",
];
const SIDE_FILE: &str = ".aux.xml";

/// The inputs without those that name a cube which an earlier one names, and without files that
/// only belong to one. Inputs with columns of their own stay, because a list may pack a cube more
/// than once.
pub fn without_repeats(inputs: Vec<Input>) -> Vec<Input> {
    // Only files whose names begin alike can be the same cube, and most names are unique.
    let mut counts: HashMap<PathBuf, usize> = HashMap::new();
    for input in inputs.iter().filter(|input| can_repeat(input)) {
        *counts.entry(start(&input.file)).or_default() += 1;
    }
    if counts.values().all(|count| *count == 1) {
        return inputs;
    }
    let is_alone = |input: &Input| !can_repeat(input) || counts[&start(&input.file)] == 1;
    let rasters: HashSet<PathBuf> = inputs
        .iter()
        .filter(|input| !is_alone(input) && side_stem(&input.file).is_none())
        .flat_map(|input| {
            // GDAL names the side files of ENVI after the data, not after the header.
            let data = hsipack_source::data_of(&input.file).map(|data| absolute(&data));
            [absolute(&input.file), absolute(&input.file).with_extension("")]
                .into_iter()
                .chain(data)
        })
        .collect();
    let mut cubes = HashSet::new();
    let mut kept = Vec::with_capacity(inputs.len());
    for input in inputs {
        if !is_alone(&input) {
            if side_stem(&input.file).is_some_and(|stem| rasters.contains(&absolute(&stem))) {
                continue;
            }
            let data = hsipack_source::data_of(&input.file).unwrap_or_else(|| input.file.clone());
            if !cubes.insert((absolute(&data), input.variable.clone())) {
                continue;
            }
        }
        kept.push(input);
    }
    kept
}

fn can_repeat(input: &Input) -> bool {
    input.columns.is_empty() && input.stands_for.is_none()
}

/// The path up to the first dot in the file's name.
fn start(path: &Path) -> PathBuf {
    let path = absolute(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let start = name.split('.').next().filter(|start| !start.is_empty()).unwrap_or(&name);
    path.with_file_name(start)
}

/// The path without `.` and `..`. Links are not followed: users link to one cube to pack it several
/// times.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// The file that a side file belongs to, with or without its ending; `None` if the file is no side
/// file.
fn side_stem(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    if name.len() > SIDE_FILE.len() && name.to_ascii_lowercase().ends_with(SIDE_FILE) {
        return Some(path.with_file_name(name.get(..name.len() - SIDE_FILE.len())?));
    }
    let is_side = |ending: &&str| {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    };
    SIDE_ENDINGS.iter().find(|ending| is_side(ending)).map(|_| path.with_extension(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "ENVI\nlines = 1\nsamples = 1\nbands = 2\ndata type = 1\ninterleave = bsq\n";

    fn kept(folder: &Path, names: &[&str]) -> Vec<String> {
        let inputs = names.iter().map(|name| Input::of(&folder.join(name))).collect();
        let name = |input: &Input| input.file.file_name().unwrap().to_string_lossy().into_owned();
        without_repeats(inputs).iter().map(name).collect()
    }

    #[test]
    fn a_header_and_its_data_are_one_cube() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.img", "b.dat", "c.raw", "d.bil"] {
            std::fs::write(folder.path().join(name), [1, 2]).unwrap();
        }
        for name in ["a.hdr", "a.img.hdr", "b.hdr", "c.raw.hdr"] {
            std::fs::write(folder.path().join(name), KEYS).unwrap();
        }
        let esri = "NROWS 1\nNCOLS 1\nNBANDS 2\nNBITS 8\n";
        std::fs::write(folder.path().join("d.hdr"), esri).unwrap();
        let kept = |names: &[&str]| kept(folder.path(), names);
        assert_eq!(kept(&["a.hdr", "a.img", "b.dat", "b.hdr"]), ["a.hdr", "b.dat"]);
        assert_eq!(kept(&["a.hdr", "a.img.hdr"]), ["a.hdr"]);
        assert_eq!(kept(&["c.raw", "c.raw.hdr", "./c.raw", "x/../c.raw"]), ["c.raw"]);
        assert_eq!(kept(&["d.bil", "d.hdr", "d.prj", "d.blw", "d.bil.aux.xml"]), ["d.bil"]);
        assert_eq!(kept(&["d.prj", "e.prj"]), ["d.prj", "e.prj"], "they belong to nothing here");
        assert_eq!(kept(&["a.npy", "a.tif"]), ["a.npy", "a.tif"], "two cubes");
    }

    #[test]
    fn variables_and_lists_may_name_a_file_several_times() {
        let of = |variable: Option<&str>| Input {
            variable: variable.map(str::to_owned),
            ..Input::of(Path::new("a.h5"))
        };
        let kept = without_repeats(vec![of(Some("x")), of(Some("y")), of(Some("x")), of(None)]);
        assert_eq!(kept.len(), 3);
        let mut listed = of(None);
        listed.columns.insert("name".to_owned(), "again".into());
        assert_eq!(without_repeats(vec![of(None), listed]).len(), 2);
    }
}
