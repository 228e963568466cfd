//! The whole run, in order.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hsipack_format::grid::TARGET_CHUNK;

use super::advice::{self, Needs};
use super::candidates::{self, Candidate};
use super::figures::Measured;
use super::measure::{self, Bench, Limits};
use super::options::TuneOptions;
use super::report::Report;
use super::sample::Sample;
use super::windows::{self, Facts};
use super::{gpu, integers, pareto, precision};
use crate::Result;

/// Measures all candidates and recommends one. `tell` receives progress messages.
///
/// # Errors
/// If the cubes cannot be read, or `stop` was set.
pub fn tune(options: &TuneOptions, stop: &AtomicBool, tell: &dyn Fn(&str)) -> Result<Report> {
    let begin = Instant::now();
    let device = options.device.as_deref().map(gpu::number).transpose()?;
    tell("reading a sample");
    let sample = Sample::read(options, stop)?;
    let limits = Limits::new(options.quick);
    let machine = hsipack_store::threads::cores();
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
    for (measured, on) in tried.iter_mut().zip(front) {
        measured.front = on;
    }

    let copy = bench.copy();
    let needs = Needs::new(options, &sample, &copy);
    let cases = advice::cases(&needs, &tried);
    let choice = advice::choose(&needs, &cases, &tried);

    let chosen = tried[choice.candidate].candidate;
    tell("trying integers");
    let integers = integers::measure(&sample, &mut bench, &chosen)?;
    let device = match device {
        Some(number) => {
            tell("trying the GPU");
            let batch = sample.cube_bytes() * options.batch_size as f64;
            Some(gpu::measure(&sample, &bench, &chosen, number, (batch, options.quick))?)
        }
        None => None,
    };
    tell("trying mantissa bits");
    let best = |some: &[Measured]| needs.best(cases[choice.case].disk_rate, some);
    let precision = precision::measure(&sample, &mut bench, &chosen, options.quick, &best)?;
    let report = sample.report();
    let windows = options.patch.zip(sample.pieces.first()).map(|(patch, piece)| {
        let facts = Facts::here(piece.shape, report.all_cubes, report.all_bytes);
        let rate = windows::rate_of(&tried, &tried[choice.candidate], options.cores);
        windows::reckon(facts, patch, &rate)
    });
    let notes = sample.notes.clone();
    Ok(Report {
        paths: options.paths.clone(),
        quick: options.quick,
        cores: options.cores,
        machine_cores: machine,
        threads: bench.threads.clone(),
        rounds: limits.rounds,
        batch_size: options.batch_size,
        disk_rate: options.disk_rate.map(|rate| rate as f64),
        step_time: options.step_time.map(|time| time.as_secs_f64()),
        default_chunk_bytes: TARGET_CHUNK,
        sample: report,
        copy,
        candidates: tried,
        cases,
        choice,
        windows,
        integers,
        device,
        precision,
        notes,
        seconds: begin.elapsed().as_secs_f64(),
    })
}
