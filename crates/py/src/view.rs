//! The viewer's server, which runs beside the program.

use hsipack_store::process::OfProcess;
use hsipack_view::{Options, Subject, View as Server};
use pyo3::prelude::*;

use crate::errors::OrRaise;

/// A running server; `hsipack.view` starts it.
#[pyclass(module = "hsipack._hsipack")]
pub struct Viewer {
    url: String,
    /// A child made by `fork` has none of its threads.
    server: OfProcess<Option<Server>>,
}

#[pymethods]
impl Viewer {
    #[new]
    fn new(py: Python<'_>, path: &str, axes: Option<&str>, port: u16) -> PyResult<Self> {
        let options = Options { port, linger: None };
        let start = || Server::start(Subject::open(path, axes)?, &options);
        let server = py.detach(start).or_raise(py)?;
        let url = server.url().to_owned();
        Ok(Self { url, server: OfProcess::new(Some(server)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    fn is_running(&self) -> bool {
        self.server.get().is_some_and(|server| server.as_ref().is_some_and(|one| !one.is_ended()))
    }

    fn close(&mut self, py: Python<'_>) {
        let server = self.server.get_mut().and_then(Option::take);
        py.detach(|| drop(server));
    }
}
