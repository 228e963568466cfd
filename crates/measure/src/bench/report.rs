//! Means and spreads over the repeats, and how much faster each strategy is than the original.

use std::fmt;

use hsipack_read::{Distribution, Statistics};
use serde::{Deserialize, Serialize};

use super::busy::WINDOW_S;
use super::data::Data;
use super::measure::Measurement;
use super::options::{Augment, BenchOptions, Settings, Strategy};
use crate::machine::Machine;

/// Standard deviation, as part of the mean, from which on a figure is flagged.
const UNSTEADY: f64 = 0.25;

/// The results of a benchmark. Times are in seconds, sizes in bytes, shares from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this schema: 1.
    pub schema: u32,
    /// Where it was measured.
    pub machine: Machine,
    /// The device: `cpu`, `cuda:0`, …
    pub device: String,
    /// Name of the GPU.
    pub gpu: Option<String>,
    /// The cubes and their files.
    pub data: Data,
    /// What was the same for all.
    pub settings: Settings,
    /// How often every case was measured.
    pub repeats: usize,
    /// Every strategy at every rate, in the order in which they were asked for.
    pub strategies: Vec<Entry>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// A strategy at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The strategy.
    pub name: Strategy,
    /// Bytes read a second, all workers together; unlimited if null.
    pub rate_limit: Option<u64>,
    /// Seconds of an epoch: of each repeat the mean.
    pub epoch_s: Spread,
    /// Cubes a second.
    pub cubes_per_s: Spread,
    /// How many times as fast as `original` at this rate, in the same repeat; null without it.
    pub speedup: Option<Spread>,
    /// Processor time of an epoch.
    pub cpu_s: Option<Spread>,
    /// The most memory that its process held.
    pub peak_bytes: Option<Spread>,
    /// Bytes read from files in an epoch.
    pub bytes_read: Spread,
    /// Of these, bytes that came from disks.
    pub disk_bytes: Option<Spread>,
    /// Share of the time in which the device worked.
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
    /// Repeats.
    pub n: usize,
    /// Each of them.
    pub values: Vec<f64>,
}

impl Spread {
    /// Of some numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let Distribution { mean, sd, .. } = Distribution::of(values.iter().copied());
        let n = values.len();
        Self { mean, sd, n, values }
    }

    /// Whether the repeats differ so much that their mean says little.
    pub fn is_unsteady(&self) -> bool {
        self.n > 1 && self.sd > UNSTEADY * self.mean.abs()
    }

    /// Of numbers that may be missing; `None` if one is.
    fn of_all(values: impl IntoIterator<Item = Option<f64>>) -> Option<Self> {
        let values: Option<Vec<f64>> = values.into_iter().collect();
        values.map(Self::of)
    }
}

impl Entry {
    /// A warning, if the repeats differ so much that the mean says little.
    fn unsteady(&self) -> Option<String> {
        let at =
            self.rate_limit.map_or(String::new(), |rate| format!(" at {} MB/s", rate as f64 / 1e6));
        self.epoch_s.is_unsteady().then(|| {
            format!(
                "the repeats of {}{at} differ by much ({:.3} s an epoch, standard deviation {:.3} s): \
                 end what else the machine does, and measure more epochs or more repeats",
                self.name, self.epoch_s.mean, self.epoch_s.sd
            )
        })
    }
}

/// `2.61 ± 0.05`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = places(self.mean);
        write!(f, "{:.places$}", self.mean)?;
        if self.n < 2 { Ok(()) } else { write!(f, " ± {:.places$}", self.sd) }
    }
}

/// A figure with two places behind the point, or three digits that are not leading zeros if it is small.
pub(super) fn digits(value: f64) -> String {
    format!("{value:.*}", places(value))
}

fn places(value: f64) -> usize {
    match value.abs() {
        0.0 => 2,
        size => (2.0 - size.log10().floor()).clamp(2.0, 9.0) as usize,
    }
}

/// How busy the device was, window after window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of a window in seconds.
    pub window_s: f64,
    /// Who says so: `nvml`, or the consumer's `clock`.
    pub source: String,
    /// Share of each window, 0 to 1.
    pub busy: Vec<f64>,
}

/// A measurement and what it is of.
type Found = (Strategy, Option<u64>, Measurement);

impl Report {
    /// Sums up.
    pub fn new(options: &BenchOptions, data: Data, found: &[Found]) -> Self {
        let mut strategies = Vec::new();
        for rate in &options.rate_limits {
            for strategy in &options.strategies {
                strategies.extend(Entry::of(*strategy, *rate, found));
            }
        }
        let first = found.first().map(|(_, _, measured)| measured);
        let mut notes = Vec::new();
        let device = first.map_or(String::new(), |first| first.device.clone());
        if device == "cpu" {
            notes.push(
                "the device is the CPU: what would run on a GPU takes its cores from loading, and nothing is copied"
                    .to_owned(),
            );
        }
        if options.settings.augment != Augment::None {
            notes.push(
                "original, +blosc and +fp16 augment cube by cube on the CPU with hsipack's own loops, which are faster than those \
                 that loaders usually have: over a usual loader the speed-ups are larger"
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

/// What [`Entry::figures`] gives.
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
    /// The figures as people read them, one for each of [`FIGURES`]; `bytes` writes sizes.
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

    fn of(name: Strategy, rate_limit: Option<u64>, found: &[Found]) -> Option<Self> {
        let of = |wanted: Strategy| -> Vec<&Measurement> {
            let alike = found
                .iter()
                .filter(|(strategy, rate, _)| *strategy == wanted && *rate == rate_limit);
            alike.map(|(_, _, measured)| measured).collect()
        };
        let (own, original) = (of(name), of(Strategy::Original));
        let last = *own.last()?;
        let epoch_s =
            |one: &Measurement| one.epoch_s.iter().sum::<f64>() / one.epoch_s.len().max(1) as f64;
        let seconds = |one: &Measurement| one.epoch_s.iter().sum::<f64>();
        let per_epoch = |one: &Measurement, value: f64| value / one.epoch_s.len().max(1) as f64;
        let spread =
            |value: &dyn Fn(&Measurement) -> f64| Spread::of(own.iter().map(|one| value(one)));
        let speedup = (own.len() == original.len()).then(|| {
            let pairs = original.iter().zip(&own);
            Spread::of(pairs.map(|(original, own)| epoch_s(original) / epoch_s(own)))
        });
        Some(Self {
            name,
            rate_limit,
            epoch_s: spread(&epoch_s),
            cubes_per_s: spread(&|one| one.cubes as f64 / seconds(one)),
            speedup,
            cpu_s: Spread::of_all(own.iter().map(|one| one.cpu_s.map(|cpu| per_epoch(one, cpu)))),
            peak_bytes: Spread::of_all(
                own.iter().map(|one| one.peak_bytes.map(|peak| peak as f64)),
            ),
            bytes_read: spread(&|one| per_epoch(one, one.bytes_read as f64)),
            disk_bytes: Spread::of_all(
                own.iter().map(|one| one.disk_bytes.map(|bytes| per_epoch(one, bytes as f64))),
            ),
            utilisation: spread(&|one| one.utilisation),
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
        let told = |values: &[f64]| Spread::of(values.iter().copied()).to_string();
        assert_eq!(told(&[2.6, 2.7]), "2.65 ± 0.07");
        assert_eq!(told(&[0.0011, 0.0012]), "0.00115 ± 0.00007");
        assert_eq!(
            [0.0, 0.03, 0.12, 1e-300].map(digits),
            ["0.00", "0.0300", "0.120", "0.000000000"]
        );
    }

    #[test]
    fn repeats_that_differ_by_much_are_flagged() {
        let of = |times: &[f64]| {
            let found: Vec<Found> = times
                .iter()
                .map(|time| (Strategy::Ring, Some(5_000_000), measured(*time)))
                .collect();
            Entry::of(Strategy::Ring, Some(5_000_000), &found).unwrap().unsteady()
        };
        assert_eq!((of(&[1.0, 1.1, 0.9]), of(&[3.0])), (None, None));
        let note = of(&[0.1, 2.0, 0.3]).unwrap();
        assert!(note.contains("+ring-buffer at 5 MB/s differ by much (0.800 s an epoch"), "{note}");
    }

    #[test]
    fn speed_ups_are_those_of_the_same_repeat() {
        let rate = Some(7);
        let found: Vec<Found> = [
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
