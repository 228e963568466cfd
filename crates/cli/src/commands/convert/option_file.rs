//! The text of `--config` and `--layout`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use toml::{Table, Value};

/// The largest file of options, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Options of a file, not yet checked.
pub struct OptionFile {
    /// The path, for messages.
    pub path: PathBuf,
    /// Options by name.
    pub options: Table,
}

impl OptionFile {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read or is not TOML.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(path, &read_text(path, "cannot read the options")?)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// If it is not TOML.
    pub fn parse(path: &Path, text: &str) -> Result<Self> {
        let options = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.bytes().take(before).filter(|byte| *byte == b'\n').count() + 1;
            Error::malformed(format!("line {line} is not TOML: {}", error.message()))
                .at(path)
                .with_remedy("write options as in codec = \"zstd\", one a line")
        })?;
        Ok(Self { path: path.to_owned(), options })
    }

    /// Removes and returns the inputs. They are no option on the command line.
    ///
    /// # Errors
    /// If they are not a path or a list of paths.
    pub fn take_inputs(&mut self) -> Result<Vec<String>> {
        let Some(inputs) = self.options.remove("inputs") else { return Ok(Vec::new()) };
        let list = match inputs {
            Value::Array(list) => list,
            other => vec![other],
        };
        let text = |value: Value| match value {
            Value::String(text) => Ok(text),
            other => Err(Error::conflict(format!("inputs has the type {}", other.type_str()))
                .at(&self.path)
                .with_remedy("write a list of paths, such as inputs = [\"scans/\"]")),
        };
        list.into_iter().map(text).collect()
    }
}

/// The text of a file of options; `unreadable` is the error if it cannot be read.
///
/// # Errors
/// If it cannot be read, is too large, or is not text.
pub fn read_text(path: &Path, unreadable: &str) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| Error::io(path, unreadable, error))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Error::unsupported(format!("the file is larger than {} MiB", MAX_BYTES >> 20))
            .at(path)
            .with_remedy("give a TOML file of options"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::malformed(format!("line {line}: the text is not UTF-8"))
            .at(path)
            .with_remedy("save it as UTF-8")
    })
}
