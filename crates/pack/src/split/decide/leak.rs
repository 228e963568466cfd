//! Counts pixels of other splits in patches around training pixels, and applies the buffer that
//! keeps splits apart.
//!
//! Training is the first split. A patch is a window around its pixel, as loaders read it. If it has
//! an even number of rows, its pixel is in the first row after the middle. Pixels in rectangles are
//! counted with running sums, so the cost does not depend on the patch size.

use super::NONE;

/// How many pixels of one other split the patches around training pixels contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of its pixels.
    pub pixels: u64,
    /// Number of its pixels that lie in a patch around a training pixel.
    pub inside: u64,
    /// Number of its pixels whose own patch shares a pixel with a patch around a training pixel.
    pub overlapping: u64,
}

/// For every split except the first, how many of its pixels the patches (rows × columns) around
/// training pixels of a sample contain.
pub fn seen(columns: usize, split_of: &[u8], splits: usize, patch: [usize; 2]) -> Vec<Seen> {
    let mut all = vec![Seen::default(); splits.saturating_sub(1)];
    let training = Sums::of(columns, split_of.iter().map(|split| *split == 0));
    let above = patch.map(|side| side / 2);
    let below = patch.map(|side| side - 1 - side / 2);
    let beyond = patch.map(|side| side - 1);
    for (pixel, split) in split_of.iter().enumerate() {
        if *split == 0 || usize::from(*split) >= splits {
            continue;
        }
        let leak = &mut all[usize::from(*split) - 1];
        leak.pixels += 1;
        // A training pixel's patch reaches this pixel if it is at most as far above as patches reach below, and so on.
        leak.inside += u64::from(training.any(pixel, below, above));
        leak.overlapping += u64::from(training.any(pixel, beyond, beyond));
    }
    all
}

/// Removes training pixels from all splits if a pixel of another split is at most `distance` rows
/// and columns away.
pub fn buffer(columns: usize, split_of: &mut [u8], distance: [usize; 2]) {
    let others = Sums::of(columns, split_of.iter().map(|split| *split != 0 && *split != NONE));
    for (pixel, split) in split_of.iter_mut().enumerate() {
        if *split == 0 && others.any(pixel, distance, distance) {
            *split = NONE;
        }
    }
}

/// Counts the pixels of some kind in rectangles.
struct Sums {
    rows: usize,
    columns: usize,
    /// Number of such pixels above and to the left of each corner between pixels.
    sums: Vec<u32>,
}

impl Sums {
    fn of(columns: usize, is_one: impl ExactSizeIterator<Item = bool>) -> Self {
        let rows = is_one.len().checked_div(columns).unwrap_or(0);
        let width = columns + 1;
        let mut sums = vec![0; (rows + 1) * width];
        let mut in_row = 0;
        for (pixel, is_one) in is_one.enumerate() {
            let (row, column) = (pixel / columns, pixel % columns);
            if column == 0 {
                in_row = 0;
            }
            in_row += u32::from(is_one);
            sums[(row + 1) * width + column + 1] = sums[row * width + column + 1] + in_row;
        }
        Self { rows, columns, sums }
    }

    /// Whether such a pixel lies in the rectangle from `before` rows and columns before `pixel` to
    /// `after` rows and columns after it.
    fn any(&self, pixel: usize, before: [usize; 2], after: [usize; 2]) -> bool {
        let at = [pixel / self.columns, pixel % self.columns];
        let lengths = [self.rows, self.columns];
        let start = [0, 1].map(|axis| at[axis].saturating_sub(before[axis]));
        let end = [0, 1].map(|axis| lengths[axis].min(at[axis].saturating_add(after[axis]) + 1));
        let sum = |row: usize, column: usize| self.sums[row * (self.columns + 1) + column];
        // If sums have wrapped around, their differences are still correct.
        let count = sum(end[0], end[1])
            .wrapping_sub(sum(start[0], end[1]))
            .wrapping_sub(sum(end[0], start[1]))
            .wrapping_add(sum(start[0], start[1]));
        count > 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// First and last row, and first and last column, of the patch around a pixel.
    fn patch_of(pixel: usize, columns: usize, patch: [usize; 2]) -> [i64; 4] {
        let (row, column) = ((pixel / columns) as i64, (pixel % columns) as i64);
        let first = [row - patch[0] as i64 / 2, column - patch[1] as i64 / 2];
        [first[0], first[0] + patch[0] as i64 - 1, first[1], first[1] + patch[1] as i64 - 1]
    }

    fn meet(a: [i64; 4], b: [i64; 4]) -> bool {
        a[0] <= b[1] && b[0] <= a[1] && a[2] <= b[3] && b[2] <= a[3]
    }

    /// Compares every training pixel with every other pixel.
    fn naive(columns: usize, split_of: &[u8], splits: usize, patch: [usize; 2]) -> Vec<Seen> {
        let mut all = vec![Seen::default(); splits - 1];
        let training: Vec<usize> = (0..split_of.len()).filter(|at| split_of[*at] == 0).collect();
        for (pixel, split) in split_of.iter().enumerate() {
            if *split == 0 || *split == NONE {
                continue;
            }
            let leak = &mut all[usize::from(*split) - 1];
            let itself = patch_of(pixel, columns, [1, 1]);
            let pixel_patch = patch_of(pixel, columns, patch);
            let of = |at: &usize| patch_of(*at, columns, patch);
            leak.pixels += 1;
            leak.inside += u64::from(training.iter().any(|at| meet(of(at), itself)));
            leak.overlapping += u64::from(training.iter().any(|at| meet(of(at), pixel_patch)));
        }
        all
    }

    proptest! {
        #[test]
        fn leaks_equal_those_of_comparing_every_pair(
            columns in 1usize..9, map in prop::collection::vec(prop::sample::select(vec![0, 1, 2, NONE, NONE]), 0..90),
            patch in prop::array::uniform2(1usize..7),
        ) {
            let map = &map[..map.len() / columns * columns];
            prop_assert_eq!(seen(columns, map, 3, patch), naive(columns, map, 3, patch));
        }

        #[test]
        fn a_buffer_leaves_nothing_to_see_and_takes_no_pixel_more(
            columns in 1usize..9, map in prop::collection::vec(prop::sample::select(vec![0, 0, 1, NONE, NONE]), 0..90),
            patch in prop::array::uniform2(1usize..7),
        ) {
            let map = &map[..map.len() / columns * columns];
            let mut apart = map.to_vec();
            let distance = patch.map(|side| side - 1);
            buffer(columns, &mut apart, distance);
            let leak = naive(columns, &apart, 2, patch)[0];
            prop_assert_eq!((leak.inside, leak.overlapping), (0, 0));
            for (pixel, (before, after)) in map.iter().zip(&apart).enumerate() {
                let near = map.iter().enumerate().any(|(other, split)| *split == 1
                    && (pixel / columns).abs_diff(other / columns) <= distance[0]
                    && (pixel % columns).abs_diff(other % columns) <= distance[1]);
                prop_assert_eq!(*after, if *before == 0 && near { NONE } else { *before });
            }
        }
    }
}
