//! Faults: misuse that a real device would punish, or make wrong data of. Each is a line of the report at once, so that a
//! process that crashes has told of it.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::Write as _;

use crate::settings::REPORT;

/// Sorts of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An argument that no call takes, or a call before `cuInit`.
    BadArgument,
    /// A handle of something that is destroyed, or of nothing.
    BadHandle,
    /// Memory is freed a second time.
    DoubleFree,
    /// A call in a process that was forked from one that uses CUDA.
    Forked,
    /// Device memory is freed while operations use it.
    FreedInUse,
    /// Host memory was written while a copy read it.
    HostMemoryChanged,
    /// Something was not given back.
    Leak,
    /// No context is current, where one is needed.
    NoContext,
    /// Device memory outside of an allocation.
    OutsideAllocation,
    /// A wait that does not end.
    Stuck,
    /// Two operations on the same memory that no event orders.
    Unordered,
    /// Host memory is unregistered, or unmapped, while a copy uses it.
    UnregisteredInUse,
    /// A copy of host memory that is not registered.
    UnregisteredMemory,
    /// Device memory is used after it was freed.
    UseAfterFree,
    /// A consumer of the tests reads other bytes than it should.
    WrongBytes,
    /// Things of two contexts in one call.
    WrongContext,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, letter) in format!("{self:?}").chars().enumerate() {
            if place > 0 && letter.is_uppercase() {
                f.write_str("-")?;
            }
            write!(f, "{}", letter.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

/// The faults of this process.
#[derive(Default)]
pub struct Faults {
    texts: Vec<String>,
    /// The call, or the thread of the device, in which faults are found now.
    pub during: &'static str,
}

impl Faults {
    /// Notes a fault.
    pub fn note(&mut self, kind: Kind, text: impl Display) {
        let text = format!("[{kind}] {}: {text}", self.during);
        report(format_args!("fault {text}"));
        self.texts.push(text);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// The text of one.
    pub fn text(&self, place: usize) -> Option<&str> {
        self.texts.get(place).map(String::as_str)
    }
}

/// Adds a line to the report: the file that the environment names, else standard error.
pub fn report(line: impl Display) {
    let line = format!("{line} (process {})\n", std::process::id());
    match std::env::var_os(REPORT) {
        None => eprint!("fake CUDA: {line}"),
        Some(path) => append(&path)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    }
}

fn append(path: &std::ffi::OsStr) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
