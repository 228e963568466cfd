//! Labels that are not class ids in a raster of the cube's size, as such a raster.
//!
//! | file | labels |
//! |---|---|
//! | `colored.rs`, `color_table.rs` | pictures with a colour for each class, and files that say which |
//! | `resample.rs`, `alignment.rs` | rasters on another grid, and whether two lie on each other |
//! | `vector.rs`, `features.rs` | polygons, lines and points on a map, with the attribute that says their classes |
//! | `geojson.rs`, `shapefile.rs`, `dbase.rs` | files of such features |
//! | `geopackage.rs`, `sqlite.rs`, `wkb.rs` | the same in GeoPackages |
//! | `coco.rs`, `annotated.rs`, `runs.rs` | annotations of pictures in pixels, in one file for all cubes |
//! | `labelme.rs`, `envi_roi.rs` | shapes in pixels, in a file for each cube |
//! | `json.rs` | what readers of JSON have in common |
//! | `boxes/` | bounding boxes, which are no masks |
//! | `cube_names.rs` | which entry of a file for several cubes means a cube |
//! | `crs.rs` | coordinates in another reference system |
//! | `classes.rs` | values of an attribute as classes |
//! | `shapes.rs`, `rasterize.rs`, `burned.rs` | shapes in pixels, the pixels that they cover, and a mask of them |
//!
//! Each mask is a [`Source`] with one band, so that whatever reads masks reads labels, too.

mod alignment;
mod annotated;
pub mod boxes;
mod burned;
mod classes;
mod coco;
mod color_table;
mod colored;
mod crs;
mod cube_names;
mod dbase;
mod envi_roi;
mod features;
mod geojson;
mod geopackage;
mod json;
mod labelme;
mod rasterize;
mod resample;
mod runs;
mod shapefile;
mod shapes;
mod sqlite;
mod vector;
mod wkb;

use std::path::Path;

use hsipack_format::{Error, Geo, Opt, Result, remedy};

pub use self::alignment::Alignment;
pub use self::color_table::read_colors;
pub use self::colored::ClassColor;
pub use self::crs::Conversion;
pub use self::cube_names::{CubeNames, Entries};
pub use self::resample::Resampling;
use crate::{OpenOptions, Source};

/// How to open labels, besides their path.
#[derive(Clone, Debug)]
pub struct LabelOptions<'a> {
    /// The variable in a container, or the attribute of features.
    pub variable: Option<String>,
    /// Rows and columns of the cube.
    pub image: [usize; 2],
    /// Which sample of an array of samples is the mask.
    pub sample: Option<usize>,
    /// Number of samples of that array, if it is known.
    pub samples: Option<usize>,
    /// The names of the cube, for files that hold the labels of several.
    pub cube: &'a CubeNames,
    /// Where the cube lies on Earth.
    pub geo: Option<&'a Geo>,
    /// The colours of classes, if labels are colours.
    pub colors: &'a [ClassColor],
    /// How labels on another grid become labels of the cube's pixels. Without it they keep their
    /// grid.
    pub resampling: Option<Resampling>,
    /// Whether features and shapes cover every pixel that they touch, not only those whose centre
    /// is inside.
    pub all_touched: bool,
}

/// Forgets the file of labels of several cubes that was read last.
pub(crate) fn forget() {
    coco::forget();
    boxes::forget();
}

/// Opens the labels in `path`, a raster in any known format or a file of features.
///
/// # Errors
/// If the file cannot be read, or the options do not fit it.
pub fn open(path: &Path, options: &LabelOptions<'_>) -> Result<Box<dyn Source>> {
    if let Some(source) = vector::open(path, options)? {
        return Ok(source);
    }
    let raster = OpenOptions {
        variable: options.variable.clone(),
        mask: true,
        colors: !options.colors.is_empty(),
        // An array of another size is not folded to the size of the cube.
        image: options.resampling.is_none().then_some(options.image),
        sample: options.sample,
        samples: options.samples,
        ..OpenOptions::default()
    };
    let mut source = crate::open(path, &raster)?;
    if !options.colors.is_empty() {
        source = colored::classes_of(source, options.colors)?;
    }
    match options.resampling {
        Some(resampling) => resample::onto(source, options, resampling),
        None => refuse_other_place(&*source, options).map(|()| source),
    }
}

/// Refuses a raster of the cube's size that lies elsewhere on Earth, which would give the cube
/// labels of another place.
fn refuse_other_place(source: &dyn Source, options: &LabelOptions<'_>) -> Result<()> {
    let info = source.info();
    let (Some(cube), Some(mask)) = (options.geo, &info.geo) else { return Ok(()) };
    let size = [info.shape.rows, info.shape.columns];
    let alignment = Alignment::of(cube, options.image, mask, size);
    if size != options.image || alignment != Alignment::Elsewhere {
        return Ok(());
    }
    Err(Error::conflict("its pixels lie elsewhere on Earth than those of its cube, by the coordinates in both files")
        .at(&info.files[0])
        .with_remedy(remedy![
            "bring it to the pixels of the cube with ",
            Opt::MaskResample.to("nearest"),
            ", or correct or remove the coordinates of one of the files"
        ]))
}
