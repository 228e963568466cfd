//! Which samples all levels read: few enough to be kept in memory.

use crate::machine;

/// Batches of an epoch, where that many fit into memory.
const BATCHES: usize = 12;

/// Cubes at least where each has many windows: several, so that they are not all in the processor's cache.
const CUBES: usize = 4;

/// Some of `chosen` samples, which take `decoded_bytes` when decoded, spread over all of them: 12 batches, or what fits
/// into a quarter of the memory, but one batch at least. Each gives `per_sample` items of a batch, on average.
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
    let (all, one) = ((BATCHES * batch).div_ceil(per_sample), batch.div_ceil(per_sample));
    let wanted = all.max(CUBES).min(room.max(one)).min(chosen.len());
    // Whole batches, where there is one.
    let wanted = if per_sample == 1 && wanted > batch { wanted / batch * batch } else { wanted };
    (0..wanted).map(|place| chosen[place * chosen.len() / wanted]).collect()
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
        // Many windows of each: a few cubes, if there are as many.
        assert_eq!(subset(&all, 1000, 64, 100_000), [0, 250, 500, 750]);
        assert_eq!(subset(&all[..3], 3, 64, 100_000).len(), 3);
        assert_eq!(subset(&all, u64::MAX, 64, 100_000), [0]);
        // Too large for memory: one batch.
        assert_eq!(subset(&all, u64::MAX, 6, 1).len(), 6);
        assert!(subset(&[], 0, 6, 1).is_empty());
    }
}
