//! Contents of an HDF5 file: walks over its groups, within limits, and reads small values.
//!
//! The walk follows hard links only, visits each object once (hard links may form cycles) and stops
//! at [`MAX_DEPTH`], [`MAX_GROUPS`] and [`MAX_LINKS`]. Datasets behind soft links, or beyond these
//! limits, can still be opened by their full path.

use std::collections::HashSet;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::hdf5::types::{
    FixedAscii, FixedUnicode, FloatSize, IntSize, TypeDescriptor, VarLenArray, VarLenAscii,
    VarLenUnicode,
};
use ::hdf5::{
    Attribute, Container, Dataset, Datatype, File, Group, LinkType, Location, ObjectReference1,
    ReferencedObject,
};
use hsipack_format::geo::MAX_CRS;
use hsipack_format::{DType, Error, Result};

use super::entry::{Content, Entry, Values};
use super::file::{damaged, open_file};
use super::storage;
use crate::container::variables::exact;
use crate::container::{self, ArrayEntry, Attributes as _, Value, plain};
use crate::recent::{MANY_ARRAYS, Recent};

const MAX_DEPTH: usize = 32;
const MAX_GROUPS: usize = 10_000;
const MAX_LINKS: usize = 100_000;
/// Attributes and lists longer than this are not read. No sensor has as many bands.
const MAX_LIST: usize = 1 << 20;

fn values_of(datatype: &Datatype) -> Values {
    let dtype = match datatype.to_descriptor() {
        Ok(TypeDescriptor::Boolean) => DType::Bool,
        Ok(TypeDescriptor::Unsigned(size)) => match size {
            IntSize::U1 => DType::U8,
            IntSize::U2 => DType::U16,
            IntSize::U4 => DType::U32,
            IntSize::U8 => DType::U64,
        },
        Ok(TypeDescriptor::Integer(size)) => match size {
            IntSize::U1 => DType::I8,
            IntSize::U2 => DType::I16,
            IntSize::U4 => DType::I32,
            IntSize::U8 => DType::I64,
        },
        Ok(TypeDescriptor::Float(FloatSize::U2)) if datatype.is::<half::f16>() => DType::F16,
        // Two bytes may be a big-endian half or a bfloat16: float32 holds both exactly.
        Ok(TypeDescriptor::Float(FloatSize::U2 | FloatSize::U4)) => DType::F32,
        Ok(TypeDescriptor::Float(FloatSize::U8)) => DType::F64,
        Ok(other) => return Values::Other(other.to_string()),
        Err(_) => return Values::Other("a type hsipack does not know".into()),
    };
    Values::Numbers(dtype)
}

/// The dataset at the full path `path`.
fn entry_of(path: String, dataset: &Dataset) -> Entry {
    let shape = storage::virtual_shape(dataset).map_or_else(|| dataset.get_shape(), Ok);
    let (shape, values) = match (shape, dataset.dtype()) {
        (Ok(shape), Ok(datatype)) => (shape, values_of(&datatype)),
        _ => (Vec::new(), Values::Other("something unreadable".into())),
    };
    Entry { path, shape, values }
}

static RECENT: Recent<Content> = Recent::new();

impl Content {
    fn walk(&mut self, file: &File) -> ::hdf5::Result<()> {
        let root = file.group("/")?;
        // Location tokens can neither be ordered nor hashed; their text can.
        let mut visited = HashSet::from([format!("{:?}", root.loc_info()?.token)]);
        let mut links = 0;
        let mut todo = vec![(String::new(), 0, root)];
        while let Some((path, depth, group)) = todo.pop() {
            let (names, all) = hard_links(&group, MAX_LINKS.saturating_sub(links))?;
            self.complete &= all;
            links += names.len();
            let mut below = Vec::new();
            for name in names {
                let child = format!("{path}/{name}");
                let Ok(info) = group.loc_info_by_name(&name) else {
                    let values = Values::Other("something unreadable".into());
                    self.datasets.push(Entry { path: child, shape: Vec::new(), values });
                    continue;
                };
                if !visited.insert(format!("{:?}", info.token)) || skipped(&child) {
                    continue;
                }
                match info.loc_type {
                    ::hdf5::LocationType::Dataset => {
                        if let Ok(dataset) = group.dataset(&name) {
                            self.datasets.push(entry_of(child, &dataset));
                        }
                    }
                    ::hdf5::LocationType::Group if depth < MAX_DEPTH => {
                        below.push((child, depth + 1, group.group(&name)?));
                    }
                    ::hdf5::LocationType::Group => self.complete = false,
                    _ => {}
                }
            }
            self.groups.push(path);
            // Last in, first out: reversed, so that the walk keeps the order of the names.
            todo.extend(below.into_iter().rev());
            if self.groups.len() + todo.len() > MAX_GROUPS {
                self.complete = false;
                todo.truncate(MAX_GROUPS.saturating_sub(self.groups.len()));
            }
        }
        Ok(())
    }
}

/// An HDF5 file and its datasets.
pub(crate) struct Tree {
    /// The open file.
    file: File,
    /// Its path, resolved, as libhdf5 knows it.
    path: PathBuf,
    content: Arc<Content>,
    /// Whether the file is MATLAB's, whose index order is the reverse of the order on disk.
    pub is_matlab: bool,
}

impl Deref for Tree {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl Tree {
    /// Opens `path` and lists its datasets.
    ///
    /// # Errors
    /// If libhdf5 cannot open it or read its groups.
    pub fn open(path: &Path) -> Result<Self> {
        // Resolved, so that libhdf5 looks for the files of virtual datasets in only one folder.
        let resolved = path.canonicalize().map_err(|e| Error::io(path, "cannot read", e))?;
        let file = open_file(&resolved).map_err(|error| error.at(path))?;
        let is_long = |found: &Content| found.datasets.len() >= MANY_ARRAYS;
        let content = RECENT.get(&resolved, is_long, || {
            let mut found = Content { datasets: Vec::new(), groups: Vec::new(), complete: true };
            let walked = found.walk(&file);
            walked.map_err(|error| damaged("cannot list its groups", &error).at(path))?;
            Ok(found)
        })?;
        Ok(Self { file, path: resolved, content, is_matlab: false })
    }

    /// The dataset at the full path `path`.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.datasets.iter().find(|entry| entry.path == path)
    }

    /// A dataset that the walk did not list, because it lies behind a soft link or too deep.
    ///
    /// # Errors
    /// If it lies behind an external link.
    pub fn linked(&self, path: &str) -> Result<Option<Entry>> {
        if let Ok(dataset) = self.file.dataset(path) {
            return Ok(Some(entry_of(path.to_owned(), &dataset)));
        }
        match self.external_link(path) {
            None => Ok(None),
            Some(link) => Err(Error::unsupported(format!(
                "'{link}' is an external link to another file, which is not followed"
            ))
            .with_remedy("give that other file itself")),
        }
    }

    /// The part of `path` that is an external link.
    fn external_link(&self, path: &str) -> Option<String> {
        let mut group = self.file.group("/").ok()?;
        let mut walked = String::new();
        for part in path.trim_matches('/').split('/') {
            walked = format!("{walked}/{part}");
            let kind = group.find_link(Default::default(), Default::default(), |name, info| {
                Ok((name == part).then_some(info.link_type))
            });
            match kind.ok()?? {
                LinkType::External => return Some(walked),
                _ => group = group.group(part).ok()?,
            }
        }
        None
    }

    /// The dataset at `path`, and the other files that hold its numbers.
    ///
    /// # Errors
    /// If it cannot be opened, or its numbers lie in files that may not be read.
    pub fn dataset(&self, path: &str) -> Result<(Dataset, Vec<PathBuf>)> {
        let dataset = self
            .file
            .dataset(path)
            .map_err(|error| damaged(&format!("cannot open '{path}'"), &error))?;
        let sources = storage::sources(&self.path, &dataset)
            .map_err(|error| error.within(format_args!("'{path}'")))?;
        Ok((dataset, sources))
    }

    /// Bytes of the file.
    pub fn file_size(&self) -> u64 {
        self.file.size()
    }

    /// The folder of the file, resolved.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The list in the dataset at `path`: one-dimensional, or with one axis that is not 1.
    pub fn list(&self, path: &str) -> Option<Vec<f64>> {
        let entry = self.entry(path)?;
        let long = entry.shape.iter().filter(|length| **length != 1).count();
        if entry.shape.is_empty() || long > 1 {
            return None;
        }
        numbers(&self.dataset(path).ok()?.0)
    }

    /// The text in the dataset at `path`, of up to 64 KiB.
    pub fn text(&self, path: &str) -> Option<String> {
        const LONGEST: usize = 1 << 16;
        let (dataset, _) = self.dataset(path).ok()?;
        if dataset.size() != 1 {
            return None;
        }
        match dataset.dtype().ok()?.to_descriptor().ok()? {
            TypeDescriptor::FixedAscii(_) => {
                let text = dataset.read_raw::<FixedAscii<LONGEST>>().ok()?;
                Some(String::from_utf8_lossy(text.first()?.as_bytes()).into_owned())
            }
            _ => texts(&dataset)?.into_iter().next(),
        }
    }

    /// The attributes of the group or dataset at `path` (empty for the root).
    pub fn attributes(&self, path: &str) -> Attributes {
        let location = if path.is_empty() {
            self.file.group("/").map(|group| Location::clone(&group))
        } else {
            self.file
                .dataset(path)
                .map(|dataset| Location::clone(&dataset))
                .or_else(|_| self.file.group(path).map(|group| Location::clone(&group)))
        };
        let names = location.as_ref().ok().and_then(|l| l.attr_names().ok()).unwrap_or_default();
        Attributes { location: location.ok(), names }
    }

    /// The dataset as its users see it: MATLAB shows axes in the reverse of their order on disk.
    pub fn shown(&self, entry: &Entry) -> ArrayEntry {
        let mut lengths = entry.shape.clone();
        if self.is_matlab {
            lengths.reverse();
        }
        ArrayEntry { path: entry.path.clone(), lengths, dtype: entry.dtype() }
    }

    /// The names of the axes of the dataset at `path`: its dimension labels, or the names of the
    /// dimension scales (NetCDF dimensions) attached to it.
    fn axis_names_on_disk(&self, path: &str, rank: usize) -> Vec<Option<String>> {
        let attributes = self.attributes(path);
        let mut names = vec![None; rank];
        if let Some(labels) = attributes.open("DIMENSION_LABELS").and_then(|a| texts(&a)) {
            for (name, label) in names.iter_mut().zip(labels) {
                *name = Some(label).filter(|label| !label.is_empty());
            }
        }
        let scales = attributes.open("DIMENSION_LIST").filter(|list| list.size() == rank);
        let lists = scales.and_then(|list| list.read_raw::<VarLenArray<ObjectReference1>>().ok());
        for (name, references) in names.iter_mut().zip(lists.unwrap_or_default()) {
            if let (None, Some(reference)) = (&name, references.first())
                && let Ok(ReferencedObject::Dataset(scale)) = self.file.dereference(reference)
            {
                *name = scale.name().rsplit('/').next().map(str::to_owned);
            }
        }
        names
    }
}

/// The hard links of a group, at most `limit`, and whether these are all.
fn hard_links(group: &Group, limit: usize) -> ::hdf5::Result<(Vec<String>, bool)> {
    let mut names = Vec::new();
    let stopped = group.find_link(Default::default(), Default::default(), |name, info| {
        if names.len() == limit {
            return Ok(Some(()));
        }
        if info.link_type == LinkType::Hard {
            names.push(name.to_owned());
        }
        Ok(None)
    })?;
    Ok((names, stopped.is_none()))
}

/// MATLAB keeps the cells of cell arrays in `#refs#`, and its objects in `#subsystem#`.
fn skipped(path: &str) -> bool {
    matches!(path, "/#refs#" | "/#subsystem#")
}

/// The attributes of one object. Names are compared by their letters and digits only.
pub(crate) struct Attributes {
    location: Option<Location>,
    names: Vec<String>,
}

impl Attributes {
    /// The attribute of exactly this name.
    fn open(&self, name: &str) -> Option<Attribute> {
        self.names.iter().any(|n| n == name).then_some(())?;
        self.location.as_ref()?.attr(name).ok()
    }

    /// The stored name of the first of `names` that is here; `names` are in [`plain`] spelling.
    pub fn find(&self, names: &[&str]) -> Option<&str> {
        let stored = |name: &&str| self.names.iter().find(|n| plain(n) == *name);
        names.iter().find_map(stored).map(String::as_str)
    }

    /// The numbers in the attribute of exactly this name, written as numbers or as text.
    pub fn numbers(&self, name: &str) -> Option<Vec<f64>> {
        Some(self.value(name)?.numbers()?.0)
    }

    /// The first number of the attribute of exactly this name.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers(name)?.first().copied()
    }

    /// The text of the attribute of exactly this name.
    pub fn text(&self, name: &str) -> Option<String> {
        texts(&*self.open(name)?)?.into_iter().next()
    }
}

impl container::Attributes for Attributes {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn value(&self, name: &str) -> Option<Value> {
        let attribute = self.open(name)?;
        numbers(&attribute).map(Value::Numbers).or_else(|| texts(&attribute).map(Value::Texts))
    }
}

impl container::Container for Tree {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let inside = self.datasets.iter().filter(|entry| entry.group() == group);
        inside.filter(|entry| wanted(entry.name())).map(|entry| self.shown(entry)).collect()
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let found = self.datasets.iter().filter(|entry| wanted(entry.name()));
        found.map(|entry| self.shown(entry)).collect()
    }

    fn array(&self, path: &str) -> Option<ArrayEntry> {
        self.entry(path).map(|entry| self.shown(entry))
    }

    fn attributes(&self, path: &str) -> Box<dyn container::Attributes + '_> {
        Box::new(self.attributes(path))
    }

    fn axis_names(&self, path: &str) -> Vec<Option<String>> {
        let rank = match self.entry(path) {
            Some(entry) => entry.shape.len(),
            None => self.file.dataset(path).map_or(0, |dataset| dataset.ndim()),
        };
        let mut names = self.axis_names_on_disk(path, rank);
        if self.is_matlab {
            names.reverse();
        }
        names
    }

    fn values(&self, path: &str) -> Result<Option<Value>> {
        // NetCDF stores a dimension without a variable as a dataset of zeros.
        let name = self.attributes(path).text("NAME").unwrap_or_default();
        if name.starts_with("This is a netCDF dimension but not") {
            return Ok(None);
        }
        // MATLAB stores texts as 16-bit numbers.
        if self.attributes(path).text("MATLAB_class").as_deref() == Some("char") {
            let letters = self.list(path).unwrap_or_default();
            let text = letters.iter().filter_map(|letter| char::from_u32(*letter as u32)).collect();
            return Ok(Some(Value::Texts(vec![text])));
        }
        let texts = || texts(&self.dataset(path).ok()?.0).map(Value::Texts);
        let single = || {
            let entry = self.entry(path).filter(|entry| entry.shape.is_empty());
            entry.and_then(|_| numbers(&self.dataset(path).ok()?.0))
        };
        let value = |numbers: Vec<f64>| {
            let dataset = self.dataset(path).ok().map(|(dataset, _)| dataset);
            exact(numbers, dataset.and_then(|dataset| long_integers(&dataset)).unwrap_or_default())
        };
        Ok(self.list(path).or_else(single).map(value).or_else(texts))
    }
}

/// The numbers of a small attribute or dataset; `None` if it holds something else.
fn numbers(container: &Container) -> Option<Vec<f64>> {
    let size = container.space().ok()?.size();
    if size == 0 || size > MAX_LIST {
        return None;
    }
    match values_of(&container.dtype().ok()?) {
        // libhdf5 does not turn enumerations, such as booleans, into floats.
        Values::Numbers(DType::Bool) => {
            let bytes = container.read_raw::<i8>().ok()?;
            Some(bytes.into_iter().map(f64::from).collect())
        }
        Values::Numbers(_) => container.read_raw::<f64>().ok(),
        Values::Other(_) => None,
    }
}

/// The 64-bit integers of a small dataset; `None` if it holds something else.
fn long_integers(container: &Container) -> Option<Vec<i128>> {
    match values_of(&container.dtype().ok()?) {
        Values::Numbers(DType::U64) => {
            Some(container.read_raw::<u64>().ok()?.into_iter().map(i128::from).collect())
        }
        Values::Numbers(DType::I64) => {
            Some(container.read_raw::<i64>().ok()?.into_iter().map(i128::from).collect())
        }
        _ => None,
    }
}

/// The texts of a small attribute or dataset; `None` if it holds something else. Bytes that are not
/// UTF-8 are replaced, because some writers label Latin-1 as UTF-8.
fn texts(container: &Container) -> Option<Vec<String>> {
    /// Texts of this length are read in lists, longer ones one by one.
    const SHORT: usize = 64;
    const MEDIUM: usize = 1 << 12;
    fn decode(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).trim_end_matches(['\0', ' ']).to_owned()
    }
    fn fixed<const LENGTH: usize>(container: &Container, ascii: bool) -> Option<Vec<String>> {
        if ascii {
            let texts = container.read_raw::<FixedAscii<LENGTH>>().ok()?;
            return Some(texts.iter().map(|text| decode(text.as_bytes())).collect());
        }
        let texts = container.read_raw::<FixedUnicode<LENGTH>>().ok()?;
        Some(texts.iter().map(|text| decode(text.as_bytes())).collect())
    }
    let count = container.space().ok()?.size();
    if count > MAX_LIST / SHORT {
        return None;
    }
    match container.dtype().ok()?.to_descriptor().ok()? {
        TypeDescriptor::VarLenAscii => {
            let texts = container.read_raw::<VarLenAscii>().ok()?;
            Some(texts.iter().map(|text| decode(text.as_bytes())).collect())
        }
        TypeDescriptor::VarLenUnicode => {
            let texts = container.read_raw::<VarLenUnicode>().ok()?;
            Some(texts.iter().map(|text| decode(text.as_bytes())).collect())
        }
        kind @ (TypeDescriptor::FixedAscii(length) | TypeDescriptor::FixedUnicode(length)) => {
            let ascii = matches!(kind, TypeDescriptor::FixedAscii(_));
            match length {
                ..=SHORT => fixed::<SHORT>(container, ascii),
                ..=MEDIUM if count <= MAX_LIST / MEDIUM => fixed::<MEDIUM>(container, ascii),
                _ if count <= MAX_LIST / MAX_CRS => fixed::<MAX_CRS>(container, ascii),
                _ => None,
            }
        }
        _ => None,
    }
}
