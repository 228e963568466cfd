//! The viewer's server, which runs next to the program.

use hsipack_read::LoaderOptions;
use hsipack_store::process::OfProcess;
use hsipack_view::{Options, Subject, Training, View as Server};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::OrRaise;
use crate::exit::detached;
use crate::settings::Settings;

/// A running server; `hsipack.view` starts it.
#[pyclass(module = "hsipack._hsipack")]
pub struct Viewer {
    url: String,
    /// A forked child has none of its threads.
    server: OfProcess<Option<Server>>,
}

#[pymethods]
impl Viewer {
    #[new]
    #[pyo3(signature = (path, axes, port, settings=None))]
    fn new(
        py: Python<'_>,
        path: &str,
        axes: Option<&str>,
        port: u16,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Options { port, linger: None };
        let training = settings.map(training).transpose()?;
        let start = || {
            let subject = Subject::open(path, axes)?;
            let subject = match training {
                Some(training) => subject.with_training(training)?,
                None => subject,
            };
            Server::start(subject, &options)
        };
        let server = detached(py, start).or_raise(py)?;
        let url = server.url().to_owned();
        Ok(Self { url, server: OfProcess::new(Some(server)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    fn is_running(&self) -> bool {
        self.server
            .get()
            .is_some_and(|server| server.as_ref().is_some_and(|server| !server.is_ended()))
    }

    fn close(&mut self, py: Python<'_>) {
        let server = self.server.get_mut().and_then(Option::take);
        detached(py, || drop(server));
    }
}

/// The training settings of the viewer from the settings of a loader.
fn training(settings: &Bound<'_, PyDict>) -> PyResult<Training> {
    let py = settings.py();
    let settings = Settings::of(settings)?;
    let pipeline = settings.pipeline().or_raise(py)?;
    let integers = settings.integers();
    let (loader, images) = (settings.loader, settings.device);
    let loader = LoaderOptions { integers, ..loader };
    Ok(Training { loader, images, augment: pipeline.map(|pipeline| pipeline.to_json()) })
}
