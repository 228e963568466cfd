//! `--layout NAME|FILE`: how the files of a dataset are arranged.
//!
//! A layout is a TOML file of options, as `--config` reads them, with the further keys of
//! [`Layout`]. In all values, `{root}` is the folder that the user gives. Relative paths of inputs,
//! tables and lists are below it.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use serde::Deserialize;
use toml::{Table, Value};

use super::option_file::{OptionFile, read_text};

/// The shipped layouts: the name and the text of each file in `crates/cli/layouts`.
macro_rules! shipped {
    ($($name:literal,)+) => {
        &[$(($name, include_str!(concat!("../../../layouts/", $name, ".toml"))),)+]
    };
}

/// Name and text of every shipped layout, by name.
pub const SHIPPED: &[(&str, &str)] = shipped![
    "abu",
    "arad-1k",
    "arad-1k-mst",
    "augsburg",
    "berlin",
    "cassi-cave",
    "cassi-kaist",
    "cave",
    "chikusei",
    "classic-scenes",
    "deephs",
    "dfc-2018",
    "enmap-cdl",
    "eurosat",
    "harvard",
    "heiporspectral",
    "hot",
    "houston-2013",
    "houston-2018",
    "houston-cross-scene",
    "hs3-bench",
    "hsi-drive",
    "hsi-human-brain",
    "hsi-road",
    "hyko2",
    "hyper-skin",
    "hyperblood",
    "hyperglobal",
    "hyperleaf",
    "hyperpri",
    "hyperspectral-city",
    "hyperview",
    "hyrank",
    "hyspecnet",
    "icvl",
    "lib-hsi",
    "muufl",
    "neon",
    "neon-tree-evaluation",
    "odsi-db",
    "ohid-1",
    "pavia-cross-scene",
    "starcop",
    "toulouse",
    "trento",
    "uav-hsi-crop",
    "whu-hi",
    "whu-ohs",
    "xiongan",
];

/// The field of values that stands for the folder that the user gives.
const ROOT: &str = "{root}";

/// Options whose values are files of the whole dataset, which may be relative to its folder.
/// `NAME=` may be before some.
const FILES: [&str; 4] = ["table", "split", "mask-colors", "boxes"];

/// A layout.
#[derive(Debug, Deserialize)]
pub struct Layout {
    /// The dataset, or the kind of folder.
    #[serde(default)]
    pub title: String,
    /// Typical paths below the folder, as a list for readers.
    #[serde(default)]
    pub expects: Vec<String>,
    /// Where the arrangement of the files was learnt, and what is not packed.
    #[serde(default)]
    pub note: String,
    /// Inputs [default: the folder].
    #[serde(default = "root")]
    inputs: Vec<String>,
    /// Options by name.
    #[serde(flatten)]
    options: Table,
}

fn root() -> Vec<String> {
    vec![ROOT.to_owned()]
}

impl Layout {
    /// A shipped layout, or one in a file of the user.
    ///
    /// # Errors
    /// If no layout has this name, or the file cannot be read or is not a layout.
    pub fn open(name: &str) -> Result<Self> {
        let path = Path::new(name);
        if path.extension().is_none_or(|ending| ending != "toml") {
            return Self::parse(&shown_path(name), shipped(name)?);
        }
        Self::parse(path, &read_text(path, "cannot read the layout")?)
    }

    /// Parses the text of a layout.
    ///
    /// # Errors
    /// If it is not TOML, a key has the wrong type, or it names an output.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let table = OptionFile::parse(path, text)?.options;
        if table.contains_key("output") {
            return Err(Error::conflict("output is not an option for layouts")
                .at(path)
                .with_remedy("remove the key, and name the output with --output"));
        }
        Value::Table(table).try_into().map_err(|error: toml::de::Error| {
            Error::malformed(format!("this is not a layout: {}", error.message()))
                .at(path)
                .with_remedy("write title = \"…\", and expects and inputs as lists of paths; `hsipack layouts arad-1k` shows an example")
        })
    }

    /// The inputs below `root`.
    pub fn inputs(&self, root: &str) -> Vec<String> {
        let root = trimmed(root);
        let below = |input: &String| {
            let input = below_root(input);
            let Some(path) = input.strip_prefix(ROOT) else { return input };
            // Only the layout's own part may be a pattern.
            let is_pattern = path.contains(['*', '?', '[']);
            let root = if is_pattern { glob::Pattern::escape(root) } else { root.to_owned() };
            format!("{root}{path}")
        };
        self.inputs.iter().map(below).collect()
    }

    /// The options, for files below `root`.
    pub fn options(mut self, path: PathBuf, root: &str) -> OptionFile {
        for option in FILES {
            match self.options.get_mut(option) {
                Some(Value::String(file)) => *file = file_below_root(file),
                Some(Value::Array(files)) => {
                    for file in files {
                        if let Value::String(file) = file {
                            *file = file_below_root(file);
                        }
                    }
                }
                _ => {}
            }
        }
        let mut options = Value::Table(self.options);
        replace(&mut options, trimmed(root));
        let Value::Table(options) = options else { unreachable!("a table stays one") };
        OptionFile { path, options }
    }
}

/// The text of a shipped layout.
///
/// # Errors
/// If no layout has the name.
pub fn shipped(name: &str) -> Result<&'static str> {
    SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text).ok_or_else(|| {
        Error::conflict(format!("there is no layout {name:?}"))
            .with_choices(SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect())
            .with_remedy("give a name that `hsipack layouts` lists, or a file that ends in .toml")
    })
}

/// How messages name the file of a layout.
pub fn shown_path(name: &str) -> PathBuf {
    match shipped(name) {
        Ok(_) => PathBuf::from(format!("layout {name}")),
        Err(_) => PathBuf::from(name),
    }
}

/// A path, below the folder of the dataset if it is relative.
fn below_root(path: &str) -> String {
    let is_whole = path.starts_with(ROOT) || path.contains("://") || Path::new(path).is_absolute();
    if is_whole { path.to_owned() } else { format!("{ROOT}/{path}") }
}

/// A file, or `NAME=FILE`, as [`below_root`]. A pattern for each cube stays as it is.
fn file_below_root(value: &str) -> String {
    if value.contains('{') {
        return value.to_owned();
    }
    match value.split_once('=') {
        Some((name, file)) if !name.contains(['/', '\\']) => {
            format!("{name}={}", below_root(file))
        }
        _ => below_root(value),
    }
}

/// A folder without slashes at its end; `/` stays.
fn trimmed(root: &str) -> &str {
    match root.trim_end_matches('/') {
        "" => root,
        trimmed => trimmed,
    }
}

/// Writes the folder into all texts of a value.
fn replace(value: &mut Value, root: &str) {
    match value {
        Value::String(text) => *text = text.replace(ROOT, root),
        Value::Array(list) => list.iter_mut().for_each(|item| replace(item, root)),
        Value::Table(table) => table.iter_mut().for_each(|(_, item)| replace(item, root)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::config;
    use super::*;

    #[test]
    fn shipped_layouts_are_those_of_the_folder_and_have_options_that_exist() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("layouts");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, files);
        for name in names {
            let layout = Layout::open(name).unwrap();
            assert!(!layout.title.is_empty() && !layout.expects.is_empty(), "{name}");
            let file = layout.options(shown_path(name), "/data");
            let typed = ["hsipack", "convert", "/data", "-o", "out"];
            config::merge_with(&[file], &crate::Cli::command(), &typed.map(Into::into)).unwrap();
        }
    }

    #[test]
    fn the_folder_is_written_into_inputs_and_options() {
        let text = "title = \"t\"\nexpects = [\"a.mat\"]\ninputs = [\"{root}/*.mat\", \"{root}/b\"]\n\
                    mask = [\"gt={root}/gt/{stem}.png\"]\nlevel = 3";
        let parse = || Layout::parse(Path::new("a.toml"), text).unwrap();
        assert_eq!(parse().inputs("/a[1]/"), ["/a[[]1[]]/*.mat", "/a[1]/b"]);
        assert_eq!(parse().inputs("/"), ["//*.mat", "//b"]);
        let file = parse().options("a.toml".into(), "/a[1]/");
        assert_eq!(file.options["mask"][0].as_str(), Some("gt=/a[1]/gt/{stem}.png"));
        assert_eq!(file.options["level"].as_integer(), Some(3));
        assert_eq!(
            Layout::parse(Path::new("a.toml"), "title = \"\"\nexpects = []")
                .unwrap()
                .inputs("s3://b"),
            ["s3://b"]
        );
    }

    #[test]
    fn relative_paths_are_below_the_folder() {
        let text = "inputs = [\"x/*.npy\", \"/y\", \"s3://b/z\"]\ntable = [\"t.csv\", \"{root}/u.json::v\"]\n\
                    split = \"train=lists/a=b.txt\"\nmask-colors = \"/c.csv\"\nmask = \"{stem}.png\"\n\
                    boxes = \"{dir}/{stem}.xml\"";
        let layout = Layout::parse(Path::new("a.toml"), text).unwrap();
        assert_eq!(layout.inputs("/d"), ["/d/x/*.npy", "/y", "s3://b/z"]);
        let options = layout.options("a.toml".into(), "/d").options;
        let values = |name: &str| match &options[name] {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            value => vec![value.as_str().unwrap()],
        };
        assert_eq!(values("table"), ["/d/t.csv", "/d/u.json::v"]);
        assert_eq!(values("split"), ["train=/d/lists/a=b.txt"]);
        assert_eq!(values("mask-colors"), ["/c.csv"]);
        assert_eq!(values("mask"), ["{stem}.png"]);
        assert_eq!(values("boxes"), ["{dir}/{stem}.xml"]);
    }

    #[test]
    fn files_that_are_not_layouts_are_refused_by_name() {
        for (text, reason) in [
            ("title", "not TOML"),
            ("title = \"a\"\nexpects = \"b\"", "sequence"),
            ("title = 1\nexpects = []", "string"),
            ("title = \"a\"\nexpects = []\ninputs = 3", "sequence"),
        ] {
            let error = Layout::parse(Path::new("a.toml"), text).unwrap_err();
            assert!(error.to_string().contains(reason), "{text}: {error}");
            assert!(
                error.path() == Some(Path::new("a.toml")) && error.remedy().is_some(),
                "{error}"
            );
        }
        let error = Layout::open("arad").unwrap_err();
        assert!(error.choices().contains(&"arad-1k".to_owned()), "{error}");
        assert!(Layout::open("no/such.toml").unwrap_err().to_string().contains("no/such.toml"));
    }
}
