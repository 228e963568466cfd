//! HDF5 and the formats in it: NetCDF-4, HDF-EOS5, MATLAB v7.3.
//!
//! ```text
//! open:  tree      what is in the file
//!        storage   which files its values lie in, and whether they may be read
//!        products  is it a product whose layout says everything? (`source/products/`)
//!        choose    the dataset: the user's, the product's, or the only cube
//!        meaning   what products say, otherwise the rules of all containers (`meaning/`): axes, spectrum, values, place
//! read:  contiguous, native numbers → `FlatSource`, past libhdf5
//!        anything else → one hyperslab of whole rows, then permuted to (row, column, band)
//! ```
//!
//! libhdf5 decodes on one thread at a time, even for different files, so reading several cubes at
//! once is not faster. Chunks are decoded as a whole, so
//! [`preferred_rows`](crate::Source::preferred_rows) follows their shape. A chunk is in memory
//! while it is decoded, even if it exceeds the budget.
//!
//! Without the feature `hdf5`, `without.rs` stands for `tree` and `read`, and opening a file is an
//! error.

mod choose;
mod entry;
#[cfg(feature = "hdf5")]
mod file;
mod heaps;
#[cfg(feature = "hdf5")]
mod inflate;
mod meaning;
mod open;
#[cfg(feature = "hdf5")]
mod read;
#[cfg(feature = "hdf5")]
mod storage;
#[cfg(feature = "hdf5")]
mod tree;
#[cfg(not(feature = "hdf5"))]
mod without;

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use hsipack_store::bounded_read;

pub(crate) use self::open::{open, quality_layers, visit};
pub(crate) use self::tree::{Attributes, Tree};
#[cfg(not(feature = "hdf5"))]
use self::{without as read, without as tree};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
const EXTENSIONS: [&str; 8] = ["h5", "hdf5", "he5", "hdf", "nc", "nc4", "mat", "h5ad"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format: the signature is at the
/// start, or after a user block of 512, 1024, 2048 … bytes.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    let in_head = [0, 512, 1024, 2048];
    if in_head.iter().any(|at| head.get(*at..).is_some_and(|tail| tail.starts_with(SIGNATURE))) {
        return true;
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    EXTENSIONS.contains(&extension.to_lowercase().as_str()) && signature_further_on(path)
}

fn signature_further_on(path: &Path) -> bool {
    let Ok(mut file) = bounded_read::window(path) else { return false };
    let mut bytes = [0; SIGNATURE.len()];
    (12..40).map(|power| 1u64 << power).any(|at| {
        file.seek(SeekFrom::Start(at)).is_ok()
            && file.read_exact(&mut bytes).is_ok()
            && bytes == SIGNATURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_found_behind_a_user_block() {
        for at in [0, 512, 1024, 2048] {
            let mut head = vec![b'x'; at];
            head.extend(SIGNATURE);
            assert!(recognises(Path::new("a.bin"), &head), "{at}");
        }
        assert!(!recognises(Path::new("a.bin"), b"\x89HDF"));
        assert!(!recognises(Path::new("a.h5"), &[0; 4096]));
    }

    #[test]
    fn a_large_user_block_is_looked_behind_by_extension() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let mut bytes = vec![b'x'; 8192];
        bytes.extend(SIGNATURE);
        std::fs::write(&path, &bytes).unwrap();
        assert!(recognises(&path, &bytes[..4096]));
    }
}
