//! Everything that was found. Field names are the keys of `hsipack tune --json`; they stay.

use serde::Serialize;

use super::advice::{Case, Choice};
use super::figures::{Measured, Rate};
use super::precision::Precision;
use super::sample::SampleReport;
use super::windows::Windows;

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
    /// What windows cost, where some were asked about.
    pub windows: Option<Windows>,
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
            codec.compressor,
            codec.level,
            codec.shuffle,
        );
        if let Some(chunk) = self.chunk() {
            text += &format!("chunk = \"{chunk}\"\n");
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

    /// Rows, or rows and columns, of a chunk as `convert --chunk` takes them, where the choice is not the default: that for
    /// windows, if some were asked about.
    pub fn chunk(&self) -> Option<String> {
        match &self.windows {
            Some(windows) => windows.layouts[windows.choice].chunk.clone(),
            None => self.chunk_rows().map(|rows| rows.to_string()),
        }
    }

    /// Rows of a chunk, where the choice is not the default and all cubes have one shape.
    fn chunk_rows(&self) -> Option<usize> {
        let chunk = self.chosen().candidate.chunk_bytes;
        let [shape] = self.sample.shapes.as_slice() else { return None };
        let lengths: Vec<usize> = shape.split('x').filter_map(|part| part.parse().ok()).collect();
        let [rows, columns, bands] = lengths.as_slice() else { return None };
        let shape = hsipack_format::CubeShape::new(*rows, *columns, *bands);
        (chunk != self.default_chunk_bytes)
            .then(|| hsipack_format::Tile::slab(shape, 2, chunk).rows)
    }
}
