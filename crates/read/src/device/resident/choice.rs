//! Decides what stays in the memory of a device. Pure.

use hsipack_store::memory;

use crate::device::options::DeviceCache;

/// The form in which cubes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All values of a cube, (row, column, band).
    Decoded,
    /// The frames of its chunks.
    Compressed,
}

/// The samples to keep, of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// `None` if nothing is kept.
    pub kept: Option<Kept>,
    /// The places of the samples that are kept, ascending.
    pub places: Vec<usize>,
    pub why: String,
}

/// Chooses what is kept of these samples in `limit` bytes. `decoded` are the bytes of their decoded
/// cubes; `compressed` those of their frames, or `None` if they cannot be kept. `by_windows` says
/// that batches have parts of cubes.
pub(super) fn choose(
    requested: DeviceCache,
    limit: u64,
    decoded: &[u64],
    compressed: impl FnOnce() -> Option<Vec<u64>>,
    by_windows: bool,
) -> Choice {
    let count = decoded.len();
    let all = |kept, bytes: u64, form: &str| Choice {
        kept: Some(kept),
        places: (0..count).collect(),
        why: format!(
            "all {count} samples take {} {form}; they fit into {}",
            memory::size(bytes),
            memory::size(limit)
        ),
    };
    let total = sum(decoded);
    if requested != DeviceCache::Compressed && total <= limit {
        return all(Kept::Decoded, total, "decoded");
    }
    let compressed = if requested == DeviceCache::Decoded { None } else { compressed() };
    if let Some(bytes) = compressed.as_deref().map(sum).filter(|bytes| *bytes <= limit) {
        return all(Kept::Compressed, bytes, "compressed");
    }
    // Part of the samples. More of them fit compressed, but small windows are gathered much faster from decoded cubes.
    let (kept, bytes) = match &compressed {
        Some(bytes) if requested == DeviceCache::Compressed || !by_windows => {
            (Kept::Compressed, &**bytes)
        }
        _ if requested == DeviceCache::Compressed => {
            let why = "the device cannot decode all chunks, so they are not kept compressed";
            return Choice { kept: None, places: Vec::new(), why: why.to_owned() };
        }
        _ => (Kept::Decoded, decoded),
    };
    let places = part(bytes, limit);
    let form = if kept == Kept::Decoded { "decoded" } else { "compressed" };
    let why = format!(
        "{} of {count} samples fit {form} into {}; all of them take {}",
        places.len(),
        memory::size(limit),
        memory::size(sum(bytes))
    );
    Choice { kept: Some(kept).filter(|_| !places.is_empty()), places, why }
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Places of samples that fit together, spread evenly over their order, ascending.
fn part(bytes: &[u64], limit: u64) -> Vec<usize> {
    let count = bytes.len();
    // Multiples of the golden ratio are spread evenly, however many there are.
    let mut step = (count as f64 * 0.618_033_988_75) as usize;
    while step < count && common_divisor(step.max(1), count) != 1 {
        step += 1;
    }
    let (mut remaining, mut places) = (limit, Vec::new());
    for sample in (0..count).map(|number| number * step.max(1) % count) {
        if bytes[sample] <= remaining {
            remaining -= bytes[sample];
            places.push(sample);
        }
    }
    places.sort_unstable();
    places
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODED: [u64; 10] = [100; 10];
    const COMPRESSED: [u64; 10] = [60; 10];

    fn chosen(requested: DeviceCache, limit: u64, by_windows: bool) -> (Option<Kept>, usize) {
        let choice = choose(requested, limit, &DECODED, || Some(COMPRESSED.to_vec()), by_windows);
        (choice.kept, choice.places.len())
    }

    #[test]
    fn everything_decoded_is_best_then_everything_compressed_then_a_part() {
        let auto = |limit, by_windows| chosen(DeviceCache::Auto, limit, by_windows);
        assert_eq!(auto(1000, false), (Some(Kept::Decoded), 10));
        assert_eq!(auto(999, false), (Some(Kept::Compressed), 10));
        assert_eq!(auto(599, false), (Some(Kept::Compressed), 9));
        assert_eq!(auto(599, true), (Some(Kept::Decoded), 5));
        assert_eq!(auto(59, false), (None, 0));
        assert_eq!(chosen(DeviceCache::Decoded, 999, false), (Some(Kept::Decoded), 9));
        assert_eq!(chosen(DeviceCache::Compressed, 5000, true), (Some(Kept::Compressed), 10));
        assert_eq!(chosen(DeviceCache::Compressed, 300, true), (Some(Kept::Compressed), 5));
    }

    #[test]
    fn chunks_that_the_device_cannot_decode_are_kept_decoded_or_not_at_all() {
        let choice = |requested| choose(requested, 300, &DECODED, || None, false);
        assert_eq!(choice(DeviceCache::Auto).kept, Some(Kept::Decoded));
        assert_eq!(choice(DeviceCache::Compressed).kept, None);
    }

    #[test]
    fn a_part_is_spread_over_all_samples() {
        for count in [1, 2, 3, 7, 10, 64, 100] {
            let bytes = vec![10; count];
            assert_eq!(part(&bytes, u64::MAX), (0..count).collect::<Vec<_>>());
            let half = part(&bytes, 5 * count as u64);
            assert_eq!(half.len(), count / 2);
            let gaps = half.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(gaps.max().unwrap_or(0) <= 3, "{half:?} of {count}");
        }
    }
}
