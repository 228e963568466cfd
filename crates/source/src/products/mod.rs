//! Products of sensors as their makers define them: one file per product, all behind the trait
//! `Product`.
//!
//! The formats read stored numbers. A product says what they mean: gain and offset of each band,
//! unit, band centres and widths, bands that are bad or have no data, ignore values that no tag
//! states, and where the pixels lie.
//!
//! | product | in | recognised by |
//! |---|---|---|
//! | EnMAP L1B, L1C, L2A | `enmap.rs` | names of files, XML |
//! | DESIS L1B, L1C, L2A | `desis.rs` | names of files, XML or ENVI header |
//! | Wyvern L1B, L2A | `wyvern.rs` | names of files, JSON |
//! | AVIRIS classic, NG, 3 | `aviris.rs` | names of files; HDF5 layout |
//! | PRISMA L1 to L2D | `prisma.rs` | HDF5 layout |
//! | EMIT L1B, L2A | `emit.rs` | HDF5 layout |
//! | Tanager | `tanager.rs` | HDF5 layout |
//! | PACE OCI L1B, L2 | `pace.rs` | HDF5 layout |
//! | NEON | `neon.rs` | HDF5 layout |
//! | HySpex | `hyspex.rs` | the data file's name and first bytes |
//! | Delmic | `delmic.rs` | HDF5 layout |
//!
//! Each file starts with a table of what it recognises. A new product is a file, and a line in
//! `PRODUCTS`. `layers.rs` says what quality layers are made of, `start_time.rs` finds the time in
//! names of files. `delivery.rs` recognises files by their names, and `layout.rs` cubes by their
//! path in an HDF5 file. `dlr.rs` reads the lists of bands in the XML of EnMAP and DESIS, and
//! `eos.rs` the grids of HDF-EOS.

mod aviris;
mod delivery;
mod delmic;
pub mod desis;
pub mod dlr;
mod emit;
pub mod enmap;
mod eos;
pub mod hyspex;
pub(crate) mod layers;
mod layout;
mod neon;
mod pace;
mod prisma;
pub(crate) mod quality;
mod start_time;
mod tanager;
pub mod wyvern;

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

use self::delivery::{FileName, Found};
use super::{Acquisition, CubeInfo, OpenOptions, Source};
use crate::container::hdf5::Tree;
use crate::raster::jpeg2000;
use crate::reader::Described;

#[doc(hidden)]
pub use self::aviris::{parse_centres, parse_gain};
pub(crate) use self::delivery::Part;
#[doc(hidden)]
pub use self::eos::Grid;
pub(crate) use self::layers::{Layer, Test};
pub(crate) use self::layout::{Facts, ProductCube};

/// A product of a sensor.
pub(crate) trait Product: Sync {
    /// The sensor, as its maker spells it.
    fn sensor(&self) -> &'static str;

    /// The table of file names in a delivery. The first line that fits counts.
    fn files(&self) -> &'static [FileName] {
        &[]
    }

    /// Whether the metadata at `path`, which do not have the product's name, are of this product.
    fn owns(&self, _path: &Path) -> bool {
        false
    }

    /// Adds to `info` what the product defines about the cube in a file from
    /// [`files`](Self::files).
    ///
    /// # Errors
    /// If a part of the delivery is missing, cannot be read, or disagrees with the cube.
    fn describe(&self, _file: &Found, _info: &mut CubeInfo) -> Result<()> {
        Ok(())
    }

    /// Adds to `info` what the product defines about a cube that its own format has read. Returns
    /// whether the cube belongs to the product.
    ///
    /// # Errors
    /// As [`describe`](Self::describe).
    fn describe_cube(&self, _info: &mut CubeInfo) -> Result<bool> {
        Ok(false)
    }

    /// The cubes of an HDF5 file that has the product's layout; empty if it has another.
    fn cubes(&'static self, _tree: &Tree) -> Vec<ProductCube> {
        Vec::new()
    }

    /// The product's description of a cube from [`cubes`](Self::cubes) with `bands` bands.
    fn facts(&self, _cube: &ProductCube, _tree: &Tree, _bands: usize) -> Facts {
        Facts::default()
    }

    /// Whether the cube and the others in its file have the same grid, so that they can be joined.
    fn is_joinable(&self, _cube: &ProductCube) -> bool {
        false
    }

    /// The quality layers beside a cube in a file from [`files`](Self::files).
    fn quality_files(&self, _file: &Found) -> Vec<Layer> {
        Vec::new()
    }

    /// The quality layers of a cube from [`cubes`](Self::cubes), in the file at `path`.
    fn quality_datasets(&self, _cube: &ProductCube, _tree: &Tree, _path: &Path) -> Vec<Layer> {
        Vec::new()
    }

    /// Why the cube cannot be used, and what to do instead.
    fn refusal(&self, _cube: &ProductCube) -> Option<(&'static str, &'static str)> {
        None
    }
}

/// All products. If several recognise a file, the first one counts.
static PRODUCTS: [&dyn Product; 11] = [
    &enmap::Enmap,
    &desis::Desis,
    &wyvern::Wyvern,
    &aviris::Aviris,
    &prisma::Prisma,
    &emit::Emit,
    &tanager::Tanager,
    &pace::Pace,
    &neon::Neon,
    &delmic::Delmic,
    &hyspex::Hyspex,
];

/// The cubes of the product whose layout an HDF5 file has; empty if it has none of these layouts.
pub(super) fn cubes(tree: &Tree) -> Vec<ProductCube> {
    let all = PRODUCTS.into_iter().map(|product| product.cubes(tree));
    all.into_iter().find(|cubes| !cubes.is_empty()).unwrap_or_default()
}

/// Opens a cube, with `plain` for its own format. If it belongs to a product, adds what the product
/// defines about it.
///
/// # Errors
/// If a part of the delivery is missing or contradicts another, if the delivery has several cubes
/// and the user names none, or if the cube cannot be read.
pub(super) fn open(
    path: &Path,
    options: &OpenOptions,
    plain: impl Fn(&Path, &OpenOptions) -> Result<Box<dyn Source>>,
) -> Result<Box<dyn Source>> {
    let Some(found) = part_of(path, options)? else {
        let source = plain(path, options)?;
        return if options.mask { Ok(source) } else { described(source) };
    };
    let mut inner = options.clone();
    let image = match found.part {
        Part::Layer => return plain(path, options),
        Part::Image(_) | Part::Plain(_) => found,
        Part::Metadata => choose(path, found.images(), &found, &mut inner.variable)?,
    };
    // Some products are also delivered as JPEG 2000.
    if jpeg2000::is_named(&image.path) {
        return Err(jpeg2000::refusal(&image.path));
    }
    let source = plain(&image.path, &inner)?;
    let mut info = source.info().clone();
    image.product.describe(&image, &mut info)?;
    info.acquisition = Some(acquisition(image.product, &image.path));
    Ok(Box::new(Described { info, source }))
}

/// With what and when the cube of a product in `file` was measured.
pub(super) fn acquisition(product: &dyn Product, file: &Path) -> Acquisition {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Acquisition { sensor: product.sensor(), time: start_time::in_name(&name) }
}

/// Adds to a cube what a product says about it, if one recognises the cube by what its format has
/// read.
fn described(source: Box<dyn Source>) -> Result<Box<dyn Source>> {
    let mut info = source.info().clone();
    for product in PRODUCTS {
        if product.describe_cube(&mut info)? {
            info.acquisition = Some(acquisition(product, &info.files[0]));
            return Ok(Box::new(Described { info, source }));
        }
    }
    Ok(source)
}

/// Which part of a delivery `path` is: the file itself, or the files in the folder.
pub(crate) fn part_of(path: &Path, options: &OpenOptions) -> Result<Option<Found>> {
    if options.mask {
        return Ok(None);
    }
    if !path.is_dir() {
        return Ok(delivery::find(path));
    }
    let found = delivery::in_folder(path)?;
    let Some(first) = found.first() else { return Ok(None) };
    if found.iter().any(|other| other.base != first.base) {
        let images = found.iter().filter(|image| matches!(image.part, Part::Image(_)));
        return Err(Error::ambiguous("the folder holds several products")
            .at(path)
            .with_remedy(format!("give one of {}", listing(images))));
    }
    // A folder is treated like the metadata, which belong to all cubes of the delivery.
    let (path, base) = (first.path.clone(), first.base.clone());
    Ok(Some(Found { product: first.product, part: Part::Metadata, path, base }))
}

/// The cube to open if the user gives metadata or a folder: the only one, or the one named in
/// `variable`, which this empties.
pub(crate) fn choose(
    path: &Path,
    images: Vec<Found>,
    metadata: &Found,
    variable: &mut Option<String>,
) -> Result<Found> {
    let wanted = variable.take();
    let is_wanted = |image: &Found| match (&wanted, image.part) {
        (Some(wanted), Part::Image(name)) => name.eq_ignore_ascii_case(wanted),
        _ => true,
    };
    let all = listing(images.iter());
    let none = images.is_empty();
    let mut fitting: Vec<Found> = images.into_iter().filter(is_wanted).collect();
    match fitting.len() {
        1 => Ok(fitting.remove(0)),
        0 if none => Err(Error::malformed("the image of this product is missing")
            .at(path)
            .with_remedy(format!("put {} beside its metadata", metadata.image_names()))),
        0 => Err(Error::conflict(format!(
            "there is no image '{}' in this product",
            wanted.unwrap_or_default()
        ))
        .at(path)
        .with_remedy(format!("give one of {all}"))),
        _ => Err(Error::ambiguous("the product has several images")
            .at(path)
            .with_remedy(format!("give one of {all}"))),
    }
}

/// The file names of cubes, with the names to give after `::`.
fn listing<'f>(images: impl Iterator<Item = &'f Found>) -> String {
    let name = |image: &Found| {
        let file = image.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match image.part {
            Part::Image(name) if !name.is_empty() => format!("{file} (::{name})"),
            _ => file,
        }
    };
    images.map(name).collect::<Vec<_>>().join(", ")
}

/// Whether a file found in a folder is not a cube to pack although its format may be one of cubes:
/// metadata of a product, or a quality layer.
pub(super) fn is_beside_a_cube(path: &Path) -> bool {
    delivery::find(path).is_some_and(|found| matches!(found.part, Part::Metadata | Part::Layer))
}

/// Whether a file found in a folder is a product's cube in a format that is not read, and no other
/// file holds the same cube. It is opened nevertheless, so that the error names it.
pub(super) fn is_unread_cube(path: &Path) -> bool {
    jpeg2000::is_named(path)
        && delivery::find(path).is_some_and(|found| {
            matches!(found.part, Part::Image(_))
                && found.images().iter().any(|image| image.path == path)
        })
}

/// Whether the file at `path` is part of a product's delivery, by its name.
pub(super) fn is_of_delivery(path: &Path) -> bool {
    delivery::find(path).is_some()
}

/// Whether a folder holds a product's cube or its metadata.
pub fn is_product_folder(path: &Path) -> bool {
    path.is_dir() && delivery::in_folder(path).is_ok_and(|found| !found.is_empty())
}

/// The cubes of the delivery whose metadata are at `path`. Empty if `path` is something else, or no
/// cube is there.
pub fn images_of_metadata(path: &Path) -> Vec<PathBuf> {
    match delivery::find(path) {
        Some(found) if found.part == Part::Metadata => {
            found.images().into_iter().map(|image| image.path).collect()
        }
        _ => Vec::new(),
    }
}
