//! Means and spreads over the repeats, and each strategy's speed-up over the original.

use std::fmt;

use hsipack_read::{Distribution, Statistics};
use serde::{Deserialize, Serialize};

use super::augment::Augment;
use super::busy::WINDOW_S;
use super::data::Data;
use super::measure::Measurement;
use super::options::{BenchOptions, Settings, Strategy};
use crate::machine::Machine;

/// A figure is flagged if its standard deviation is more than this share of the mean.
const UNSTEADY: f64 = 0.25;

/// The results of a benchmark. Times are in seconds, sizes in bytes, shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this schema: 1.
    pub schema: u32,
    /// The machine on which it was measured.
    pub machine: Machine,
    /// The device: `cpu`, `cuda:0`, …
    pub device: String,
    /// Name of the GPU.
    pub gpu: Option<String>,
    /// The cubes and their files.
    pub data: Data,
    /// Settings that were the same for all cases.
    pub settings: Settings,
    /// Number of times every case was measured.
    pub repeats: usize,
    /// Every strategy at every rate limit, in the order in which they were requested.
    pub strategies: Vec<Entry>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Results of a strategy at a rate limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The strategy.
    pub name: Strategy,
    /// Bytes read per second by all workers together; unlimited if null.
    pub rate_limit: Option<u64>,
    /// Seconds per epoch: the mean of each repeat.
    pub epoch_s: Spread,
    /// Cubes per second.
    pub cubes_per_s: Spread,
    /// Speed-up over `original` at this rate limit in the same repeat; null without `original`.
    pub speedup: Option<Spread>,
    /// Processor time per epoch, in seconds.
    pub cpu_s: Option<Spread>,
    /// The most memory that the process held.
    pub peak_bytes: Option<Spread>,
    /// Bytes read from files per epoch.
    pub bytes_read: Spread,
    /// Bytes of these that came from disks.
    pub disk_bytes: Option<Spread>,
    /// Share of the time during which the device worked.
    pub utilisation: Spread,
    /// The same over time, in the last repeat.
    pub timeline: Timeline,
    /// Where the time went, in the last repeat; `hsipack simulate --from` reads it.
    pub statistics: Statistics,
}

/// A figure over the repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Its mean.
    pub mean: f64,
    /// Its standard deviation; 0 for one repeat.
    pub sd: f64,
    /// Number of repeats.
    pub n: usize,
    /// The value of each repeat.
    pub values: Vec<f64>,
}

impl Spread {
    /// Mean and spread of some numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let Distribution { mean, sd, .. } = Distribution::of(values.iter().copied());
        let n = values.len();
        Self { mean, sd, n, values }
    }

    /// Whether the repeats differ so much that their mean is unreliable.
    pub fn is_unsteady(&self) -> bool {
        self.n > 1 && self.sd > UNSTEADY * self.mean.abs()
    }

    /// As [`of`](Self::of), for numbers that may be missing; `None` if one is.
    fn of_all(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Option<Vec<f64>> = values.into_iter().collect();
        values.map(Self::of)
    }
}

impl Entry {
    /// A warning if the repeats differ so much that the mean is unreliable.
    fn unsteady(&self) -> Option<String> {
        let at =
            self.rate_limit.map_or(String::new(), |rate| format!(" at {} MB/s", rate as f64 / 1e6));
        self.epoch_s.is_unsteady().then(|| {
            format!(
                "the repeats of {}{at} differ a lot ({:.3} s per epoch, standard deviation {:.3} s): end other programs on this machine, and measure more epochs or more repeats",
                self.name, self.epoch_s.mean, self.epoch_s.sd
            )
        })
    }
}

/// Formats as `2.61 ± 0.05`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = places(self.mean);
        write!(f, "{:.places$}", self.mean)?;
        if self.n < 2 { Ok(()) } else { write!(f, " ± {:.places$}", self.sd) }
    }
}

/// Formats a figure with two decimals, or a small one with three significant digits.
pub(super) fn digits(value: f64) -> String {
    format!("{value:.*}", places(value))
}

fn places(value: f64) -> usize {
    match value.abs() {
        0.0 => 2,
        size => (2.0 - size.log10().floor()).clamp(2.0, 9.0) as usize,
    }
}

/// Device load over time, in windows of equal length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a window in seconds.
    pub window_s: f64,
    /// How it was measured: by `nvml`, or by the consumer's `clock`.
    pub source: String,
    /// Share of each window during which the device worked, 0 to 1.
    pub busy: Vec<f64>,
}

/// A measurement, with its strategy and rate limit.
type StrategyRun = (Strategy, Option<u64>, Measurement);

impl Report {
    /// Summarises the measurements.
    pub fn new(options: &BenchOptions, data: Data, found: &[StrategyRun]) -> Self {
        let mut strategies = Vec::new();
        for rate in options.rate_limits() {
            for strategy in options.strategies() {
                strategies.extend(Entry::of(strategy, rate, found));
            }
        }
        let first = found.first().map(|(_, _, measured)| measured);
        let mut notes = Vec::new();
        let device = first.map_or(String::new(), |first| first.device.clone());
        if device == "cpu" {
            notes.push(
                "the device is the CPU: training and augmentation use cores that loading needs, and no data are copied"
                    .to_owned(),
            );
        }
        if options.settings.augment != Augment::None {
            notes.push(
                "original, +blosc and +fp16 augment cube by cube on the CPU with hsipack's own code, which is faster than that of usual loaders: compared with a usual loader, the speed-ups are larger"
                    .to_owned(),
            );
        }
        for (_, _, measured) in found {
            let new = measured.notes.iter().filter(|note| !notes.contains(note)).cloned();
            let new: Vec<String> = new.collect();
            notes.extend(new);
        }
        notes.extend(strategies.iter().filter_map(Entry::unsteady));
        Self {
            schema: 1,
            machine: Machine::this(),
            device,
            gpu: first.and_then(|first| first.gpu.clone()),
            data,
            settings: options.settings.clone(),
            repeats: options.repeats,
            strategies,
            notes,
        }
    }
}

/// Names of the values that [`Entry::figures`] returns.
pub const FIGURES: [&str; 8] = [
    "strategy",
    "s/epoch",
    "cubes/s",
    "speed-up",
    "device busy",
    "CPU s/epoch",
    "peak memory",
    "read/epoch",
];

impl Entry {
    /// The figures for people, one for each of [`FIGURES`]; `bytes` formats sizes.
    pub fn figures(&self, bytes: impl Fn(f64) -> String) -> [String; FIGURES.len()] {
        let missing = || "–".to_owned();
        [
            self.name.to_string(),
            self.epoch_s.to_string(),
            self.cubes_per_s.to_string(),
            self.speedup.as_ref().map_or_else(missing, |speedup| format!("{speedup} ×")),
            format!("{:.1} %", self.utilisation.mean * 100.0),
            self.cpu_s.as_ref().map_or_else(missing, |cpu| digits(cpu.mean)),
            self.peak_bytes.as_ref().map_or_else(missing, |peak| bytes(peak.mean)),
            bytes(self.bytes_read.mean),
        ]
    }

    fn of(name: Strategy, rate_limit: Option<u64>, found: &[StrategyRun]) -> Option<Self> {
        let of = |wanted: Strategy| -> Vec<&Measurement> {
            let alike = found
                .iter()
                .filter(|(strategy, rate, _)| *strategy == wanted && *rate == rate_limit);
            alike.map(|(_, _, measured)| measured).collect()
        };
        let (runs, original) = (of(name), of(Strategy::Original));
        let last = *runs.last()?;
        let epoch_s =
            |run: &Measurement| run.epoch_s.iter().sum::<f64>() / run.epoch_s.len().max(1) as f64;
        let seconds = |run: &Measurement| run.epoch_s.iter().sum::<f64>();
        let per_epoch = |run: &Measurement, value: f64| value / run.epoch_s.len().max(1) as f64;
        let spread =
            |value: &dyn Fn(&Measurement) -> f64| Spread::of(runs.iter().map(|run| value(run)));
        let speedup = (runs.len() == original.len()).then(|| {
            let pairs = original.iter().zip(&runs);
            Spread::of(pairs.map(|(original, run)| epoch_s(original) / epoch_s(run)))
        });
        Some(Self {
            name,
            rate_limit,
            epoch_s: spread(&epoch_s),
            cubes_per_s: spread(&|run| run.cubes as f64 / seconds(run)),
            speedup,
            cpu_s: Spread::of_all(runs.iter().map(|run| run.cpu_s.map(|cpu| per_epoch(run, cpu)))),
            peak_bytes: Spread::of_all(
                runs.iter().map(|run| run.peak_bytes.map(|peak| peak as f64)),
            ),
            bytes_read: spread(&|run| per_epoch(run, run.bytes_read as f64)),
            disk_bytes: Spread::of_all(
                runs.iter().map(|run| run.disk_bytes.map(|bytes| per_epoch(run, bytes as f64))),
            ),
            utilisation: spread(&|run| run.utilisation),
            timeline: Timeline {
                window_s: WINDOW_S,
                source: last.utilisation_source.clone(),
                busy: last.timeline.clone(),
            },
            statistics: last.statistics.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(epoch_s: f64) -> Measurement {
        Measurement {
            epoch_s: vec![epoch_s; 2],
            cubes: 24,
            cpu_s: Some(4.0),
            peak_bytes: None,
            bytes_read: 100,
            disk_bytes: Some(0),
            utilisation: 0.5,
            utilisation_source: "clock".to_owned(),
            timeline: vec![0.5],
            device: "cpu".to_owned(),
            gpu: None,
            statistics: Statistics::default(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn short_times_keep_their_digits() {
        let text = |values: &[f64]| Spread::of(values.iter().copied()).to_string();
        assert_eq!(text(&[2.6, 2.7]), "2.65 ± 0.07");
        assert_eq!(text(&[0.0011, 0.0012]), "0.00115 ± 0.00007");
        assert_eq!(
            [0.0, 0.03, 0.12, 1e-300].map(digits),
            ["0.00", "0.0300", "0.120", "0.000000000"]
        );
    }

    #[test]
    fn repeats_that_differ_by_much_are_flagged() {
        let of = |times: &[f64]| {
            let found: Vec<StrategyRun> = times
                .iter()
                .map(|time| (Strategy::Ring, Some(5_000_000), measured(*time)))
                .collect();
            Entry::of(Strategy::Ring, Some(5_000_000), &found).unwrap().unsteady()
        };
        assert_eq!((of(&[1.0, 1.1, 0.9]), of(&[3.0])), (None, None));
        let note = of(&[0.1, 2.0, 0.3]).unwrap();
        assert!(note.contains("+ring-buffer at 5 MB/s differ a lot (0.800 s per epoch"), "{note}");
    }

    #[test]
    fn speed_ups_are_those_of_the_same_repeat() {
        let rate = Some(7);
        let found: Vec<StrategyRun> = [
            (Strategy::Original, rate, measured(4.0)),
            (Strategy::Ring, rate, measured(2.0)),
            (Strategy::Original, rate, measured(8.0)),
            (Strategy::Ring, rate, measured(2.0)),
            (Strategy::Ring, None, measured(1.0)),
        ]
        .into();
        let entry = Entry::of(Strategy::Ring, rate, &found).unwrap();
        assert_eq!((entry.epoch_s.mean, entry.epoch_s.sd, entry.epoch_s.n), (2.0, 0.0, 2));
        assert_eq!(entry.speedup.unwrap().values, [2.0, 4.0]);
        assert_eq!((entry.cubes_per_s.mean, entry.cpu_s.unwrap().mean), (6.0, 2.0));
        assert!(entry.peak_bytes.is_none());
        assert!(Entry::of(Strategy::Ring, None, &found).unwrap().speedup.is_none());
        assert!(Entry::of(Strategy::Half, rate, &found).is_none());
        assert!((Spread::of([1.0, 2.0, 3.0]).sd - 1.0).abs() < 1e-12);
    }
}
