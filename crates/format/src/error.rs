//! The one error type of the packing and reading crates.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::remedy::Remedy;
use crate::text;

/// The kind of an error. It determines the exit code and what a caller may do about the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system reported an error: unreadable, missing, no space, no permission.
    Io,
    /// The file does not have the format it claims, is cut short, or contradicts itself.
    Malformed,
    /// The file is valid, but holds something hsipack does not support (complex numbers, a spectral
    /// library).
    Unsupported,
    /// The file holds several candidates, or axes that cannot be distinguished; the user has to
    /// choose.
    Ambiguous,
    /// A value does not fit the type it has to be stored in.
    Overflow,
    /// A file does not hold what was named in it: a variable, a group, a key.
    NotFound,
    /// Inputs or options contradict each other, or contradict data already on disk.
    Conflict,
    /// Stored bytes of a packed dataset do not match their checksums or records.
    Damaged,
    /// A saved training state does not fit the dataset or the options.
    State,
    /// There is not enough memory in the host.
    Memory,
    /// A device failed: a GPU, its driver or libtorch on it.
    Device,
    /// There is not enough memory on a device.
    DeviceMemory,
    /// A bug in hsipack itself.
    Bug,
    /// The user asked to stop.
    Interrupted,
}

/// An error that names the file, what was wrong with it, and what to do.
///
/// It is displayed as `FILE: WHAT (REMEDY)`, with control characters escaped. If there are choices,
/// they follow WHAT. [`std::error::Error::source`] gives the cause, if another library reported
/// one.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    path: Option<PathBuf>,
    what: String,
    choices: Vec<String>,
    remedy: Option<Remedy>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`; `what` says what was wrong, as a clause without a full stop.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let (what, choices) = (what.into(), Vec::new());
        Self(Box::new(Inner { kind, path: None, what, choices, remedy: None, source: None }))
    }

    /// A [`ErrorKind::Malformed`] error.
    pub fn malformed(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, what)
    }

    /// A [`ErrorKind::Unsupported`] error.
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// A [`ErrorKind::Ambiguous`] error.
    pub fn ambiguous(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Ambiguous, what)
    }

    /// A [`ErrorKind::Conflict`] error.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, what)
    }

    /// A [`ErrorKind::NotFound`] error.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, what)
    }

    /// A [`ErrorKind::Damaged`] error.
    pub fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what)
    }

    /// A [`ErrorKind::State`] error.
    pub fn state(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::State, what)
    }

    /// A [`ErrorKind::Device`] error.
    pub fn device(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Device, what)
    }

    /// A [`ErrorKind::Memory`] error.
    pub fn memory(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Memory, what)
    }

    /// A [`ErrorKind::DeviceMemory`] error.
    pub fn device_memory(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::DeviceMemory, what)
    }

    /// A [`ErrorKind::Bug`] error: something that cannot happen did.
    pub fn bug(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Bug, what).with_remedy("report this as a bug of hsipack")
    }

    /// A [`ErrorKind::Bug`] error from the payload of a thread's panic.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::bug(format!("a thread panicked: {}", text.unwrap_or("it does not say why")))
    }

    /// An I/O error on `path`; `doing` says what failed, e.g. "cannot read". If the system refused
    /// memory, it is a [`ErrorKind::Memory`] error.
    pub fn io(path: impl Into<PathBuf>, doing: &str, source: std::io::Error) -> Self {
        let kind = match source.kind() {
            std::io::ErrorKind::OutOfMemory => ErrorKind::Memory,
            _ => ErrorKind::Io,
        };
        let error = Self::new(kind, format!("{doing}: {source}")).at(path);
        match source.kind() {
            std::io::ErrorKind::NotFound => error.with_remedy("check the path"),
            std::io::ErrorKind::PermissionDenied => error.with_remedy("check the permissions"),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                error.with_remedy("free some space")
            }
            _ => error,
        }
        .caused_by(source)
    }

    /// Names the file. If the error already names a file, that name stays, because it was set
    /// closer to the problem.
    #[must_use]
    pub fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.0.path.get_or_insert_with(|| path.into());
        self
    }

    /// Replaces file names in the error, both in its text and in its path. `rewrite` maps a text to
    /// the text with the new names.
    #[must_use]
    pub fn retold(mut self, rewrite: &dyn Fn(&str) -> String) -> Self {
        let inner = &mut self.0;
        inner.path = inner.path.take().map(|path| rewrite(&path.to_string_lossy()).into());
        inner.what = rewrite(&inner.what);
        inner.choices.iter_mut().for_each(|choice| *choice = rewrite(choice));
        self
    }

    /// Says what the user can do, as an imperative clause without a full stop. The last call wins.
    ///
    /// Name options and commands with [`remedy!`](crate::remedy!), so that each surface spells them
    /// in its own way.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<Remedy>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Adds an alternative to the remedy, if there is a remedy: `…, or OTHER`. Otherwise, `other`
    /// becomes the remedy.
    #[must_use]
    pub fn or_remedy(mut self, other: impl Into<Remedy>) -> Self {
        self.0.remedy = Some(match self.0.remedy.take() {
            Some(remedy) => remedy.joined(", or ", other),
            None => other.into(),
        });
        self
    }

    /// The error alone, for reports of what was done about it.
    #[must_use]
    pub fn without_remedy(mut self) -> Self {
        self.0.remedy = None;
        self
    }

    /// Lists what the user can choose from.
    #[must_use]
    pub fn with_choices(mut self, choices: Vec<String>) -> Self {
        self.0.choices = choices;
        self
    }

    /// Puts the place of the problem in front: `WHERE: WHAT`.
    #[must_use]
    pub fn within(mut self, location: impl fmt::Display) -> Self {
        self.0.what = format!("{location}: {}", self.0.what);
        self
    }

    /// Keeps the error of another library as the cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The file that the error names, if any.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The message, without the file, the choices and the remedy.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// The choices the user has, each with a description.
    pub fn choices(&self) -> &[String] {
        &self.0.choices
    }

    /// The action that would mend it.
    pub fn remedy(&self) -> Option<&Remedy> {
        self.0.remedy.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(f, "{}: ", text::path(path))?;
        }
        f.write_str(&text::printable_lines(&self.0.what))?;
        if !self.0.choices.is_empty() {
            write!(f, ": {}", text::printable(&self.0.choices.join(", ")))?;
        }
        match &self.0.remedy {
            Some(remedy) => write!(f, " ({})", text::printable_lines(&remedy.to_string())),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Opt, remedy};

    use super::*;

    #[test]
    fn display_names_file_problem_and_remedy() {
        let error = Error::malformed("interleave is 'bup'")
            .at("a.hdr")
            .at("elsewhere")
            .with_remedy("use bsq, bil or bip");
        assert_eq!(error.to_string(), "a.hdr: interleave is 'bup' (use bsq, bil or bip)");
        assert_eq!(error.kind(), ErrorKind::Malformed);
    }

    #[test]
    fn control_characters_of_names_do_not_reach_the_terminal() {
        let error = Error::ambiguous("sample \u{1b}[2J")
            .at("a\u{1b}[31m\n")
            .with_choices(vec!["b\u{7}".into()])
            .with_remedy(remedy!["\u{9b}", Opt::Mask.to("\u{202e}".to_owned())]);
        assert_eq!(
            error.to_string(),
            "a\\u{1b}[31m\\u{a}: sample \\u{1b}[2J: b\\u{7} (\\u{9b}mask=\\u{202e})"
        );
    }

    #[test]
    fn choices_stand_between_problem_and_remedy() {
        let error = Error::ambiguous("several cubes")
            .with_choices(vec!["a (1x2x3)".into(), "b (4x5x6)".into()])
            .with_remedy("name one");
        assert_eq!(error.to_string(), "several cubes: a (1x2x3), b (4x5x6) (name one)");
        assert_eq!(error.what(), "several cubes");
    }

    #[test]
    fn context_and_remedies_accumulate() {
        let error = Error::damaged("a checksum").at("c/0").with_remedy("copy it again");
        let error = error.within("chunk 3").or_remedy("leave it out");
        assert_eq!(error.to_string(), "c/0: chunk 3: a checksum (copy it again, or leave it out)");
        let alone = Error::damaged("a checksum").or_remedy("leave it out");
        assert_eq!(alone.to_string(), "a checksum (leave it out)");
    }

    #[test]
    fn refused_memory_has_its_own_kind() {
        let io = |kind: std::io::ErrorKind| Error::io("a", "cannot read", kind.into()).kind();
        assert_eq!(io(std::io::ErrorKind::OutOfMemory), ErrorKind::Memory);
        assert_eq!(io(std::io::ErrorKind::NotFound), ErrorKind::Io);
    }

    #[test]
    fn a_panic_is_a_bug_and_nobody_elses_fault() {
        for panic in [Box::new("no") as Box<dyn std::any::Any + Send>, Box::new("no".to_owned())] {
            let error = Error::panicked(&*panic);
            assert_eq!(error.kind(), ErrorKind::Bug);
            let text = "a thread panicked: no (report this as a bug of hsipack)";
            assert_eq!(error.to_string(), text);
        }
    }
}
