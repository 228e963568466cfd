//! From times that Python measured to what training waits for.

use hsipack_measure::diagnose::{Diagnosis, Limits, Measured, Measurements, Rounds, subset};
use hsipack_measure::machine;
use hsipack_read::Error;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use crate::errors::OrRaise;

/// Some of `samples`, which take `decoded_bytes`, that all levels read.
#[pyfunction]
pub fn diagnosis_samples(
    samples: Vec<usize>,
    decoded_bytes: u64,
    batch_size: usize,
    per_sample: usize,
) -> Vec<usize> {
    subset(&samples, decoded_bytes, batch_size, per_sample)
}

/// How often levels, or a remedy, are run.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct DiagnosisRounds(Rounds);

#[pymethods]
impl DiagnosisRounds {
    /// How often all of them are done at most.
    #[classattr]
    const ATTEMPTS: usize = Rounds::ATTEMPTS;

    #[new]
    fn new(asked: usize) -> Self {
        Self(Rounds::new(asked))
    }

    /// What is done in a round, counted from 1, for those who wait.
    fn name(&self, round: usize, what: &str) -> String {
        self.0.name(round, what)
    }

    /// Whether the rounds suffice that these times of the levels, as JSON, were measured in.
    fn suffice(&self, py: Python<'_>, levels: &str) -> PyResult<bool> {
        let levels: Vec<Measured> = parsed(levels).or_raise(py)?;
        Ok(self.0.suffice(&levels, Limits::default()))
    }

    /// Whether the rounds suffice that a remedy was tried in: seconds of a batch without it, with it, and of whatever else
    /// was run in the same rounds.
    fn suffice_to_compare(&self, times: Vec<Vec<f64>>) -> bool {
        let times: Vec<&[f64]> = times.iter().map(Vec::as_slice).collect();
        self.0.suffice_to_compare(&times, Limits::default())
    }
}

/// The diagnosis as JSON, and as text for people, of measurements as JSON. What is known of the machine is added.
#[pyfunction]
pub fn diagnose(py: Python<'_>, measurements: &str) -> PyResult<(String, String)> {
    let mut measurements: Measurements = parsed(measurements).or_raise(py)?;
    let facts = &mut measurements.facts;
    facts.available_memory = machine::available_memory();
    if facts.cores == 0 {
        facts.cores = machine::cores();
    }
    let diagnosis = Diagnosis::from(measurements);
    let json = serde_json::to_string(&diagnosis).expect("plain data");
    Ok((json, diagnosis.text()))
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        Error::malformed(format!("these are no measurements: {error}")).caused_by(error)
    })
}
