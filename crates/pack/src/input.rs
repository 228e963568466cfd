//! An input: one cube to open.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, ErrorKind, Geo, Result, Sample};
use hsipack_source::{Axes, number_of_samples};
use hsipack_store::archive::Kind;
use hsipack_store::mirror;
use hsipack_store::remote::{is_of_web_server, is_url};
use serde_json::{Map, Value};

/// Values of the fields of one cube that do not follow from its path. A field without a value, such
/// as an empty cell of a table, is `None`.
pub type Fields = BTreeMap<String, Option<String>>;

/// One cube to open.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The file, or the folder of a Zarr store.
    pub file: PathBuf,
    /// The variable inside it.
    pub variable: Option<String>,
    /// The order of the axes of its array, if other files than its own say it, or if it is a sample
    /// of an array.
    pub axes: Option<String>,
    /// The folder that was given as input and searched; names are relative to it.
    pub root: Option<PathBuf>,
    /// Columns of the CSV list it came from.
    pub columns: Map<String, Value>,
    /// If a program gave the cube as an array, its name for that array. The file then holds the
    /// array only for a while, so messages and records use this name instead of the path.
    pub stands_for: Option<String>,
    /// The georeferencing that a program gave. It takes precedence over that of the file.
    pub geo: Option<Box<Geo>>,
    /// Values of fields of patterns.
    pub fields: Fields,
}

/// The format that is recorded as the source of samples that a program gave as arrays.
pub const ARRAY: &str = "array";

/// The query of links that make browsers save a file instead of showing it.
const DOWNLOAD: &str = "?download=1";

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

    /// Parses `file` or `file::variable`. If a file exists whose own name contains `::`, the whole
    /// text is its path. URLs of web servers lose the query `?download=1`: links for downloads have
    /// it, such as those of Zenodo, and it does not change the file.
    pub fn parse(text: &str) -> Self {
        let whole = Self::of(Path::new(text));
        if is_of_web_server(&whole.file)
            && let Some((file, variable)) = text.split_once(DOWNLOAD)
            && (variable.is_empty() || variable.starts_with("::"))
        {
            return Self::parse(&format!("{file}{variable}"));
        }
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

    /// Replaces a URL, or a path into an archive, by the local file or folder that mirrors it. An
    /// archive itself becomes the folder of its contents.
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

    /// The name of the sample: the path below the searched folder, or the file's name. It has no
    /// file extension, but ends in the variable if one was given.
    pub fn default_name(&self) -> String {
        let path = self.below_root();
        let stem = path.with_extension("").to_string_lossy().replace('\\', "/");
        if self.is_folder_of_bands() {
            // The searched folder itself may be the cube, or hold the bands of several.
            let file_name =
                || self.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = path.to_string_lossy().into_owned();
            return match &self.variable {
                Some(name) if path.is_empty() && !name.is_empty() => name.clone(),
                Some(name) if name.is_empty() => {
                    if path.is_empty() {
                        file_name()
                    } else {
                        path
                    }
                }
                Some(name) => format!("{path}/{name}"),
                None if path.is_empty() => file_name(),
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

/// The error for a file, folder or object that does not exist.
pub(crate) fn missing(file: &Path) -> Error {
    if !is_url(file) {
        let target = file.read_link().ok();
        let link = target.map(|target| format!(": a broken link to {}", target.display()));
        let what = format!("no such file or folder{}", link.unwrap_or_default());
        return Error::new(ErrorKind::Io, what).at(file).with_remedy("check the path");
    }
    let nothing = io::Error::new(io::ErrorKind::NotFound, "there is no such object");
    Error::io(file, "cannot read", nothing)
        .with_remedy("check the URL; a plain web server cannot list its files, so name each file")
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
    fn links_for_downloads_lose_their_query_and_others_keep_it() {
        for (text, parsed) in [
            ("https://h/files/a.zip?download=1", "https://h/files/a.zip"),
            ("http://h/a.h5?download=1::/b", "http://h/a.h5::/b"),
            ("https://h/a.zip?download=10", "https://h/a.zip?download=10"),
            ("https://h/a.zip?download=1&token=x", "https://h/a.zip?download=1&token=x"),
            ("https://h/a.zip?token=x?download=1", "https://h/a.zip?token=x"),
            ("s3://b/a.zip?download=1", "s3://b/a.zip?download=1"),
            ("dir/a.zip?download=1", "dir/a.zip?download=1"),
        ] {
            assert_eq!(Input::parse(text).text(), parsed);
        }
    }

    #[test]
    fn names_keep_the_path_below_a_searched_folder() {
        let input =
            Input { root: Some("data".into()), ..Input::of(Path::new("data/day 1/scene.raw.hdr")) };
        assert_eq!(input.default_name(), "day 1/scene.raw");
    }
}
