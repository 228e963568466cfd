//! Source readers: one folder or file per format, all behind [`Source`].
//!
//! A source opens a cube, says what it knows about it ([`CubeInfo`]) and returns image rows in (row, column, band) order,
//! whatever the order in the file, with bounded memory. It returns the numbers as they are stored. Masking, scaling and the
//! cast to float16 come later, in [`crate::convert`].
//!
//! | format | in | parts |
//! |---|---|---|
//! | ENVI header + data (bsq, bil, bip; gzip) | `envi/` | `search`, `header`, `fields`, `bands`, `map_info`, `esri` |
//! | `.npy`, `.npz` | `numpy/` | `header`, `npz` |
//! | MATLAB v5 `.mat` | `matlab/` | `v5` |
//! | HDF5, NetCDF-4, HDF-EOS, MATLAB v7.3 | `hdf5/` | `tree`, `heaps`, `storage`, `inflate`, `choose`, `meaning`, `axes`, `grid`, `spectral`, `read` |
//! | TIFF, GeoTIFF, BigTIFF | `tiff/` | `directory`, `pages`, `planes`, `chunks`, `description`, `gdal_metadata`, `geo_keys` |
//! | Zarr v2, v3 | `zarr/` | `metadata`, `choose`, `axes`, `grid`, `spectral`, `chunks`, `inflate`, `decoded` |
//! | HTC `.blosc` | `htc/` | `pickle`, `blosc_frame` |
//! | Tivita `*_SpecCube.dat` | `tivita.rs` | |
//! | PNG, for masks | `png.rs` | |
//! | JPEG 2000, refused by name | `jpeg2000.rs` | |
//!
//! [`products`] says what the numbers of a sensor's product mean, in any format: one file per product.
//!
//! Several formats share these files. `flat.rs` is the engine for every format that is one n-d array in a stretch of bytes.
//! `radiometry.rs` reads background and gain of each column from files that hold them. `variables.rs` picks the cube among
//! the arrays of a container, and `joined.rs` makes one cube of several. `cube_axes.rs` determines which axes of an array
//! are the cube's. `band_lists.rs` reads what the arrays beside a cube say about its bands. `wavelengths.rs` knows units,
//! `georeference.rs` reference systems, and `cf.rs` the grids of NetCDF and Zarr. `xml.rs` parses XML within limits.
//! `detect.rs` detects the format of a file; a new format is a line there.

mod band_lists;
mod buffer;
mod cf;
mod cube_axes;
mod detect;
pub mod envi;
pub mod flat;
pub(crate) mod georeference;
pub mod hdf5;
pub mod htc;
mod joined;
mod jpeg2000;
pub mod matlab;
pub mod numpy;
pub mod png;
pub mod products;
mod radiometry;
pub mod tiff;
pub mod tivita;
mod variables;
mod wavelengths;
mod xml;
pub mod zarr;

use std::ops::Range;
use std::path::PathBuf;

use hsipack_format::{CubeShape, DType, Geo, Result};

pub use buffer::RowBuffer;
pub use cube_axes::Axes;
pub use detect::{is_container_folder, is_cube_file, open};
pub use products::{images_of_metadata, is_product_folder};
pub use radiometry::{PlaceScaling, Radiometry};
pub use wavelengths::guess as guess_wavelength_unit;

/// How the numbers in a file become physical values: `value * multiply / divide + add`.
///
/// Multiplier and divisor are separate because headers give either, and 1/10000 is not exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Multiplied with the stored number (GDAL SCALE, CF scale_factor).
    pub multiply: f64,
    /// Divides the stored number (ENVI `reflectance scale factor`, NEON `Scale_Factor`).
    pub divide: f64,
    /// Added last (GDAL OFFSET, CF add_offset).
    pub add: f64,
}

impl Scaling {
    /// Leaves numbers as they are.
    pub const NONE: Scaling = Scaling { multiply: 1.0, divide: 1.0, add: 0.0 };

    /// Whether numbers stay as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The physical value of a stored number.
    pub fn physical(&self, value: f64) -> f64 {
        let scaled = value * self.multiply / self.divide;
        // Adding 0 would turn -0.0 into 0.0.
        if self.add == 0.0 { scaled } else { scaled + self.add }
    }
}

/// How long the sensor gathered light, as a file states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    /// The field that states it, such as `tint`.
    pub field: String,
    /// The number in this field.
    pub time: f64,
    /// The unit after the number; empty if there is none.
    pub unit: String,
}

impl Exposure {
    /// This time as a multiple of `other`; `None` if the two differ in field or unit.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let alike = self.field == other.field && self.unit == other.unit;
        alike.then_some(self.time / other.time)
    }
}

impl std::fmt::Display for Exposure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}", self.field, self.time)?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// What a file says about its cube.
#[derive(Clone, Debug)]
pub struct CubeInfo {
    /// The format's name as users know it, e.g. `ENVI BIL`, `MATLAB v5`, `GeoTIFF`.
    pub format: String,
    /// Rows × columns × bands.
    pub shape: CubeShape,
    /// Type of the stored numbers, which is also the type [`Source::read_rows`] yields.
    pub dtype: DType,
    /// Band centres in nm, one per band.
    pub wavelength: Option<Vec<f64>>,
    /// Full width at half maximum in nm, one per band.
    pub fwhm: Option<Vec<f64>>,
    /// The file's own bad-band list, one entry per band: `true` is a good band.
    pub good_bands: Option<Vec<bool>>,
    /// Names of the bands, one per band.
    pub band_names: Option<Vec<String>>,
    /// The number that marks missing data, in stored units.
    pub ignore_value: Option<f64>,
    /// The scaling from stored numbers to physical values, if it is the same for all bands; otherwise [`Scaling::NONE`].
    pub scaling: Scaling,
    /// The scaling of each band, if bands differ. It replaces `scaling`.
    pub band_scaling: Option<Vec<Scaling>>,
    /// Background and gain of each column and band, if the file holds them. They are applied after the scaling.
    pub radiometry: Option<Radiometry>,
    /// Bands, counted from 0, that have no data according to the product. The numbers stored for them mean nothing.
    pub empty_bands: Vec<usize>,
    /// The unit of physical values as the product's maker writes it, such as `W/(m2 sr nm)`.
    pub unit: Option<String>,
    /// The integration time.
    pub exposure: Option<Exposure>,
    /// Names of classes 0, 1, …, for classification maps.
    pub class_names: Option<Vec<String>>,
    /// Where the pixels lie on Earth.
    pub geo: Option<Geo>,
    /// What the user should know: header keys that were dropped because they contradict each other, and guesses.
    pub notes: Vec<String>,
    /// Every file that holds part of the cube; the first is the one to name in messages.
    pub files: Vec<PathBuf>,
}

impl CubeInfo {
    /// A cube of which only shape and type are known.
    pub fn new(
        format: impl Into<String>,
        shape: CubeShape,
        dtype: DType,
        file: impl Into<PathBuf>,
    ) -> Self {
        Self {
            format: format.into(),
            shape,
            dtype,
            wavelength: None,
            fwhm: None,
            good_bands: None,
            band_names: None,
            ignore_value: None,
            scaling: Scaling::NONE,
            band_scaling: None,
            radiometry: None,
            empty_bands: Vec::new(),
            unit: None,
            exposure: None,
            class_names: None,
            geo: None,
            notes: Vec::new(),
            files: vec![file.into()],
        }
    }

    /// Sets the scaling of every band. If all are the same, they become one scaling for all bands.
    pub fn scale_bands(&mut self, scaling: Vec<Scaling>) {
        let alike = scaling.windows(2).all(|pair| pair[0] == pair[1]);
        (self.scaling, self.band_scaling) = match scaling.first() {
            Some(_) if !alike => (Scaling::NONE, Some(scaling)),
            first => (first.copied().unwrap_or(Scaling::NONE), None),
        };
    }

    /// Whether stored numbers are not physical values yet.
    pub fn is_scaled(&self) -> bool {
        self.band_scaling.is_some() || self.radiometry.is_some() || !self.scaling.is_none()
    }

    /// The scaling of `band`.
    pub fn scaling_of(&self, band: usize) -> Scaling {
        self.band_scaling.as_ref().map_or(self.scaling, |bands| bands[band])
    }

    /// Bytes of an image row as [`Source::read_rows`] returns it.
    pub fn row_bytes(&self) -> usize {
        self.shape.row_values() * self.dtype.size()
    }
}

/// In which order rows can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any rows at any time, from several threads at once.
    Random,
    /// Reading rows from first to last is cheap; going back starts over (a compressed stream). Other orders and several
    /// threads are still correct, only slow.
    Sequential,
}

/// A cube in a file.
pub trait Source: Send + Sync {
    /// What the file says about the cube.
    fn info(&self) -> &CubeInfo;

    /// In which order to read rows.
    fn access(&self) -> Access;

    /// How many rows to read at a time so that reading is cheap, if one read may use about `budget` bytes (for its output
    /// and its working memory). At least 1, at most the number of rows. Reading fewer or more rows must work, too.
    fn preferred_rows(&self, budget: usize) -> usize {
        let _ = budget;
        1
    }

    /// Reads image rows `rows` into `out`, in (row, column, band) order, native byte order, as
    /// [`CubeInfo::dtype`]. `rows` lies within the cube.
    ///
    /// # Errors
    /// If the file cannot be read, or turns out to be malformed.
    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()>;

    /// Whether [`read_band`](Self::read_band) reads little more than the requested values: the values of a band, or of a
    /// line of a band, are contiguous in the file, and any offset is cheap to read.
    fn has_cheap_bands(&self) -> bool {
        false
    }

    /// Reads rows `rows` of only the band `band` into `out`, in (row, column) order; otherwise like
    /// [`read_rows`](Self::read_rows).
    ///
    /// # Errors
    /// Those of [`read_rows`](Self::read_rows).
    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        read_band_of_rows(self, band, rows, out)
    }
}

/// [`Source::read_band`], by reading rows of all bands.
fn read_band_of_rows<S: Source + ?Sized>(
    source: &S,
    band: usize,
    rows: Range<usize>,
    out: &mut RowBuffer,
) -> Result<()> {
    let CubeInfo { shape, dtype, .. } = source.info();
    let (step, size) = (shape.bands * dtype.size(), dtype.size());
    let mut all = RowBuffer::new();
    source.read_rows(rows, &mut all)?;
    let spectra = all.bytes().chunks_exact(step);
    let to = out.reset(*dtype, spectra.len()).chunks_exact_mut(size);
    for (value, spectrum) in to.zip(spectra) {
        value.copy_from_slice(&spectrum[band * size..][..size]);
    }
    Ok(())
}

/// How many rows to read at once if `together` rows lie in the same chunks: at least `wanted`, in whole runs of `together`,
/// as far as `affordable` allows. All three are at least 1, and so is the result.
fn whole_runs(wanted: usize, together: usize, affordable: usize) -> usize {
    let rows = wanted.next_multiple_of(together).min(affordable);
    if rows > together { rows - rows % together } else { rows }
}

/// The three axes of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Image rows (y).
    Row,
    /// Image columns (x).
    Column,
    /// Bands (b).
    Band,
}

/// The meaning of an array's axes in index order, slowest in C order first; `yxb` is (row, column, band).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisOrder(pub [Axis; 3]);

impl AxisOrder {
    /// Band-interleaved by pixel: (row, column, band).
    pub const BIP: AxisOrder = AxisOrder([Axis::Row, Axis::Column, Axis::Band]);
    /// Band-interleaved by line: (row, band, column).
    pub const BIL: AxisOrder = AxisOrder([Axis::Row, Axis::Band, Axis::Column]);
    /// Band-sequential: (band, row, column).
    pub const BSQ: AxisOrder = AxisOrder([Axis::Band, Axis::Row, Axis::Column]);

    /// Parses an order spelled with the letters `y`, `x`, `b`, each once; `None` if the text is something else.
    pub fn parse(text: &str) -> Option<AxisOrder> {
        let axes = Axes::parse(text)?;
        axes.of_three().ok()
    }

    /// The same axes in reverse: the order in C of an array that is stored in Fortran order.
    pub fn reversed(self) -> AxisOrder {
        let [a, b, c] = self.0;
        AxisOrder([c, b, a])
    }

    /// The position of `axis`, 0 to 2.
    pub fn position(self, axis: Axis) -> usize {
        self.0.iter().position(|a| *a == axis).expect("each axis occurs once")
    }

    /// The cube shape of an array with these `lengths` in index order.
    pub fn shape(self, lengths: [usize; 3]) -> CubeShape {
        CubeShape::new(
            lengths[self.position(Axis::Row)],
            lengths[self.position(Axis::Column)],
            lengths[self.position(Axis::Band)],
        )
    }

    /// The lengths in index order of an array that holds a cube of `shape`.
    pub fn lengths(self, shape: CubeShape) -> [usize; 3] {
        self.0.map(|axis| match axis {
            Axis::Row => shape.rows,
            Axis::Column => shape.columns,
            Axis::Band => shape.bands,
        })
    }
}

impl std::fmt::Display for AxisOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for axis in self.0 {
            f.write_str(match axis {
                Axis::Row => "y",
                Axis::Column => "x",
                Axis::Band => "b",
            })?;
        }
        Ok(())
    }
}

/// How to open a file: what the user gives besides its path.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The variable inside a container (`file::variable`).
    pub variable: Option<String>,
    /// The axes of an array as the user names them (`axes`), in the index order that the format's own tools show (NumPy's,
    /// MATLAB's, h5py's).
    pub axes: Option<Axes>,
    /// Whether the file is a mask: images, and 2-D arrays as a single band, are accepted.
    pub mask: bool,
    /// Rows and columns of the image to which a mask belongs. In a MATLAB file, a column or row with as many values is
    /// folded to this shape, as `reshape` does.
    pub image: Option<[usize; 2]>,
}
