//! Measures encoding, decoding and copying, round by round, each for a limited time.
//!
//! Noise of the machine comes and goes within seconds. So every candidate is measured once per
//! round, and the order is rotated by one from round to round. The report shows the median over the
//! rounds, with minimum and maximum. Encoding and decoding call `hsipack_store::codec`, as
//! `convert` and the reader do: encoding computes checksums, and decoding does not verify them
//! again. Threads take one chunk after another. Each decodes into its own memory, which was touched
//! before, and moves through all of it, so that results are written to memory and not only to
//! caches.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hsipack_format::ErrorKind;
use hsipack_format::codec::without_checksum;
use hsipack_store::threads::{self, Pool};

use super::candidates::Candidate;
use super::figures::{Measured, Rate};
use super::sample::Chunks;
use crate::{Error, Result};

/// Number of rounds, and the time for each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of rounds.
    pub rounds: usize,
    /// Time to encode the chunks of a candidate for the first time. Chunks that are not encoded by
    /// then are skipped.
    pub first: Duration,
    /// Time to encode in each further round.
    pub encode: Duration,
    /// Time to decode, for each number of threads in each round.
    pub decode: Duration,
    /// Number of codecs for which other chunk sizes are tried.
    pub leaders: usize,
}

impl Limits {
    /// Limits for a quick look, or for a reliable result.
    pub fn new(quick: bool) -> Self {
        let ms = Duration::from_millis;
        if quick {
            Self { rounds: 3, first: ms(250), encode: ms(20), decode: ms(15), leaders: 2 }
        } else {
            Self { rounds: 5, first: ms(1000), encode: ms(50), decode: ms(30), leaders: 2 }
        }
    }
}

/// Key of candidates with the same chunks: bytes of a chunk, bits kept, and whether they are
/// integers.
type Cut = (usize, Option<u8>, bool);
thread_local! {
    /// Working memory for decoding integers, which a loader keeps, too.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A stored chunk and its number.
type Stored = (usize, Vec<u8>);

/// The chunks of a candidate, and its results so far.
struct Trial {
    candidate: Candidate,
    /// Chunks to encode again; `None` if they are encoded only once.
    chunks: Option<Arc<Chunks>>,
    stored: Vec<Vec<u8>>,
    lens: Vec<usize>,
    write: Vec<f64>,
    /// One list per number of threads.
    decode: Vec<Vec<f64>>,
}

/// Measures candidates on one sample.
pub struct Bench<'a> {
    /// Numbers of threads, ascending; the last one is also used for encoding.
    pub threads: Vec<usize>,
    /// Number of rounds, and times.
    pub limits: Limits,
    stop: &'a AtomicBool,
    plain: Arc<Chunks>,
    /// Memory to decode into, one buffer per thread.
    out: Vec<Vec<u8>>,
    /// Rates of copying, one list per number of threads.
    copy: Vec<Vec<f64>>,
}

impl<'a> Bench<'a> {
    /// A bench for these numbers of decoding `threads`, ascending. Besides the candidates, it
    /// measures copying the chunks `plain`. No chunk of a candidate may have more than `largest`
    /// bytes.
    pub fn new(
        plain: Arc<Chunks>,
        largest: usize,
        limits: Limits,
        threads: Vec<usize>,
        stop: &'a AtomicBool,
    ) -> Self {
        let cores = threads.last().copied().unwrap_or(1);
        // Together as large as the sample, so that no cache holds it.
        let each = (plain.bytes() / cores).max(largest);
        let out = (0..cores).map(|_| vec![1; each]).collect();
        let copy = vec![Vec::new(); threads.len()];
        Self { threads, limits, stop, plain, out, copy }
    }

    /// Measures candidates side by side, and copying in the same rounds.
    ///
    /// # Errors
    /// If Blosc refuses a codec, the system cannot start a thread, or the user stopped.
    pub fn sweep(
        &mut self,
        candidates: &[Candidate],
        chunks: &dyn Fn(&Candidate) -> Arc<Chunks>,
    ) -> Result<Vec<Measured>> {
        self.rounds(candidates, chunks, true)
    }

    /// As [`sweep`](Self::sweep), but encodes only once, to save memory if few candidates share the
    /// same chunks.
    ///
    /// # Errors
    /// As [`sweep`](Self::sweep).
    pub fn sweep_once(
        &mut self,
        candidates: &[Candidate],
        chunks: &dyn Fn(&Candidate) -> Arc<Chunks>,
    ) -> Result<Vec<Measured>> {
        self.rounds(candidates, chunks, false)
    }

    /// Stored chunks of a candidate: as many of the first ones as the time allows.
    ///
    /// # Errors
    /// If Blosc refuses the codec, or the system cannot start a thread.
    pub fn encoded(&self, candidate: &Candidate, chunks: &Chunks) -> Result<Vec<Vec<u8>>> {
        let pools = self.pools()?;
        let time = self.limits.first;
        encode(candidate, chunks, chunks.len(), most(&pools), time).map(|(stored, _)| stored)
    }

    /// Rates of copying over all sweeps, for each number of threads.
    pub fn copy(&self) -> Vec<Rate> {
        self.threads.iter().zip(&self.copy).map(|(n, rates)| Rate::of(*n, rates)).collect()
    }

    fn rounds(
        &mut self,
        candidates: &[Candidate],
        chunks: &dyn Fn(&Candidate) -> Arc<Chunks>,
        again: bool,
    ) -> Result<Vec<Measured>> {
        let mut shared: Vec<(Cut, Arc<Chunks>)> = Vec::new();
        let mut trials = Vec::new();
        let pools = self.pools()?;
        for candidate in candidates {
            self.check()?;
            let key = (candidate.chunk_bytes, candidate.keep_bits, candidate.integers.is_some());
            let cached =
                shared.iter().find(|(other, _)| *other == key).map(|(_, chunks)| chunks.clone());
            let candidate_chunks = cached.unwrap_or_else(|| chunks(candidate));
            if !shared.iter().any(|(other, _)| *other == key) {
                if !again {
                    shared.clear();
                }
                shared.push((key, candidate_chunks.clone()));
            }
            trials.push(self.begin(*candidate, candidate_chunks, again, most(&pools))?);
        }
        for round in 0..self.limits.rounds {
            self.measure_copy(&pools);
            for at in 0..trials.len() {
                self.check()?;
                let at = (at + round) % trials.len();
                self.measure(&mut trials[at], round, &pools)?;
            }
        }
        Ok(trials.into_iter().map(|trial| trial.measured(&self.threads)).collect())
    }

    /// A pool for each number of threads. All are started before the measurement.
    fn pools(&self) -> Result<Vec<Pool>> {
        self.threads.iter().map(|threads| threads::pool(*threads, "tune")).collect()
    }

    /// # Errors
    /// If the user stopped.
    pub fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Interrupted, "stopped"));
        }
        Ok(())
    }

    /// Encodes as many chunks as the time allows.
    fn begin(
        &self,
        candidate: Candidate,
        chunks: Arc<Chunks>,
        again: bool,
        pool: &Pool,
    ) -> Result<Trial> {
        let (stored, rate) = encode(&candidate, &chunks, chunks.len(), pool, self.limits.first)?;
        let lens = (0..stored.len()).map(|at| candidate.half_bytes(chunks.get(at).len()));
        let lens = lens.collect();
        Ok(Trial {
            candidate,
            chunks: again.then_some(chunks),
            stored,
            lens,
            write: vec![rate],
            decode: vec![Vec::new(); self.threads.len()],
        })
    }

    fn measure(&mut self, trial: &mut Trial, round: usize, pools: &[Pool]) -> Result<()> {
        if let Some(chunks) = trial.chunks.as_ref().filter(|_| round > 0) {
            let (_, rate) = encode(
                &trial.candidate,
                chunks,
                trial.stored.len(),
                most(pools),
                self.limits.encode,
            )?;
            trial.write.push(rate);
        }
        let Candidate { codec, integers, .. } = &trial.candidate;
        let stored: Vec<&[u8]> = trial.stored.iter().map(Vec::as_slice).collect();
        for (pool, rates) in pools.iter().zip(&mut trial.decode) {
            let rate = drive(pool, &mut self.out, &trial.lens, self.limits.decode, &|at, out| {
                let frame = without_checksum(stored[at])?;
                match integers {
                    Some(conversion) => SCRATCH
                        .with_borrow_mut(|scratch| conversion.decode(codec, frame, scratch, out)),
                    None => hsipack_store::codec::decode(codec, frame, out),
                }
            })?;
            rates.push(rate);
        }
        Ok(())
    }

    fn measure_copy(&mut self, pools: &[Pool]) {
        let lens: Vec<usize> = (0..self.plain.len()).map(|at| self.plain.get(at).len()).collect();
        for (pool, rates) in pools.iter().zip(&mut self.copy) {
            let copied = drive(pool, &mut self.out, &lens, self.limits.decode, &|at, out| {
                out.copy_from_slice(self.plain.get(at));
                Ok(())
            });
            rates.extend(copied);
        }
    }
}

/// 1, 2, 4 … threads up to `cores`, and `cores` itself.
pub fn doubling(cores: usize) -> Vec<usize> {
    let cores = cores.max(1);
    let mut threads: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores).collect();
    threads.push(cores);
    threads
}

/// The pool with the most threads.
fn most(pools: &[Pool]) -> &Pool {
    pools.last().expect("there is one")
}

/// Encodes the first `count` chunks on the threads of a pool, or as many of them as are begun in
/// time. Returns the stored chunks, and the rate in bytes of float16 per second.
fn encode(
    candidate: &Candidate,
    chunks: &Chunks,
    count: usize,
    pool: &Pool,
    time: Duration,
) -> Result<(Vec<Vec<u8>>, f64)> {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = || -> Result<(Vec<Stored>, Duration)> {
        let mut encoded = Vec::new();
        loop {
            let at = next.load(Ordering::Relaxed);
            // The first chunk is always encoded, however long it takes.
            if at >= count || at > 0 && begin.elapsed() >= time {
                return Ok((encoded, begin.elapsed()));
            }
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok((encoded, begin.elapsed()));
            }
            let mut stored = Vec::new();
            let chunk = chunks.get(at);
            let codec = candidate.codec.with_blocks(candidate.block_bytes, chunk.len());
            hsipack_store::codec::encode(&codec, chunk, &mut stored)?;
            stored.shrink_to_fit();
            encoded.push((at, stored));
        }
    };
    let done = pool.broadcast(|_| work()).into_iter().collect::<Result<Vec<_>>>()?;
    let seconds = done.iter().map(|(_, end)| end.as_secs_f64()).fold(1e-9, f64::max);
    let mut stored: Vec<Stored> = done.into_iter().flat_map(|(encoded, _)| encoded).collect();
    stored.sort_by_key(|(at, _)| *at);
    let bytes: usize =
        stored.iter().map(|(at, _)| candidate.half_bytes(chunks.get(*at).len())).sum();
    Ok((stored.into_iter().map(|(_, stored)| stored).collect(), bytes as f64 / seconds))
}

/// Runs `each` on chunk after chunk with the threads of a pool until the time is up; returns bytes
/// per second. Each thread has one of the buffers `out`. `lens` are the chunks' lengths; `each`
/// fills a part of the thread's buffer.
fn drive(
    pool: &Pool,
    out: &mut [Vec<u8>],
    lens: &[usize],
    time: Duration,
    each: &(dyn Fn(usize, &mut [u8]) -> Result<()> + Sync),
) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = |out: &mut Vec<u8>| -> Result<(usize, Duration)> {
        let (mut bytes, mut offset) = (0, 0);
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed) % lens.len();
            let len = lens[at];
            if offset + len > out.len() {
                offset = 0;
            }
            each(at, &mut out[offset..offset + len])?;
            offset += len;
            bytes += len;
            let elapsed = begin.elapsed();
            if elapsed >= time {
                return Ok((bytes, elapsed));
            }
        }
    };
    // No thread waits for a lock: each has its own.
    let out: Vec<Mutex<&mut Vec<u8>>> = out.iter_mut().map(Mutex::new).collect();
    let done = pool.broadcast(|thread| {
        work(&mut out[thread.index()].lock().unwrap_or_else(PoisonError::into_inner))
    });
    let done = done.into_iter().collect::<Result<Vec<_>>>()?;
    // Add each thread's own rate, so that a thread with a long last chunk does not delay the others.
    Ok(done.iter().map(|(bytes, time)| *bytes as f64 / time.as_secs_f64().max(1e-9)).sum())
}

impl Trial {
    fn measured(self, threads: &[usize]) -> Measured {
        let bytes: usize = self.lens.iter().sum();
        let stored: usize = self.stored.iter().map(Vec::len).sum();
        let most = threads.last().copied().unwrap_or(1);
        Measured {
            name: self.candidate.name(),
            candidate: self.candidate,
            bytes: bytes as u64,
            ratio: bytes as f64 / stored.max(1) as f64,
            write: Rate::of(most, &self.write),
            decode: threads
                .iter()
                .zip(&self.decode)
                .map(|(threads, rates)| Rate::of(*threads, rates))
                .collect(),
            front: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::of_values;
    use super::*;
    use hsipack_format::{Compressor, CubeShape, Shuffle};

    #[test]
    fn candidates_are_measured_beside_each_other() {
        let shape = CubeShape::new(64, 32, 16);
        let sample =
            of_values(shape, (0..shape.values()).map(|at| (at % 97) as f32 / 97.0).collect());
        let ms = Duration::from_millis;
        let limits = Limits { rounds: 3, first: ms(200), encode: ms(1), decode: ms(1), leaders: 1 };
        let stop = AtomicBool::new(false);
        let plain = sample.chunks(hsipack_format::grid::TARGET_CHUNK, None);
        let mut bench = Bench::new(plain.clone(), plain.largest(), limits, doubling(3), &stop);
        assert_eq!(bench.threads, [1, 2, 3]);
        let candidates = [
            Candidate::new(Compressor::Lz4, 0, Shuffle::None),
            Candidate::new(Compressor::Zstd, 1, Shuffle::Byte),
        ];
        let found = bench
            .sweep(&candidates, &|candidate| {
                sample.chunks(candidate.chunk_bytes, candidate.keep_bits)
            })
            .unwrap();
        assert_eq!(found[0].bytes, (shape.values() * 2) as u64);
        assert!(found[0].ratio < 1.0 && found[1].ratio > 2.0);
        for measured in &found {
            assert_eq!(
                measured.decode.iter().map(|rate| rate.threads).collect::<Vec<_>>(),
                [1, 2, 3]
            );
            assert!(measured.decode.iter().chain([&measured.write]).all(|rate| {
                rate.least > 0.0 && rate.least <= rate.gb_per_s && rate.gb_per_s <= rate.greatest
            }));
        }
        assert_eq!(bench.copy().len(), 3);
        stop.store(true, Ordering::Relaxed);
        let stopped =
            bench.sweep(&candidates, &|candidate| sample.chunks(candidate.chunk_bytes, None));
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
    }

    #[test]
    fn encoding_ends_in_time() {
        let shape = CubeShape::new(4096, 16, 16);
        let sample =
            of_values(shape, (0..shape.values()).map(|at| (at * 7919 % 1013) as f32).collect());
        let chunks = sample.chunks(1 << 12, None);
        let slow = Candidate::new(Compressor::Zstd, 9, Shuffle::Byte);
        let pool = threads::pool(2, "tune").unwrap();
        let (stored, rate) = encode(&slow, &chunks, chunks.len(), &pool, Duration::ZERO).unwrap();
        assert!(!stored.is_empty() && stored.len() < chunks.len() && rate > 0.0);
    }
}
