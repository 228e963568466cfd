//! Writes inputs to files, for readers that take a path, and reads them back as cubes.

use hsipack_format::CubeShape;
use hsipack_source::{CubeInfo, OpenOptions, RowBuffer, Source, open};

pub use self::files::{path, write};

#[path = "files.rs"]
mod files;

/// Cubes of more values are not read: their files may be small (sparse TIFF, deflate).
const MAX_VALUES: usize = 1_000_000;

/// Opens `bytes` as a file called `name` and reads every row.
pub fn read_file(name: &str, bytes: &[u8], options: &OpenOptions) {
    write(name, bytes);
    let Ok(source) = open(&path(name), options) else { return };
    check(source.info());
    if source.info().shape.values() <= MAX_VALUES {
        read_rows(&*source);
    }
}

/// Checks that a reader's description of a cube is consistent.
fn check(info: &CubeInfo) {
    let CubeShape { bands, .. } = info.shape;
    assert!(!info.shape.is_empty() && info.shape.checked_values().is_some());
    assert!(!info.files.is_empty());
    let as_long = |length: Option<usize>| length.is_none_or(|length| length == bands);
    assert!(as_long(info.wavelength.as_ref().map(Vec::len)));
    assert!(as_long(info.fwhm.as_ref().map(Vec::len)));
    assert!(as_long(info.good_bands.as_ref().map(Vec::len)));
    assert!(as_long(info.band_names.as_ref().map(Vec::len)));
    let finite = |list: &Option<Vec<f64>>| list.iter().flatten().all(|value| value.is_finite());
    assert!(finite(&info.wavelength) && finite(&info.fwhm));
}

/// All rows as the converter asks for them, then the last one alone: going back must work, too.
fn read_rows(source: &dyn Source) {
    let CubeShape { rows, .. } = source.info().shape;
    let step = source.preferred_rows(1 << 16);
    assert!((1..=rows).contains(&step));
    let mut out = RowBuffer::new();
    for start in (0..rows).step_by(step) {
        let end = rows.min(start + step);
        if source.read_rows(start..end, &mut out).is_err() {
            return;
        }
        assert_eq!(out.len(), (end - start) * source.info().shape.row_values());
        assert_eq!(out.dtype(), source.info().dtype);
    }
    let _ = source.read_rows(rows - 1..rows, &mut out);
    let _ = source.read_rows(0..1, &mut out);
}
