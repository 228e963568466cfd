//! Reads hyperspectral cubes from the files of cameras, satellites and benchmarks, with what the
//! files say about their bands, values and place on Earth.
//!
//! A source opens a cube, says what it knows about it ([`CubeInfo`]) and returns image rows in
//! (row, column, band) order, whatever the order in the file, with bounded memory. It returns the
//! numbers as they are stored. Masking, scaling and the cast to float16 come later, in
//! `hsipack-pack`.
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
//! | folder or file | what is there |
//! |---|---|
//! | `flat/` | the engine for every format that is one n-d array in a stretch of bytes; ENVI, NumPy, HTC, Tivita, HSD |
//! | `container/` | the view that trees of named arrays share; HDF5 and NetCDF-4, Zarr, MATLAB |
//! | `raster/` | TIFF; PNG, for masks and pictures; JPEG |
//! | `foreign.rs` | NetCDF-3, HDF4, FITS and others, refused by name |
//! | [`products`] | what the numbers of a sensor's product mean, in any format: one file per product; quality layers |
//! | [`labels`] | masks of class ids of everything that is not one: colours, other grids, polygons on maps |
//! | `derived/` | cubes of several cubes, of a file for each band, of a camera's frame, with other bands |
//! | `meaning/` | what arrays of a container mean: axes, bands, values, location |
//! | `axes/`, `spectrum/`, `place/` | axes, wavelengths and reference systems, for all formats |
//! | `detect.rs`, `file_format.rs` | the format of a file; how formats are listed |
//! | `reader.rs`, `buffer.rs` | the trait [`Source`]; the rows that it reads |
//! | `cube_info.rs`, `cube_size.rs` | what a source says about its cube; how large cubes may be |
//! | `side_file.rs` | what GDAL's side files say |
//! | `recent.rs` | what is remembered of the last few files |
//! | `text.rs`, `xml.rs` | texts of headers; XML, parsed within limits |
#![deny(missing_docs)]

mod axes;
mod buffer;
mod container;
mod cube_info;
mod cube_size;
mod derived;
mod detect;
mod file_format;
pub mod flat;
mod foreign;
pub mod labels;
mod meaning;
mod open_options;
mod place;
pub mod products;
mod raster;
mod reader;
mod recent;
mod side_file;
mod spectrum;
mod text;
mod xml;

pub use axes::Axes;
pub use axes::axis_order::{Axis, AxisOrder};
pub use buffer::RowBuffer;
pub use container::listing::{Listed, arrays, number_of_samples};
pub use container::release::release_samples;
pub use container::small_array::{SmallArray, small_array};
pub use container::{hdf5, matlab, zarr};
pub use cube_info::{Acquisition, CubeInfo, Exposure, PlaceScaling, Radiometry, Scaling, marked};
pub use derived::band_files::{BandPattern, BandsOfCube};
pub use derived::mosaic::{Mosaic, demosaic, open_frame};
pub use derived::resampled::{BandGrid, resampled};
pub use detect::{
    Other, data_of, is_container_folder, is_cube_file, is_picture, is_raw_data_of,
    is_spectral_library, is_unread_archive, needs_header, open, other, unread_stem, why_no_cube,
};
pub use flat::{envi, hsd, htc, numpy, tivita};
pub use meaning::AXES_GUESSED;
pub use open_options::OpenOptions;
pub use place::array_geo;
pub use products::quality::{QualityLayers, quality, quality_names};
pub use products::{images_of_metadata, is_product_folder};
pub use raster::{png, tiff};
pub use reader::{Access, Source, described};
pub(crate) use reader::{read_band_of_rows, whole_runs};
pub use recent::Recent;
#[doc(hidden)]
pub use spectrum::band_list::band_numbers;
pub use spectrum::band_list::{band_centers, parse_band_centers};
pub use spectrum::spectra_table::SpectraTable;
#[doc(hidden)]
pub use spectrum::spectra_table::spectra_header;
pub use spectrum::wavelengths::guess as guess_wavelength_unit;
