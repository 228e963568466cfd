//! Source readers, conversion and validation.
#![deny(missing_docs)]

pub mod source;
