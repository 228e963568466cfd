//! Where a dataset's numbers lie: in its own file, or in files that a virtual dataset is made of.
//!
//! HDF5 lets a file name any other file of the machine, in three ways. hsipack packs what the user gave,
//! so each of them is held against that:
//!
//! | a file names another one by | |
//! |---|---|
//! | an external link | never followed: libhdf5 forgets how to, with the first file that is opened |
//! | external storage (raw bytes of any file) | refused |
//! | a virtual dataset | read where every file it is made of lies in the folder of the file, or below it |
//!
//! libhdf5 itself opens the files of a virtual dataset, by their names. It looks for them in the folder of
//! the file first, where each was found and opened here; only an environment variable could have it look
//! elsewhere before, and with that set, virtual datasets are refused.

use std::collections::BTreeSet;
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Once;

use hdf5::Dataset;
use hdf5::dataset::Layout;
use hdf5::plist::DatasetCreate;
use hdf5::sync::sync;
use hdf5_sys::h5l::{H5L_TYPE_EXTERNAL, H5Lunregister};
use hdf5_sys::h5p::{
    H5Pget_virtual_count, H5Pget_virtual_dsetname, H5Pget_virtual_filename, H5Pget_virtual_vspace,
};
use hdf5_sys::h5s::{H5S_MAX_RANK, H5Sclose, H5Sget_simple_extent_dims};
use hsipack_format::{Error, ErrorKind, Result};

use super::inflate;
use super::tree::{damaged, open_file};

/// More files than any recording is spread over.
const MOST_SOURCES: usize = 20_000;
/// Virtual datasets made of virtual datasets made of …
const DEEPEST: usize = 8;
/// Longer names are no file's.
const LONGEST_NAME: usize = 1 << 16;
/// Where libhdf5 would look first for the files of a virtual dataset.
const SEARCH_FIRST: &str = "HDF5_VDS_PREFIX";

/// Has libhdf5 follow no external links and inflate no chunk beyond its size, in this process, from now on.
pub(super) fn restrict_libhdf5() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        sync(|| {
            // SAFETY: a call without pointers, made while no other thread is in libhdf5. It fails only if
            // the kind of link is not known, which is what is wanted.
            unsafe { H5Lunregister(H5L_TYPE_EXTERNAL) };
            // SAFETY: no other thread is in libhdf5, which the call before has initialised.
            unsafe { inflate::register() };
        });
    });
}

/// The files, other than `path` itself, that hold numbers of `dataset`, a dataset in the file at `path`
/// (resolved, as libhdf5 was given it).
///
/// # Errors
/// If a file may not be read for it, is missing, or does not hold the dataset that is asked for.
pub(super) fn sources(path: &Path, dataset: &Dataset) -> Result<Vec<PathBuf>> {
    let root = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut search = Search { root, ..Search::default() };
    search.visit(path, dataset)?;
    search.files.remove(path);
    Ok(search.files.into_iter().collect())
}

/// The files behind a virtual dataset.
#[derive(Default)]
struct Search {
    /// The folder in or below which all have to lie.
    root: PathBuf,
    files: BTreeSet<PathBuf>,
    /// Files and names of datasets that were looked at.
    known: BTreeSet<(PathBuf, Vec<u8>)>,
    /// The virtual datasets that are being looked at, each part of the one before.
    within: Vec<String>,
}

impl Search {
    /// Looks at `dataset`, which libhdf5 found in the file it knows as `home`.
    fn visit(&mut self, home: &Path, dataset: &Dataset) -> Result<()> {
        let plist = dataset.dcpl().map_err(|error| damaged("cannot read the layout", &error))?;
        if !plist.get_external().is_ok_and(|files| files.is_empty()) {
            return Err(Error::unsupported(
                "the values lie in another file (HDF5 external storage), which is not followed",
            )
            .with_remedy("write them into the file itself, with h5repack -l CONTI IN OUT"));
        }
        if plist.layout() != Layout::Virtual {
            return Ok(());
        }
        if std::env::var_os(SEARCH_FIRST).is_some_and(|prefix| !prefix.is_empty()) {
            return Err(Error::conflict(format!(
                "the cube is a virtual dataset, and {SEARCH_FIRST} would have its files looked for elsewhere"
            ))
            .with_remedy(format!("unset {SEARCH_FIRST}")));
        }
        let place = dataset.loc_info().map(|info| format!("{} {:?}", info.fileno, info.token));
        let place = place.map_err(|error| damaged("cannot tell where the cube lies", &error))?;
        if self.within.len() == DEEPEST || self.within.contains(&place) {
            return Err(Error::unsupported(format!(
                "virtual datasets made of themselves, or more than {DEEPEST} deep"
            ))
            .with_remedy(PLAIN));
        }
        self.within.push(place);
        for (file, name) in names(&plist)? {
            self.visit_source(home, &file, name)?;
        }
        self.within.pop();
        Ok(())
    }

    /// Looks at the dataset `name` in `file`, as a virtual dataset in `home` calls them.
    fn visit_source(&mut self, home: &Path, file: &[u8], name: Vec<u8>) -> Result<()> {
        if file.contains(&b'%') || name.contains(&b'%') {
            return Err(Error::unsupported(
                "the cube is a virtual dataset over a series of files with numbers in their names",
            )
            .with_remedy(PLAIN));
        }
        let place = if file == b"." { home.to_owned() } else { self.locate(home, file)? };
        let key = (place, name);
        if self.known.contains(&key) {
            return Ok(());
        }
        let (place, name) = &key;
        let shown = format!("{}::{}", text(file), text(name));
        let missing = |error: Error| {
            Error::new(
                error.kind(),
                format!("the cube is a virtual dataset over '{shown}': {}", error.what()),
            )
            .with_remedy("put a sound copy of that file in its place")
        };
        let source = open_file(place).map_err(missing)?;
        let dataset = source
            .dataset(&text(name))
            .map_err(|error| missing(damaged("cannot open the dataset", &error)))?;
        self.visit(place, &dataset)?;
        self.known.insert(key);
        Ok(())
    }

    /// Where libhdf5 finds `file` for a virtual dataset in `home`, if that is allowed.
    fn locate(&mut self, home: &Path, file: &[u8]) -> Result<PathBuf> {
        let place = home.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(file));
        let what =
            |why: &str| format!("the cube is a virtual dataset over '{}', {why}", text(file));
        hsipack_store::mirror::look(&place)?;
        let resolved = match place.canonicalize() {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::Io, what("which is missing"))
                    .with_remedy("put that file beside this one"));
            }
            Err(error) => return Err(Error::io(&place, "cannot read", error)),
        };
        if !resolved.starts_with(&self.root) {
            return Err(Error::unsupported(what(
                "which is not in the folder of this file, or below it",
            ))
            .with_remedy(format!("put that file beside this one, or {PLAIN}")));
        }
        if !resolved.is_file() {
            return Err(Error::unsupported(what("which is no regular file")).with_remedy(PLAIN));
        }
        if self.files.insert(resolved) && self.files.len() > MOST_SOURCES {
            return Err(Error::unsupported(format!(
                "the cube is a virtual dataset over more than {MOST_SOURCES} files"
            ))
            .with_remedy(PLAIN));
        }
        Ok(place)
    }
}

const PLAIN: &str = "write the cube to a plain dataset";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The file and the dataset of each part of a virtual dataset. The binding reads its selections, too, and
/// refuses those that h5py writes.
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
            // Parts of one file come one after the other.
            if found.last() != Some(&both) {
                found.push(both);
            }
        }
        Ok(found)
    })
}

/// Lengths of a virtual dataset as it was made. To ask the dataset itself has libhdf5 open the files of one
/// that may grow, which are not checked yet. `None` if `dataset` is no virtual dataset, or has no parts.
pub(super) fn virtual_shape(dataset: &Dataset) -> Option<Vec<usize>> {
    let plist = dataset.dcpl().ok().filter(|plist| plist.layout() == Layout::Virtual)?;
    sync(|| {
        let mut count = 0;
        // SAFETY: the list lives; the function writes one number.
        let known = unsafe { H5Pget_virtual_count(plist.id(), &raw mut count) };
        if known < 0 || count == 0 {
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

/// The text that `get` writes: it takes a place and its size and gives the text's length, or less than 0.
fn read(get: impl Fn(*mut c_char, usize) -> isize) -> Option<Vec<u8>> {
    let len =
        usize::try_from(get(std::ptr::null_mut(), 0)).ok().filter(|len| *len <= LONGEST_NAME)?;
    let mut bytes = vec![0u8; len + 1];
    let written = get(bytes.as_mut_ptr().cast(), bytes.len());
    bytes.truncate(len);
    (usize::try_from(written) == Ok(len)).then_some(bytes)
}
