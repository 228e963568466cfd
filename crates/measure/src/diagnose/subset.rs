//! Which samples all levels read: few enough to keep in memory.

use crate::machine;

/// Batches per epoch, if that many fit into memory.
const BATCHES: usize = 12;

/// Minimum number of cubes if each has many windows, so that they do not all fit into the
/// processor's cache.
const CUBES: usize = 4;

/// Chooses some of the `chosen` samples, evenly spread. `decoded_bytes` is the size of all chosen
/// samples, decoded. The result makes 12 batches, or as many as fit into a quarter of the memory,
/// but at least one batch. Each sample gives `per_sample` items on average.
pub fn subset(
    chosen: &[usize],
    decoded_bytes: u64,
    batch_size: usize,
    per_sample: usize,
) -> Vec<usize> {
    let each = (decoded_bytes / chosen.len().max(1) as u64).max(1);
    let room =
        machine::available_memory().map_or(usize::MAX, |memory| (memory / 4 / each) as usize);
    let (batch, per_sample) = (batch_size.max(1), per_sample.max(1));
    let (all, one_batch) = ((BATCHES * batch).div_ceil(per_sample), batch.div_ceil(per_sample));
    let wanted = all.max(CUBES).min(room.max(one_batch)).min(chosen.len());
    // Whole batches, if there is at least one.
    let wanted = if per_sample == 1 && wanted > batch { wanted / batch * batch } else { wanted };
    (0..wanted).map(|index| chosen[index * chosen.len() / wanted]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_batches_are_spread_over_all_samples() {
        let all: Vec<usize> = (0..1000).collect();
        let some = subset(&all, 1000, 6, 1);
        assert_eq!((some.len(), some[0], some[36]), (72, 0, 500));
        assert_eq!(subset(&all[..20], 20, 6, 1).len(), 18);
        assert_eq!(subset(&all[..4], 4, 6, 1), [0, 1, 2, 3]);
        assert_eq!(subset(&all, 1000, 64, 16).len(), 48);
        // Many windows per cube: a few cubes, if there are that many.
        assert_eq!(subset(&all, 1000, 64, 100_000), [0, 250, 500, 750]);
        assert_eq!(subset(&all[..3], 3, 64, 100_000).len(), 3);
        assert_eq!(subset(&all, u64::MAX, 64, 100_000), [0]);
        // Too large for memory: one batch.
        assert_eq!(subset(&all, u64::MAX, 6, 1).len(), 6);
        assert!(subset(&[], 0, 6, 1).is_empty());
    }
}
