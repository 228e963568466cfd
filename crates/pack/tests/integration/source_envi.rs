//! envi files.
