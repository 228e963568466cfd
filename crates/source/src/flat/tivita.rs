//! Tivita `*_SpecCube.dat` (Diaspective Vision): a 12-byte header and one flat float array.
//!
//! ```text
//! 3 × i32 big-endian    width, height, bands
//! float32 big-endian    width × height × bands values, band fastest; image row 0 comes last
//! ```

use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};

use crate::container::variables::refuse_variable;
use crate::flat::{ByteSource, FileBytes, FlatLayout, FlatSource};
use crate::{Axis, AxisOrder, CubeInfo, OpenOptions, Source};

const HEADER: usize = 12;

/// The number of bands of the Tivita sensor; cubes with another number have been cut or binned.
const SENSOR_BANDS: usize = 100;

/// The band centres of the Tivita sensor, from 500 nm to 1000 nm inclusive, if a cube has as many
/// bands as the sensor.
pub(crate) fn sensor_wavelengths(bands: usize) -> Option<Vec<f64>> {
    let step = (1000.0 - 500.0) / (SENSOR_BANDS - 1) as f64;
    let centre = |band| if band + 1 == SENSOR_BANDS { 1000.0 } else { 500.0 + step * band as f64 };
    (bands == SENSOR_BANDS).then(|| (0..SENSOR_BANDS).map(centre).collect())
}

/// The shape that the first 12 bytes of a SpecCube file state.
///
/// # Errors
/// If there are fewer bytes, a length is not positive, or the lengths are impossible together.
#[doc(hidden)]
pub fn parse(head: &[u8]) -> Result<CubeShape> {
    let Some((header, _)) = head.split_first_chunk::<HEADER>() else {
        return Err(Error::malformed("the file is too short for the header of a Tivita SpecCube")
            .with_remedy("copy the file again; it is cut short"));
    };
    let (lengths, _) = header.as_chunks::<4>();
    let [width, height, bands] = [0, 1, 2].map(|axis| i32::from_be_bytes(lengths[axis]));
    let positive = |length: i32| usize::try_from(length).ok().filter(|length| *length > 0);
    let shape = match (positive(height), positive(width), positive(bands)) {
        (Some(rows), Some(columns), Some(bands)) => Some(CubeShape::new(rows, columns, bands)),
        _ => None,
    };
    shape.filter(|shape| shape.checked_values().is_some()).ok_or_else(|| {
        Error::malformed(format!(
            "the header states a width of {width}, a height of {height} and {bands} bands"
        ))
        .with_remedy("check that this is a Tivita SpecCube file; copy it again if it is")
    })
}

fn file_len(shape: CubeShape) -> Option<u64> {
    FlatSource::data_len(shape, DType::F32)?.checked_add(HEADER as u64)
}

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    if !metadata.is_file() {
        return false;
    }
    // A file of a few bytes may fit the formula by chance.
    let fits = |shape: &CubeShape| {
        shape.bands > 1 && shape.pixels() > 1 && file_len(*shape) == Some(metadata.len())
    };
    parse(head).is_ok_and(|shape| fits(&shape)) || (is_named(path) && !has_envi_header(path))
}

fn is_named(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().to_ascii_lowercase().ends_with("speccube.dat"))
}

/// Whether an ENVI header lies beside `path`, as when a Tivita cube was converted in place.
fn has_envi_header(path: &Path) -> bool {
    let mut appended = path.as_os_str().to_owned();
    appended.push(".hdr");
    path.with_extension("hdr").exists() || Path::new(&appended).exists()
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or the options ask for something that it does not
/// have.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    refuse_variable(path, options)?;
    if options.axes.as_ref().is_some_and(|axes| *axes != AxisOrder::BIP.into()) {
        return Err(Error::conflict("the axes of a Tivita SpecCube are fixed")
            .at(path)
            .with_remedy(remedy!["leave ", Opt::Axes, " out for this file"]));
    }
    let bytes = FileBytes::open(path)?;
    let mut head = [0; HEADER];
    let head = &mut head[..HEADER.min(usize::try_from(bytes.len()).unwrap_or(HEADER))];
    bytes.read_at(0, head)?;
    let shape = parse(head).map_err(|error| error.at(path))?;
    if file_len(shape) != Some(bytes.len()) {
        return Err(Error::malformed(format!(
            "the header states {} columns, {} rows and {} bands, which do not make the file's {} \
             bytes",
            shape.columns,
            shape.rows,
            shape.bands,
            bytes.len()
        ))
        .at(path)
        .with_remedy("copy the file again; it is cut short or not a Tivita SpecCube"));
    }
    let mut info = CubeInfo::new("Tivita SpecCube", shape, DType::F32, path);
    info.wavelength = sensor_wavelengths(shape.bands);
    if info.wavelength.is_none() {
        info.notes.push(format!(
            "wavelengths are unknown: the sensor has {SENSOR_BANDS} bands, the file {}",
            shape.bands
        ));
    }
    let layout = FlatLayout {
        offset: HEADER as u64,
        order: AxisOrder([Axis::Column, Axis::Row, Axis::Band]),
        big_endian: true,
        rows_reversed: true,
    };
    Ok(Box::new(FlatSource::new(info, layout, bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(width: i32, height: i32, bands: i32) -> Vec<u8> {
        [width, height, bands].iter().flat_map(|length| length.to_be_bytes()).collect()
    }

    #[test]
    fn the_header_is_width_height_bands() {
        assert_eq!(parse(&header(640, 480, 100)).unwrap(), CubeShape::new(480, 640, 100));
        for bad in [header(0, 480, 100), header(640, -1, 100), header(i32::MAX, i32::MAX, i32::MAX)]
        {
            assert!(parse(&bad).is_err());
        }
        assert!(parse(&header(1, 1, 1)[..11]).is_err());
    }

    #[test]
    fn the_sensor_has_100_bands_from_500_to_1000_nm() {
        let centres = sensor_wavelengths(100).unwrap();
        assert_eq!((centres[0], centres[99]), (500.0, 1000.0));
        assert!((centres[50] - 752.525_252_525).abs() < 1e-6);
        assert_eq!(sensor_wavelengths(99), None);
    }

    proptest! {
        #[test]
        fn parsing_never_panics(head in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(shape) = parse(&head) {
                prop_assert!(!shape.is_empty() && shape.checked_values().is_some());
            }
        }
    }
}
