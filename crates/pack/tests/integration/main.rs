//! Tests of the packing crate with files that other software wrote.

mod adding;
mod appending;
mod choosing;
mod common;
mod conversion;
mod damage;
mod export;
mod grids;
mod index;
mod inputs;
mod look;
mod opening;
mod packing;
mod parts;
mod products;
mod servers;
mod source_envi;
mod source_hdf5;
mod source_htc;
mod source_matlab;
mod source_numpy;
mod source_png;
mod source_tiff;
mod source_tivita;
mod source_zarr;
mod spectra;
