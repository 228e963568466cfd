//! Maps errors to exceptions, in one place.

use hsipack_format::{Error, ErrorKind};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

/// The exception's class in `hsipack._errors`.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Io => "FileError",
        ErrorKind::Malformed => "MalformedError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::Ambiguous => "AmbiguousError",
        ErrorKind::Overflow => "RangeError",
        ErrorKind::Conflict | ErrorKind::NotFound | ErrorKind::State => "ConflictError",
        ErrorKind::Damaged => "DamagedError",
        ErrorKind::Memory => "OutOfMemoryError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::DeviceMemory => "DeviceMemoryError",
        ErrorKind::Bug => "BugError",
        _ => "Error",
    }
}

/// The exception for an error.
pub fn raised(py: Python<'_>, error: &Error) -> PyErr {
    if error.kind() == ErrorKind::Interrupted {
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    let what = match error.choices() {
        [] => error.what().to_owned(),
        choices => format!("{}: {}", error.what(), choices.join(", ")),
    };
    let exception = || {
        let about = [
            ("path", error.path().map(|path| path.display().to_string())),
            ("remedy", error.remedy().map(ToString::to_string)),
        ];
        let class = py.import("hsipack._errors")?.getattr(class(error.kind()))?;
        class.call((what,), Some(&about.into_py_dict(py)?))
    };
    exception().map_or_else(|failed| failed, PyErr::from_value)
}

/// The exception for an argument of the wrong type.
pub fn wrong_type(py: Python<'_>, what: &str) -> PyErr {
    let exception = || py.import("hsipack._errors")?.getattr("ArgumentTypeError")?.call1((what,));
    exception().map_or_else(|failed| failed, PyErr::from_value)
}

/// Raises errors of our crates as exceptions.
pub trait OrRaise<T> {
    /// The value, or the exception for the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raised(py, &error))
    }
}
