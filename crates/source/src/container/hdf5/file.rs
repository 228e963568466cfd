//! Opens HDF5 files to read them, with limits on what libhdf5 does.

use std::path::Path;
use std::sync::Once;

use ::hdf5::sync::sync;
use ::hdf5::{File, MinorErrorCode};
use hdf5_sys::h5l::{H5L_TYPE_EXTERNAL, H5Lunregister};
use hsipack_format::{Error, Result};

use super::inflate;

/// libhdf5 keeps this many bytes of a dataset's decompressed chunks for the next read.
const CHUNK_CACHE: usize = 32 << 20;

/// From now on, in this process, libhdf5 follows no external links and inflates no chunk beyond its
/// size.
fn restrict_libhdf5() {
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

/// Opens a file to read it. If the file system cannot lock (many network drives), the file is
/// opened without a lock. If another program has the file open for writing, that is an error.
pub(super) fn open_file(path: &Path) -> Result<File> {
    restrict_libhdf5();
    // libhdf5 opens the file by name, so it is fetched first.
    hsipack_store::mirror::fetch(path)?;
    let open = |lock: bool| {
        File::with_options()
            .with_fapl(|p| p.file_locking(lock).chunk_cache(12_421, CHUNK_CACHE, 1.0))
            .open(path)
    };
    let first = match open(true) {
        Ok(file) => return Ok(file),
        Err(error) => error,
    };
    if !first.contains_minor(MinorErrorCode::CantLockFile) {
        return Err(damaged("cannot open this HDF5 file", &first).at(path));
    }
    // 11 is EAGAIN: another program holds the lock. Any other error means that the file system cannot lock.
    let busy = |stack: ::hdf5::ExpandedErrorStack| {
        stack.iter().any(|frame| frame.desc().contains("errno = 11,"))
    };
    if first.stack().is_some_and(busy) {
        return Err(Error::new(
            hsipack_format::ErrorKind::Io,
            "another program has this HDF5 file open for writing",
        )
        .at(path)
        .with_remedy("close it there first"));
    }
    open(false).map_err(|error| damaged("cannot open this HDF5 file", &error).at(path))
}

/// Turns an error of libhdf5 into an error about a malformed file.
pub(crate) fn damaged(doing: &str, error: &::hdf5::Error) -> Error {
    Error::malformed(format!("{doing}: {error}"))
        .with_remedy("copy the file again; it is cut short or damaged")
}
