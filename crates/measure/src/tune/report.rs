//! Everything that was found. Field names are the keys of `hsipack tune --json`; they stay.

use hsipack_read::Distribution;
use serde::{Serialize, Serializer, ser::SerializeMap};

use super::advice::Case;
use super::candidates::{self, Candidate};
use super::precision::Precision;

/// A rate, over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// Threads.
    pub threads: usize,
    /// Median, in 10^9 uncompressed bytes a second.
    pub gb_per_s: f64,
    /// Least of the rounds.
    pub least: f64,
    /// Greatest of the rounds.
    pub greatest: f64,
}

impl Rate {
    /// Of some rates in bytes a second; 0 of none.
    pub fn of(threads: usize, rates: &[f64]) -> Self {
        let all = Distribution::of(rates.iter().map(|rate| rate / 1e9));
        let [gb_per_s, least, greatest] = [0.5, 0.0, 1.0].map(|share| all.quantile(share));
        Self { threads, gb_per_s, least, greatest }
    }
}

/// A candidate and its figures.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Codec, level and filter as `convert` spells them, in a word each.
    pub name: String,
    /// What was tried.
    #[serde(flatten, serialize_with = "spelled")]
    pub candidate: Candidate,
    /// Bytes that it was tried on, uncompressed.
    pub bytes: u64,
    /// Uncompressed by stored bytes.
    pub ratio: f64,
    /// Encoding, on all cores.
    pub write: Rate,
    /// Decoding, each number of threads, ascending.
    pub decode: Vec<Rate>,
    /// Whether nothing else is better in ratio, decoding and writing.
    pub front: bool,
}

fn spelled<S: Serializer>(candidate: &Candidate, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(5))?;
    map.serialize_entry("codec", candidate.codec.compressor.name())?;
    map.serialize_entry("level", &candidate.codec.level)?;
    map.serialize_entry("shuffle", candidates::shuffle(candidate.codec.shuffle))?;
    map.serialize_entry("chunk_bytes", &candidate.chunk_bytes)?;
    map.serialize_entry("keep_bits", &candidate.keep_bits)?;
    map.end()
}

impl Measured {
    /// Decoding with most threads, GB/s.
    pub fn decode_at_most(&self) -> f64 {
        self.decode.last().map_or(0.0, |rate| rate.gb_per_s)
    }

    /// Decoding with `cores` threads in GB/s: measured, or in proportion from the next lower number of threads.
    pub fn decode_at(&self, cores: usize) -> f64 {
        let known = self.decode.iter().rev().find(|rate| rate.threads <= cores);
        known.map_or(0.0, |rate| rate.gb_per_s * cores as f64 / rate.threads as f64)
    }
}

/// What everything was tried on.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// Cubes that gave rows.
    pub cubes: usize,
    /// Bytes of these rows, as float16.
    pub bytes: u64,
    /// Cubes in all.
    pub all_cubes: usize,
    /// Bytes of all cubes, as float16.
    pub all_bytes: u64,
    /// Shapes of the cubes.
    pub shapes: Vec<String>,
    /// Whether the values come from a packed dataset.
    pub from_dataset: bool,
}

/// What to choose.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// Place among the candidates.
    pub candidate: usize,
    /// Place among the cases that it was chosen for.
    pub case: usize,
    /// Seconds to pack all cubes with it on this machine, as far as encoding is what takes time.
    pub write_s: f64,
}

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was looked at.
    pub paths: Vec<String>,
    /// Whether it was a quick look.
    pub quick: bool,
    /// Decoding threads that the advice is for.
    pub cores: usize,
    /// Cores of this machine.
    pub machine_cores: usize,
    /// Numbers of threads that were measured.
    pub threads: Vec<usize>,
    /// Rounds.
    pub rounds: usize,
    /// Cubes in a batch.
    pub batch_size: usize,
    /// Stored bytes a second that the disk gives, where told.
    pub disk_rate: Option<f64>,
    /// Seconds that the model takes for a batch, where told.
    pub step_time: Option<f64>,
    /// Uncompressed bytes of a chunk that `convert` aims for.
    pub default_chunk_bytes: usize,
    /// What everything was tried on.
    pub sample: SampleReport,
    /// Copying in memory (memcpy) in the same rounds, each number of threads.
    pub copy: Vec<Rate>,
    /// Everything that was tried.
    pub candidates: Vec<Measured>,
    /// Disks, and what to choose for each.
    pub cases: Vec<Case>,
    /// What to choose.
    pub choice: Choice,
    /// Mantissa bits.
    pub precision: Precision,
    /// What the user should know.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Report {
    /// What to choose.
    pub fn chosen(&self) -> &Measured {
        &self.candidates[self.choice.candidate]
    }

    /// The choice as a file for `convert --config`. Dropping bits is left to the user: it stands there as a comment.
    pub fn config(&self) -> String {
        let chosen = self.chosen();
        let codec = &chosen.candidate.codec;
        let mut text = format!(
            "# Written by `hsipack tune`: ratio {:.2}, decodes {:.2} GB/s with {} threads.\n\
             codec = \"{}\"\nlevel = {}\nshuffle = \"{}\"\n",
            chosen.ratio,
            chosen.decode_at_most(),
            self.threads.last().copied().unwrap_or(1),
            codec.compressor.name(),
            codec.level,
            candidates::shuffle(codec.shuffle),
        );
        if let Some(rows) = self.chunk_rows() {
            text += &format!("chunk = {rows}\n");
        }
        if let Some(gain) = self.precision.gain() {
            let shuffle = gain.codec.rsplit(' ').next().unwrap_or_default();
            text += &format!(
                "# {}:\n# keep-bits = {}\n# shuffle = \"{shuffle}\"\n",
                self.precision.sentence(gain),
                gain.keep_bits
            );
        }
        text
    }

    /// Rows of a chunk, where the choice is not the default and all cubes have one shape.
    pub fn chunk_rows(&self) -> Option<usize> {
        let chunk = self.chosen().candidate.chunk_bytes;
        let [shape] = self.sample.shapes.as_slice() else { return None };
        let lengths: Vec<usize> = shape.split('x').filter_map(|part| part.parse().ok()).collect();
        let [rows, columns, bands] = lengths.as_slice() else { return None };
        let shape = hsipack_format::CubeShape::new(*rows, *columns, *bands);
        (chunk != self.default_chunk_bytes)
            .then(|| hsipack_format::Tile::slab(shape, 2, chunk).rows)
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
