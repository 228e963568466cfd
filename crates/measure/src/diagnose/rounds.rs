//! How often levels, or a remedy, are run.

use std::num::NonZeroUsize;

use serde::{Deserialize, Deserializer, Serialize};

use super::verdict::{Limits, Measured, verdict};

/// Number of rounds: first as many as requested, then more until the result is settled, up to
/// [`Rounds::MAX_FACTOR`] times as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "usize")]
pub struct Rounds {
    requested: usize,
}

impl From<Rounds> for usize {
    fn from(rounds: Rounds) -> Self {
        rounds.requested
    }
}

impl<'de> Deserialize<'de> for Rounds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        NonZeroUsize::deserialize(from).map(|rounds| Self::new(rounds.get()))
    }
}

impl Rounds {
    /// Maximum number of rounds, as a multiple of those requested.
    pub const MAX_FACTOR: usize = 3;

    /// Maximum number of attempts, if the speed of the machine changes before the remedy is tried.
    pub const ATTEMPTS: usize = 3;

    /// At least one round.
    pub const fn new(requested: usize) -> Self {
        Self { requested: if requested == 0 { 1 } else { requested } }
    }

    /// Number of rounds requested.
    pub fn requested(self) -> usize {
        self.requested
    }

    /// A progress message for a round, counted from 1.
    pub fn name(self, round: usize, what: &str) -> String {
        if round <= self.requested {
            format!("round {round} of {}: {what}", self.requested)
        } else {
            format!("round {round}, to be sure: {what}")
        }
    }

    /// Whether the levels were run in enough rounds. Without levels, there is nothing to run.
    pub fn suffice(self, levels: &[Measured], limits: Limits) -> bool {
        let done = levels.iter().map(|level| level.batch_s.len()).min();
        done.is_none_or(|done| self.end(done, || verdict(levels, limits).settled))
    }

    /// Whether a remedy was tried in enough rounds. `times` are seconds per batch without it, with
    /// it, and of any other variant in the same rounds.
    pub fn suffice_to_compare(self, times: &[&[f64]], limits: Limits) -> bool {
        let done = times.iter().map(|times| times.len()).min();
        let certain = || times.iter().all(|times| limits.are_certain(times));
        done.is_none_or(|done| self.end(done, certain))
    }

    fn end(self, done: usize, settled: impl FnOnce() -> bool) -> bool {
        done >= Self::MAX_FACTOR * self.requested || (done >= self.requested && settled())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::Level;

    fn levels(read: &[f64]) -> [Measured; 2] {
        let step = vec![0.1; read.len()];
        [
            Measured { level: Level::Step, batch_s: step },
            Measured { level: Level::Read, batch_s: read.to_vec() },
        ]
    }

    #[test]
    fn there_are_as_many_as_asked_for_then_more_until_it_settles_up_to_a_bound() {
        let (rounds, limits) = (Rounds::new(2), Limits::default());
        let clear = |done: usize| rounds.suffice(&levels(&vec![0.2; done]), limits);
        assert_eq!([0, 1, 2, 3].map(clear), [false, false, true, true]);
        // The drop counts, but barely.
        let barely = |done: usize| rounds.suffice(&levels(&vec![0.108; done]), limits);
        assert_eq!([1, 2, 5, 6, 7].map(barely), [false, false, false, true, true]);
        assert!(rounds.suffice(&[], limits));
    }

    #[test]
    fn a_remedy_is_tried_until_both_times_are_certain() {
        let (rounds, limits) = (Rounds::new(2), Limits::default());
        let (calm, wild) = ([0.1; 6], [0.1, 0.2, 0.1, 0.3, 0.2, 0.4]);
        let suffice =
            |before: &[f64], after: &[f64]| rounds.suffice_to_compare(&[before, after], limits);
        assert!(!suffice(&calm[..1], &calm[..1]));
        assert!(suffice(&calm[..2], &calm[..2]));
        assert!(!suffice(&calm[..5], &wild[..5]));
        assert!(!suffice(&wild[..5], &calm[..5]));
        assert!(suffice(&wild, &calm));
        assert!(!rounds.suffice_to_compare(&[&calm[..5], &calm[..5], &wild[..5]], limits));
    }

    #[test]
    fn a_round_beyond_those_asked_for_says_so_and_none_is_one() {
        let rounds = Rounds::new(0);
        assert_eq!(rounds.requested(), 1);
        assert_eq!(rounds.name(1, "step"), "round 1 of 1: step");
        assert_eq!(rounds.name(2, "step"), "round 2, to be sure: step");
    }
}
