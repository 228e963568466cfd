//! Measures for the command `hsipack` on devices for which the command has no library:
//! `hsipack_measure::remote` with the user's torch. `python -m hsipack._measure` calls it.

use hsipack_measure::remote::{Channel, serve};
use hsipack_read::{Error, ErrorKind};
use pyo3::prelude::*;

use crate::errors::OrRaise;
use crate::exit::{attached, detached};
use crate::torch::Library;

/// Answers requests of the command. `receive` returns the next line, or an empty one at the end;
/// `send` receives the answers, which are lines without a newline.
#[pyfunction]
pub fn measure(py: Python<'_>, receive: Py<PyAny>, send: Py<PyAny>) -> PyResult<()> {
    let threads = hsipack_store::threads::cores();
    let library = Library::new(threads, true);
    let mut next = || {
        let line = attached(|py| receive.call0(py)?.extract::<String>(py));
        let line = line.map_err(|error| lost("read a request", &error))?;
        Ok(Some(line).filter(|line| !line.is_empty()))
    };
    let mut answer = |line: &str| {
        let sent = attached(|py| send.call1(py, (line,)).map(drop));
        sent.map_err(|error| lost("send an answer", &error))
    };
    // The threads of a loader call Python as well.
    let served = detached(py, || {
        let mut channel = Channel { receive: &mut next, send: &mut answer };
        serve(&library, &mut channel)
    });
    served.or_raise(py)
}

fn lost(what: &str, error: &PyErr) -> Error {
    Error::new(ErrorKind::Io, format!("cannot {what}: {error}"))
}
