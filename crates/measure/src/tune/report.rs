//! All results. Field names are the keys of `hsipack tune --json`, so they must not change.

use hsipack_format::codec::TARGET_BLOCK;
use serde::Serialize;

use super::advice::{Case, Choice};
use super::candidates::Candidate;
use super::figures::{Measured, Rate};
use super::gpu::GpuDecoding;
use super::integers::Integers;
use super::precision::Precision;
use super::sample::SampleReport;
use super::windows::Windows;

/// The report of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The paths that were given.
    pub paths: Vec<String>,
    /// Whether it was a quick run.
    pub quick: bool,
    /// Decoding threads that the advice is for.
    pub cores: usize,
    /// Number of cores of this machine.
    pub machine_cores: usize,
    /// Numbers of threads that were measured.
    pub threads: Vec<usize>,
    /// Number of rounds.
    pub rounds: usize,
    /// Cubes per batch.
    pub batch_size: usize,
    /// Stored bytes per second of the disk, if given.
    pub disk_rate: Option<f64>,
    /// Seconds that the model needs for a batch, if given.
    pub step_time: Option<f64>,
    /// Default target size of a chunk in `convert`, in uncompressed bytes.
    pub default_chunk_bytes: usize,
    /// The sample.
    pub sample: SampleReport,
    /// Copying in memory (memcpy) in the same rounds, for each number of threads.
    pub copy: Vec<Rate>,
    /// All candidates that were tried.
    pub candidates: Vec<Measured>,
    /// Disks, and the choice for each.
    pub cases: Vec<Case>,
    /// The recommended choice.
    pub choice: Choice,
    /// Cost of windows, if a window size was given.
    pub windows: Option<Windows>,
    /// Integers beside float16, if the values are integers of 8 or 16 bits.
    pub integers: Option<Integers>,
    /// Decoding on a GPU, if one was given.
    pub device: Option<GpuDecoding>,
    /// Results for mantissa bits.
    pub precision: Precision,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Duration of the run.
    pub seconds: f64,
}

impl Report {
    /// The chosen candidate.
    pub fn chosen(&self) -> &Measured {
        &self.candidates[self.choice.candidate]
    }

    /// The recommended codec: for the GPU, if one was given.
    pub fn recommended(&self) -> &Candidate {
        match &self.device {
            Some(device) => &device.chosen().candidate,
            None => &self.chosen().candidate,
        }
    }

    /// The size of blocks to pack with; `None` for the default.
    pub fn block_bytes(&self) -> Option<usize> {
        Some(self.recommended().block_bytes).filter(|bytes| *bytes != TARGET_BLOCK)
    }

    /// The type of integers to pack, if it is better than float16.
    pub fn dtype(&self) -> Option<&'static str> {
        self.integers.as_ref().filter(|integers| integers.are_better()).map(|better| better.dtype)
    }

    /// The choice as a file for `convert --config`. Dropping bits is left to the user, so it is
    /// only a comment in the file.
    pub fn config(&self) -> String {
        let codec = &self.recommended().codec;
        let (ratio, rate, decoder) = match &self.device {
            Some(gpu) => {
                let chosen = gpu.chosen();
                (chosen.ratio, chosen.decode.gb_per_s, gpu.device.clone())
            }
            None => {
                let (chosen, threads) = (self.chosen(), self.threads.last().copied().unwrap_or(1));
                (chosen.ratio, chosen.decode_at_most(), format!("{threads} threads"))
            }
        };
        let mut text = format!(
            "# Written by `hsipack tune`: ratio {ratio:.2}, decodes {rate:.2} GB/s with {decoder}.\n\
             codec = \"{}\"\nlevel = {}\nfilter = \"{}\"\n",
            codec.compressor, codec.level, codec.shuffle,
        );
        if let Some(bytes) = self.block_bytes() {
            text += &format!("block-size = {bytes}\n");
        }
        if let Some(chunk) = self.chunk() {
            text += &format!("chunk = \"{chunk}\"\n");
        }
        if let Some(integers) = &self.integers {
            let comment = if integers.are_better() { "" } else { "# " };
            text +=
                &format!("# {}:\n{comment}dtype = \"{}\"\n", integers.sentence(), integers.dtype);
        }
        if let Some(gain) = self.precision.gain() {
            let shuffle = gain.codec.rsplit(' ').next().unwrap_or_default();
            text += &format!(
                "# {}:\n# keep-bits = {}\n# filter = \"{shuffle}\"\n",
                self.precision.sentence(gain),
                gain.keep_bits
            );
        }
        text
    }

    /// Rows, or rows and columns, of a chunk as `convert --chunk` accepts them; `None` for the
    /// default. If a window size was given, the choice for windows.
    pub fn chunk(&self) -> Option<String> {
        match &self.windows {
            Some(windows) => windows.layouts[windows.choice].chunk.clone(),
            None => self.chunk_rows().map(|rows| rows.to_string()),
        }
    }

    /// Rows of a chunk; `None` for the default, or if cubes differ in shape.
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
