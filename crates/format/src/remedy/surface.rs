//! Who spells options and commands: the command line, Python, or nobody in particular.

use std::fmt::Debug;
use std::sync::OnceLock;

use super::{Command, Setting};

/// How options and commands are spelled where the user meets them.
pub trait Surface: Debug + Send + Sync {
    /// An option, with a value or by name alone.
    fn option(&self, setting: &Setting) -> String;

    /// Options that are given together, as they can be copied.
    fn together(&self, settings: &[Setting]) -> String;

    /// A command, by itself or with an option.
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

/// Every option as the surface spells it, with `between` between them.
pub fn joined(surface: &(impl Surface + ?Sized), settings: &[Setting], between: &str) -> String {
    let spelled: Vec<String> = settings.iter().map(|setting| surface.option(setting)).collect();
    spelled.join(between)
}

static IN_USE: OnceLock<Box<dyn Surface>> = OnceLock::new();

/// Has errors, remedies and notes of this process spelled by `surface`, from now on. A process has one
/// surface: the first one stays.
pub fn speak(surface: impl Surface + 'static) {
    let _ = IN_USE.set(Box::new(surface));
}

/// The surface in use; [`Library`] if nobody chose one.
pub fn current() -> &'static dyn Surface {
    IN_USE.get().map_or(&Library, |surface| &**surface)
}
