//! A format of files, as the lists in `container/`, `raster/` and `flat/` state it.

use std::path::Path;

use hsipack_format::Result;

use crate::container::Visitor;
use crate::{OpenOptions, Source};

type Recognise = fn(&Path, &[u8]) -> bool;
type Open = fn(&Path, &OpenOptions) -> Result<Box<dyn Source>>;
type Visit = fn(&Path, Visitor<'_>) -> Result<()>;

/// A format of files.
pub(crate) struct FileFormat {
    /// How a search through folders treats its files.
    pub kind: Kind,
    /// Its files, as errors ask for them; empty if they do not.
    pub name: &'static str,
    /// Endings of its files. A file with such an ending that is not recognised is damaged.
    pub endings: &'static [&'static str],
    /// Whether the file or folder at a path is of this format. Its first bytes are given, too: up
    /// to 4 KiB, none of a folder.
    pub recognises: Recognise,
    /// Opens the cube in a file.
    pub open: Open,
    /// Shows a file as a container, if the format is one.
    pub visit: Option<Visit>,
}

/// How a search through folders treats the files of a format.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Takes them as cubes.
    Cubes,
    /// Takes them as cubes, which an ENVI header beside them may describe.
    Images,
    /// Takes the headers among them; the others are raw data.
    Headers,
    /// Passes over them: they are cubes only if users name them.
    Pictures,
    /// Passes over them: they are recognised only so that the error names the format.
    Refused,
}

impl FileFormat {
    pub const fn new(kind: Kind, name: &'static str, recognises: Recognise, open: Open) -> Self {
        Self { kind, name, endings: &[], recognises, open, visit: None }
    }

    /// The format, if every file with one of these endings must be recognised.
    pub const fn with_endings(self, endings: &'static [&'static str]) -> Self {
        Self { endings, ..self }
    }

    /// The format, if it is a container.
    pub const fn visited(self, visit: Visit) -> Self {
        Self { visit: Some(visit), ..self }
    }
}
