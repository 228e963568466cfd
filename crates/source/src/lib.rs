//! Reads hyperspectral cubes from the files of cameras, satellites and benchmarks, with what the files say about their
//! bands, values and place on Earth.
//!
//! A source opens a cube, says what it knows about it ([`CubeInfo`]) and returns image rows in (row, column, band) order,
//! whatever the order in the file, with bounded memory. It returns the numbers as they are stored. Masking, scaling and the
//! cast to float16 come later, in `hsipack-pack`.
//!
//! ```no_run
//! use hsipack_source::{OpenOptions, RowBuffer};
//!
//! let source = hsipack_source::open("scene.hdr".as_ref(), &OpenOptions::default())?;
//! println!("{} of {}", source.info().shape, source.info().dtype);
//! let mut rows = RowBuffer::new();
//! source.read_rows(0..1, &mut rows)?;
//! # Ok::<(), hsipack_format::Error>(())
//! ```
//!
//! | format | in | parts |
//! |---|---|---|
//! | ENVI header + data (bsq, bil, bip; gzip) | `envi/` | `search`, `header`, `fields`, `bands`, `map_info`, `esri`, `tiff` |
//! | `.npy`, `.npz` | `numpy/` | `header`, `npz` |
//! | MATLAB v5 `.mat` | `matlab/` | `v5` |
//! | HDF5, NetCDF-4, HDF-EOS, MATLAB v7.3 | `hdf5/` | `file`, `tree`, `heaps`, `storage`, `inflate`, `choose`, `meaning`, `read` |
//! | TIFF, GeoTIFF, BigTIFF | `tiff/` | `directory`, `pages`, `planes`, `chunks`, `description`, `spectrum`, `gdal_metadata`, `geo_keys` |
//! | Zarr v2, v3 | `zarr/` | `metadata`, `choose`, `tree`, `chunks`, `inflate`, `decoded` |
//! | HTC `.blosc` | `htc/` | `pickle`, `blosc_frame` |
//! | Tivita `*_SpecCube.dat` | `tivita.rs` | |
//! | HSD (`.hsd`) of Hyperspectral City | `hsd.rs` | |
//! | PNG, for masks and pictures; JPEG, for pictures | `png.rs`, `jpeg.rs` | |
//! | JPEG 2000, NetCDF-3, HDF4, FITS and others, refused by name | `foreign.rs`, `jpeg2000.rs` | |
//!
//! [`labels`] makes masks of class ids of everything that is not one: colours, other grids, polygons on maps.
//!
//! [`products`] says what the numbers of a sensor's product mean, in any format: one file per product.
//!
//! `reader.rs` is the trait [`Source`], `cube_info.rs` what a source says about its cube. Several formats share these files.
//! `flat/` is the engine for every format that is one n-d array in a stretch of bytes.
//! `side_file.rs` adds what GDAL's side files say, and `spectrum_text.rs` reads spectra in texts.
//! `radiometry.rs` reads background and gain of each column from files that hold them. `variables.rs` picks the cube among
//! the arrays of a container, and `joined.rs` makes one cube of several, `band_files.rs` one
//! of a file for each band, `mosaic.rs` one of the frame of a snapshot camera, and `resampled.rs` one with other bands.
//! `axes.rs` has the axes as the user names them.
//! `container/` is the view that HDF5, Zarr, MATLAB and `.npz` share: a tree of arrays with attributes. `meaning/` decides
//! what these arrays mean: axes, bands, values, location. `wavelengths.rs` knows units,
//! `georeference.rs` reference systems, and `cf.rs` the grids of NetCDF and Zarr. `xml.rs` parses XML within limits.
//! `band_list.rs` reads band centres from files of their own. `listing.rs` lists the arrays of a container, and `recent.rs`
//! remembers such lists. `quality.rs` opens the quality layers of products, and `cube_size.rs` says how large cubes may be.
//! `detect.rs` detects the format of a file; a new format is a line there.
#![deny(missing_docs)]

pub mod array_geo;
mod axes;
mod axis_order;
mod band_files;
pub(crate) mod band_list;
mod buffer;
mod cf;
mod container;
mod cube_axes;
mod cube_info;
mod cube_size;
mod detect;
pub mod envi;
pub mod flat;
mod foreign;
pub(crate) mod georeference;
pub mod hdf5;
pub mod hsd;
pub mod htc;
mod joined;
mod jpeg;
mod jpeg2000;
pub mod labels;
mod lengths;
mod listing;
pub mod matlab;
mod meaning;
mod mosaic;
pub mod numpy;
mod open_options;
pub mod png;
pub mod products;
mod quality;
mod radiometry;
mod reader;
mod recent;
mod release;
mod resampled;
mod side_file;
mod small_array;
mod spectra_table;
mod spectrum_text;
mod text;
pub mod tiff;
pub mod tivita;
mod variables;
mod wavelengths;
mod xml;
pub mod zarr;

pub use axes::Axes;
pub use axis_order::{Axis, AxisOrder};
pub use band_files::{BandPattern, BandsOfCube};
#[doc(hidden)]
pub use band_list::band_numbers;
pub use band_list::{band_centers, parse_band_centers};
pub use buffer::RowBuffer;
pub use cube_info::{Acquisition, CubeInfo, Exposure, PlaceScaling, Radiometry, Scaling};
pub use detect::{
    Other, data_of, is_container_folder, is_cube_file, is_picture, is_raw_data_of,
    is_unread_archive, needs_header, open, other,
};
pub use listing::{Listed, arrays, number_of_samples};
pub use meaning::AXES_GUESSED;
pub use mosaic::{Mosaic, demosaic, open_frame};
pub use open_options::OpenOptions;
pub use products::{images_of_metadata, is_product_folder};
pub use quality::{QualityLayers, quality, quality_names};
pub use reader::{Access, Source, described};
pub(crate) use reader::{read_band_of_rows, whole_runs};
pub use recent::Recent;
pub use release::release_samples;
pub use resampled::{BandGrid, resampled};
pub use small_array::{SmallArray, small_array};
pub use spectra_table::SpectraTable;
#[doc(hidden)]
pub use spectra_table::spectra_header;
pub use wavelengths::guess as guess_wavelength_unit;
