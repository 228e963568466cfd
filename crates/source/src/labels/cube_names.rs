//! Finds the cube that an entry of a file of labels means: such files name pictures, and pictures
//! and cubes differ in their endings and folders.

use std::collections::HashMap;

use hsipack_format::{Error, Result};

/// The names by which a file of labels for several cubes may call a cube.
#[derive(Clone, Debug, Default)]
pub struct CubeNames {
    /// The name of its sample.
    pub name: String,
    /// Its path below the input folder.
    pub relative: String,
    /// Its whole path.
    pub path: String,
}

/// The names in a file of labels.
#[derive(Debug, Default)]
pub struct Entries {
    names: Vec<String>,
    /// Entries by the last part of their names, with and without the ending.
    by_last: HashMap<String, Vec<usize>>,
}

/// The most names that an error lists.
const LISTED: usize = 5;

impl Entries {
    /// Entries with these names, in this order. Each name has one entry.
    pub fn new(names: Vec<String>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| normal(&name)).collect();
        let mut by_last: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            let last = split(name).1;
            by_last.entry(last.to_owned()).or_default().push(index);
            if without_ending(last) != last {
                by_last.entry(without_ending(last).to_owned()).or_default().push(index);
            }
        }
        Self { names, by_last }
    }

    /// Their names, with `/` between folders.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The entry that means a cube, in this order: by its sample's name or its path; the same
    /// without the endings of both; its file name without the endings, if the folders before it are
    /// those of the cube, as far as both have such.
    ///
    /// # Errors
    /// If several entries may mean the cube.
    pub fn find(&self, cube: &CubeNames) -> Result<Option<usize>> {
        let cube_names = [&cube.name, &cube.relative, &cube.path].map(|name| normal(name));
        let mut best: Option<(Rank, Vec<usize>)> = None;
        for index in self.candidates(&cube_names) {
            let ranks = cube_names.iter().filter_map(|name| rank(&self.names[index], name));
            let Some(rank) = ranks.max() else { continue };
            match &mut best {
                Some((other, places)) if *other == rank => {
                    if !places.contains(&index) {
                        places.push(index);
                    }
                }
                Some((other, _)) if *other > rank => {}
                _ => best = Some((rank, vec![index])),
            }
        }
        let Some((_, places)) = best else { return Ok(None) };
        match places[..] {
            [index] => Ok(Some(index)),
            _ => {
                let listed = places.iter().take(LISTED).map(|index| self.names[*index].clone());
                Err(Error::ambiguous(format!("several entries may mean the cube {:?}", cube.name))
                    .with_choices(listed.collect())
                    .with_remedy("name pictures in the file like the samples, with their folders"))
            }
        }
    }

    /// The error if no entry means a cube.
    pub fn missing(&self, cube: &CubeNames) -> Error {
        let mut listed: Vec<&str> = self.names.iter().take(LISTED).map(String::as_str).collect();
        listed.extend((self.names.len() > LISTED).then_some("…"));
        let entries = match listed.is_empty() {
            true => "it lists no pictures".to_owned(),
            false => format!("its pictures: {}", listed.join(", ")),
        };
        Error::not_found(format!("the file has no entry for the cube {:?}; {entries}", cube.name))
    }

    /// Entries whose last part may be that of one of the names of a cube.
    fn candidates(&self, cube_names: &[String]) -> Vec<usize> {
        let lasts = cube_names.iter().map(|name| split(name).1);
        let keys = lasts.flat_map(|last| [last, without_ending(last)]);
        let mut places: Vec<usize> =
            keys.filter_map(|key| self.by_last.get(key)).flatten().copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// How well an entry fits a cube; more is better.
type Rank = (u8, usize);

/// How well the name of an entry fits a name of a cube; `None` if it does not.
fn rank(entry: &str, name: &str) -> Option<Rank> {
    if entry == name {
        return Some((3, 0));
    }
    if [entry, without_ending(entry)].contains(&without_ending(name))
        || without_ending(entry) == name
    {
        return Some((2, 0));
    }
    let ((folders, last), (own_folders, own_last)) = (split(entry), split(name));
    if ![last, without_ending(last)]
        .iter()
        .any(|last| [own_last, without_ending(own_last)].contains(last))
    {
        return None;
    }
    let parts = |folders: &str| -> Vec<String> {
        folders.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let (folders, own_folders) = (parts(folders), parts(own_folders));
    let equal = folders.iter().rev().zip(own_folders.iter().rev()).take_while(|(a, b)| a == b);
    let equal = equal.count();
    (equal == folders.len().min(own_folders.len())).then_some((1, equal))
}

/// A path with `/` between its folders, and without `./` before it.
fn normal(name: &str) -> String {
    let name = name.replace('\\', "/");
    name.trim_start_matches("./").to_owned()
}

/// The folders and the last part of a path.
fn split(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// A name without its ending. What is behind the dot of `plot1.5` is no ending.
fn without_ending(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, ending))
            if ending.starts_with(|first: char| first.is_ascii_alphabetic())
                && !ending.contains('/')
                && !stem.is_empty() =>
        {
            stem
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(entries: &[&str], cube: [&str; 3]) -> Result<Option<usize>> {
        let [name, relative, path] = cube.map(str::to_owned);
        let entries = Entries::new(entries.iter().map(|name| (*name).to_owned()).collect());
        entries.find(&CubeNames { name, relative, path })
    }

    #[test]
    fn names_stems_and_paths_mean_cubes() {
        let cube = ["a/x", "a/x.hdr", "/data/a/x.hdr"];
        for (entries, wanted) in [
            (&["a/x"][..], Some(0)),
            (&["b.png", "a/x.png"], Some(1)),
            (&["x.png", "a/x.png"], Some(1)),
            (&["x.png"], Some(0)),
            (&["b/x.png", "a\\x.png"], Some(1)),
            (&["b/x.png", "data/a/x.tif"], Some(1)),
            (&["/home/someone/a/x.tif"], Some(0)),
            (&["./a/x.hdr"], Some(0)),
            (&["b/x.png"], None),
            (&["y.png", "xx.png", ""], None),
            (&[], None),
        ] {
            assert_eq!(found(entries, cube).unwrap(), wanted, "{entries:?}");
        }
        let named = ["P1#07", "cube.hdr", "/data/P1/07/cube.hdr"];
        assert_eq!(found(&["P1#06.png", "P1#07.png"], named).unwrap(), Some(1));
        assert_eq!(found(&["plot1.5"], ["plot1.7", "plot1.7.npy", "plot1.7.npy"]).unwrap(), None);
    }

    #[test]
    fn several_entries_for_a_cube_are_refused() {
        let cube = ["x", "x.hdr", "/data/x.hdr"];
        let error = found(&["x.png", "x.jpg"], cube).unwrap_err();
        assert_eq!(error.choices(), ["x.png", "x.jpg"]);
        let error = Entries::new(vec!["a.png".to_owned()]).missing(&CubeNames::default());
        assert!(error.what().contains("its pictures: a.png"), "{error}");
    }
}
