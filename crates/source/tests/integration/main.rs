//! Tests of the readers with files that other software wrote.

mod choosing;
mod common;
mod envi;
mod hdf5;
mod htc;
mod matlab;
mod numpy;
mod opening;
mod png;
mod tiff;
mod tivita;
mod zarr;
