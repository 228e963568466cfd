//! Writes a sample of a dataset to a file that other tools can open.
//!
//! | ending | image | mask |
//! |---|---|---|
//! | `.npy` (`npy.rs`) | the stored values, bit for bit | the stored ids |
//! | `.hdr`, `.img` (`envi.rs`, `map_info.rs`) | float32, header with wavelengths, fwhm, bad bands, scale | ENVI classification |
//! | `.tif` (`tiff.rs`, `geo_keys.rs`) | float32, bands side by side; GDAL metadata | one band |
//! | `.zarr` (`zarr.rs`) | the stored values with wavelengths, coordinates and scale, as xarray opens them | the stored ids |
//! | `.png` (`png.rs`) | | the stored ids |
//!
//! Stored values are written unchanged, and the header says how to scale them, so a file contains
//! exactly what the dataset contains. `.npy` has no header for this. If ENVI's divisor cannot
//! express `scale_factor`, values are scaled, in a type wide enough that dividing and rounding
//! gives the stored values back. ENVI and TIFF files contain the georeferencing, if the dataset has
//! one. `raster.rs` describes what all writers write, from a dataset or from a computed map
//! (`map.rs`). Files get their names when they are complete, and the chunk size limits the memory
//! that is needed.

mod envi;
mod geo_keys;
mod map;
mod map_info;
mod npy;
mod png;
mod raster;
mod tiff;
mod zarr;

use std::path::{Path, PathBuf};

use hsipack_format::metadata::Scaling;
use hsipack_format::{Command, DType, Error, Opt, Result, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::folder::check_outside;
use hsipack_store::{Dataset, Stack, output};
use serde::Serialize;

pub use map::{MapOptions, WrittenMap, write_map};

use crate::convert::integers;
use crate::target;
use raster::Raster;

/// The array to export, and its file. The feature `clap` makes these options arguments of
/// `hsipack export`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ExportOptions {
    /// A packed dataset: a folder, or its URL
    pub dataset: PathBuf,
    /// Sample of a dataset to export: its id, counted from 0, or its name. If it may be both, write
    /// id:3 or name:3
    #[cfg_attr(feature = "clap", arg(long, value_name = "N|NAME"))]
    pub sample: String,
    /// The file to write
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "FILE"))]
    pub output: PathBuf,
    /// Export this mask instead of the cube: .npy, .hdr (ENVI classification), .tif, .zarr or
    /// .png
    /// [default: the cube]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub mask: Option<String>,
    /// Overwrite the output if it exists [default: an existing file is an error]
    #[cfg_attr(feature = "clap", arg(long))]
    pub force: bool,
}

/// The result of an export.
#[derive(Clone, Debug, Serialize)]
pub struct Exported {
    /// Paths of all files.
    pub files: Vec<PathBuf>,
    /// Id of the sample.
    pub sample: usize,
    /// Its name.
    pub name: String,
    /// Rows, columns, bands.
    pub shape: [usize; 3],
    /// Type of the values in the file.
    pub dtype: &'static str,
    /// Factor from values in the file to physical values; 1 if they are physical.
    pub scale_factor: f64,
    /// Offset that is added to values in the file × `scale_factor`; 0 if they are physical.
    pub add_offset: f64,
    /// Notes for the user.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Npy,
    Envi,
    Tiff,
    Png,
    Zarr,
}

/// Exports a sample.
///
/// # Errors
/// If there is no such sample or mask, the extension is not that of a format, a file exists, or
/// reading or writing fails. No file is then left behind.
pub fn export(options: &ExportOptions) -> Result<Exported> {
    let kind = kind(&options.output, options.mask.is_some())?;
    if kind == Kind::Zarr {
        check_outside(&options.output)?;
    }
    let files = files(&options.output, kind);
    output::check_absent(&files, options.force)?;
    let dataset = Dataset::open(&options.dataset)?;
    let id = target::find_sample(dataset.samples(), dataset.path(), &options.sample)?;
    let sample = dataset.samples().get(id)?;
    let raster = Raster::of_sample(&dataset, &sample, options.mask.as_deref())?;
    let (dtype, scaling, notes) = write(kind, &raster, &files)?;
    let shape = raster.shape;
    Ok(Exported {
        files,
        sample: sample.id,
        name: sample.name.clone(),
        shape: [shape.rows, shape.columns, shape.bands],
        dtype: dtype.name(),
        scale_factor: scaling.factor,
        add_offset: scaling.offset,
        notes,
    })
}

/// The result of a writer: the type of the written values, their scaling to physical values, and
/// notes.
type Written = (DType, Scaling, Vec<String>);

fn write(kind: Kind, raster: &Raster<'_>, files: &[PathBuf]) -> Result<Written> {
    match kind {
        Kind::Npy => npy::write(raster, &files[0]),
        Kind::Envi => envi::write(raster, &files[0], &files[1]),
        Kind::Tiff => tiff::write(raster, &files[0]),
        Kind::Png => png::write(raster, &files[0]),
        Kind::Zarr => zarr::write(raster, &files[0]),
    }
}

fn kind(output: &Path, mask: bool) -> Result<Kind> {
    let ending = output.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    match (ending.as_str(), mask) {
        ("npy", _) => Ok(Kind::Npy),
        ("hdr" | "img", _) => Ok(Kind::Envi),
        ("tif" | "tiff", _) => Ok(Kind::Tiff),
        ("zarr", _) => Ok(Kind::Zarr),
        ("png", true) => Ok(Kind::Png),
        ("png", false) => {
            Err(Error::unsupported("only a mask of the dataset can be written as PNG")
                .at(output)
                .with_remedy(remedy![
                    "use .npy, .hdr, .tif or .zarr; ",
                    Command::Preview,
                    " draws a cube"
                ]))
        }
        _ => Err(Error::unsupported("no export format has this ending").at(output).with_remedy(
            if mask {
                "use .npy, .hdr (ENVI), .tif, .zarr or .png"
            } else {
                "use .npy, .hdr (ENVI), .tif or .zarr"
            },
        )),
    }
}

fn files(output: &Path, kind: Kind) -> Vec<PathBuf> {
    match kind {
        Kind::Envi => vec![output.with_extension("hdr"), output.with_extension("img")],
        _ => vec![output.to_owned()],
    }
}

/// The mask `name` of a stack.
///
/// # Errors
/// If there is no mask of that name. The error lists the existing masks.
pub(crate) fn find_mask<'a>(
    dataset: &Dataset,
    stack: &'a Stack,
    name: &str,
) -> Result<&'a ChunkArray> {
    stack.mask(name).ok_or_else(|| {
        let names: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
        let error = Error::conflict(format!("stack {} has no mask {name}", stack.name));
        error.at(dataset.path()).with_remedy(match names.as_slice() {
            [] => remedy!["it has no masks; pack them with ", Command::Convert.with(Opt::Mask)],
            names => format!("its masks are: {}", names.join(", ")).into(),
        })
    })
}

/// Converts stored values to float32, which holds float16 and the integers of images exactly.
fn to_f32(bytes: &[u8], dtype: DType, out: &mut Vec<f32>) {
    out.clear();
    if dtype == DType::F16 {
        let (halves, _) = bytes.as_chunks::<2>();
        out.extend(halves.iter().map(|half| half::f16::from_le_bytes(*half).to_f32()));
    } else if !dtype.is_float() {
        let mut numbers = Vec::new();
        integers::read(bytes, dtype, &mut numbers);
        out.extend(numbers.iter().map(|number| *number as f32));
    } else {
        let (singles, _) = bytes.as_chunks::<4>();
        out.extend(singles.iter().map(|single| f32::from_le_bytes(*single)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_names_the_format() {
        let of = |name: &str, mask| kind(Path::new(name), mask);
        assert_eq!(of("a.NPY", false).unwrap(), Kind::Npy);
        assert_eq!(of("a.b.tiff", false).unwrap(), Kind::Tiff);
        assert_eq!(of("a.img", true).unwrap(), Kind::Envi);
        assert_eq!(of("a.png", true).unwrap(), Kind::Png);
        assert_eq!(of("a.zarr/", false).unwrap(), Kind::Zarr);
        for (name, mask) in [("a.png", false), ("a", false), ("a.mat", true)] {
            let error = of(name, mask).unwrap_err();
            assert!(error.to_string().contains("use .npy"), "{error}");
        }
    }

    #[test]
    fn every_half_is_exact_in_single_precision() {
        let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
        let mut singles = Vec::new();
        to_f32(&bytes, DType::F16, &mut singles);
        for (bits, single) in singles.iter().enumerate() {
            let back = half::f16::from_f32(*single);
            // A signalling NaN becomes quiet; its sign and payload stay.
            let quiet = if back.is_nan() { 0x200 } else { 0 };
            assert_eq!(back.to_bits(), bits as u16 | quiet);
        }
    }
}
