//! Threads that share a loop.

use std::sync::{Arc, OnceLock};

use hsipack_store::process::OfProcess;
use hsipack_store::threads;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// Threads for loops over large arrays. The first loop that needs them starts them.
#[derive(Debug)]
pub(super) struct Workers {
    count: usize,
    /// Unusable in a forked process, which does not have its parent's threads; `None` if the system
    /// cannot start threads.
    pool: OnceLock<OfProcess<Option<threads::Pool>>>,
    /// The workers of a forked process.
    child: OnceLock<Arc<Workers>>,
}

/// With fewer elements than this, one thread is faster than several.
const FEW: usize = 1 << 14;

impl Workers {
    pub(super) fn new(count: usize) -> Self {
        Self { count: count.max(1), pool: OnceLock::new(), child: OnceLock::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Runs `work` with its parallel loops in these threads; `None` if there are no threads.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Option<T> {
        let pool =
            self.pool.get_or_init(|| OfProcess::new(threads::pool(self.count, "augment").ok()));
        match pool.get() {
            Some(pool) => pool.as_ref().map(|pool| pool.install(work)),
            None => self.child.get_or_init(|| Arc::new(Self::new(self.count))).run(work),
        }
    }

    /// Runs `work(number, piece)` for every piece of `out`. All pieces have the same length, except
    /// the last one.
    pub(super) fn each<T: Send>(
        &self,
        out: &mut [T],
        piece: usize,
        work: impl Fn(usize, &mut [T]) + Sync + Send,
    ) {
        let piece = piece.max(1);
        let alone = |out: &mut [T]| {
            out.chunks_mut(piece).enumerate().for_each(|(number, piece)| work(number, piece));
        };
        if self.count == 1 || out.len() <= piece || out.len() < FEW {
            return alone(out);
        }
        let shared = &mut *out;
        let done = self.run(|| {
            let pieces = shared.par_chunks_mut(piece).enumerate();
            pieces.for_each(|(number, piece)| work(number, piece));
        });
        if done.is_none() {
            alone(out);
        }
    }

    /// Runs `work(sample, number, piece)` for the pieces of every sample. All pieces of a sample
    /// have the same length, except its last one.
    pub(super) fn each_of<T: Send>(
        &self,
        out: &mut [T],
        sample: usize,
        piece: usize,
        work: impl Fn(usize, usize, &mut [T]) + Sync + Send,
    ) {
        let (sample, piece) = (sample.max(1), piece.max(1));
        let alone = |out: &mut [T]| {
            for (index, out) in out.chunks_mut(sample).enumerate() {
                let pieces = out.chunks_mut(piece).enumerate();
                pieces.for_each(|(number, piece)| work(index, number, piece));
            }
        };
        if self.count == 1 || out.len() < FEW {
            return alone(out);
        }
        let shared = &mut *out;
        let done = self.run(|| {
            shared.par_chunks_mut(sample).enumerate().for_each(|(index, out)| {
                let pieces = out.par_chunks_mut(piece).enumerate();
                pieces.for_each(|(number, piece)| work(index, number, piece));
            });
        });
        if done.is_none() {
            alone(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_whatever_the_threads() {
        for threads in [1, 2, 3] {
            let workers = Workers::new(threads);
            let mut out = vec![0usize; 100_001];
            for _ in 0..2 {
                workers.each(&mut out, 1000, |number, piece| {
                    assert_eq!(piece.len(), if number == 100 { 1 } else { 1000 });
                    piece.iter_mut().for_each(|value| *value += number);
                });
            }
            assert!(out.iter().enumerate().all(|(index, value)| *value == 2 * (index / 1000)));
            workers.each_of(&mut out, 50_000, 7000, |sample, number, piece| {
                let last = if sample == 2 { 0 } else { 7 };
                assert_eq!(
                    piece.len(),
                    if sample == 2 {
                        1
                    } else if number == last {
                        1000
                    } else {
                        7000
                    }
                );
                piece.fill(10 * sample + number);
            });
            assert_eq!((out[0], out[49_999], out[50_000], out[100_000]), (0, 7, 10, 20));
            workers.each(&mut [0usize; 0], 10, |_, _| unreachable!("there is no piece"));
        }
    }
}
