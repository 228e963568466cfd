//! How options and commands are spelled: as on the command line, as in Python, or as in the Rust
//! crates.

use std::fmt::Debug;
use std::sync::OnceLock;

use super::{Command, Setting};

/// Spells options and commands in the form that the user types.
pub trait Surface: Debug + Send + Sync {
    /// An option, with or without a value.
    fn option(&self, setting: &Setting) -> String;

    /// Several options together, in a form that can be copied.
    fn together(&self, settings: &[Setting]) -> String;

    /// A command, with or without an option.
    fn command(&self, command: Command, setting: Option<&Setting>) -> String;
}

/// The spelling for programs in Rust: names as the crates use them.
#[derive(Clone, Copy, Debug)]
pub struct Library;

impl Surface for Library {
    fn option(&self, setting: &Setting) -> String {
        match &setting.value {
            Some(value) => format!("{}={value}", setting.option.name()),
            None => setting.option.name().to_owned(),
        }
    }

    fn together(&self, settings: &[Setting]) -> String {
        joined(self, settings, ", ")
    }

    fn command(&self, command: Command, setting: Option<&Setting>) -> String {
        let command = format!("`hsipack {}`", command.name());
        match setting {
            Some(setting) => format!("{command} with {}", self.option(setting)),
            None => command,
        }
    }
}

/// Every option as the surface spells it, separated by `between`.
pub fn joined(surface: &(impl Surface + ?Sized), settings: &[Setting], between: &str) -> String {
    let spelled: Vec<String> = settings.iter().map(|setting| surface.option(setting)).collect();
    spelled.join(between)
}

static IN_USE: OnceLock<Box<dyn Surface>> = OnceLock::new();

/// Sets the surface that spells errors, remedies and notes of this process. A process has only one
/// surface: if this is called again, the first surface stays.
pub fn speak(surface: impl Surface + 'static) {
    let _ = IN_USE.set(Box::new(surface));
}

/// The surface in use; [`Library`] if none was set.
pub fn current() -> &'static dyn Surface {
    IN_USE.get().map_or(&Library, |surface| &**surface)
}
