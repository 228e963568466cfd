//! ENVI headers beside TIFF files: `x.hdr` or `x.tif.hdr` beside `x.tif`. ENVI, camera software and
//! scripts write them because a TIFF file has no place for wavelengths.

use std::path::{Path, PathBuf};

use super::header::Header;
use super::kind::Kind;
use super::search::{
    TIFF_SUFFIXES, append, file_name, find_data, has_suffix, header_names, is_tiff,
};
use super::{is_there, kind_of, read_header};
use crate::CubeInfo;

/// The TIFF file with the name of the header at `path`.
fn beside(path: &Path) -> Option<PathBuf> {
    let base = path.with_extension("");
    let names = TIFF_SUFFIXES.iter().map(|suffix| append(&base, suffix));
    std::iter::once(base.clone()).chain(names).find(|name| is_there(name) && is_tiff(name))
}

/// The TIFF file that `header`, the header at `path`, describes; `None` if it describes raw data.
pub(super) fn image_of(path: &Path, header: &Header) -> Option<PathBuf> {
    let image = beside(path)?;
    let has_data = || {
        find_data(path, header)
            .is_ok_and(|(_, data)| data.fits_plain(header) || data.is_gzip_for(header))
    };
    (header.of_tiff || !has_data()).then_some(image)
}

/// The TIFF file that the header at `path` describes; `None` if it describes raw data, or is not a
/// header.
pub(crate) fn tiff_of(path: &Path) -> Option<PathBuf> {
    // Most headers have no TIFF file beside them, and need not be read.
    let is_header = has_suffix(path, "hdr") && beside(path).is_some();
    let header = is_header.then(|| read_header(path).ok())??;
    image_of(path, &header)
}

/// Adds to `info`, the cube in the TIFF file at `path`, what an ENVI header beside it says. What
/// the file itself says takes precedence.
pub(crate) fn describe_tiff(path: &Path, info: &mut CubeInfo) {
    let names = header_names(path);
    let Some(name) = names.iter().find(|name| kind_of(name) == Kind::Envi) else { return };
    let header = match read_header(name) {
        Ok(header) => header,
        Err(error) => {
            info.notes.push(format!("{} is not used: {}", file_name(name), error.what()));
            return;
        }
    };
    if image_of(name, &header).is_none_or(|image| file_name(&image) != file_name(path)) {
        return;
    }
    let (ours, theirs) = (info.shape, header.shape);
    if ours != theirs {
        info.notes.push(format!(
            "{} is not used: it describes {theirs} (lines x samples x bands), but the image has {ours}",
            file_name(name)
        ));
        return;
    }
    let stated = header.into_info(String::new(), path);
    let notes: Vec<String> =
        stated.notes.iter().map(|note| format!("{}: {note}", file_name(name))).collect();
    if !info.complete(stated).is_empty() {
        info.notes.extend(notes);
        info.files.push(name.clone());
    }
}
