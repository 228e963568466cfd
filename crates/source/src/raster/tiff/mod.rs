//! TIFF, GeoTIFF and BigTIFF.
//!
//! A cube lies in a TIFF file in one of three ways:
//!
//! | layout | order of the values |
//! |---|---|
//! | pages: one band a page | (page, row, column) |
//! | planar: one page, each sample has its own strips | (sample, row, column) |
//! | contiguous: one page, samples side by side | (row, column, sample) |
//!
//! Strips and tiles are decoded when their rows are read, so memory does not grow with the image.
//! The exception is a compressed file with one single strip: that strip must be kept decoded, up to
//! 2 GiB. GDAL's metadata, if the file has them, say what the bands are. GeoTIFF's keys
//! (`geo_keys.rs`) say where the pixels lie.
//!
//! `directory.rs` reads the directories, `pages.rs` picks those of the cube, `planes.rs` finds
//! their values, and `chunks.rs` decodes them. `description.rs` knows what other programs say about
//! axes, and `spectrum.rs` about wavelengths.

mod chunks;
mod description;
pub mod directory;
pub mod gdal_metadata;
mod geo_keys;
mod pages;
mod planes;
mod spectrum;

use std::path::Path;
use std::sync::Arc;

use hsipack_format::{DType, Error, Opt, Result, remedy};

use self::chunks::Planes;
use self::description::Hints;
use self::directory::{Directories, EXTRA_SAMPLES, Page, has_signature};
use self::gdal_metadata::{GdalMetadata, alpha_is_packed};
use self::pages::{Image, cube_pages};
use self::planes::{add_headless_pages, pixel_layout, read_planes};
use crate::cube_size::{MAX_ROW, check_size};
use crate::flat::{ByteSource, FileBytes, FlatLayout, FlatSource, MemoryBytes};
use crate::side_file;
use crate::{Access, Axes, Axis, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Source, whole_runs};

/// A read of at least this many bytes costs little more than copying it.
const CHEAP_READ: usize = 64 << 10;

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(_path: &Path, head: &[u8]) -> bool {
    has_signature(head)
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let bytes = FileBytes::open(path)?;
    let len = bytes.len();
    open_source(Arc::new(bytes), len, path, options).map_err(|error| error.at(path))
}

/// Opens a TIFF file in memory, for fuzzing.
///
/// # Errors
/// As [`open`].
#[doc(hidden)]
pub fn open_bytes(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let len = bytes.len() as u64;
    open_source(Arc::new(MemoryBytes(bytes)), len, Path::new("memory.tif"), options)
}

fn open_source(
    bytes: Arc<dyn ByteSource>,
    len: u64,
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>> {
    let (directories, pages) = Directories::read(&*bytes, len)?;
    let mut notes = Vec::new();
    let wanted = options.variable.as_deref();
    let images = cube_pages(&directories, pages, path, wanted, &mut notes)?;
    let Image { name: first_number, page: first } = &images[0];
    let description = directories.description(first).unwrap_or_default();
    let hints = Hints::read(&description, images.len())?;
    let pixel = pixel_layout(first, &directories, &mut notes)?;
    let planes = read_planes(&directories, &images, &pixel, len)?;
    let (pixel, planes) = add_headless_pages(pixel, planes, &hints, first, len)?;

    let contiguous = pixel.samples > 1;
    let (natural, lengths) = match contiguous {
        true => (AxisOrder::BIP, [pixel.height, pixel.width, pixel.samples]),
        false => (AxisOrder::BSQ, [planes.len(), pixel.height, pixel.width]),
    };
    let named = hints.array.filter(|(_, of_array)| *of_array == lengths).map(|(order, _)| order);
    let usual = named.unwrap_or(natural);
    let order = options.axes.as_ref().map(Axes::of_three).transpose()?.unwrap_or(usual);
    if !contiguous && planes.len() == 1 && !options.mask {
        return Err(Error::unsupported(format!(
            "this is a single {}x{} image, not a cube",
            pixel.height, pixel.width
        ))
        .with_remedy(remedy![
            "give a file with several bands; if each file is one band of a scene, stack them first: \
             gdalbuildvrt -separate ALL.vrt FILES, then gdal_translate ALL.vrt ALL.tif, or hsipack.pack in Python; for a mask, use ",
            Opt::Mask
        ]));
    }
    let shape = order.shape(lengths);
    check_size(shape, pixel.dtype)?;
    if pixel.row_bytes() as u64 > MAX_ROW {
        return Err(Error::unsupported(format!("an image of {} columns is too wide", pixel.width)));
    }
    let is_guess = options.axes.is_none() && named.is_none();
    if !contiguous && planes.len() > 1 && !first.planar && is_guess {
        notes.extend(doubtful_pages(lengths));
    }

    let mut info =
        CubeInfo::new(format_name(first, directories.big_tiff), shape, pixel.dtype, path);
    info.notes = notes;
    if let Some(xml) = directories.gdal_metadata(first) {
        match GdalMetadata::parse(&xml) {
            Ok(metadata) => metadata.describe(&mut info),
            Err(error) => info.notes.push(format!("{}; left out", error.what())),
        }
    }
    if !options.mask {
        note_alpha(&directories, first, &mut info.notes);
    }
    if let Some(text) = directories.gdal_nodata(first) {
        match text.trim().parse::<f64>() {
            // NaN needs no mark: it means missing by itself.
            Ok(value) => info.ignore_value = (!value.is_nan()).then_some(value),
            Err(_) => {
                info.notes.push(format!("the ignore value '{}' is not a number", text.trim()))
            }
        }
    }
    spectrum::describe(&directories, &images, &description, &mut info);
    if order == natural {
        let (geo, world) = geo_keys::geo(&directories, first, path, &mut info.notes);
        info.geo = geo;
        info.files.extend(world);
    }
    side_file::describe(path, &mut info);
    if planes.iter().any(|plane| plane.chunks.iter().any(|chunk| chunk.offset == 0)) {
        info.notes.push(format!(
            "page {first_number} lacks some strips or tiles; they are filled with the ignore value, or 0"
        ));
    }
    let fill = number_bytes(info.ignore_value.unwrap_or(0.0), pixel.dtype);
    let planes = Planes::new(bytes, pixel, planes, fill);
    let rows_together = planes.rows_together();
    let layout = FlatLayout {
        offset: 0,
        order,
        big_endian: cfg!(target_endian = "big"),
        rows_reversed: false,
    };
    Ok(Box::new(TiffSource {
        row_axis_is_y: order.position(Axis::Row) == usize::from(!contiguous),
        band_fastest: contiguous,
        rows_together,
        flat: FlatSource::new(info, layout, planes),
    }))
}

/// Adds a note about each band that the tags of its page mark as alpha.
fn note_alpha(directories: &Directories<'_>, page: &Page, notes: &mut Vec<String>) {
    let extra = directories.shorts(page, EXTRA_SAMPLES, page.samples).unwrap_or_default();
    let colors = page.samples as usize - extra.len();
    let alpha = extra.iter().enumerate().filter(|(_, meaning)| [1, 2].contains(*meaning));
    for note in alpha.map(|(at, _)| alpha_is_packed(colors + at)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// The name of the format in messages.
fn format_name(page: &Page, big_tiff: bool) -> &'static str {
    match (page.geo, big_tiff) {
        (true, _) => "GeoTIFF",
        (false, true) => "BigTIFF",
        (false, false) => "TIFF",
    }
}

/// A note for page stacks that look like (row, column, band) arrays written page by page.
fn doubtful_pages([pages, height, width]: [usize; 3]) -> Option<String> {
    (width < pages && width < height).then(|| {
        format!(
            "its {pages} pages of {height}x{width} pixels are read as bands; if they are image rows, \
             pass {}",
            Opt::Axes.to("yxb")
        )
    })
}

/// `value` as one number of type `dtype`, native byte order; 0 if it does not fit.
fn number_bytes(value: f64, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bool | DType::U8 => (value as u8).to_ne_bytes().to_vec(),
        DType::I8 => (value as i8).to_ne_bytes().to_vec(),
        DType::U16 => (value as u16).to_ne_bytes().to_vec(),
        DType::I16 => (value as i16).to_ne_bytes().to_vec(),
        DType::U32 => (value as u32).to_ne_bytes().to_vec(),
        DType::I32 => (value as i32).to_ne_bytes().to_vec(),
        DType::U64 => (value as u64).to_ne_bytes().to_vec(),
        DType::I64 => (value as i64).to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F64 => value.to_ne_bytes().to_vec(),
    }
}

/// A cube in a TIFF file.
struct TiffSource {
    flat: FlatSource,
    /// Whether image rows are the file's rows. They are, unless the user says otherwise.
    row_axis_is_y: bool,
    /// Whether one read of the file gives all bands.
    band_fastest: bool,
    /// Rows that lie in the same strips or tiles.
    rows_together: usize,
}

impl Source for TiffSource {
    fn info(&self) -> &CubeInfo {
        self.flat.info()
    }

    fn access(&self) -> Access {
        Access::Random
    }

    /// Whole strips or tiles: enough for efficient reads, as far as the budget allows.
    fn preferred_rows(&self, budget: usize) -> usize {
        if !self.row_axis_is_y {
            return self.flat.preferred_rows(budget);
        }
        let CubeInfo { shape, dtype, .. } = self.info();
        let values = if self.band_fastest { shape.row_values() } else { shape.columns };
        let worthwhile = CHEAP_READ.div_ceil((values * dtype.size()).max(1)).max(1);
        let affordable = (budget / 2 / self.info().row_bytes().max(1)).max(1);
        let together = self.rows_together.max(1);
        whole_runs(worthwhile, together, affordable).min(shape.rows)
    }

    fn read_rows(&self, rows: std::ops::Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.flat.read_rows(rows, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_stacks_that_look_like_image_rows_are_pointed_out() {
        assert!(doubtful_pages([480, 640, 100]).unwrap().ends_with("pass axes=yxb"));
        assert_eq!(doubtful_pages([100, 480, 640]), None);
    }
}
