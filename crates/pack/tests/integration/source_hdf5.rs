//! hdf5 files.
