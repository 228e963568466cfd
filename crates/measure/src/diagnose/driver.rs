//! Runs the levels of any pipeline, finds the culprit, and tries the remedy: the one algorithm
//! behind `hsipack diagnose` and `hsipack.diagnose`.
//!
//! ```text
//! attempt: rounds of all levels → verdict → (each augmentation left out) → remedy → rounds with and without it
//! again, if the machine changed its speed between levels and remedy
//! ```
//!
//! The trait [`Levels`] stands for the pipeline: a packed dataset (`packed.rs`), or a loader in
//! Python.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsipack_read::Statistics;
use serde::{Deserialize, Serialize};

use super::action::Action;
use super::effort::Effort;
use super::facts::{AugmentationCost, Facts};
use super::level::Level;
use super::prediction::Basis;
use super::remedy::{Remedy, remedy};
use super::report::{Diagnosis, Trial, Verified};
use super::rounds::Rounds;
use super::verdict::{Measured, Verdict, median, verdict};
use crate::{Error, ErrorKind, Result, machine};

/// A pipeline whose parts can be replaced by data that is kept ready.
pub trait Levels {
    /// The subject of the diagnosis: the first line of the report.
    fn subject(&self) -> String;

    /// Samples per batch, if known.
    fn batch_size(&self) -> Option<usize>;

    /// The levels that apply, in order. In the last one, everything is real.
    fn levels(&self) -> Vec<Level>;

    /// The level beside which [`Basis::MoreThreads`] is timed, and the number of threads; `None` if
    /// more threads would show nothing.
    fn more_threads(&self) -> Option<(Level, usize)>;

    /// Names of the augmentations, in order; empty if they cannot be told apart.
    fn augmentations(&self) -> Vec<String>;

    /// Whether [`time`](Self::time) can apply this action while everything is real.
    fn can_try(&self, action: &Action) -> bool;

    /// Times a variant: builds it, warms it up, and gives `timer` the function that takes a batch
    /// and trains on it.
    ///
    /// # Errors
    /// If batches cannot be loaded, the training step fails, or the timer is stopped.
    fn time(&mut self, variant: Variant<'_>, timer: &Timer<'_>) -> Result<Lap>;

    /// Facts about the pipeline besides the times, after all levels were timed. They need not
    /// include values that the driver measures itself: `load_s`, `more_threads`, `more_threads_s`,
    /// `augmentations`, `available_memory`, and `cores` if it is 0.
    ///
    /// # Errors
    /// If the pipeline cannot be inspected.
    fn facts(&mut self) -> Result<Facts>;

    /// Levels that could not be measured, with the reason.
    fn notes(&self) -> Vec<String>;
}

/// A variant of the pipeline that is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Variant<'a> {
    /// A level, or another variant on which a prediction can be based.
    Basis(Basis),
    /// Everything real, with a remedy applied.
    Remedied(&'a Action),
}

impl From<Level> for Variant<'_> {
    fn from(level: Level) -> Self {
        Self::Basis(Basis::Level { level })
    }
}

/// The result of timing a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lap {
    /// Mean seconds per batch.
    pub batch_s: f64,
    /// Statistics of the loader during this time, if it is hsipack's.
    pub statistics: Option<Statistics>,
}

/// Times batches.
#[derive(Clone, Copy, Debug)]
pub struct Timer<'a> {
    time: Duration,
    stop: &'a AtomicBool,
}

/// Minimum number of measured batches.
const BATCHES: usize = 3;

impl<'a> Timer<'a> {
    /// Times batches for at least this long, unless it is stopped.
    pub(super) fn new(time: Duration, stop: &'a AtomicBool) -> Self {
        Self { time, stop }
    }

    /// Mean seconds that `batch` takes, over at most `most` calls. One call before them is not
    /// measured. `wait` waits for the work queued on the device.
    ///
    /// # Errors
    /// The first error of `batch` or `wait`, or if the diagnosis is to stop.
    pub fn batches(
        &self,
        most: usize,
        wait: impl Fn() -> Result<()>,
        batch: impl FnMut() -> Result<()>,
    ) -> Result<f64> {
        let origin = Instant::now();
        self.batches_by(|| origin.elapsed(), most, wait, batch)
    }

    /// Like [`batches`](Self::batches), by a clock.
    fn batches_by(
        &self,
        clock: impl Fn() -> Duration,
        most: usize,
        wait: impl Fn() -> Result<()>,
        mut batch: impl FnMut() -> Result<()>,
    ) -> Result<f64> {
        batch()?;
        wait()?;
        let start = clock();
        let mut batches = 0;
        while batches < most && (batches < BATCHES || clock() - start < self.time) {
            self.check()?;
            batch()?;
            batches += 1;
        }
        wait()?;
        Ok((clock() - start).as_secs_f64() / batches.max(1) as f64)
    }

    /// Checks whether the diagnosis is to stop.
    ///
    /// # Errors
    /// If it is to stop.
    pub fn check(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Interrupted, "stopped")),
            false => Ok(()),
        }
    }
}

/// Diagnoses a pipeline. `stop` ends it early; `tell` receives progress messages.
///
/// # Errors
/// If a level cannot be run, or the diagnosis was stopped.
pub fn diagnose(
    levels: &mut dyn Levels,
    effort: Effort,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    let timer = Timer::new(effort.time, stop);
    let mut driver = Driver { levels, effort, timer, tell };
    let mut attempt = 1;
    loop {
        let mut diagnosis = driver.attempt()?;
        diagnosis.attempts = attempt;
        let steady = diagnosis.verified.as_ref().is_none_or(|verified| verified.steady);
        if steady || attempt == Rounds::ATTEMPTS {
            return Ok(diagnosis);
        }
        attempt += 1;
        driver.say("the speed of the machine changed: measuring everything again")?;
    }
}

/// A running diagnosis.
struct Driver<'a> {
    levels: &'a mut dyn Levels,
    effort: Effort,
    timer: Timer<'a>,
    tell: &'a mut dyn FnMut(&str),
}

/// The result of timing all levels.
struct Timed {
    verdict: Verdict,
    /// Seconds to load a batch with everything real: the median over rounds, like the times of the
    /// verdict.
    load_s: Option<f64>,
    /// Seconds per batch with more threads, and the number of threads.
    more_threads: Option<(f64, usize)>,
    /// Statistics of the last round with everything real.
    statistics: Option<Statistics>,
}

impl Driver<'_> {
    /// One attempt: measures everything once.
    fn attempt(&mut self) -> Result<Diagnosis> {
        let limits = self.effort.limits;
        let timed = self.timed()?;
        let (more_threads_s, more_threads) = timed.more_threads.unzip();
        let mut facts = self.levels.facts()?;
        facts.load_s = timed.load_s;
        (facts.more_threads_s, facts.more_threads) = (more_threads_s, more_threads.unwrap_or(0));
        facts.available_memory = machine::available_memory();
        if facts.cores == 0 {
            facts.cores = hsipack_store::threads::cores();
        }
        let verdict = if facts.remote { timed.verdict.of_server() } else { timed.verdict };
        if verdict.culprit == Some(Level::Augment) {
            facts.augmentations = self.augmentations()?;
        }
        let remedy = remedy(&verdict, &facts);
        let mut notes = self.levels.notes();
        let mut verified = None;
        if let Some(remedy) = remedy.as_ref().filter(|_| self.effort.verify) {
            if self.levels.can_try(&remedy.action) {
                let trial = self.tried(remedy)?;
                verified = Some(Verified::new(trial, remedy, &verdict, &facts, limits));
            } else if matches!(remedy.action, Action::ShuffleWindow { .. }) {
                notes.push(
                    "a shuffle window has an effect only if not all samples fit into memory, so it could not be verified with the few samples that are read here"
                        .to_owned(),
                );
            } else {
                notes.push("there is no option to try, so no gain was verified".to_owned());
            }
        }
        Ok(Diagnosis {
            subject: self.levels.subject(),
            batch_size: self.levels.batch_size(),
            verdict,
            limits,
            facts,
            remedy,
            verified,
            statistics: timed.statistics,
            attempts: 1,
            notes,
        })
    }

    /// Times the levels, round after round, until the verdict is settled.
    fn timed(&mut self) -> Result<Timed> {
        let levels = self.levels.levels();
        let (rounds, limits) = (self.effort.rounds, self.effort.limits);
        let more = self.levels.more_threads();
        let real = real(&levels);
        let mut measured: Vec<Measured> =
            levels.iter().map(|level| Measured { level: *level, batch_s: Vec::new() }).collect();
        let (mut loads, mut with_more, mut statistics) = (Vec::new(), Vec::new(), None);
        while !rounds.suffice(&measured, limits) {
            for Measured { level, batch_s } in &mut measured {
                self.say(&rounds.name(batch_s.len() + 1, level.adds()))?;
                let lap = self.levels.time((*level).into(), &self.timer)?;
                batch_s.push(lap.batch_s);
                // In the same round, so that both run on the machine in the same state.
                if more.is_some_and(|(beside, _)| beside == *level) {
                    with_more.push(self.time(Variant::Basis(Basis::MoreThreads))?);
                }
                if real == Some(*level) {
                    loads.extend(lap.statistics.as_ref().map(|stats| stats.times.load_s.mean));
                    statistics = lap.statistics;
                }
            }
        }
        let middle = |times: &[f64]| (!times.is_empty()).then(|| median(times));
        let more_threads = middle(&with_more).zip(more.map(|(_, threads)| threads));
        let verdict = verdict(&measured, limits);
        Ok(Timed { verdict, load_s: middle(&loads), more_threads, statistics })
    }

    /// Reports progress, then checks whether the diagnosis is to stop.
    fn say(&mut self, what: &str) -> Result<()> {
        (self.tell)(what);
        self.timer.check()
    }

    /// Seconds per batch.
    fn time(&mut self, variant: Variant<'_>) -> Result<f64> {
        Ok(self.levels.time(variant, &self.timer)?.batch_s)
    }

    /// Measures the cost of every augmentation.
    fn augmentations(&mut self) -> Result<Vec<AugmentationCost>> {
        let mut costs = Vec::new();
        for (index, name) in self.levels.augmentations().into_iter().enumerate() {
            self.say(&format!("without {name}"))?;
            let times = (0..self.effort.rounds.requested())
                .map(|_| self.time(Variant::Basis(Basis::Without { index })))
                .collect::<Result<Vec<f64>>>()?;
            costs.push(AugmentationCost { name, without_s: median(&times) });
        }
        Ok(costs)
    }

    /// Times three variants in turns: everything real, the same with the remedy, and the basis of
    /// the prediction.
    fn tried(&mut self, remedy: &Remedy) -> Result<Trial> {
        let (rounds, limits) = (self.effort.rounds, self.effort.limits);
        let real = real(&self.levels.levels()).unwrap_or(Level::Step);
        let (mut before, mut after, mut basis) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.say(&rounds.name(before.len() + 1, "the remedy"))?;
            before.push(self.time(real.into())?);
            after.push(self.time(Variant::Remedied(&remedy.action))?);
            if let Some(of) = remedy.basis {
                basis.push(self.time(Variant::Basis(of))?);
            }
            let times = [&before[..], &after, &basis];
            // Leave out the last one if there is no basis.
            let measured = if basis.is_empty() { &times[..2] } else { &times };
            if rounds.suffice_to_compare(measured, limits) {
                break;
            }
        }
        let basis_s = (!basis.is_empty()).then(|| median(&basis));
        Ok(Trial { before_s: median(&before), after_s: median(&after), basis_s })
    }
}

/// The level in which everything is real and files are in the system's cache.
fn real(levels: &[Level]) -> Option<Level> {
    levels.iter().copied().rfind(|level| *level != Level::Cold)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hsipack_read::Distribution;

    use super::super::verdict::Limits;
    use super::*;

    /// Levels whose batches take exactly the time they claim.
    struct Scripted {
        levels: Vec<Level>,
        takes: fn(Level) -> f64,
        /// Whether a lap takes twice as long; laps are counted from 0.
        slow: fn(usize) -> bool,
        can_try: bool,
        more_threads: Option<(Level, usize)>,
        /// The variants that were timed.
        laps: Vec<String>,
    }

    impl Scripted {
        fn new(levels: &[Level], takes: fn(Level) -> f64) -> Self {
            Self {
                levels: levels.to_vec(),
                takes,
                slow: |_| false,
                can_try: true,
                more_threads: None,
                laps: Vec::new(),
            }
        }

        fn diagnose(&mut self, effort: Effort) -> (Diagnosis, Vec<String>) {
            let mut messages = Vec::new();
            let stop = AtomicBool::new(false);
            let diagnosis =
                diagnose(self, effort, &stop, &mut |what| messages.push(what.to_owned()));
            (diagnosis.unwrap(), messages)
        }
    }

    impl Levels for Scripted {
        fn subject(&self) -> String {
            "a script".to_owned()
        }

        fn batch_size(&self) -> Option<usize> {
            Some(4)
        }

        fn levels(&self) -> Vec<Level> {
            self.levels.clone()
        }

        fn more_threads(&self) -> Option<(Level, usize)> {
            self.more_threads
        }

        fn augmentations(&self) -> Vec<String> {
            vec!["hflip".to_owned(), "elastic".to_owned()]
        }

        fn can_try(&self, _: &Action) -> bool {
            self.can_try
        }

        fn time(&mut self, variant: Variant<'_>, _: &Timer<'_>) -> Result<Lap> {
            let (name, takes_s) = match variant {
                Variant::Basis(Basis::Level { level }) => (level.adds(), (self.takes)(level)),
                Variant::Basis(Basis::MoreThreads) => ("more threads", 0.3),
                Variant::Basis(Basis::Without { index: 1 }) => ("without the dearest", 0.15),
                Variant::Basis(Basis::Without { .. }) => ("without another", 0.45),
                Variant::Remedied(_) => ("remedied", 0.2),
            };
            let batch_s = if (self.slow)(self.laps.len()) { 2.0 * takes_s } else { takes_s };
            self.laps.push(name.to_owned());
            let mut statistics = Statistics::default();
            statistics.times.load_s = Distribution::of([batch_s / 8.0]);
            Ok(Lap { batch_s, statistics: Some(statistics) })
        }

        fn facts(&mut self) -> Result<Facts> {
            let bytes = Some(1);
            let threads = 1 << 20;
            Ok(Facts { stored_bytes: bytes, decoded_bytes: bytes, threads, ..Facts::default() })
        }

        fn notes(&self) -> Vec<String> {
            vec!["a note".to_owned()]
        }
    }

    const EFFORT: Effort = Effort {
        rounds: Rounds::new(2),
        time: Duration::ZERO,
        verify: true,
        limits: Limits { share: 0.05, spreads: 2.0 },
    };

    const LEVELS: [Level; 3] = [Level::Step, Level::Decode, Level::Read];

    fn disk(level: Level) -> f64 {
        if level >= Level::Read { 0.4 } else { 0.2 }
    }

    #[test]
    fn levels_take_turns_and_the_remedy_is_tried_beside_everything_real() {
        let mut levels = Scripted::new(&LEVELS, disk);
        let (diagnosis, messages) = levels.diagnose(EFFORT);
        assert_eq!(diagnosis.verdict.culprit, Some(Level::Read));
        assert_eq!((diagnosis.attempts, &diagnosis.notes[..]), (1, &["a note".to_owned()][..]));
        let round = ["the training step", "decoding", "reading files"];
        let trial = ["reading files", "remedied", "decoding"];
        assert_eq!(levels.laps, [round, round, trial, trial].concat());
        assert_eq!(messages[0], "round 1 of 2: the training step");
        assert_eq!(messages.last().unwrap(), "round 2 of 2: the remedy");
        let verified = diagnosis.verified.unwrap();
        assert!(verified.steady && (verified.gain - 2.0).abs() < 1e-9, "{verified:?}");
        assert_eq!((diagnosis.facts.load_s, diagnosis.facts.cores > 0), (Some(0.05), true));
    }

    #[test]
    fn a_listener_may_stop_a_diagnosis_before_its_next_level() {
        let (mut levels, stop) = (Scripted::new(&LEVELS, disk), AtomicBool::new(false));
        let mut tell = |what: &str| stop.store(what.ends_with("decoding"), Ordering::Relaxed);
        let error = diagnose(&mut levels, EFFORT, &stop, &mut tell).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert_eq!(levels.laps, ["the training step"]);
    }

    #[test]
    fn more_threads_are_timed_in_the_rounds_of_their_level() {
        let mut levels = Scripted::new(&LEVELS, disk);
        levels.more_threads = Some((Level::Decode, 8));
        let (diagnosis, _) = levels.diagnose(Effort { verify: false, ..EFFORT });
        let round = ["the training step", "decoding", "more threads", "reading files"];
        assert_eq!(levels.laps, [round, round].concat());
        let facts = &diagnosis.facts;
        assert_eq!((facts.more_threads, facts.more_threads_s), (8, Some(0.3)));
    }

    #[test]
    fn a_remedy_that_nobody_can_try_is_not_verified_and_a_note_says_so() {
        let mut levels = Scripted::new(&LEVELS, disk);
        levels.can_try = false;
        let (diagnosis, _) = levels.diagnose(EFFORT);
        assert!(diagnosis.remedy.is_some() && diagnosis.verified.is_none());
        assert!(diagnosis.notes[1].starts_with("there is no option to try"));
        assert!(!levels.laps.contains(&"remedied".to_owned()));
    }

    #[test]
    fn every_augmentation_is_left_out_where_they_are_to_blame() {
        let takes = |level| if level >= Level::Augment { 0.5 } else { 0.1 };
        let mut levels = Scripted::new(&[Level::Step, Level::Augment, Level::Read], takes);
        let (diagnosis, messages) = levels.diagnose(Effort { verify: false, ..EFFORT });
        let costs = diagnosis.facts.augmentations.iter();
        let costs: Vec<(&str, f64)> = costs.map(|cost| (&cost.name[..], cost.without_s)).collect();
        assert_eq!(costs, [("hflip", 0.45), ("elastic", 0.15)]);
        assert_eq!(messages[messages.len() - 2..], ["without hflip", "without elastic"]);
        let action = Action::Without { index: 1, name: "elastic".to_owned() };
        assert_eq!(diagnosis.remedy.unwrap().action, action);
    }

    #[test]
    fn all_is_measured_again_while_the_machine_changes_its_speed_three_times_at_most() {
        // With one round, an attempt is six laps: three levels, then everything real, the remedy and `decode` in turns.
        let once = Effort { rounds: Rounds::new(1), ..EFFORT };
        let diagnosed = |slow| {
            let mut levels = Scripted { slow, ..Scripted::new(&LEVELS, disk) };
            let (diagnosis, messages) = levels.diagnose(once);
            let again =
                messages.iter().filter(|what| what.ends_with("measuring everything again")).count();
            assert_eq!(again + 1, diagnosis.attempts);
            let verified = diagnosis.verified.unwrap();
            let same = verified.before_s == diagnosis.verdict.real_s();
            assert_eq!(same, verified.steady, "levels and trial are of the last attempt");
            (diagnosis.attempts, verified.steady)
        };
        assert_eq!(diagnosed(|_| false), (1, true));
        // Everything real, or the basis of the prediction, was slow only in the first trial; then in every trial.
        assert_eq!(diagnosed(|lap| lap == 3), (2, true));
        assert_eq!(diagnosed(|lap| lap == 5), (2, true));
        assert_eq!(diagnosed(|lap| lap % 6 == 3), (3, false));
        // Slow from the trial on: the second attempt is equally slow throughout.
        assert_eq!(diagnosed(|lap| lap >= 3), (2, true));
    }

    #[test]
    fn a_timer_takes_three_batches_at_least_and_as_many_as_there_is_time_for_or_are_allowed() {
        let stop = AtomicBool::new(false);
        let timer = |time| Timer { time, stop: &stop };
        // Batches that take 2 ms each, and queue work on the device that takes another 1 ms each.
        let timed = |time, most| {
            let (now, queued, calls) = (Cell::new(0), Cell::new(0), Cell::new(0));
            let clock = || Duration::from_millis(now.get());
            let batch = || {
                calls.set(calls.get() + 1);
                queued.set(queued.get() + 1);
                now.set(now.get() + 2);
                Ok(())
            };
            let wait = || {
                now.set(now.get() + queued.take());
                Ok(())
            };
            let batch_s = timer(time).batches_by(clock, most, wait, batch).unwrap();
            assert!((batch_s - 3e-3).abs() < 1e-9, "{batch_s}");
            calls.get()
        };
        // One call is not measured.
        assert_eq!(timed(Duration::ZERO, usize::MAX), 1 + BATCHES);
        assert_eq!(timed(Duration::from_millis(30), usize::MAX), 1 + 15);
        assert_eq!(timed(Duration::from_millis(30), 2), 3);
        stop.store(true, Ordering::Relaxed);
        let error = timer(Duration::ZERO).batches(9, || Ok(()), || Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
}
