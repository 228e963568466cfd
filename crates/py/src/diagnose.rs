//! `hsipack.diagnose`: the driver of `hsipack-measure`, with levels that Python implements.
//!
//! The levels are an object of `hsipack.diagnosis`; its protocol `Levels` documents the methods
//! called here.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_measure::diagnose::{
    self as driver, Action, Basis, Effort, Facts, Lap, Level, Levels, Timer, Variant, subset,
};
use hsipack_read::{Error, ErrorKind, Statistics};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::OrRaise;
use crate::exit::calling;
use crate::options;

/// Chooses some of `samples` (`decoded_bytes` in all) for all levels to read.
#[pyfunction]
pub fn diagnosis_samples(
    samples: Vec<usize>,
    decoded_bytes: u64,
    batch_size: usize,
    per_sample: usize,
) -> Vec<usize> {
    subset(&samples, decoded_bytes, batch_size, per_sample)
}

/// The options that say how much is measured, with their defaults, as JSON.
#[pyfunction]
pub fn diagnose_defaults() -> String {
    text(&Effort::default())
}

/// Diagnoses levels with a training step; returns the diagnosis as JSON and as text for people.
/// `synchronise` waits for the work queued on a GPU, and `progress` receives progress messages.
/// `effort` has the options by name.
#[pyfunction]
pub fn diagnose(
    py: Python<'_>,
    levels: &Bound<'_, PyAny>,
    train_step: &Bound<'_, PyAny>,
    synchronise: &Bound<'_, PyAny>,
    progress: &Bound<'_, PyAny>,
    effort: &Bound<'_, PyDict>,
) -> PyResult<(String, String)> {
    let effort: Effort = options::read(effort)?;
    let (raised, stop) = (Raised::default(), AtomicBool::new(false));
    let mut levels = OfPython::new(levels, train_step, synchronise, &raised)?;
    let mut tell = |what: &str| {
        if raised.kept(calling(py, || progress.call1((what,)))).is_err() {
            stop.store(true, Ordering::Relaxed);
        }
    };
    let diagnosis = driver::diagnose(&mut levels, effort, &stop, &mut tell);
    if let Some(error) = raised.0.into_inner() {
        return Err(error);
    }
    let diagnosis = diagnosis.or_raise(py)?;
    let json = serde_json::to_string(&diagnosis).expect("plain data");
    Ok((json, diagnosis.text()))
}

/// Keeps an exception that Python raised while the driver ran. The driver ends with another error
/// in its place, and then the exception is raised again.
#[derive(Default)]
struct Raised(RefCell<Option<PyErr>>);

impl Raised {
    fn kept<T>(&self, result: PyResult<T>) -> Result<T, Error> {
        result.map_err(|error| {
            self.0.replace(Some(error));
            Error::new(ErrorKind::Interrupted, "an exception was raised")
        })
    }
}

/// Levels of a loader in Python.
struct OfPython<'a, 'py> {
    levels: &'a Bound<'py, PyAny>,
    train_step: &'a Bound<'py, PyAny>,
    /// Waits for the work queued on a GPU.
    synchronise: &'a Bound<'py, PyAny>,
    raised: &'a Raised,
    subject: String,
    batch_size: Option<usize>,
    names: Vec<Level>,
    more_threads: Option<(Level, usize)>,
    augmentations: Vec<String>,
    /// Names of the actions that can be tried.
    actions: Vec<String>,
    notes: Vec<String>,
}

impl<'a, 'py> OfPython<'a, 'py> {
    fn new(
        levels: &'a Bound<'py, PyAny>,
        train_step: &'a Bound<'py, PyAny>,
        synchronise: &'a Bound<'py, PyAny>,
        raised: &'a Raised,
    ) -> PyResult<Self> {
        let py = levels.py();
        let level = |name: &String| name.parse::<Level>().or_raise(py);
        let names: Vec<String> = levels.getattr("names")?.extract()?;
        let more: Option<(String, usize)> = levels.getattr("more_threads")?.extract()?;
        let more = more.map(|(name, threads)| Ok::<_, PyErr>((level(&name)?, threads)));
        Ok(Self {
            levels,
            train_step,
            synchronise,
            raised,
            subject: levels.getattr("subject")?.extract()?,
            batch_size: levels.getattr("batch_size")?.extract()?,
            names: names.iter().map(level).collect::<PyResult<_>>()?,
            more_threads: more.transpose()?,
            augmentations: levels.getattr("augmentations")?.extract()?,
            actions: levels.getattr("actions")?.extract()?,
            notes: levels.getattr("notes")?.extract()?,
        })
    }

    /// The source of batches for a variant.
    fn source(&self, variant: Variant<'_>) -> PyResult<Bound<'py, PyAny>> {
        let levels = self.levels;
        match variant {
            Variant::Basis(Basis::Level { level }) => {
                levels.call_method1("source", (level.name(),))
            }
            Variant::Basis(Basis::MoreThreads) => levels.call_method0("with_more_threads"),
            Variant::Basis(Basis::Without { index }) => levels.call_method1("without", (index,)),
            Variant::Remedied(action) => {
                let json = levels.py().import("json")?;
                levels.call_method1("remedied", (json.call_method1("loads", (text(action),))?,))
            }
        }
    }

    /// Times the batches of a source together with the training step.
    fn timed(&self, source: &Bound<'py, PyAny>, timer: &Timer<'_>) -> Result<Lap, Error> {
        let kept = |result: PyResult<Bound<'py, PyAny>>| self.raised.kept(result);
        kept(source.call_method0("warm_up"))?;
        let step = || self.train_step.call1((source.call_method0("next")?,));
        let wait = || kept(self.synchronise.call0()).map(drop);
        let batch_s = timer.batches(usize::MAX, wait, || kept(step()).map(drop))?;
        let statistics = self.raised.kept(source.call_method0("statistics"))?;
        let statistics: Option<String> = self.raised.kept(statistics.extract())?;
        let statistics = statistics.as_deref().map(parsed::<Statistics>).transpose()?;
        Ok(Lap { batch_s, statistics })
    }
}

impl Levels for OfPython<'_, '_> {
    fn subject(&self) -> String {
        self.subject.clone()
    }

    fn batch_size(&self) -> Option<usize> {
        self.batch_size
    }

    fn levels(&self) -> Vec<Level> {
        self.names.clone()
    }

    fn more_threads(&self) -> Option<(Level, usize)> {
        self.more_threads
    }

    fn augmentations(&self) -> Vec<String> {
        self.augmentations.clone()
    }

    fn can_try(&self, action: &Action) -> bool {
        let name = serde_json::to_value(action).expect("plain data")["action"].clone();
        self.actions.iter().any(|action| name == action.as_str())
    }

    fn time(&mut self, variant: Variant<'_>, timer: &Timer<'_>) -> Result<Lap, Error> {
        calling(self.levels.py(), || {
            let source = self.raised.kept(self.source(variant))?;
            let lap = self.timed(&source, timer);
            let closed = source.call_method0("close");
            // Report the first error.
            let lap = lap?;
            self.raised.kept(closed)?;
            Ok(lap)
        })
    }

    fn facts(&mut self) -> Result<Facts, Error> {
        let json = || -> PyResult<String> {
            let facts = self.levels.call_method0("facts")?;
            self.levels.py().import("json")?.call_method1("dumps", (facts,))?.extract()
        };
        parsed(&self.raised.kept(calling(self.levels.py(), json))?)
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}

/// Parses JSON from Python.
fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text)
        .map_err(|error| Error::bug(format!("{text}: {error}")).caused_by(error))
}
