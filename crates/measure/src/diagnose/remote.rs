//! Times the levels of a packed dataset in another process. This process makes the verdict and the
//! report.

use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::action::Action;
use super::driver::{Lap, Levels, Timer, Variant, diagnose};
use super::facts::Facts;
use super::level::Level;
use super::options::DiagnoseOptions;
use super::packed::{Packed, PackedOptions, can_try};
use super::prediction::Basis;
use super::report::Diagnosis;
use crate::device::TrainingLibrary;
use crate::remote::{Channel, Process, Request};
use crate::{Error, Result};

/// Facts that stay the same while levels are timed: the answer to [`Request::Diagnose`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The subject of the diagnosis: the first line of the report.
    pub subject: String,
    /// Samples per batch.
    pub batch_size: Option<usize>,
    /// The levels that apply.
    pub levels: Vec<Level>,
    /// The level beside which more threads are timed, and the number of threads.
    pub more_threads: Option<(Level, usize)>,
    /// Names of the augmentations.
    pub augmentations: Vec<String>,
    /// Levels that could not be measured, with the reason.
    pub notes: Vec<String>,
}

impl About {
    fn of(levels: &dyn Levels) -> Self {
        Self {
            subject: levels.subject(),
            batch_size: levels.batch_size(),
            levels: levels.levels(),
            more_threads: levels.more_threads(),
            augmentations: levels.augmentations(),
            notes: levels.notes(),
        }
    }
}

/// A request to the levels.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LevelRequest {
    /// Time a level, or another basis of a prediction.
    Time(Basis),
    /// Time everything real, with a remedy applied.
    TimeRemedied(Action),
    /// Return the facts besides the times.
    Facts,
    /// Return the trace of all threads, as text.
    Trace,
}

/// Times levels for another process, until there are no more requests.
///
/// # Errors
/// If a request cannot be read or an answer cannot be written.
pub(crate) fn serve<L: TrainingLibrary>(
    request: &DiagnoseOptions,
    library: &L,
    channel: &mut Channel<'_>,
) -> Result<()> {
    let prepared = request.options(library).and_then(|options| {
        let step = request.step(library, &options)?;
        Ok((options, step))
    });
    let (options, mut step) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return channel.answer::<About>(Err(error)),
    };
    let mut train = |image: &L::Tensor, _: &[(String, L::Tensor)]| step.train(image);
    let mut levels = match Packed::new(&options, library, &mut train) {
        Ok(levels) => levels,
        Err(error) => return channel.answer::<About>(Err(error)),
    };
    channel.answer(Ok(About::of(&levels)))?;
    // To stop, the other process ends this one.
    let stop = AtomicBool::new(false);
    let timer = Timer::new(request.effort.time, &stop);
    while let Some(request) = channel.request()? {
        match request {
            LevelRequest::Time(basis) => {
                channel.answer(levels.time(Variant::Basis(basis), &timer))?;
            }
            LevelRequest::TimeRemedied(action) => {
                channel.answer(levels.time(Variant::Remedied(&action), &timer))?;
            }
            LevelRequest::Facts => channel.answer(levels.facts())?,
            LevelRequest::Trace => channel.answer(recorded(&options))?,
        }
    }
    Ok(())
}

/// The loader's trace of the runs with everything real, for <https://ui.perfetto.dev>.
///
/// # Errors
/// If there is no memory.
pub fn recorded(options: &PackedOptions) -> Result<String> {
    let mut written = Vec::new();
    if let Some(trace) = &options.loader.trace {
        trace.write(&mut written).map_err(|error| Error::io("trace", "cannot write", error))?;
    }
    String::from_utf8(written)
        .map_err(|error| Error::bug(format!("the trace is not text: {error}")))
}

/// Diagnoses a packed dataset whose levels are timed by another process. Also returns the trace, if
/// it was requested. `stop` ends the diagnosis early; `tell` receives progress messages.
///
/// # Errors
/// If the dataset or the device cannot be used, a step fails, the process ends, or the diagnosis
/// was stopped.
pub fn run_remotely(
    request: &DiagnoseOptions,
    process: Process,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<(Diagnosis, Option<String>)> {
    let mut process = process;
    let about = process.ask(&Request::Diagnose(Box::new(request.clone())), stop)?;
    let mut levels = Remote { process, about, stop };
    let diagnosis = diagnose(&mut levels, request.effort, stop, tell)?;
    let trace = request.trace.as_ref().map(|_| levels.ask(&LevelRequest::Trace)).transpose()?;
    Ok((diagnosis, trace))
}

/// Levels in another process.
struct Remote<'a> {
    process: Process,
    about: About,
    stop: &'a AtomicBool,
}

impl Remote<'_> {
    fn ask<A: serde::de::DeserializeOwned>(&mut self, request: &LevelRequest) -> Result<A> {
        self.process.ask(request, self.stop)
    }
}

impl Levels for Remote<'_> {
    fn subject(&self) -> String {
        self.about.subject.clone()
    }

    fn batch_size(&self) -> Option<usize> {
        self.about.batch_size
    }

    fn levels(&self) -> Vec<Level> {
        self.about.levels.clone()
    }

    fn more_threads(&self) -> Option<(Level, usize)> {
        self.about.more_threads
    }

    fn augmentations(&self) -> Vec<String> {
        self.about.augmentations.clone()
    }

    fn can_try(&self, action: &Action) -> bool {
        can_try(action)
    }

    fn time(&mut self, variant: Variant<'_>, _: &Timer<'_>) -> Result<Lap> {
        match variant {
            Variant::Basis(basis) => self.ask(&LevelRequest::Time(basis)),
            Variant::Remedied(action) => self.ask(&LevelRequest::TimeRemedied(action.clone())),
        }
    }

    fn facts(&mut self) -> Result<Facts> {
        self.ask(&LevelRequest::Facts)
    }

    fn notes(&self) -> Vec<String> {
        self.about.notes.clone()
    }
}
