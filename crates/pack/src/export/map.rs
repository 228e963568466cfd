//! Writes a map of a cube, such as a network's predictions, to a file with the cube's
//! georeferencing.

use std::cell::RefCell;
use std::ops::Range;
use std::path::PathBuf;

use hsipack_format::{CubeShape, DType, Error, Geo, Result};
use serde::Serialize;

use super::raster::Raster;
use super::{Kind, files, kind, write};
use crate::preview::palette::{Colour, class_colour};

/// The number of bytes to request at a time.
const SLAB: usize = 4 << 20;

/// Describes a map.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// The file to write. Its extension selects the format. An existing file is replaced.
    pub output: PathBuf,
    /// Rows × columns × channels.
    pub shape: CubeShape,
    /// Whether there is no axis of channels. A `.npy` file then has two axes.
    pub flat: bool,
    /// Type of the values: uint8, uint16 or float32.
    pub dtype: DType,
    /// A short description of the map.
    pub title: String,
    /// The georeferencing of its pixels.
    pub geo: Option<Geo>,
    /// The value of pixels without a prediction.
    pub nodata: Option<f64>,
    /// Names of classes 0, 1, … if the map contains whole numbers, otherwise of the channels.
    pub names: Option<Vec<String>>,
    /// Colours of classes 0, 1, ….
    pub colours: Option<Vec<Colour>>,
}

/// The files that were written.
#[derive(Clone, Debug, Serialize)]
pub struct WrittenMap {
    /// Paths of all files.
    pub files: Vec<PathBuf>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Writes a map. `rows` gives the values of some rows, little-endian, in (row, column, channel)
/// order.
///
/// # Errors
/// If the extension is not that of a format, values have another type, names or colours do not fit
/// the map, `rows` fails or gives another number of bytes, or the file cannot be written. No file
/// is then left behind.
pub fn write_map(
    options: &MapOptions,
    rows: &mut dyn FnMut(Range<usize>) -> Result<Vec<u8>>,
) -> Result<WrittenMap> {
    let MapOptions { output, shape, dtype, names, .. } = options;
    let kind = kind(output, false)?;
    check(options)?;
    let row_bytes = shape.row_values() * dtype.size();
    let slab = (SLAB / row_bytes.max(1)).clamp(1, shape.rows);
    let rows = RefCell::new(rows);
    let all = |take: &mut dyn FnMut(&[u8]) -> Result<()>| {
        for start in (0..shape.rows).step_by(slab) {
            let some = start..shape.rows.min(start + slab);
            let bytes = (rows.borrow_mut())(some.clone())?;
            if bytes.len() != some.len() * row_bytes {
                return Err(Error::bug(format!("{} bytes for rows {some:?}", bytes.len())));
            }
            take(&bytes)?;
        }
        Ok(())
    };
    let is_classes = !dtype.is_float() && shape.bands == 1;
    let named = names.as_ref().map_or(0, Vec::len);
    let raster = Raster {
        flat: options.flat,
        slab,
        geo: options.geo.clone(),
        nodata: options.nodata,
        band_names: names.clone().filter(|_| !is_classes),
        class_names: names.clone().filter(|_| is_classes),
        class_colours: match &options.colours {
            Some(colours) => Some(colours.clone()),
            None if is_classes && named > 0 => Some((0..named).map(class_colour).collect()),
            None => None,
        },
        ..Raster::new(*shape, *dtype, options.title.clone(), Box::new(all))
    };
    let files = files(output, kind);
    let (_, _, mut notes) = write(kind, &raster, &files)?;
    if kind == Kind::Npy && options.geo.is_some() {
        notes.push("the georeferencing is left out, because .npy cannot store it".to_owned());
    }
    Ok(WrittenMap { files, notes })
}

fn check(options: &MapOptions) -> Result<()> {
    let MapOptions { output, shape, dtype, names, colours, .. } = options;
    if !matches!(dtype, DType::U8 | DType::U16 | DType::F32) {
        return Err(Error::unsupported(format!("a map cannot have the type {dtype}"))
            .at(output)
            .with_remedy("give uint8, uint16 or float32"));
    }
    if shape.values() == 0 {
        return Err(Error::conflict(format!("a map of {shape} has no pixels"))
            .at(output)
            .with_remedy("give a map with at least one pixel"));
    }
    let is_classes = !dtype.is_float() && shape.bands == 1;
    if let Some(names) = names
        && !is_classes
        && names.len() != shape.bands
    {
        return Err(Error::conflict(format!(
            "there are {} names for {} channels",
            names.len(),
            shape.bands
        ))
        .at(output)
        .with_remedy("give a name for every channel"));
    }
    let most = if *dtype == DType::U8 { 1 << 8 } else { 1 << 16 };
    let longest = [names.as_ref().map(Vec::len), colours.as_ref().map(Vec::len)];
    if is_classes && longest.into_iter().flatten().max().is_some_and(|count| count > most) {
        return Err(Error::conflict(format!(
            "there are more classes than the {most} that {dtype} can hold"
        ))
        .at(output)
        .with_remedy("give fewer names and colours"));
    }
    if colours.is_some() && !is_classes {
        return Err(Error::conflict("colours are given, but the map does not contain class ids")
            .at(output)
            .with_remedy("leave them out, or give uint8 or uint16 class ids in one channel"));
    }
    Ok(())
}
