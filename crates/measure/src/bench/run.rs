//! Runs all cases in turns, each in its own process.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::{Opt, remedy};
use hsipack_pack::progress;
use hsipack_read::augment::Frame;

use super::data::{Data, prepare, stopped};
use super::measure::{Measurement, Request, measure};
use super::options::{BenchOptions, CubeSize, Strategy};
use super::report::Report;
use crate::device::TrainingLibrary;
use crate::remote::{self, Process};
use crate::{Error, ErrorKind, Result, machine};

/// How a benchmark is stopped, and where it reports progress.
pub struct Progress<'a> {
    /// The request to stop.
    pub stop: &'a progress::Progress,
    /// Receives progress messages.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// Measures cases.
pub trait Measurer {
    /// Looks for the device with this name.
    ///
    /// # Errors
    /// If there is none.
    fn check(&self, device: &str) -> Result<()>;

    /// Measures a case.
    ///
    /// # Errors
    /// As [`measure`].
    fn measure(&self, request: &Request) -> Result<Measurement>;
}

/// Measures in this process, with the tensors of a library.
#[derive(Clone, Copy, Debug)]
pub struct InProcess<'a, L>(pub &'a L);

impl<L: TrainingLibrary> Measurer for InProcess<'_, L> {
    fn check(&self, device: &str) -> Result<()> {
        self.0.named(device).map(drop)
    }

    fn measure(&self, request: &Request) -> Result<Measurement> {
        measure(request, self.0)
    }
}

/// Measures every case in its own process, which calls [`remote::serve`].
pub struct Processes<'a> {
    /// The command that starts such a process.
    pub command: &'a dyn Fn() -> Command,
    /// The request to stop, which ends the process.
    pub stop: &'a AtomicBool,
}

impl Measurer for Processes<'_> {
    fn check(&self, device: &str) -> Result<()> {
        let mut process = Process::start(&mut (self.command)())?;
        process.ask::<String>(&remote::Request::Device(device.to_owned()), self.stop).map(drop)
    }

    fn measure(&self, request: &Request) -> Result<Measurement> {
        let message = remote::Request::Bench(Box::new(request.clone()));
        let measured = Process::start(&mut (self.command)())?.ask(&message, self.stop);
        measured.map_err(|error| match error.kind() {
            ErrorKind::Interrupted => error,
            _ => error.within(format!("measuring {} failed", request.strategy)).or_remedy(remedy![
                "measure other ",
                Opt::Strategies,
                " without it"
            ]),
        })
    }
}

/// Makes the files, measures every case, and summarises the results.
///
/// # Errors
/// If the device does not exist, files cannot be made, there is not enough memory, a case fails, or
/// the user stops the run.
pub fn run(
    options: &BenchOptions,
    measurer: &dyn Measurer,
    progress: &Progress<'_>,
) -> Result<Report> {
    // Fail before files are made if the device cannot be measured.
    measurer.check(&options.settings.device)?;
    let (data, _work) = prepare(options, progress.stop, progress.tell)?;
    check_memory(options, &data)?;
    if let Some(pipeline) = options.settings.augment.pipeline(options.settings.seed) {
        let CubeSize { rows, columns, bands } = data.shape;
        pipeline.frame(Frame { rows, columns, bands })?;
    }
    let cases = order(&options.rate_limits(), &options.strategies());
    let mut found = Vec::new();
    for repeat in 0..options.repeats {
        for (rate_limit, strategy) in &cases {
            let rate =
                rate_limit.map_or(String::new(), |rate| format!(" at {} MB/s", rate / 1_000_000));
            (progress.tell)(&format!(
                "measuring {strategy}{rate}, {} of {}",
                repeat + 1,
                options.repeats
            ));
            let (settings, data) = (options.settings.clone(), data.clone());
            let request = Request { strategy: *strategy, rate_limit: *rate_limit, settings, data };
            let measured = measurer.measure(&request);
            if progress.stop.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            found.push((*strategy, *rate_limit, measured?));
        }
    }
    Ok(Report::new(options, data, &found))
}

/// The cases of a repeat: all strategies at the first rate limit, then all at the next.
fn order(rates: &[Option<u64>], strategies: &[Strategy]) -> Vec<(Option<u64>, Strategy)> {
    let of_rate = |rate: &Option<u64>| {
        let rate = *rate;
        strategies.iter().map(move |strategy| (rate, *strategy))
    };
    rates.iter().flat_map(of_rate).collect()
}

/// Returns an error if the cases would need more memory than there is; otherwise the system would
/// kill the process.
fn check_memory(options: &BenchOptions, data: &Data) -> Result<()> {
    let settings = &options.settings;
    let values = (data.shape.values() * settings.batch_size.min(data.cubes)) as u64;
    let batches = |strategy: &Strategy| match strategy {
        // Each worker has two batches ahead, and the cubes of a batch while it collates them; one more batch is in use.
        Strategy::Original | Strategy::Blosc => (3 * settings.workers as u64 + 1) * 4,
        Strategy::Half | Strategy::DeviceAugment => (3 * settings.workers as u64 + 2) * 2,
        Strategy::Ring | Strategy::DeviceDecode => 6 * 2,
    };
    let wanted = options.strategies().iter().map(batches).max().unwrap_or(0) * values;
    match machine::available_memory() {
        Some(available) if wanted > available => Err(Error::conflict(format!(
            "batches of {} cubes of {} with {} workers take about {:.1} GB, but only {:.1} GB of memory are available",
            settings.batch_size,
            data.shape,
            settings.workers,
            wanted as f64 / 1e9,
            available as f64 / 1e9
        ))
        .with_remedy(remedy!["choose a smaller ", Opt::BatchSize, " or fewer ", Opt::Workers])),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategies_take_turns() {
        let strategies = [Strategy::Original, Strategy::Ring];
        let order = order(&[None, Some(5)], &strategies);
        let want = [
            (None, Strategy::Original),
            (None, Strategy::Ring),
            (Some(5), Strategy::Original),
            (Some(5), Strategy::Ring),
        ];
        assert_eq!(order, want);
    }
}
