//! Remedies of errors: words, options and commands, in order.
//!
//! The library crates do not know whether the user works on the command line or in Python. They
//! name an option ([`Opt`]) or a command ([`Command`]), and the surface in use spells it
//! ([`Surface`]): `--scale auto` in a shell, `scale="auto"` in Python.
//!
//! ```
//! use hsipack_format::{Error, Opt, remedy};
//!
//! let error = Error::conflict("the value 70000 does not fit fp16")
//!     .with_remedy(remedy!["pass ", Opt::Scale.to("auto"), " or a larger ", Opt::Scale]);
//! assert_eq!(
//!     error.to_string(),
//!     "the value 70000 does not fit fp16 (pass scale=auto or a larger scale)"
//! );
//! ```

mod options;
mod surface;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use options::{Opt, Setting, Value};
pub use surface::{Library, Surface, current, joined, speak};

/// A command of hsipack, which in Python may be a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Packs cubes.
    Convert,
    /// Packs a part of a planned conversion.
    Work,
    /// Joins the parts into a dataset.
    Commit,
    /// Checks that a dataset is intact.
    Validate,
    /// Packs damaged cubes again.
    Repair,
    /// Divides labelled pixels among splits.
    Split,
    /// Exports a cube or a mask from a dataset.
    Export,
    /// Draws an image of a cube.
    Preview,
    /// Reads a dataset as training does.
    Read,
    /// Compares methods of loading.
    Bench,
    /// Finds codec, chunk size and precision.
    Tune,
}

impl Command {
    /// Every command.
    pub const ALL: [Self; 11] = [
        Self::Convert,
        Self::Work,
        Self::Commit,
        Self::Validate,
        Self::Repair,
        Self::Split,
        Self::Export,
        Self::Preview,
        Self::Read,
        Self::Bench,
        Self::Tune,
    ];

    /// Its name in a shell.
    pub fn name(self) -> &'static str {
        match self {
            Self::Convert => "convert",
            Self::Work => "work",
            Self::Commit => "commit",
            Self::Validate => "validate",
            Self::Repair => "repair",
            Self::Split => "split",
            Self::Export => "export",
            Self::Preview => "preview",
            Self::Read => "read",
            Self::Bench => "bench",
            Self::Tune => "tune",
        }
    }

    /// The command with an option.
    pub fn with(self, setting: impl Into<Setting>) -> Part {
        Part::Command(self, Some(setting.into()))
    }
}

/// A piece of a remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Words that are the same on every surface.
    Words(Cow<'static, str>),
    /// An option, with or without a value.
    Option(Setting),
    /// A command, with or without an option.
    Command(Command, Option<Setting>),
}

/// An action for the user: an imperative clause without a full stop.
///
/// It is made from words alone, or from several parts with [`remedy!`](crate::remedy!). It is
/// displayed as the surface in use spells it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Remedy {
    parts: Vec<Part>,
}

/// A [`Remedy`] made of several parts in order: words, options and commands.
#[macro_export]
macro_rules! remedy {
    ($($part:expr),+ $(,)?) => {
        $crate::remedy::Remedy::from_iter([$($crate::remedy::Part::from($part)),+])
    };
}

impl Remedy {
    /// The parts of the remedy.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The text as `surface` spells it.
    pub fn render(&self, surface: &dyn Surface) -> String {
        self.parts.iter().map(|part| part.render(surface)).collect()
    }

    /// This remedy, then `between`, then the other remedy.
    #[must_use]
    pub fn joined(mut self, between: &'static str, other: impl Into<Self>) -> Self {
        self.parts.push(between.into());
        self.parts.extend(other.into().parts);
        self
    }
}

impl Part {
    /// The text as `surface` spells it.
    pub fn render(&self, surface: &dyn Surface) -> String {
        match self {
            Self::Words(words) => words.to_string(),
            Self::Option(setting) => surface.option(setting),
            Self::Command(command, setting) => surface.command(*command, setting.as_ref()),
        }
    }
}

impl FromIterator<Part> for Remedy {
    fn from_iter<T: IntoIterator<Item = Part>>(parts: T) -> Self {
        Self { parts: parts.into_iter().collect() }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(current()))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(current()))
    }
}

impl From<&'static str> for Part {
    fn from(words: &'static str) -> Self {
        Self::Words(words.into())
    }
}

impl From<String> for Part {
    fn from(words: String) -> Self {
        Self::Words(words.into())
    }
}

impl From<Opt> for Part {
    fn from(option: Opt) -> Self {
        Self::Option(option.into())
    }
}

impl From<Setting> for Part {
    fn from(setting: Setting) -> Self {
        Self::Option(setting)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&current().command(*self, None))
    }
}

impl From<Command> for Part {
    fn from(command: Command) -> Self {
        Self::Command(command, None)
    }
}

impl<T: Into<Part>> From<T> for Remedy {
    fn from(part: T) -> Self {
        Self { parts: vec![part.into()] }
    }
}

impl From<&Remedy> for Remedy {
    fn from(remedy: &Remedy) -> Self {
        remedy.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A surface that spells everything in capital letters.
    #[derive(Debug)]
    struct Loud;

    impl Surface for Loud {
        fn option(&self, setting: &Setting) -> String {
            let name = setting.option.name().to_uppercase();
            setting.value.as_ref().map_or(name.clone(), |value| format!("{name}:{value}"))
        }

        fn together(&self, settings: &[Setting]) -> String {
            joined(self, settings, "+")
        }

        fn command(&self, command: Command, setting: Option<&Setting>) -> String {
            let name = command.name().to_uppercase();
            setting.map_or(name.clone(), |setting| format!("{name}/{}", self.option(setting)))
        }
    }

    #[test]
    fn every_part_is_spelled_by_the_surface() {
        let remedy = remedy![
            "pass ",
            Opt::Scale.to("auto"),
            " or a larger ",
            Opt::Scale,
            format!(", or {} ", 2),
            Command::Convert.with(Opt::Append),
            " after ",
            Command::Validate
        ];
        let loud = "pass SCALE:auto or a larger SCALE, or 2 CONVERT/APPEND after VALIDATE";
        assert_eq!(remedy.render(&Loud), loud);
        assert_eq!(
            remedy.to_string(),
            "pass scale=auto or a larger scale, or 2 `hsipack convert` with append after `hsipack validate`"
        );
    }

    #[test]
    fn options_are_given_together() {
        let both = [Opt::White.to("auto"), Opt::Append.into()];
        assert_eq!(Loud.together(&both), "WHITE:auto+APPEND");
        assert_eq!(Library.together(&both), "white=auto, append");
    }

    #[test]
    fn remedies_are_joined() {
        let both =
            Remedy::from("free some space").joined("; ", remedy!["go on with ", Opt::Resume]);
        assert_eq!(both.render(&Loud), "free some space; go on with RESUME");
    }
}
