//! GDAL's side files. GDAL, and QGIS through it, keep what a format cannot hold, or a file that
//! must not change, in `x.img.aux.xml` beside `x.img`: scale, offset, ignore value, names and
//! wavelengths of bands, and where the pixels lie.
//!
//! As in GDAL, a side file takes precedence over the file itself. Files with statistics only change
//! nothing.

use std::path::Path;

use hsipack_store::{bounded_read, mirror};

use super::CubeInfo;
use super::text::decode;
use crate::raster::tiff::gdal_metadata::{GdalMetadata, mask_is_not_read};

/// Metadata of 500 bands take some 200 KB, and their histograms some MB.
const LARGEST: u64 = 16 << 20;

/// Adds to `info`, the cube in the raster at `path`, what GDAL's side file says.
pub(super) fn describe(path: &Path, info: &mut CubeInfo) {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        name
    };
    if Path::new(&beside(".msk")).is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        info.notes.push(mask_is_not_read(&format!("{name}.msk")));
    }
    let name = beside(".aux.xml");
    let side = Path::new(&name);
    // A file that a server does not report counts as missing.
    if mirror::look(side).is_err() || !side.is_file() {
        return;
    }
    let text = bounded_read::read(side, LARGEST).map(|bytes| decode(&bytes));
    let file = side.file_name().unwrap_or_default().to_string_lossy();
    match text.and_then(|text| GdalMetadata::parse_side_file(&text)) {
        Ok(metadata) => {
            let notes = std::mem::take(&mut info.notes);
            let before = info.clone();
            metadata.describe(info);
            let is_used = info.differs_from(&before);
            let file_notes = std::mem::replace(&mut info.notes, notes);
            info.notes.extend(file_notes.into_iter().map(|note| format!("{file}: {note}")));
            if is_used {
                info.files.push(side.to_owned());
            }
        }
        Err(error) => info.notes.push(format!("{file} is not used: {}", error.what())),
    }
}
