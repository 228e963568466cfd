//! tiff files.
