//! Pixels of COCO annotations as runs, exactly as `pycocotools` finds them (`common/maskApi.c`).
//!
//! ```text
//! polygon:    corners are rounded to fifths of a pixel, and edges to steps of a fifth. Where an edge crosses the middle
//!             fifth of a column, the mask changes at the next row; pixels between an odd change and the next one are set.
//! run lengths: numbers of pixels that are not set and set in turns, column by column. As a text, each is coded in groups of
//!             five bits, from the third on as the difference to the number two places before.
//! ```

use std::ops::Range;

/// The most changes of a polygon that are sorted at once.
const MAX_CHANGES: usize = 1 << 22;
/// Steps in a pixel.
const STEPS: f64 = 5.0;
/// The step of a column at which edges are looked up, counted from 0.
const MIDDLE: i64 = 2;

/// Pixels of an image, as the places at which they begin and cease to be set, counted down the
/// columns. Their number is even.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    changes: Vec<u32>,
}

impl Runs {
    /// The pixels inside a polygon of x, y, x, y, … in an image of `rows` × `columns`, which has up
    /// to 2³² − 1 pixels.
    ///
    /// # Errors
    /// A message, if a corner is far outside.
    pub fn of_polygon(corners: &[f64], [rows, columns]: [usize; 2]) -> Result<Self, String> {
        let mut points = Vec::with_capacity(corners.len() / 2 + 1);
        for pair in corners.as_chunks::<2>().0 {
            let steps = pair.map(|at| STEPS * at + 0.5);
            // Numbers without a value are not below the limit either.
            if !steps.iter().all(|at| at.abs() < f64::from(i32::MAX)) {
                return Err(format!("the corner {} {} is not near the image", pair[0], pair[1]));
            }
            points.push(steps.map(|at| at as i64));
        }
        points.extend(points.first().copied());
        let mut runs = Self::default();
        runs.add_columns(&points, rows, 0..columns);
        Ok(runs)
    }

    /// Adds the changes of some columns, which are even in number in each, since the polygon is
    /// closed.
    fn add_columns(&mut self, points: &[[i64; 2]], rows: usize, columns: Range<usize>) {
        let edges = || points.windows(2).map(|pair| Edge::new(pair[0], pair[1]));
        let count =
            edges().fold(0usize, |sum, edge| sum.saturating_add(edge.columns(&columns).len()));
        if count > MAX_CHANGES && columns.len() > 1 {
            let middle = columns.start + columns.len() / 2;
            self.add_columns(points, rows, columns.start..middle);
            return self.add_columns(points, rows, middle..columns.end);
        }
        let mut changes = Vec::with_capacity(count);
        for edge in edges() {
            for column in edge.columns(&columns) {
                let row = edge.row(column as i64).min(rows);
                changes.push((column * rows + row) as u32);
            }
        }
        changes.sort_unstable();
        // Two changes at one place are none.
        let first = self.changes.len();
        for change in changes {
            if self.changes.len() > first && self.changes.last() == Some(&change) {
                self.changes.pop();
            } else {
                self.changes.push(change);
            }
        }
    }

    /// The pixels with these run lengths.
    ///
    /// # Errors
    /// A message, if they are not as many as the image has pixels.
    pub fn of_lengths(
        lengths: impl IntoIterator<Item = u32>,
        [rows, columns]: [usize; 2],
    ) -> Result<Self, String> {
        let pixels = rows as u64 * columns as u64;
        let (mut at, mut changes, mut is_set) = (0u64, Vec::new(), false);
        for length in lengths {
            if is_set && length > 0 {
                changes.push(at as u32);
                changes.push((at + u64::from(length)).min(pixels) as u32);
            }
            at += u64::from(length);
            if at > pixels {
                break;
            }
            is_set = !is_set;
        }
        match at == pixels {
            true => Ok(Self { changes }),
            false => Err(format!(
                "the run lengths are those of {} {at} pixels, but the image has {rows}x{columns} = {pixels}",
                if at > pixels { "at least" } else { "only" },
            )),
        }
    }

    /// How many places it has.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Gives its pixels in `rows` of an image with `height` rows the value `id`.
    pub fn draw(&self, height: usize, rows: &Range<usize>, id: u16, pixels: &mut [u16]) {
        let width = pixels.len() / rows.len().max(1);
        for pair in self.changes.as_chunks::<2>().0 {
            let [start, end] = pair.map(|change| change as usize);
            for column in start / height..end.div_ceil(height) {
                let first = start.saturating_sub(column * height).max(rows.start);
                let last = (end - column * height).min(height).min(rows.end);
                for row in first..last {
                    pixels[(row - rows.start) * width + column] = id;
                }
            }
        }
    }
}

/// The numbers that a text of compressed run lengths holds.
///
/// # Errors
/// A message, if the text is damaged.
pub(super) fn lengths_of(text: &str) -> Result<Vec<u32>, String> {
    let mut lengths: Vec<u32> = Vec::new();
    let mut bytes = text.bytes().peekable();
    while bytes.peek().is_some() {
        let (mut number, mut shift) = (0i64, 0);
        loop {
            let Some(byte) = bytes.next() else {
                return Err("the text of run lengths is cut short".to_owned());
            };
            let Some(group) = byte.checked_sub(48).filter(|group| *group < 64 && shift < 40) else {
                return Err(format!(
                    "the text of run lengths has the character {:?} at a place where it cannot be",
                    char::from(byte)
                ));
            };
            number |= i64::from(group & 0x1F) << shift;
            shift += 5;
            if group & 0x20 == 0 {
                if group & 0x10 != 0 {
                    number |= -1 << shift;
                }
                break;
            }
        }
        if lengths.len() > 2 {
            number += i64::from(lengths[lengths.len() - 2]);
        }
        lengths.push(
            u32::try_from(number).map_err(|_| format!("the run length {number} is impossible"))?,
        );
    }
    Ok(lengths)
}

/// An edge of a polygon, in steps.
struct Edge {
    start: [i64; 2],
    end: [i64; 2],
    /// Whether it is flat: a step aside at a time, not a step down.
    is_flat: bool,
    /// Steps across for each step along.
    slope: f64,
}

impl Edge {
    fn new(mut start: [i64; 2], mut end: [i64; 2]) -> Self {
        let [aside, down] = [0, 1].map(|axis| (end[axis] - start[axis]).abs());
        let is_flat = aside >= down;
        let along = usize::from(!is_flat);
        if start[along] > end[along] {
            (start, end) = (end, start);
        }
        let across = 1 - along;
        let slope = (end[across] - start[across]) as f64 / (end[along] - start[along]) as f64;
        Self { start, end, is_flat, slope }
    }

    /// The position across after some steps along.
    fn across(&self, steps: i64) -> i64 {
        let from = self.start[usize::from(self.is_flat)];
        (from as f64 + self.slope * steps as f64 + 0.5) as i64
    }

    /// Columns, among `columns`, in whose middle it goes from one step to the next.
    fn columns(&self, columns: &Range<usize>) -> Range<usize> {
        let (low, high) = match self.is_flat {
            true => (self.start[0], self.end[0]),
            false => {
                let ends = [self.across(0), self.across(self.end[1] - self.start[1])];
                (ends[0].min(ends[1]), ends[0].max(ends[1]))
            }
        };
        let steps = STEPS as i64;
        let within = |column: i64| column.clamp(columns.start as i64, columns.end as i64) as usize;
        let first = (low - MIDDLE + steps - 1).div_euclid(steps);
        let end = (high - MIDDLE - 1).div_euclid(steps) + 1;
        within(first)..within(end).max(within(first))
    }

    /// The first row below it in a column.
    fn row(&self, column: i64) -> usize {
        let middle = STEPS as i64 * column + MIDDLE;
        let step = match self.is_flat {
            true => {
                let steps = middle - self.start[0];
                self.across(steps).min(self.across(steps + 1))
            }
            // The last step before it goes from one side of the middle to the other.
            false => {
                let is_before = |steps: i64| match self.slope > 0.0 {
                    true => self.across(steps) <= middle,
                    false => self.across(steps) > middle,
                };
                let (mut low, mut high) = (0, self.end[1] - self.start[1]);
                while high - low > 1 {
                    let half = low + (high - low) / 2;
                    if is_before(half) {
                        low = half;
                    } else {
                        high = half;
                    }
                }
                self.start[1] + low
            }
        };
        ((step as f64 + 0.5) / STEPS - 0.5).max(0.0).ceil() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(runs: &Runs, rows: usize, columns: usize) -> Vec<u16> {
        let mut pixels = vec![0; rows * columns];
        runs.draw(rows, &(0..rows), 1, &mut pixels);
        pixels
    }

    #[test]
    fn lengths_count_down_the_columns() {
        let runs = Runs::of_lengths([1, 2, 1, 2], [3, 2]).unwrap();
        assert_eq!(drawn(&runs, 3, 2), [0, 0, 1, 1, 1, 1]);
        let mut second = vec![0; 2];
        runs.draw(3, &(1..2), 7, &mut second);
        assert_eq!(second, [7, 7]);
        let whole = Runs::of_lengths([0, 6], [3, 2]).unwrap();
        assert_eq!(drawn(&whole, 3, 2), [1; 6]);
        for wrong in [&[1, 2][..], &[3, 4], &[u32::MAX, u32::MAX, 9], &[]] {
            assert!(Runs::of_lengths(wrong.iter().copied(), [3, 2]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn texts_hold_differences() {
        // pycocotools.mask.encode of a 9x9 mask whose rows 2 to 5 and columns 3 to 6 are set.
        assert_eq!(lengths_of("m04500000`0").unwrap(), [29, 4, 5, 4, 5, 4, 5, 4, 21]);
        for wrong in ["m", "P", "~", "0\u{7f}", "oooooooooo0", "@"] {
            assert!(lengths_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_square_is_the_pixels_inside() {
        let square = [1.0, 1.0, 3.0, 1.0, 3.0, 2.0, 1.0, 2.0];
        let runs = Runs::of_polygon(&square, [3, 4]).unwrap();
        assert_eq!(drawn(&runs, 3, 4), [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        for far in [f64::NAN, 1e9, f64::NEG_INFINITY] {
            assert!(Runs::of_polygon(&[0.0, 0.0, far, 1.0, 1.0, far], [3, 4]).is_err());
        }
    }
}
