//! The limit of the rate, and the settings to choose.
//!
//! A training run processes cubes at the rate of its slowest part, in uncompressed bytes per
//! second:
//!
//! ```text
//! disk    stored bytes a second × ratio
//! decode  as measured, with the cores there are
//! copy    one copy of each batch by one thread, as memcpy does it: to a GPU or a library's own tensor
//! step    batch bytes / step time
//! ```
//!
//! First, keep the candidates within 3 % of the best rate, because measurements here are no more
//! precise. Of these, keep the candidates within 1 % of the best ratio. Of these, take the one that
//! writes fastest. A chunk size other than the default must be at least 10 % faster, because on
//! most cubes other sizes change nothing but noise.

use serde::Serialize;

use super::figures::{Measured, Rate};
use super::options::TuneOptions;
use super::sample::Sample;

/// Rates whose ratio is above this count as equal.
pub(super) const RATES: f64 = 0.97;
/// Another chunk size must be faster than the default by this factor.
const CHUNKS: f64 = 1.1;
/// Ratios that differ by less than this factor count as equal.
pub(super) const RATIOS: f64 = 0.99;
/// Disk rates if none is given, in stored bytes per second: memory or a fast NVMe; NVMe; SATA SSD
/// or network; hard disk.
const DISKS: [Option<f64>; 4] = [None, Some(1e9), Some(5e8), Some(1e8)];

/// The slowest part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Reading stored bytes.
    Disk,
    /// Decompressing.
    Decode,
    /// Copying batches.
    Copy,
    /// The model.
    Step,
}

hsipack_format::option_names!(Limit, "limit", {
    Disk => "disk",
    Decode => "decode",
    Copy => "copy",
    Step => "step",
});

/// The recommended choice.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Index among the candidates.
    pub candidate: usize,
    /// Index among the cases: the case it was chosen for.
    pub case: usize,
    /// Seconds to pack all cubes with it on this machine, if encoding is what takes time.
    pub write_s: f64,
}

/// A disk, and the choice for it.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Stored bytes per second; `null` if reading takes no time.
    pub disk_rate: Option<f64>,
    /// The best candidate, as an index.
    pub candidate: usize,
    /// Uncompressed bytes per second.
    pub bytes_per_s: f64,
    /// Cubes per second.
    pub cubes_per_s: f64,
    /// Seconds per epoch over all cubes.
    pub epoch_s: f64,
    /// The slowest part.
    pub limit: Limit,
    /// Bytes per second of each part with this candidate, uncompressed: disk, decode, copy, step;
    /// `null` if a part takes no time.
    pub parts: [Option<f64>; 4],
}

/// The requirements that the advice is for.
pub struct Needs {
    disks: Vec<Option<f64>>,
    cores: usize,
    copy: f64,
    step: Option<f64>,
    cube_bytes: f64,
    total_bytes: f64,
}

impl Needs {
    /// Combines the user's options with the measured copy rates.
    pub fn new(options: &TuneOptions, sample: &Sample, copy: &[Rate]) -> Self {
        let batch = sample.cube_bytes() * options.batch_size as f64;
        Self {
            disks: match options.disk_rate {
                Some(rate) => vec![Some(rate as f64), None],
                None => DISKS.to_vec(),
            },
            cores: options.cores,
            copy: copy.first().map_or(f64::INFINITY, |rate| rate.gb_per_s * 1e9),
            step: options.step_time.map(|time| batch / time.as_secs_f64().max(1e-9)),
            cube_bytes: sample.cube_bytes(),
            total_bytes: sample.total_bytes as f64,
        }
    }

    /// Rates of the parts: disk, decode, copy, step.
    fn parts(&self, disk: Option<f64>, measured: &Measured) -> [Option<f64>; 4] {
        let decode = measured.decode_at(self.cores) * 1e9;
        [disk.map(|rate| rate * measured.ratio), Some(decode), Some(self.copy), self.step]
    }

    /// The overall rate, and what limits it.
    fn rate(&self, disk: Option<f64>, measured: &Measured) -> (f64, Limit) {
        let limits = [Limit::Disk, Limit::Decode, Limit::Copy, Limit::Step];
        let parts = self.parts(disk, measured);
        let available =
            parts.iter().zip(limits).filter_map(|(rate, limit)| Some(((*rate)?, limit)));
        available.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, Limit::Decode))
    }

    /// The best candidate for a disk.
    pub fn best(&self, disk: Option<f64>, tried: &[Measured]) -> usize {
        let rates: Vec<f64> = tried.iter().map(|measured| self.rate(disk, measured).0).collect();
        let most = |places: &[usize]| places.iter().map(|at| rates[*at]).fold(0.0, f64::max);
        let (usual, others): (Vec<usize>, Vec<usize>) = (0..tried.len())
            .partition(|at| tried[*at].candidate.chunk_bytes == hsipack_format::grid::TARGET_CHUNK);
        let mut good = usual.clone();
        good.extend(others.into_iter().filter(|at| rates[*at] > CHUNKS * most(&usual)));
        let best = most(&good);
        good.retain(|at| rates[*at] >= RATES * best);
        let smallest = good.iter().map(|at| tried[*at].ratio).fold(0.0, f64::max);
        good.retain(|at| tried[*at].ratio >= RATIOS * smallest);
        let write = |at: &usize| tried[*at].write.gb_per_s;
        good.into_iter().max_by(|a, b| write(a).total_cmp(&write(b))).unwrap_or(0)
    }
}

/// The best candidate for each disk.
pub fn cases(needs: &Needs, tried: &[Measured]) -> Vec<Case> {
    let case = |disk: &Option<f64>| {
        let candidate = needs.best(*disk, tried);
        let (bytes_per_s, limit) = needs.rate(*disk, &tried[candidate]);
        Case {
            disk_rate: *disk,
            candidate,
            bytes_per_s,
            cubes_per_s: bytes_per_s / needs.cube_bytes.max(1.0),
            epoch_s: needs.total_bytes / bytes_per_s.max(1.0),
            limit,
            parts: needs.parts(*disk, &tried[candidate]),
        }
    };
    needs.disks.iter().map(case).collect()
}

/// The choice for the disk of the user, or otherwise for 1000 MB/s.
pub fn choose(needs: &Needs, cases: &[Case], tried: &[Measured]) -> Choice {
    let case = cases.iter().position(|case| case.disk_rate.is_some()).unwrap_or(0);
    let candidate = cases[case].candidate;
    let write = tried[candidate].write.gb_per_s * 1e9;
    Choice { candidate, case, write_s: needs.total_bytes / write.max(1.0) }
}

/// Candidates for which other chunk sizes are worth trying: the fastest on the Pareto front with a
/// disk of 1000 MB/s.
pub fn leaders(tried: &[Measured], front: &[bool], cores: usize, count: usize) -> Vec<usize> {
    let rate = |at: &usize| (tried[*at].ratio).min(tried[*at].decode_at(cores));
    let mut all: Vec<usize> = (0..tried.len()).filter(|at| front[*at]).collect();
    all.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::candidates::Candidate;
    use hsipack_format::{Compressor, Shuffle};

    fn measured(level: u8, ratio: f64, decode: f64, write: f64) -> Measured {
        let candidate = Candidate::new(Compressor::Lz4, level, Shuffle::Byte);
        Measured {
            name: candidate.name(),
            candidate,
            bytes: 1,
            ratio,
            write: Rate::of(2, &[write * 1e9]),
            decode: vec![Rate::of(1, &[decode * 1e9 / 2.0]), Rate::of(2, &[decode * 1e9])],
            front: true,
        }
    }

    fn needs(step: Option<f64>) -> Needs {
        let disks = DISKS.to_vec();
        Needs { disks, cores: 2, copy: 10e9, step, cube_bytes: 1e8, total_bytes: 1e10 }
    }

    #[test]
    fn the_slowest_part_limits() {
        let tried = [measured(1, 1.5, 8.0, 2.0), measured(2, 3.0, 2.0, 0.1)];
        let all = cases(&needs(None), &tried);
        let limits: Vec<_> = all.iter().map(|case| (case.candidate, case.limit)).collect();
        use Limit::{Decode, Disk};
        assert_eq!(limits, [(0, Decode), (1, Decode), (1, Disk), (1, Disk)]);
        assert_eq!(all[0].bytes_per_s, 8e9);
        assert_eq!(all[2].bytes_per_s, 1.5e9);
        assert_eq!(all[3].epoch_s, 1e10 / 3e8);
        assert_eq!(all[0].cubes_per_s, 80.0);
        assert_eq!(choose(&needs(None), &all, &tried).candidate, 1);
    }

    #[test]
    fn the_smallest_candidate_is_best_if_the_model_is_the_limit() {
        let tried = [measured(1, 1.5, 8.0, 2.0), measured(2, 3.0, 2.0, 0.1)];
        let all = cases(&needs(Some(1e9)), &tried);
        assert_eq!((all[0].candidate, all[0].limit), (1, Limit::Step));
        let fast = [measured(1, 1.5, 80.0, 2.0)];
        assert_eq!(cases(&needs(None), &fast)[0].limit, Limit::Copy);
    }

    #[test]
    fn candidates_within_the_noise_are_ordered_by_ratio_and_writing() {
        let tried =
            [measured(1, 2.0, 8.1, 0.1), measured(2, 2.1, 8.0, 0.1), measured(3, 2.095, 8.0, 1.0)];
        assert_eq!(cases(&needs(None), &tried)[0].candidate, 2);
        let mut small = measured(4, 2.2, 8.1, 1.0);
        small.candidate.chunk_bytes = 1 << 18;
        let tried = [measured(1, 2.0, 8.0, 0.1), small];
        assert_eq!(cases(&needs(None), &tried)[0].candidate, 0);
    }

    #[test]
    fn more_cores_than_measured_are_in_proportion() {
        assert_eq!(measured(1, 1.0, 4.0, 1.0).decode_at(8), 16.0);
        assert_eq!(measured(1, 1.0, 4.0, 1.0).decode_at(1), 2.0);
    }
}
