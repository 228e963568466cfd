//! The predicted time of a batch, and the measured time it is based on.

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::level::Level;
use super::verdict::Verdict;

/// A level or another variant whose time was measured. It is measured again beside a remedy, to
/// check whether the machine is still as fast as when the remedy was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "measured")]
pub enum Basis {
    /// A level.
    Level {
        /// Which level.
        level: Level,
    },
    /// The level `decode`, with one thread per core.
    MoreThreads,
    /// The level `augment`, without one augmentation.
    Without {
        /// Index of the augmentation, from 0.
        index: usize,
    },
}

impl Basis {
    /// Measured seconds per batch for it.
    pub fn batch_s(self, verdict: &Verdict, facts: &Facts) -> Option<f64> {
        match self {
            Basis::Level { level } => verdict.row(level).map(|row| row.batch_s),
            Basis::MoreThreads => facts.more_threads_s,
            Basis::Without { index } => facts.augmentations.get(index).map(|cost| cost.without_s),
        }
    }
}

/// The predicted time of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    /// Seconds per batch.
    pub batch_s: f64,
    /// The measured time it is based on; `None` if that cannot be measured by itself.
    pub basis: Option<Basis>,
}

impl Prediction {
    /// A prediction based on a time that was measured by itself.
    pub fn of(batch_s: f64, basis: Basis) -> Self {
        Self { batch_s, basis: Some(basis) }
    }

    /// The time that everything real up to a level needs.
    pub fn level(verdict: &Verdict, level: Level) -> Self {
        let basis = verdict.last(level).map(|row| Basis::Level { level: row.level });
        Self { batch_s: verdict.up_to(level), basis }
    }

    /// The same, multiplied by a factor.
    pub fn times(self, factor: f64) -> Self {
        Self { batch_s: self.batch_s * factor, ..self }
    }

    /// Parts that work at the same time are as slow as the slowest.
    pub fn slowest(self, other: Self) -> Self {
        if other.batch_s > self.batch_s { other } else { self }
    }
}

/// A prediction from a time of everything real, or of the loader in it. It needs no basis, because
/// everything real is run beside the remedy anyway.
impl From<f64> for Prediction {
    fn from(batch_s: f64) -> Self {
        Self { batch_s, basis: None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::AugmentationCost;
    use super::super::verdict::{Limits, Measured, verdict};
    use super::*;

    fn levels(times: &[(Level, f64)]) -> Verdict {
        let measured =
            times.iter().map(|(level, time)| Measured { level: *level, batch_s: vec![*time; 3] });
        verdict(&measured.collect::<Vec<_>>(), Limits::default())
    }

    #[test]
    fn a_level_that_there_is_nothing_of_is_the_one_before() {
        let verdict = levels(&[(Level::Step, 0.1), (Level::Load, 0.3)]);
        let prediction = Prediction::level(&verdict, Level::Collate);
        assert_eq!(prediction, Prediction::of(0.1, Basis::Level { level: Level::Step }));
    }

    #[test]
    fn the_basis_is_that_of_the_slowest_part() {
        let step = Prediction::of(0.1, Basis::Level { level: Level::Step });
        let threads = Prediction::of(0.08, Basis::MoreThreads);
        assert_eq!(step.slowest(threads), step);
        assert_eq!(threads.slowest(step), step);
        assert_eq!(step.slowest(threads.times(2.0)).basis, Some(Basis::MoreThreads));
        assert_eq!(step.slowest(0.3.into()), Prediction { batch_s: 0.3, basis: None });
    }

    #[test]
    fn the_cost_of_a_level_is_its_own_time() {
        let verdict = levels(&[(Level::Step, 0.1), (Level::Collate, 0.12), (Level::Read, 0.11)]);
        let cost = AugmentationCost { name: "hflip".into(), without_s: 0.4 };
        let facts =
            Facts { more_threads_s: Some(0.2), augmentations: vec![cost], ..Facts::default() };
        let took = |basis: Basis| basis.batch_s(&verdict, &facts);
        assert_eq!(took(Basis::Level { level: Level::Collate }), Some(0.12));
        assert_eq!(took(Basis::Level { level: Level::Copy }), None);
        assert_eq!(took(Basis::MoreThreads), Some(0.2));
        let without = [0, 1].map(|index| took(Basis::Without { index }));
        assert_eq!(without, [Some(0.4), None]);
    }
}
