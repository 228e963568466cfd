//! Where a dataset's numbers lie: in its own file, or in the files of a virtual dataset.
//!
//! An HDF5 file can refer to any other file on the machine, in three ways. hsipack packs only what
//! the user gave, so it restricts each of them:
//!
//! | reference to another file | what hsipack does |
//! |---|---|
//! | an external link | never follows it: support for it is removed from libhdf5 before the first file is opened |
//! | external storage (raw bytes of any file) | refuses it |
//! | a virtual dataset | reads it if all its files lie in the folder of the HDF5 file, or below it |
//!
//! libhdf5 itself opens the files of a virtual dataset, by name. It looks for them first in the
//! folder of the HDF5 file, where this module has already found and opened each of them. Only an
//! environment variable could make it look elsewhere first. If that is set, virtual datasets are
//! refused.

use std::collections::BTreeSet;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hdf5::Dataset;
use hdf5::dataset::Layout;
use hdf5::plist::DatasetCreate;
use hdf5::sync::sync;
use hdf5_sys::h5p::{
    H5Pget_virtual_count, H5Pget_virtual_dsetname, H5Pget_virtual_filename, H5Pget_virtual_vspace,
};
use hdf5_sys::h5s::{H5S_MAX_RANK, H5Sclose, H5Sget_simple_extent_dims};
use hsipack_format::{Error, ErrorKind, Result};

use super::file::{damaged, open_file};

/// No recording is spread over more files.
const MAX_SOURCES: usize = 20_000;
/// How deep virtual datasets may be nested.
const DEEPEST: usize = 8;
/// No file has a longer name.
const LONGEST_NAME: usize = 1 << 16;
/// The environment variable for where libhdf5 looks first for the files of a virtual dataset.
const SEARCH_FIRST: &str = "HDF5_VDS_PREFIX";

/// The files, other than `path` itself, that hold numbers of `dataset`. The dataset is in the file
/// at `path` (resolved, as libhdf5 was given it).
///
/// # Errors
/// If such a file is missing, may not be read, or does not hold the dataset it should.
pub(super) fn sources(path: &Path, dataset: &Dataset) -> Result<Vec<PathBuf>> {
    let root = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut search = Search { root, ..Search::default() };
    search.visit(path, dataset)?;
    search.files.remove(path);
    Ok(search.files.into_iter().collect())
}

/// A search for the files of a virtual dataset.
#[derive(Default)]
struct Search {
    /// All files must lie in this folder, or below it.
    root: PathBuf,
    files: BTreeSet<PathBuf>,
    /// Files and names of datasets that were checked already.
    checked: BTreeSet<(PathBuf, Vec<u8>)>,
    /// The virtual datasets that are being checked, each part of the one before.
    within: Vec<String>,
}

impl Search {
    /// Checks `dataset`, which libhdf5 found in the file it knows as `home`.
    fn visit(&mut self, home: &Path, dataset: &Dataset) -> Result<()> {
        let plist = dataset.dcpl().map_err(|error| damaged("cannot read the layout", &error))?;
        if !plist.get_external().is_ok_and(|files| files.is_empty()) {
            return Err(Error::unsupported(
                "the values are in another file (HDF5 external storage), which is not followed",
            )
            .with_remedy("write them into the file itself, with h5repack -l CONTI IN OUT"));
        }
        if plist.layout() != Layout::Virtual {
            return Ok(());
        }
        if std::env::var_os(SEARCH_FIRST).is_some_and(|prefix| !prefix.is_empty()) {
            return Err(Error::conflict(format!(
                "the cube is a virtual dataset, and {SEARCH_FIRST} makes HDF5 look for its files elsewhere"
            ))
            .with_remedy(format!("unset {SEARCH_FIRST}")));
        }
        let location = dataset.loc_info().map(|info| format!("{} {:?}", info.fileno, info.token));
        let location =
            location.map_err(|error| damaged("cannot tell where the cube lies", &error))?;
        if self.within.len() == DEEPEST || self.within.contains(&location) {
            return Err(Error::unsupported(format!(
                "the virtual datasets contain themselves, or are nested more than {DEEPEST} deep"
            ))
            .with_remedy(PLAIN));
        }
        self.within.push(location);
        for (file, name) in names(&plist)? {
            self.visit_source(home, &file, name)?;
        }
        self.within.pop();
        Ok(())
    }

    /// Checks the dataset `name` in `file`. Both names are as in a virtual dataset in `home`.
    fn visit_source(&mut self, home: &Path, file: &[u8], name: Vec<u8>) -> Result<()> {
        if file.contains(&b'%') || name.contains(&b'%') {
            return Err(Error::unsupported(
                "the cube is a virtual dataset over a series of files with numbers in their names",
            )
            .with_remedy(PLAIN));
        }
        let path = if file == b"." { home.to_owned() } else { self.locate(home, file)? };
        let key = (path, name);
        if self.checked.contains(&key) {
            return Ok(());
        }
        let (path, name) = &key;
        let shown = format!("{}::{}", text(file), text(name));
        let missing = |error: Error| {
            Error::new(
                error.kind(),
                format!("the cube is a virtual dataset over '{shown}': {}", error.what()),
            )
            .with_remedy("replace that file with an intact copy")
        };
        let source = open_file(path).map_err(missing)?;
        let dataset = source
            .dataset(&text(name))
            .map_err(|error| missing(damaged("cannot open the dataset", &error)))?;
        self.visit(path, &dataset)?;
        self.checked.insert(key);
        Ok(())
    }

    /// Where libhdf5 finds `file` for a virtual dataset in `home`, if that is allowed.
    fn locate(&mut self, home: &Path, file: &[u8]) -> Result<PathBuf> {
        let path = home.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(file));
        let what =
            |why: &str| format!("the cube is a virtual dataset over '{}', {why}", text(file));
        hsipack_store::mirror::look(&path)?;
        let resolved = match path.canonicalize() {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::Io, what("which is missing"))
                    .with_remedy("put that file beside this one"));
            }
            Err(error) => return Err(Error::io(&path, "cannot read", error)),
        };
        if !resolved.starts_with(&self.root) {
            return Err(Error::unsupported(what(
                "which is not in the folder of this file, or below it",
            ))
            .with_remedy(format!("put that file beside this one, or {PLAIN}")));
        }
        if !resolved.is_file() {
            return Err(Error::unsupported(what("which is not a regular file")).with_remedy(PLAIN));
        }
        if self.files.insert(resolved) && self.files.len() > MAX_SOURCES {
            return Err(Error::unsupported(format!(
                "the cube is a virtual dataset over more than {MAX_SOURCES} files"
            ))
            .with_remedy(PLAIN));
        }
        Ok(path)
    }
}

const PLAIN: &str = "write the cube to a plain dataset";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The file and the dataset of each part of a virtual dataset. The binding is not used, because it
/// also reads the selections and refuses those that h5py writes.
fn names(plist: &DatasetCreate) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let unreadable = || {
        Error::malformed("cannot read the virtual dataset's mapping")
            .with_remedy("copy the file again; it is cut short or damaged")
    };
    sync(|| {
        let id = plist.id();
        let mut count = 0;
        // SAFETY: `id` is the list's, which lives; the function writes one number.
        if unsafe { H5Pget_virtual_count(id, &raw mut count) } < 0 {
            return Err(unreadable());
        }
        let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for part in 0..count {
            // SAFETY: `read` gives either no memory and 0 or memory of that many bytes, which is what the
            // functions write at most; `id` is the list's and `part` below the count.
            let file = read(|to, len| unsafe { H5Pget_virtual_filename(id, part, to, len) });
            // SAFETY: as above.
            let name = read(|to, len| unsafe { H5Pget_virtual_dsetname(id, part, to, len) });
            let both = file.zip(name).ok_or_else(unreadable)?;
            // Parts in the same file follow one another.
            if found.last() != Some(&both) {
                found.push(both);
            }
        }
        Ok(found)
    })
}

/// The lengths of a virtual dataset when it was created. If the dataset may grow, asking it for its
/// shape makes libhdf5 open its files, which are not checked yet. `None` if `dataset` is not
/// virtual, or has no parts.
pub(super) fn virtual_shape(dataset: &Dataset) -> Option<Vec<usize>> {
    let plist = dataset.dcpl().ok().filter(|plist| plist.layout() == Layout::Virtual)?;
    sync(|| {
        let mut count = 0;
        // SAFETY: the list lives; the function writes one number.
        let status = unsafe { H5Pget_virtual_count(plist.id(), &raw mut count) };
        if status < 0 || count == 0 {
            return None;
        }
        // SAFETY: part 0 is there. The space that is given is closed below, once.
        let space = unsafe { H5Pget_virtual_vspace(plist.id(), 0) };
        let mut lengths = [0; H5S_MAX_RANK as usize];
        // SAFETY: no space has more axes than there is room for; the third argument may be null.
        let rank = unsafe {
            let rank = H5Sget_simple_extent_dims(space, lengths.as_mut_ptr(), std::ptr::null_mut());
            H5Sclose(space);
            rank
        };
        let lengths = lengths.get(..usize::try_from(rank).ok()?)?;
        lengths.iter().map(|length| usize::try_from(*length).ok()).collect()
    })
}

/// The text that `get` writes. `get` takes a buffer and its size, and returns the text's length, or
/// a negative number on error.
fn read(get: impl Fn(*mut c_char, usize) -> isize) -> Option<Vec<u8>> {
    let len =
        usize::try_from(get(std::ptr::null_mut(), 0)).ok().filter(|len| *len <= LONGEST_NAME)?;
    let mut bytes = vec![0u8; len + 1];
    let written = get(bytes.as_mut_ptr().cast(), bytes.len());
    bytes.truncate(len);
    (usize::try_from(written) == Ok(len)).then_some(bytes)
}
