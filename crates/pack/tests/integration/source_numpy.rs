//! numpy files.
