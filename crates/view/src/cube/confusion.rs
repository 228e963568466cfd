//! Counts pixels by their classes in two masks.

use std::collections::BTreeMap;

use hsipack_format::MaskValue;

/// The number of pixels for each pair of class ids, in `truth` and in `prediction`, that occurs.
pub fn count(truth: &[MaskValue], prediction: &[MaskValue]) -> BTreeMap<(u16, u16), u64> {
    let mut counts = BTreeMap::new();
    for (truth, prediction) in truth.iter().zip(prediction) {
        *counts.entry((*truth as u16, *prediction as u16)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_counted() {
        let counts = count(&[1, 1, 2, 0, 1], &[1, 2, 2, 0, 1]);
        let all: Vec<_> = counts.into_iter().collect();
        assert_eq!(all, [((0, 0), 1), ((1, 1), 2), ((1, 2), 1), ((2, 2), 1)]);
    }
}
