//! The options of a simulation, and the model that they make.

use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(feature = "clap")]
use hsipack_format::arguments::duration;
use hsipack_format::{Command, Opt, remedy};
use serde::{Deserialize, Serialize};

#[cfg(feature = "clap")]
use super::arguments;
use super::measured::Measured;
use super::model::{DEFAULT_SPREAD, DEVICE_SLOTS, End, Model, Order};
use super::report::{Scenario, simulate};
use super::times::{Spread, Times};
use super::what_if::WhatIf;
use crate::{Error, Result};

/// The options of a simulation. The feature `clap` makes them arguments of `hsipack simulate`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct SimulateOptions {
    /// Number of loaders; each loads one batch at a time
    #[cfg_attr(
        feature = "clap",
        arg(short, long, value_name = "N", required_unless_present = "from")
    )]
    pub loaders: Option<usize>,
    /// Mean time that a loader needs for a batch, such as 2s
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration, required_unless_present = "from"))]
    pub load_time: Option<Duration>,
    /// Standard deviation of load times: a share of their mean, such as 30%, or a time
    /// [default: 5%]
    ///
    /// Load times are log-normal: never negative, with a tail of slow batches.
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPREAD", value_parser = arguments::spread))]
    pub load_spread: Option<Spread>,
    /// Time of the training step for a batch, on average, such as 100ms
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration, required_unless_present = "from"))]
    pub step_time: Option<Duration>,
    /// Standard deviation of step times, given like --load-spread [default: 0%]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPREAD", value_parser = arguments::spread))]
    pub step_spread: Option<Spread>,
    /// Time to copy a batch to the device, on average [default: batches are not copied]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration))]
    pub copy_time: Option<Duration>,
    /// Standard deviation of copy times, given like --load-spread [default: 0%]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPREAD", value_parser = arguments::spread))]
    pub copy_spread: Option<Spread>,
    /// Time to decode a batch on the device, on average [default: loaders decode]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration))]
    pub decode_time: Option<Duration>,
    /// Standard deviation of decode times, given like --load-spread [default: 0%]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SPREAD", value_parser = arguments::spread))]
    pub decode_spread: Option<Spread>,
    /// Number of batches that can be on the device, from the beginning of the copy to the end of
    /// the step [default: 2, and one more with both --copy-time and --decode-time]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub device_slots: Option<usize>,
    /// Number of finished batches that the queue has room for, besides the one that each loader
    /// holds [default: 0, a loader holds its batch until the model takes it]
    ///
    /// A DataLoader with prefetch_factor F has room for (F - 1) times its workers.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub queue: Option<usize>,
    /// Deliver batches in order, as PyTorch's DataLoader does
    /// [default: first come, first served; with --from, in order]
    ///
    /// Of N loaders, loader i loads batches i, i + N, i + 2N and so on, and a slow batch delays the
    /// batches after it.
    #[cfg_attr(feature = "clap", arg(long))]
    pub in_order: bool,
    /// Take loaders, queue and times from the statistics in FILE, which `hsipack read --json`,
    /// `bench --json`, `diagnose --json` or Python's Loader.stats() wrote. Options on the command
    /// line override them
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE"))]
    pub from: Option<PathBuf>,
    /// Strategy to take from FILE, if it is the report of a benchmark
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", requires = "from"))]
    pub strategy: Option<String>,
    /// Also simulate this change, and compare, such as workers=8,load=0.5x (repeatable). Keys are
    /// workers, load, queue, copy, decode, device-slots, step and order; see --help
    #[cfg_attr(feature = "clap", arg(long, value_name = "CHANGES", value_parser = arguments::what_if))]
    pub what_if: Vec<WhatIf>,
    /// Time to simulate
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration, default_value = "30s", conflicts_with = "batches"))]
    pub duration: Duration,
    /// Simulate until the model has done N batches, instead of a time
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub batches: Option<u64>,
    /// Seed of everything that is drawn. Runs with the same seed have the same slow batches, also
    /// those of --what-if
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 0))]
    pub seed: u64,
}

impl Default for SimulateOptions {
    fn default() -> Self {
        Self {
            loaders: None,
            load_time: None,
            load_spread: None,
            step_time: None,
            step_spread: None,
            copy_time: None,
            copy_spread: None,
            decode_time: None,
            decode_spread: None,
            device_slots: None,
            queue: None,
            in_order: false,
            from: None,
            strategy: None,
            what_if: Vec::new(),
            duration: Duration::from_secs(30),
            batches: None,
            seed: 0,
        }
    }
}

/// Maximum size of a file of statistics in bytes. Statistics have a few kilobytes, benchmarks of
/// all strategies a few megabytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

impl SimulateOptions {
    fn model(&self) -> Result<Model> {
        let measured = self.from.as_deref().map(|path| self.measured(path)).transpose()?;
        let measured = measured.as_ref();
        let load = given(
            (self.load_time, self.load_spread, DEFAULT_SPREAD),
            measured.map(|measured| &measured.load),
        );
        let copy = given(
            (self.copy_time, self.copy_spread, 0.0),
            measured.and_then(|measured| measured.copy.as_ref()),
        );
        let decode = given(
            (self.decode_time, self.decode_spread, 0.0),
            measured.and_then(|measured| measured.decode.as_ref()),
        );
        let step = given(
            (self.step_time, self.step_spread, 0.0),
            measured.and_then(|measured| measured.step.as_ref()),
        );
        for (name, spread, times, option) in [
            ("copy", self.copy_spread, &copy, Opt::CopyTime),
            ("decode", self.decode_spread, &decode, Opt::DecodeTime),
        ] {
            if spread.is_some() && times.is_none() {
                return Err(self.missing(name, option));
            }
        }
        let load = load.ok_or_else(|| self.missing("load", Opt::LoadTime))?;
        let step = step.ok_or_else(|| self.missing("step", Opt::StepTime))?;
        let model = Model {
            loaders: self.loaders.or(measured.map(|measured| measured.loaders)).unwrap_or(1),
            load,
            device_slots: self.device_slots.unwrap_or_else(|| {
                let slots = measured.and_then(|measured| measured.device_slots);
                slots.unwrap_or(DEVICE_SLOTS)
                    + usize::from(Model::copies_ahead(copy.as_ref(), decode.as_ref()))
            }),
            copy,
            decode,
            step,
            queue: self.queue.or(measured.map(|measured| measured.queue)).unwrap_or(0),
            // All loaders that have statistics deliver batches in order.
            order: if self.in_order || measured.is_some() {
                Order::InOrder
            } else {
                Order::FirstCome
            },
            seed: self.seed,
            end: match self.batches {
                Some(batches) => End::Batches(batches),
                None => End::Seconds(self.duration.as_secs_f64()),
            },
            // With several loaders, the measured threads no longer apply.
            threads: measured
                .and_then(|measured| measured.threads)
                .filter(|_| self.loaders.is_none_or(|loaders| loaders == 1)),
        };
        model.check()?;
        Ok(model)
    }

    fn measured(&self, path: &Path) -> Result<Measured> {
        let meta =
            std::fs::metadata(path).map_err(|error| Error::io(path, "cannot read", error))?;
        if !meta.is_file() || meta.len() > MAX_FILE_BYTES {
            return Err(Error::conflict("not a statistics file: not a regular file, or too large")
                .at(path)
                .with_remedy(remedy![
                    "give a file that ",
                    Command::Read.with(Opt::Json),
                    " wrote"
                ]));
        }
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, "cannot read", error))?;
        let text = String::from_utf8_lossy(&bytes);
        Measured::from_json(&text, self.strategy.as_deref()).map_err(|error| error.at(path))
    }

    /// The error if times are needed that are neither given nor measured.
    fn missing(&self, name: &str, option: Opt) -> Error {
        let error = Error::conflict(format!("there are no {name} times"))
            .with_remedy(remedy!["give ", option]);
        self.from.iter().fold(error, |error, path| error.at(path))
    }

    /// The base run, and one run per change.
    ///
    /// # Errors
    /// If the options make no valid model, or the statistics cannot be read.
    pub fn scenarios(&self) -> Result<Vec<Scenario>> {
        let base = self.model()?;
        let mut scenarios = vec![Scenario { name: "base".to_owned(), run: simulate(&base)? }];
        for change in &self.what_if {
            let run = base
                .changed(change)
                .and_then(|model| simulate(&model))
                .map_err(|error| error.within(Opt::WhatIf.to(change.name.clone())))?;
            scenarios.push(Scenario { name: change.name.clone(), run });
        }
        Ok(scenarios)
    }
}

/// Times with the given mean and spread, or as measured; `None` if there are neither.
fn given(
    (mean, spread, default): (Option<Duration>, Option<Spread>, f64),
    measured: Option<&Times>,
) -> Option<Times> {
    let new = |mean: f64| Times::new(mean, spread.unwrap_or(Spread::Share(default)).of(mean));
    match (mean.map(|mean| mean.as_secs_f64()), measured) {
        (Some(mean), _) => Some(new(mean)),
        (None, Some(times)) if spread.is_some() => Some(new(times.mean_s())),
        (None, times) => times.cloned(),
    }
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn parsed(words: &str) -> std::result::Result<SimulateOptions, clap::Error> {
        let command = SimulateOptions::augment_args(Command::new("simulate")).no_binary_name(true);
        SimulateOptions::from_arg_matches(&command.try_get_matches_from(words.split(' '))?)
    }

    #[test]
    fn flags_set_the_options_of_their_names() {
        let options = parsed("--loaders 7 --load-time 2s --step-time 100ms").unwrap();
        let expected = SimulateOptions {
            loaders: Some(7),
            load_time: Some(Duration::from_secs(2)),
            step_time: Some(Duration::from_millis(100)),
            ..SimulateOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(options.model().unwrap(), Model::new(7, 2.0, 0.1));
        let changes = " --load-spread 200ms --queue 3 --in-order --batches 9 --what-if load=2x";
        let options =
            parsed(&("--loaders 7 --load-time 2s --step-time 1ms".to_owned() + changes)).unwrap();
        let model = options.model().unwrap();
        assert_eq!((model.load, model.queue), (Times::new(2.0, 0.2), 3));
        assert_eq!((model.order, model.end), (Order::InOrder, End::Batches(9)));
        assert_eq!(options.scenarios().unwrap()[1].name, "load=2x");
        let changes = " --copy-time 30ms --decode-time 20ms --decode-spread 10% --what-if copy=2x";
        let options =
            parsed(&("--loaders 7 --load-time 2s --step-time 1ms".to_owned() + changes)).unwrap();
        let model = options.model().unwrap();
        assert_eq!(model.copy, Some(Times::new(0.03, 0.0)));
        assert_eq!((model.decode, model.device_slots), (Some(Times::new(0.02, 0.002)), 3));
        for wrong in ["--loaders 7", "--from f --strategy s --load-spread 3", "--strategy s"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_option_and_the_change() {
        let short = "--loaders 7 --load-time 2s --step-time 1ms";
        let error = parsed(&format!("{short} --what-if workers=0")).unwrap().scenarios();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("what_if=workers=0"), "{error}");
        for (wrong, option) in [
            (" --what-if copy=2x", "copy_time"),
            (" --copy-time 1ms --what-if decode=2x", "decode_time"),
            (" --copy-spread 5%", "copy_time"),
            (" --decode-spread 5%", "decode_time"),
            (" --copy-time 0s", "copy time"),
            (" --device-slots 0", "device slots"),
        ] {
            let error = parsed(&format!("{short}{wrong}")).unwrap().scenarios().unwrap_err();
            assert!(error.to_string().contains(option), "{error}");
            assert!(error.remedy().is_some(), "{error}");
        }
        let error = parsed("--from missing.json").unwrap().scenarios().unwrap_err().to_string();
        assert!(error.contains("missing.json"), "{error}");
    }
}
