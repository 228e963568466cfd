//! matlab files.
