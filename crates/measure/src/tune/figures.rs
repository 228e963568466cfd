//! The results of a candidate. Field names are keys of `hsipack tune --json`, so they must not
//! change.

use hsipack_read::Distribution;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::candidates::Candidate;

/// A rate, measured over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// Number of threads.
    pub threads: usize,
    /// Median, in 10^9 uncompressed bytes per second.
    pub gb_per_s: f64,
    /// Minimum over the rounds.
    pub least: f64,
    /// Maximum over the rounds.
    pub greatest: f64,
}

impl Rate {
    /// Summarises rates in bytes per second; 0 if there are none.
    pub fn of(threads: usize, rates: &[f64]) -> Self {
        let all = Distribution::of(rates.iter().map(|rate| rate / 1e9));
        let [gb_per_s, least, greatest] = [0.5, 0.0, 1.0].map(|share| all.quantile(share));
        Self { threads, gb_per_s, least, greatest }
    }
}

/// A candidate and its results.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Codec, level and filter as `convert` spells them, separated by blanks.
    pub name: String,
    /// The candidate.
    #[serde(flatten, serialize_with = "spelled")]
    pub candidate: Candidate,
    /// Uncompressed bytes of the chunks it was tried on.
    pub bytes: u64,
    /// Uncompressed bytes divided by stored bytes.
    pub ratio: f64,
    /// Encoding, on all cores.
    pub write: Rate,
    /// Decoding with each number of threads, ascending.
    pub decode: Vec<Rate>,
    /// Whether it is on the Pareto front of ratio, decoding and writing.
    pub front: bool,
}

fn spelled<S: Serializer>(candidate: &Candidate, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(5))?;
    map.serialize_entry("codec", candidate.codec.compressor.name())?;
    map.serialize_entry("level", &candidate.codec.level)?;
    map.serialize_entry("shuffle", candidate.codec.shuffle.name())?;
    map.serialize_entry("chunk_bytes", &candidate.chunk_bytes)?;
    map.serialize_entry("keep_bits", &candidate.keep_bits)?;
    map.end()
}

impl Measured {
    /// Decoding rate with the most threads, in GB/s.
    pub fn decode_at_most(&self) -> f64 {
        self.decode.last().map_or(0.0, |rate| rate.gb_per_s)
    }

    /// Decoding rate with `cores` threads in GB/s: measured, or extrapolated in proportion from the
    /// next lower number of threads.
    pub fn decode_at(&self, cores: usize) -> f64 {
        let nearest = self.decode.iter().rev().find(|rate| rate.threads <= cores);
        nearest.map_or(0.0, |rate| rate.gb_per_s * cores as f64 / rate.threads as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ends() {
        let rate = Rate::of(2, &[3e9, 1e9, 2e9]);
        assert_eq!((rate.gb_per_s, rate.least, rate.greatest), (2.0, 1.0, 3.0));
        assert_eq!(Rate::of(1, &[1e9, 2e9]).gb_per_s, 1.5);
        assert_eq!(Rate::of(1, &[]).gb_per_s, 0.0);
    }
}
