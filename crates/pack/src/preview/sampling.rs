//! Chooses the rows and columns of a cube for a picture, so that memory does not grow with the
//! cube.

use std::ops::Range;

/// The pixels of a cube that are read. They are evenly spread, and the same on every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Rows, in ascending order.
    pub rows: Vec<usize>,
    /// Columns, in ascending order.
    pub columns: Vec<usize>,
}

impl Sampling {
    /// Selects at most `side` rows and columns, in the cube's proportions.
    pub fn new(rows: usize, columns: usize, side: usize) -> Self {
        let longest = rows.max(columns);
        let length = |length: usize| {
            if longest <= side { length } else { (length * side / longest).max(1) }
        };
        Self { rows: spread(rows, length(rows)), columns: spread(columns, length(columns)) }
    }

    /// Number of pixels that are read.
    pub fn pixels(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Which of the `count` pixels of row `row` from `column` on are in the picture: pairs of the
    /// place in the picture and the distance from `column`.
    pub fn hits(
        &self,
        row: usize,
        column: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        let position = self.rows.binary_search(&row).ok();
        let first = self.columns.partition_point(|c| *c < column);
        let columns = self.columns[first..].iter().take_while(move |c| **c < column + count);
        position.into_iter().flat_map(move |position| {
            let start = position * self.columns.len() + first;
            columns.clone().enumerate().map(move |(i, c)| (start + i, c - column))
        })
    }

    /// Runs of sampled rows in the same block of `block` rows. Reading a run together costs one
    /// read.
    pub fn reads(&self, block: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let block = block.max(1);
        self.rows.chunk_by(move |a, b| a / block == b / block).map(|run| {
            let (first, last) = (run[0], run[run.len() - 1]);
            first..last + 1
        })
    }
}

/// `count` numbers spread over 0..`length`.
pub fn spread(length: usize, count: usize) -> Vec<usize> {
    let count = count.min(length);
    (0..count).map(|i| (2 * i + 1) * length / (2 * count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cubes_are_taken_whole() {
        let all = Sampling::new(3, 5, 10);
        assert_eq!((all.rows, all.columns), (vec![0, 1, 2], vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn large_cubes_keep_their_proportions() {
        let some = Sampling::new(100, 1000, 100);
        assert_eq!((some.rows.len(), some.columns.len()), (10, 100));
        assert_eq!(some.rows[..3], [5, 15, 25]);
        assert_eq!(Sampling::new(1, 1_000_000, 100).rows, [0]);
    }

    #[test]
    fn hits_are_the_sampled_pixels() {
        let some = Sampling { rows: vec![1, 4], columns: vec![0, 3, 6] };
        assert_eq!(some.hits(4, 2, 5).collect::<Vec<_>>(), [(4, 1), (5, 4)]);
        assert_eq!(some.hits(2, 0, 9).count(), 0);
        assert_eq!(some.reads(4).collect::<Vec<_>>(), [1..2, 4..5]);
        assert!(some.reads(100).eq(std::iter::once(1..5)));
    }
}
