//! zarr files.
