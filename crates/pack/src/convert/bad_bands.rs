//! Bands that should not be used for training: the source marks them as bad, or they have no
//! values.

use serde::Serialize;

use super::plan::{Plan, PlannedStack};
use super::stats::StackStats;

/// The bad bands of one stack, by their numbers in the source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BadBands {
    /// The stack.
    pub stack: String,
    /// Bands that the source's bad-band list marks, but that are packed.
    pub marked: Vec<usize>,
    /// Bands without a finite value in any of the cubes.
    pub empty: Vec<usize>,
}

impl BadBands {
    /// Describes the bad bands in one line.
    pub fn text(&self) -> String {
        let part = |bands: &[usize], what: &str| {
            let numbers = match bands {
                [] => return None,
                [band] => format!("band {band} is"),
                bands => format!("bands {} are", band_ranges(bands)),
            };
            Some(format!("{numbers} {what}"))
        };
        let parts =
            [part(&self.marked, "marked bad"), part(&self.empty, "without a value in any cube")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}: {}", self.stack, parts.join(", "))
    }
}

/// The stacks that have bad bands. `stats` has the statistics of each stack, if the values are
/// already known.
pub(super) fn find(plan: &Plan, stats: Option<&[StackStats]>) -> Vec<BadBands> {
    let of_stack = |(number, stack): (usize, &PlannedStack)| {
        let chosen = plan.samples[*stack.samples.first()?].description.bands.as_ref();
        let numbers = |bad: &dyn Fn(usize) -> bool| {
            let bands = (0..stack.grid.shape().bands).filter(|band| bad(*band));
            bands.map(|band| chosen.map_or(band, |chosen| chosen[band])).collect::<Vec<_>>()
        };
        let marked = stack.good_bands.as_ref().map(|good| numbers(&|band| !good[band]));
        let empty = stats.map(|stats| numbers(&|band| stats[number].all.0[band].count == 0));
        Some(BadBands {
            stack: stack.name.clone(),
            marked: marked.unwrap_or_default(),
            empty: empty.unwrap_or_default(),
        })
    };
    let all = plan.stacks.iter().enumerate().filter_map(of_stack);
    all.filter(|bad| !bad.marked.is_empty() || !bad.empty.is_empty()).collect()
}

/// Notes for a report, with the remedy. They use the option names that the command and Python
/// share.
pub(super) fn notes(all: &[BadBands]) -> impl Iterator<Item = String> + '_ {
    all.iter().map(|bad| {
        let remedy =
            if bad.empty.is_empty() { "drop_bad_bands" } else { "drop_bad_bands or bands" };
        let remedy = if bad.marked.is_empty() { "bands" } else { remedy };
        format!("{}; {remedy} can leave them out", bad.text())
    })
}

/// Formats ascending numbers as ranges, such as `0-3, 7`. Of many, only the first few are shown.
pub fn band_ranges(bands: &[usize]) -> String {
    const SHOWN: usize = 8;
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for band in bands {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *band => *last = *band,
            _ => ranges.push((*band, *band)),
        }
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let shown: Vec<String> = ranges.iter().take(SHOWN).map(range).collect();
    let more = if ranges.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_told_as_ranges_with_a_remedy() {
        let bad = |marked: &[usize], empty: &[usize]| {
            let (marked, empty) = (marked.to_vec(), empty.to_vec());
            let bad = BadBands { stack: "2x2x9".into(), marked, empty };
            notes(&[bad]).next().unwrap()
        };
        assert_eq!(
            bad(&[4], &[]),
            "2x2x9: band 4 is marked bad; drop_bad_bands can leave them out"
        );
        assert_eq!(
            bad(&[0, 1, 2, 7], &[7, 8]),
            "2x2x9: bands 0-2, 7 are marked bad, bands 7-8 are without a value in any cube; drop_bad_bands or bands can leave them out"
        );
        assert!(bad(&[], &[3]).ends_with("; bands can leave them out"));
        let many: Vec<usize> = (0..40).step_by(2).collect();
        assert_eq!(band_ranges(&many), "0, 2, 4, 6, 8, 10, 12, 14, …");
    }
}
