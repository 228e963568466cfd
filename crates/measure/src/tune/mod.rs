//! Which codec, chunk size and number of mantissa bits suit these cubes on this machine.
//!
//! ```text
//! cubes or dataset → sample → candidates → rounds → Pareto front → advice → report, page
//! ```
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the options, and all of it in order |
//! | `sample.rs` | adjacent rows of some cubes, cut into chunks |
//! | `candidates.rs` | what is tried |
//! | `measure.rs` | encoding, decoding and copying, round by round, within a time |
//! | `pareto.rs` | what nothing else is better than in every respect |
//! | `advice.rs` | what limits the rate with a disk, cores and a model, and what to choose |
//! | `precision.rs` | information in bits, what dropping some gains, and the error it makes |
//! | `report.rs` | everything that was found; its names are the keys of `--json` |
//! | `page.rs` | the same as a page |

mod advice;
mod candidates;
mod measure;
mod page;
mod pareto;
mod precision;
mod report;
mod sample;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use hsipack_format::grid::TARGET_CHUNK;

pub use self::advice::{Case, Limit};
pub use self::candidates::Candidate;
pub use self::page::page;
pub use self::precision::{BandErrors, Precision, Spectrum, Variant};
pub use self::report::{Choice, Measured, Rate, Report, SampleReport};

use self::advice::Needs;
// `bench`, too, chooses a codec with these.
pub(crate) use self::measure::{Bench, Limits};
#[cfg(feature = "torch")]
pub(crate) use self::sample::Chunks;

use self::sample::Sample;
use crate::Result;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// A packed dataset, or cubes as `convert` takes them.
    pub paths: Vec<String>,
    /// Files below input folders to leave out: glob patterns.
    pub exclude: Vec<String>,
    /// Uncompressed bytes (float16) to try everything on.
    pub sample: usize,
    /// Fewer candidates, rounds and seconds.
    pub quick: bool,
    /// Decoding threads in training.
    pub cores: usize,
    /// Stored bytes a second that the disk gives; some usual rates where not told.
    pub disk_rate: Option<f64>,
    /// How long the model works on a batch.
    pub step_time: Option<Duration>,
    /// Cubes in a batch.
    pub batch_size: usize,
}

/// Measures, and says what to choose. `tell` hears what is being done.
///
/// # Errors
/// If the cubes cannot be read, or `stop` was set.
pub fn tune(options: &Options, stop: &AtomicBool, tell: &dyn Fn(&str)) -> Result<Report> {
    let begin = Instant::now();
    tell("reading a sample");
    let sample = Sample::read(options, stop)?;
    let limits = Limits::new(options.quick);
    let machine = crate::machine::cores();
    let plain = sample.chunks(TARGET_CHUNK, None);
    let largest = sample.chunks(candidates::LARGEST_CHUNK, None).largest();
    let threads = measure::doubling(options.cores.min(machine));
    let mut bench = Bench::new(plain, largest, limits, threads, stop);

    tell("trying codecs");
    let mut tried = bench.sweep(&candidates::codecs(options.quick), &|candidate| {
        sample.chunks(candidate.chunk_bytes, None)
    })?;
    tell("trying chunk sizes");
    let front = pareto::of(&tried);
    let best: Vec<Candidate> = advice::leaders(&tried, &front, options.cores, limits.leaders)
        .into_iter()
        .map(|at| tried[at].candidate)
        .collect();
    let others = candidates::chunk_sizes(&best, &sample, options.quick);
    tried.extend(bench.sweep(&others, &|candidate| sample.chunks(candidate.chunk_bytes, None))?);
    let front = pareto::of(&tried);
    for (one, on) in tried.iter_mut().zip(front) {
        one.front = on;
    }

    let copy = bench.copy();
    let needs = Needs::new(options, &sample, &copy);
    let cases = advice::cases(&needs, &tried);
    let choice = advice::choose(&needs, &cases, &tried);

    tell("trying mantissa bits");
    let chosen = tried[choice.candidate].candidate;
    let best = |some: &[Measured]| needs.best(cases[choice.case].disk_rate, some);
    let precision = precision::measure(&sample, &mut bench, &chosen, options.quick, &best)?;
    let notes = sample.notes.clone();
    Ok(Report {
        paths: options.paths.clone(),
        quick: options.quick,
        cores: options.cores,
        machine_cores: machine,
        threads: bench.threads.clone(),
        rounds: limits.rounds,
        batch_size: options.batch_size,
        disk_rate: options.disk_rate,
        step_time: options.step_time.map(|time| time.as_secs_f64()),
        default_chunk_bytes: TARGET_CHUNK,
        sample: sample.report(),
        copy,
        candidates: tried,
        cases,
        choice,
        precision,
        notes,
        seconds: begin.elapsed().as_secs_f64(),
    })
}
