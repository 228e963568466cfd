//! All cases, a process each, taking turns.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use hsipack_format::{Opt, remedy};
use hsipack_pack::progress;
use hsipack_read::augment::Frame;

use super::data::{Data, prepare, stopped};
use super::measure::{Measurement, Request};
use super::options::{BenchOptions, CubeSize, Strategy};
use super::report::Report;
use crate::device::TrainingLibrary;
use crate::{Error, ErrorKind, Result, machine};

/// What a benchmark listens to, and tells.
pub struct Progress<'a> {
    /// The wish to stop.
    pub stop: &'a progress::Progress,
    /// Hears what is being done.
    pub tell: &'a (dyn Fn(&str) + Sync),
}

/// Makes the files, measures every case with `measure`, which has tensors of `library`, and sums up.
///
/// # Errors
/// If the library has no such device, files cannot be made, there is not enough memory, a case fails, or the user stops it.
pub fn run<L: TrainingLibrary>(
    options: &BenchOptions,
    library: &L,
    progress: &Progress<'_>,
    measure: &mut dyn FnMut(&Request) -> Result<Measurement>,
) -> Result<Report> {
    // What cannot be measured is refused before files are made.
    library.named(&options.settings.device)?;
    let (data, _work) = prepare(options, progress.stop, progress.tell)?;
    check_memory(options, &data)?;
    if let Some(pipeline) = options.settings.augment.pipeline(options.settings.seed) {
        let CubeSize { rows, columns, bands } = data.shape;
        pipeline.frame(Frame { rows, columns, bands })?;
    }
    let cases = order(&options.rate_limits, &options.strategies);
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
            let measured = measure(&request);
            if progress.stop.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            found.push((*strategy, *rate_limit, measured?));
        }
    }
    Ok(Report::new(options, data, &found))
}

/// The cases of a repeat: strategies take turns at one rate, then at the next.
fn order(rates: &[Option<u64>], strategies: &[Strategy]) -> Vec<(Option<u64>, Strategy)> {
    let of_rate = |rate: &Option<u64>| {
        let rate = *rate;
        strategies.iter().map(move |strategy| (rate, *strategy))
    };
    rates.iter().flat_map(of_rate).collect()
}

/// Refuses what would drive the machine out of memory; the system would kill the process.
fn check_memory(options: &BenchOptions, data: &Data) -> Result<()> {
    let settings = &options.settings;
    let values = (data.shape.values() * settings.batch_size.min(data.cubes)) as u64;
    let batches = |strategy: &Strategy| match strategy {
        // Two ahead of each worker, cubes beside the batch that they are collated into, and one in use.
        Strategy::Original | Strategy::Blosc => (3 * settings.workers as u64 + 1) * 4,
        Strategy::Half | Strategy::DeviceAugment => (3 * settings.workers as u64 + 2) * 2,
        Strategy::Ring => 6 * 2,
    };
    let wanted = options.strategies.iter().map(batches).max().unwrap_or(0) * values;
    match machine::available_memory() {
        Some(available) if wanted > available => Err(Error::conflict(format!(
            "batches of {} cubes of {} with {} workers take about {:.1} GB, but {:.1} GB of memory are available",
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

/// Has a new process measure a case: `command` is to read the request from its standard input, as JSON, to [`measure`] it,
/// and to write the measurement to its output.
///
/// [`measure`]: super::measure()
///
/// # Errors
/// If it cannot be started, or fails; its own message is told.
pub fn in_a_process(command: &mut Command, request: &Request) -> Result<Measurement> {
    let program = PathBuf::from(command.get_program());
    let cannot = |error| Error::io(&program, "cannot run", error);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let text = serde_json::to_string(request).expect("plain data");
    let written = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(cannot)?;
    let failed = |what: String| {
        let error =
            Error::new(ErrorKind::Io, format!("measuring {} failed: {what}", request.strategy));
        error.with_remedy(remedy![
            "look at the message; other ",
            Opt::Strategies,
            " may be measured without it"
        ])
    };
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = message.lines().rfind(|line| !line.trim().is_empty());
        let told = line.map(|line| line.strip_prefix("hsipack: ").unwrap_or(line).to_owned());
        return Err(failed(told.unwrap_or_else(|| {
            format!(
                "{}, maybe out of memory (a smaller {} needs less)",
                output.status,
                Opt::BatchSize
            )
        })));
    }
    written.map_err(cannot)?;
    serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
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
