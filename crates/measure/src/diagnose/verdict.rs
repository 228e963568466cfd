//! Finds the culprit from the times of the levels.

use hsipack_read::Distribution;
use serde::{Deserialize, Serialize};

use super::level::Level;

/// Times of one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The level.
    pub level: Level,
    /// Mean seconds per batch in every round, in the same rounds as the other levels.
    pub batch_s: Vec<f64>,
}

/// When a drop counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// A drop must be at least this share of the time before it.
    pub share: f64,
    /// A drop must be at least this many times the spread of the rounds.
    pub spreads: f64,
}

impl Default for Limits {
    /// Five per cent, and twice the spread.
    fn default() -> Self {
        Self { share: 0.05, spreads: 2.0 }
    }
}

impl Limits {
    /// Whether the median of some times is certain enough: more measurements would hardly change
    /// it.
    pub fn are_certain(self, times: &[f64]) -> bool {
        error(spread(times), times.len()) <= self.share / 2.0 * median(times)
    }

    /// Whether two times of the same work agree: the longer one is at most 1.5 times
    /// [`share`](Self::share) above the shorter one.
    pub fn agree(self, one_s: f64, other_s: f64) -> bool {
        one_s.max(other_s) <= (1.0 + 1.5 * self.share) * one_s.min(other_s)
    }
}

/// A level, compared with the one before it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The level.
    pub level: Level,
    /// The data that are kept instead of being made again.
    pub kept: &'static str,
    /// The part that this level adds.
    pub adds: &'static str,
    /// Seconds per batch: the median of the rounds.
    pub batch_s: f64,
    /// Spread of the rounds: their median distance from the median, scaled to a standard deviation.
    pub spread_s: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Seconds per batch that everything real at this level needs: the minimum over this level and
    /// all later ones, which include everything that this one has.
    pub bound_s: f64,
    /// Additional seconds that it needs over the level before.
    pub cost_s: f64,
    /// This cost as a share of the batch time with everything real.
    pub share: f64,
    /// The cost in seconds above which the drop counts.
    pub needed_s: f64,
    /// Whether the drop counts.
    pub counts: bool,
}

/// The culprit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The levels, in order.
    pub rows: Vec<Row>,
    /// The level with the highest cost among those that count. `None` if none counts: the step
    /// dominates.
    pub culprit: Option<Level>,
    /// Whether more rounds would hardly change the verdict. It is not settled if the median of a
    /// level is uncertain by more than half the share that counts, if the spread hides a drop that
    /// would count, or if the culprit's cost is less than twice the cost that counts.
    pub settled: bool,
}

impl Verdict {
    /// The same for a dataset on a server, where reading means fetching.
    pub(super) fn of_server(mut self) -> Self {
        for row in self.rows.iter_mut().filter(|row| row.level == Level::Read) {
            (row.kept, row.adds) = ("nothing", NETWORK);
        }
        self
    }
}

/// Name of the part that fetches from a server.
pub(super) const NETWORK: &str = "the network";

/// Compares every level with those before it. Levels without times are skipped.
pub fn verdict(measured: &[Measured], limits: Limits) -> Verdict {
    let mut measured: Vec<&Measured> =
        measured.iter().filter(|level| !level.batch_s.is_empty()).collect();
    measured.sort_by_key(|level| level.level);
    let times: Vec<f64> = measured.iter().map(|level| median(&level.batch_s)).collect();
    // Every level includes all levels before it, so no level can need longer than a later one. If it was slower,
    // something else disturbed it.
    let mut bounds = times.clone();
    for index in (1..bounds.len()).rev() {
        bounds[index - 1] = bounds[index - 1].min(bounds[index]);
    }
    let whole = bounds.last().copied().unwrap_or_default();
    let mut rows: Vec<Row> = Vec::new();
    for (index, Measured { level, batch_s }) in measured.into_iter().enumerate() {
        let spread = spread(batch_s);
        let (cost, needed) = rows.last().map_or((0.0, 0.0), |before| {
            // The uncertainty of the difference of the medians.
            let noise = error(spread, batch_s.len()).hypot(error(before.spread_s, before.rounds));
            let needed = (limits.share * before.bound_s).max(limits.spreads * noise);
            (bounds[index] - before.bound_s, needed)
        });
        rows.push(Row {
            level: *level,
            kept: level.kept(),
            adds: level.adds(),
            batch_s: times[index],
            spread_s: spread,
            rounds: batch_s.len(),
            bound_s: bounds[index],
            cost_s: cost,
            share: if whole > 0.0 { cost / whole } else { 0.0 },
            needed_s: needed,
            counts: cost > needed,
        });
    }
    let counting = rows.iter().filter(|row| row.counts);
    let culprit = counting.max_by(|a, b| a.cost_s.total_cmp(&b.cost_s));
    let uncertain = |row: &Row| error(row.spread_s, row.rounds) > limits.share / 2.0 * whole;
    let hidden = |row: &Row| !row.counts && row.cost_s > limits.share * (row.bound_s - row.cost_s);
    let settled = !rows.iter().any(|row| uncertain(row) || hidden(row))
        && culprit.is_none_or(|row| row.cost_s >= 2.0 * row.needed_s);
    Verdict { culprit: culprit.map(|row| row.level), settled, rows }
}

impl Verdict {
    /// The row of a level.
    pub fn row(&self, level: Level) -> Option<&Row> {
        self.rows.iter().find(|row| row.level == level)
    }

    /// Seconds per batch with everything real: the last level.
    pub fn real_s(&self) -> f64 {
        self.rows.last().map_or(0.0, |row| row.batch_s)
    }

    /// The row of a level; if it has none, of the last level before it.
    pub fn last(&self, level: Level) -> Option<&Row> {
        self.rows.iter().rfind(|row| row.level <= level)
    }

    /// Seconds per batch that everything real up to this level needs.
    pub fn up_to(&self, level: Level) -> f64 {
        self.last(level).map_or(0.0, |row| row.bound_s)
    }
}

pub(super) fn median(values: &[f64]) -> f64 {
    Distribution::of(values.iter().copied()).quantile(0.5)
}

/// Uncertainty of a median.
fn error(spread: f64, rounds: usize) -> f64 {
    spread / (rounds as f64).sqrt()
}

/// The median distance from the median, scaled to be the standard deviation of a normal
/// distribution. With it, a single disturbed round does not hide a culprit.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    1.4826 * median(&distances)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn level(level: Level, batch_s: &[f64]) -> Measured {
        Measured { level, batch_s: batch_s.to_vec() }
    }

    fn culprit(measured: &[Measured]) -> Option<Level> {
        verdict(measured, Limits::default()).culprit
    }

    #[test]
    fn the_largest_drop_is_to_blame_and_its_share_is_of_the_whole() {
        let measured = [
            level(Level::Read, &[0.40, 0.41, 0.39]),
            level(Level::Step, &[0.10, 0.10, 0.11]),
            level(Level::Augment, &[0.15, 0.15, 0.15]),
            level(Level::Decode, &[0.39, 0.40, 0.40]),
        ];
        let verdict = verdict(&measured, Limits::default());
        assert_eq!(verdict.culprit, Some(Level::Decode));
        let row = verdict.row(Level::Decode).unwrap();
        assert!((row.share - 0.25 / 0.40).abs() < 1e-9, "{row:?}");
        assert!(verdict.row(Level::Augment).unwrap().counts);
        assert!(!verdict.row(Level::Read).unwrap().counts);
        assert_eq!(verdict.real_s(), 0.40);
        assert_eq!(verdict.up_to(Level::Copy), 0.15);
    }

    #[test]
    fn noise_accuses_nobody() {
        // 20 % slower, but the rounds differ by as much.
        let noisy =
            [level(Level::Step, &[0.10, 0.14, 0.08]), level(Level::Read, &[0.12, 0.09, 0.16])];
        assert_eq!(culprit(&noisy), None);
        // Steady, but too small to matter.
        let little = [level(Level::Step, &[0.100; 5]), level(Level::Read, &[0.104; 5])];
        assert_eq!(culprit(&little), None);
        let enough = [level(Level::Step, &[0.100; 5]), level(Level::Read, &[0.106; 5])];
        assert_eq!(culprit(&enough), Some(Level::Read));
    }

    #[test]
    fn one_disturbed_round_neither_accuses_nor_acquits() {
        let steady = [0.10, 0.10, 0.10, 0.10, 0.50];
        assert_eq!(culprit(&[level(Level::Step, &[0.1; 5]), level(Level::Read, &steady)]), None);
        let slow = [0.15, 0.15, 0.15, 0.15, 0.90];
        let measured = [level(Level::Step, &steady), level(Level::Read, &slow)];
        assert_eq!(culprit(&measured), Some(Level::Read));
    }

    #[test]
    fn a_level_that_came_out_fast_or_slow_by_chance_accuses_nobody() {
        let fast = [
            level(Level::Step, &[0.10; 3]),
            level(Level::Collate, &[0.08; 3]),
            level(Level::Decode, &[0.10; 3]),
        ];
        // The step alone cannot need longer than step and collating together.
        assert_eq!(verdict(&fast, Limits::default()).rows[0].bound_s, 0.08);
        let slow = [
            level(Level::Step, &[0.10; 3]),
            level(Level::Collate, &[0.13; 3]),
            level(Level::Read, &[0.10; 3]),
        ];
        assert_eq!(culprit(&slow), None);
    }

    #[test]
    fn times_of_the_same_work_agree_within_seven_and_a_half_per_cent() {
        let limits = Limits::default();
        assert!(limits.agree(0.100, 0.107) && limits.agree(0.107, 0.100));
        assert!(!limits.agree(0.100, 0.108) && !limits.agree(0.108, 0.100));
    }

    #[test]
    fn more_rounds_are_wanted_while_they_could_change_the_verdict() {
        let settled = |step: &[f64], read: &[f64]| {
            let measured = [level(Level::Step, step), level(Level::Read, read)];
            verdict(&measured, Limits::default()).settled
        };
        assert!(settled(&[0.100; 5], &[0.102; 5]));
        assert!(settled(&[0.100; 5], &[0.150; 5]));
        // The drop counts, but barely.
        assert!(!settled(&[0.100; 5], &[0.108; 5]));
        // The median of either level is uncertain by more than 2.5 %.
        let noisy = [0.13, 0.15, 0.16, 0.17, 0.24];
        assert!(!settled(&[0.100; 5], &noisy));
        assert!(!settled(&noisy, &[0.16; 5]));
        // So noisy that a drop of 10 % is hidden; with twice as many rounds it is detected.
        let (step, read) = ([0.094, 0.100, 0.106], [0.104, 0.110, 0.116]);
        assert!(!settled(&step, &read));
        let again = [level(Level::Step, &step.repeat(5)), level(Level::Read, &read.repeat(5))];
        assert_eq!(culprit(&again), Some(Level::Read));
    }

    #[test]
    fn no_measurements_give_no_verdict() {
        let verdict = verdict(&[], Limits::default());
        assert_eq!((verdict.rows.len(), verdict.culprit), (0, None));
        assert_eq!(culprit(&[level(Level::Step, &[])]), None);
    }

    proptest! {
        /// For any times, the costs are not negative, and their sum is what everything real loses.
        #[test]
        fn costs_sum_to_what_is_lost(times in proptest::collection::vec(1e-4f64..1.0, 1..7)) {
            let levels = [Level::Step, Level::Augment, Level::Copy, Level::Collate, Level::Decode, Level::Read];
            let measured: Vec<Measured> =
                levels.into_iter().zip(&times).map(|(each, time)| level(each, &[*time])).collect();
            let verdict = verdict(&measured, Limits::default());
            let times = &times[..times.len().min(levels.len())];
            let least = times.iter().copied().fold(f64::INFINITY, f64::min);
            let sum: f64 = verdict.rows.iter().map(|row| row.cost_s).sum();
            prop_assert!((sum - (times[times.len() - 1] - least)).abs() < 1e-9);
            prop_assert!(verdict.rows.iter().all(|row| row.cost_s >= 0.0));
        }
    }
}
