//! Large results on the CPU, whose memory is taken once.
//!
//! libtorch gives the memory of large tensors back to the system when the last of them is dropped, so that every batch
//! pays for its page faults anew: about as long as copying it. A pool keeps it and gives it out again as soon as nobody
//! looks at it any more.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use tch::{Device, Kind, TchError, Tensor};

use super::storage_uses;

/// Results of a size that are kept at most: one that is used, one that is still held, one that is made.
const KEPT: usize = 3;
/// Results of all sizes that are kept at most: images and masks, of another stack, too.
const KEPT_IN_ALL: usize = 4 * KEPT;

/// Memory of results, see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Vec<Tensor>>);

thread_local! {
    /// Where this thread's results come from.
    static CURRENT: RefCell<Option<Arc<Pool>>> = const { RefCell::new(None) };
}

/// Puts back what was current before, also after a panic.
struct Before(Option<Arc<Pool>>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.with(|current| *current.borrow_mut() = self.0.take());
    }
}

impl Pool {
    /// Does something whose large results on the CPU come from this pool.
    pub(crate) fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        let before = CURRENT.with(|current| current.borrow_mut().replace(self.clone()));
        let _before = Before(before);
        work()
    }

    /// Memory of so many bytes from the current pool, if there is one; `None` if there is no room in it.
    pub(super) fn take(bytes: usize) -> Result<Option<Tensor>, TchError> {
        let pool = CURRENT.with(|current| current.borrow().clone());
        pool.map_or(Ok(None), |pool| pool.memory(bytes))
    }

    fn memory(&self, bytes: usize) -> Result<Option<Tensor>, TchError> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The base tensor is never handed out: with one use, nobody looks at its memory, and nobody can begin to.
        let free = |base: &Tensor| storage_uses(base).is_ok_and(|uses| uses == 1);
        if let Some(base) = kept.iter().find(|base| base.numel() == bytes && free(base)) {
            return base.f_narrow(0, 0, bytes as i64).map(Some);
        }
        if kept.iter().filter(|base| base.numel() == bytes).count() >= KEPT {
            return Ok(None);
        }
        if kept.len() >= KEPT_IN_ALL {
            // Batches of other sizes came before.
            let Some(unused) = kept.iter().position(free) else { return Ok(None) };
            drop(kept.swap_remove(unused));
        }
        let base = super::fresh(&[bytes as i64], Kind::Uint8, Device::Cpu)?;
        let view = base.f_narrow(0, 0, bytes as i64)?;
        kept.push(base);
        Ok(Some(view))
    }
}

#[cfg(test)]
mod tests {
    use super::super::empty;
    use super::*;

    const SHAPE: [i64; 2] = [1024, 5 << 10];

    fn made(pool: &Arc<Pool>) -> Tensor {
        pool.during(|| empty(&SHAPE, Kind::Half, Device::Cpu)).unwrap()
    }

    #[test]
    fn memory_is_given_again_only_when_nobody_looks_at_it() {
        let pool = Arc::new(Pool::default());
        let first = made(&pool);
        assert_eq!((first.size().as_slice(), first.kind()), (SHAPE.as_slice(), Kind::Half));
        assert!(first.is_contiguous());
        let start = first.data_ptr();
        // A view of it counts.
        let view = first.narrow(0, 3, 2);
        drop(first);
        let second = made(&pool);
        assert_ne!(second.data_ptr(), start);
        drop(view);
        let third = made(&pool);
        assert_eq!(third.data_ptr(), start);
    }

    #[test]
    fn what_is_kept_beyond_the_pool_is_memory_of_its_own() {
        let pool = Arc::new(Pool::default());
        let kept: Vec<Tensor> = (0..KEPT + 2).map(|_| made(&pool)).collect();
        let mut starts: Vec<_> = kept.iter().map(Tensor::data_ptr).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), KEPT + 2);
        drop(kept);
        let mut last = made(&pool);
        assert!(starts.contains(&last.data_ptr()));
        // The pool's end leaves tensors alone.
        drop(pool);
        let sum = i64::try_from(last.fill_(1.0).to_kind(Kind::Int64).sum(Kind::Int64));
        assert_eq!(sum.unwrap(), 5 << 20);
    }

    #[test]
    fn sizes_do_not_compete_and_old_ones_make_room() {
        let pool = Arc::new(Pool::default());
        let sized =
            |more: i64| pool.during(|| empty(&[(9 << 20) + more], Kind::Uint8, Device::Cpu));
        let image = made(&pool).data_ptr();
        let mask = sized(0).unwrap().data_ptr();
        assert_eq!((made(&pool).data_ptr(), sized(0).unwrap().data_ptr()), (image, mask));
        let kept = || pool.0.lock().unwrap().len();
        for more in 1..=KEPT_IN_ALL as i64 {
            drop(sized(more).unwrap());
        }
        assert_eq!(kept(), KEPT_IN_ALL);
    }

    #[test]
    fn without_a_pool_and_for_small_results_nothing_is_kept() {
        let pool = Arc::new(Pool::default());
        drop(pool.during(|| empty(&[10], Kind::Half, Device::Cpu)).unwrap());
        drop(empty(&SHAPE, Kind::Half, Device::Cpu).unwrap());
        assert!(pool.0.lock().unwrap().is_empty());
    }
}
