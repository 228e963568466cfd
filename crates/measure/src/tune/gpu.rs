//! Decoding on a GPU: the codecs that it decodes, with blocks of different sizes.
//!
//! A batch of stored chunks is copied from page-locked memory, and decoded, each many times. A
//! loader does both at the same time, so the slower one decides. The choice follows the rules of
//! `advice.rs`; of sizes that are as good, it is the default.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use hsipack_format::codec::{TARGET_BLOCK, without_checksum};
use hsipack_format::{Compressor, Opt, Shuffle, remedy};
use hsipack_read::augment::Device;
use hsipack_read::{DecodeTrial, cuda_is_available, device_decode};
use serde::Serialize;

use super::advice::{RATES, RATIOS};
use super::candidates::Candidate;
use super::figures::Rate;
use super::measure::Bench;
use super::sample::{Chunks, Sample};
use crate::{Error, Result, device};

/// Sizes of blocks that are tried, in bytes.
const BLOCKS: [usize; 4] = [64 << 10, TARGET_BLOCK, 256_000, 512 << 10];
/// Bytes of a batch, at most.
const MAX_BATCH: f64 = (1u64 << 30) as f64;
/// A candidate may take this fraction of the free memory for the bytes that it decodes: it takes
/// about three times as much in all.
const SHARE: f64 = 0.25;

/// Results of decoding on a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuDecoding {
    /// The GPU: `cuda:0`.
    pub device: String,
    /// Uncompressed bytes of the batch that was decoded.
    pub batch_bytes: u64,
    /// Copying from page-locked memory to the GPU, in stored bytes. `threads` is 0 here and below:
    /// the GPU does it.
    pub link: Rate,
    /// All candidates that were tried.
    pub candidates: Vec<GpuCandidate>,
    /// The recommended candidate, as an index.
    pub choice: usize,
}

/// A codec with blocks of one size, decoded on a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct GpuCandidate {
    /// Codec, level and filter.
    pub name: String,
    /// The codec with its blocks.
    #[serde(skip)]
    pub candidate: Candidate,
    /// Target size of a block, in uncompressed bytes.
    pub block_bytes: usize,
    /// Uncompressed bytes divided by stored bytes.
    pub ratio: f64,
    /// Decoding, in uncompressed bytes.
    pub decode: Rate,
    /// Copying and decoding at the same time, in uncompressed bytes per second.
    pub bytes_per_s: f64,
}

impl GpuDecoding {
    /// The recommended candidate.
    pub fn chosen(&self) -> &GpuCandidate {
        &self.candidates[self.choice]
    }
}

/// The number of the GPU with this name.
///
/// # Errors
/// If it is not the name of a GPU, or there is none.
pub fn number(name: &str) -> Result<usize> {
    match device::parse(name)? {
        Some(Device::Cuda(number)) => match DecodeTrial::free_memory(number) {
            Ok(_) => Ok(number),
            Err(error) if cuda_is_available() => Err(error),
            Err(error) => {
                Err(error.with_remedy(remedy!["install the driver, or leave out ", Opt::Device]))
            }
        },
        _ => Err(Error::unsupported(format!("{name} is not a GPU")).with_remedy(remedy![
            "pass ",
            Opt::Device.to("cuda"),
            ", or leave it out: the CPU is always measured"
        ])),
    }
}

/// The candidates: codecs that the GPU decodes, with each size of blocks that cuts chunks of
/// `chunk` bytes differently.
fn candidates(chosen: &Candidate, chunk: usize, quick: bool) -> Vec<Candidate> {
    let new = |compressor, level, shuffle| Candidate {
        chunk_bytes: chosen.chunk_bytes,
        ..Candidate::new(compressor, level, shuffle)
    };
    let mut codecs =
        vec![new(Compressor::Lz4, 5, Shuffle::Byte), new(Compressor::Lz4Hc, 4, Shuffle::Byte)];
    if !quick {
        codecs.push(new(Compressor::Lz4Hc, 4, Shuffle::Bit));
        codecs.push(new(Compressor::Lz4Hc, 9, Shuffle::Byte));
    }
    if device_decode::supports(&chosen.codec) && !codecs.contains(chosen) {
        codecs.push(*chosen);
    }
    let mut cuts = Vec::new();
    let mut found = Vec::new();
    for codec in codecs {
        for block_bytes in BLOCKS {
            let cut = codec.codec.with_blocks(block_bytes, chunk);
            if !cuts.contains(&cut) {
                cuts.push(cut);
                found.push(Candidate { block_bytes, ..codec });
            }
        }
    }
    found
}

/// A candidate on the GPU.
struct GpuTrial {
    candidate: Candidate,
    ratio: f64,
    stored: usize,
    bytes: usize,
    trial: DecodeTrial,
    copy: Vec<f64>,
    decode: Vec<f64>,
}

impl GpuTrial {
    /// Encodes chunks and brings a batch of about `bytes` uncompressed bytes to the GPU.
    fn new(
        candidate: Candidate,
        (bench, chunks): (&Bench<'_>, &Chunks),
        device: usize,
        bytes: f64,
    ) -> Result<Self> {
        let encoded = bench.encoded(&candidate, chunks)?;
        let mut frames = Vec::new();
        let (mut all, mut stored) = (0, 0);
        // The same chunks again and again, each at a place of its own, as in a batch of different cubes.
        for number in (0..encoded.len()).cycle() {
            let (frame, values) = (without_checksum(&encoded[number])?, chunks.get(number));
            all += values.len();
            stored += frame.len();
            frames.push((frame, values));
            if all as f64 >= bytes {
                break;
            }
        }
        let with_bytes: Vec<_> =
            frames.iter().map(|(frame, values)| (*frame, values.len())).collect();
        let mut trial = DecodeTrial::on_cuda(device, &with_bytes)?;
        if !trial.has_decoded(frames.iter().map(|(_, values)| *values))? {
            let name = candidate.name();
            return Err(Error::bug(format!("the GPU decodes {name} to other values than the CPU")));
        }
        let ratio = all as f64 / stored.max(1) as f64;
        let (copy, decode) = (Vec::new(), Vec::new());
        Ok(Self { candidate, ratio, stored, bytes: all, trial, copy, decode })
    }

    /// Copies and decodes for about this time each.
    fn measure(&mut self, time: Duration) -> Result<()> {
        self.copy.push(self.stored as f64 / self.trial.copy()?.as_secs_f64().max(1e-9));
        let once = self.trial.decode(1)?.as_secs_f64().max(1e-9);
        let times = (time.as_secs_f64() / once).ceil().clamp(1.0, 1000.0);
        let seconds = self.trial.decode(times as u32)?.as_secs_f64().max(1e-9);
        self.decode.push(self.bytes as f64 * times / seconds);
        Ok(())
    }
}

/// Measures the codecs that the GPU `device` decodes, with chunks as `chosen` has them and batches
/// of `batch` bytes.
///
/// # Errors
/// If the GPU fails or has not enough memory, Blosc refuses a codec, the system cannot start a
/// thread, or the user stopped.
pub fn measure(
    sample: &Sample,
    bench: &Bench<'_>,
    chosen: &Candidate,
    device: usize,
    (batch, quick): (f64, bool),
) -> Result<GpuDecoding> {
    let chunks: Arc<Chunks> = sample.chunks(chosen.chunk_bytes, None);
    let candidates = candidates(chosen, chunks.largest(), quick);
    let free = DecodeTrial::free_memory(device)? as f64 * SHARE / candidates.len() as f64;
    let bytes = batch.min(MAX_BATCH).min(free);
    let mut tried = Vec::new();
    for candidate in candidates {
        bench.check()?;
        tried.push(GpuTrial::new(candidate, (bench, &chunks), device, bytes)?);
    }
    for round in 0..bench.limits.rounds {
        for at in 0..tried.len() {
            bench.check()?;
            let at = (at + round) % tried.len();
            tried[at].measure(bench.limits.decode)?;
        }
    }
    let link: Vec<f64> =
        tried.iter().flat_map(|candidate| candidate.copy.iter().copied()).collect();
    let link = Rate::of(0, &link);
    let batch_bytes = tried.first().map_or(0, |candidate| candidate.bytes as u64);
    let measured = |candidate: GpuTrial| {
        let decode = Rate::of(0, &candidate.decode);
        GpuCandidate {
            name: candidate.candidate.name(),
            candidate: candidate.candidate,
            block_bytes: candidate.candidate.block_bytes,
            ratio: candidate.ratio,
            decode,
            bytes_per_s: 1e9 * decode.gb_per_s.min(link.gb_per_s * candidate.ratio),
        }
    };
    let candidates: Vec<GpuCandidate> = tried.into_iter().map(measured).collect();
    let choice = choose(&candidates);
    Ok(GpuDecoding { device: format!("cuda:{device}"), batch_bytes, link, candidates, choice })
}

/// The best candidate, as an index.
fn choose(candidates: &[GpuCandidate]) -> usize {
    let most = |all: &[usize], value: &dyn Fn(&GpuCandidate) -> f64| {
        all.iter().map(|at| value(&candidates[*at])).fold(0.0, f64::max)
    };
    let all: Vec<usize> = (0..candidates.len()).collect();
    let least = RATES * most(&all, &|candidate| candidate.bytes_per_s);
    let fast: Vec<usize> =
        all.into_iter().filter(|at| candidates[*at].bytes_per_s >= least).collect();
    let least = RATIOS * most(&fast, &|candidate| candidate.ratio);
    let small = fast.into_iter().filter(|at| candidates[*at].ratio >= least);
    let order = |at: &usize| {
        let candidate = &candidates[*at];
        // Rates are positive, so their bits are in their order.
        (candidate.block_bytes == TARGET_BLOCK, candidate.bytes_per_s.to_bits(), Reverse(*at))
    };
    small.max_by_key(order).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(block_bytes: usize, ratio: f64, gb_per_s: f64) -> GpuCandidate {
        let candidate =
            Candidate { block_bytes, ..Candidate::new(Compressor::Lz4, 5, Shuffle::Byte) };
        let (name, decode) = (candidate.name(), Rate::of(0, &[gb_per_s * 1e9]));
        let bytes_per_s = gb_per_s * 1e9;
        GpuCandidate { name, candidate, block_bytes, ratio, decode, bytes_per_s }
    }

    #[test]
    fn the_fastest_is_chosen_and_of_equals_the_smallest_and_usual() {
        let choice = |all: &[(usize, f64, f64)]| {
            choose(&all.iter().map(|(b, r, g)| measured(*b, *r, *g)).collect::<Vec<_>>())
        };
        assert_eq!(choice(&[(TARGET_BLOCK, 1.5, 80.0), (64 << 10, 1.5, 100.0)]), 1);
        assert_eq!(choice(&[(TARGET_BLOCK, 1.5, 98.0), (64 << 10, 1.5, 100.0)]), 0);
        assert_eq!(choice(&[(TARGET_BLOCK, 1.4, 98.0), (64 << 10, 1.5, 100.0)]), 1);
        assert_eq!(choice(&[(64 << 10, 1.5, 99.0), (512 << 10, 1.5, 100.0)]), 1);
    }

    #[test]
    fn blocks_that_cut_chunks_alike_are_tried_once() {
        let chosen = Candidate::new(Compressor::Zstd, 3, Shuffle::Byte);
        let blocks = |chunk| -> Vec<usize> {
            let found = candidates(&chosen, chunk, true).into_iter();
            let lz4 = found.filter(|candidate| candidate.codec.compressor == Compressor::Lz4);
            lz4.map(|candidate| candidate.block_bytes).collect()
        };
        assert_eq!(blocks(2 << 20), BLOCKS);
        assert_eq!(blocks(8 << 10), [BLOCKS[0]]);
        let chosen = Candidate::new(Compressor::Lz4, 1, Shuffle::Byte);
        assert!(
            candidates(&chosen, 2 << 20, true).iter().any(|candidate| candidate.codec.level == 1)
        );
    }

    #[test]
    fn names_of_gpus_are_checked() {
        assert!(number("cpu").unwrap_err().to_string().contains("not a GPU"));
        assert!(number("gpu").unwrap_err().to_string().contains("cuda:1"));
    }
}
