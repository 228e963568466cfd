//! Faults: misuse that a real device would punish, or that would give wrong data. Each one is
//! written to the report at once, so that the report is complete even if the process crashes.

use std::fmt::{self, Display};
use std::fs::{File, OpenOptions};
use std::io::Write as _;

use crate::settings::REPORT;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An argument that the call does not accept, or a call before `cuInit`.
    BadArgument,
    /// A handle of a destroyed object, or of none.
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
    /// No context is current where one is needed.
    NoContext,
    /// Device memory outside an allocation.
    OutsideAllocation,
    /// Private memory is registered as read-only: the driver then hangs.
    PrivateMemory,
    /// A wait that never ends.
    Stuck,
    /// Two operations on the same memory whose order no event determines.
    Unordered,
    /// Host memory is unregistered or unmapped while a copy uses it.
    UnregisteredInUse,
    /// A copy with host memory that is not registered.
    UnregisteredMemory,
    /// Device memory is used after it was freed.
    UseAfterFree,
    /// A consumer in a test reads other bytes than expected.
    WrongBytes,
    /// Objects of two contexts in one call.
    WrongContext,
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, letter) in format!("{self:?}").chars().enumerate() {
            if index > 0 && letter.is_uppercase() {
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
    /// The call, or the thread of the device, to which new faults belong.
    pub during: &'static str,
}

impl Faults {
    /// Adds a fault.
    pub fn note(&mut self, kind: Kind, text: impl Display) {
        let text = format!("[{kind}] {}: {text}", self.during);
        report(format_args!("fault {text}"));
        self.texts.push(text);
    }

    /// Number of faults.
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// The text of a fault.
    pub fn text(&self, index: usize) -> Option<&str> {
        self.texts.get(index).map(String::as_str)
    }
}

/// Adds a line to the report: to the file that the environment names, otherwise to standard error.
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
