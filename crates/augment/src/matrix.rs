//! Maps of the image plane: homographies in pixels, in float64.
//!
//! Pixel centres have whole coordinates. x is the column, y is the row, and the origin is the
//! centre of the top left pixel.

use serde::{Deserialize, Serialize};

/// A 3×3 matrix that acts on column vectors (x, y, 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Matrix(pub [[f64; 3]; 3]);

impl Matrix {
    /// The identity.
    pub const IDENTITY: Self = Self([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);

    /// (x, y) → (a·x + b, c·y + d).
    pub(crate) const fn axes(a: f64, b: f64, c: f64, d: f64) -> Self {
        Self([[a, 0.0, b], [0.0, c, d], [0.0, 0.0, 1.0]])
    }

    /// Moves by (x, y).
    pub(crate) const fn translation(x: f64, y: f64) -> Self {
        Self::axes(1.0, x, 1.0, y)
    }

    /// The composition: first `other`, then this map.
    pub fn after(&self, other: &Self) -> Self {
        let mut product = [[0.0; 3]; 3];
        for (row, line) in product.iter_mut().enumerate() {
            for (column, value) in line.iter_mut().enumerate() {
                *value = (0..3).map(|k| self.0[row][k] * other.0[k][column]).sum();
            }
        }
        Self(product)
    }

    /// The inverse, scaled so that its last element is 1; `None` if there is none.
    pub fn inverse(&self) -> Option<Self> {
        let m = &self.0;
        let cofactor = |row: usize, column: usize| {
            let (r, s) = ((row + 1) % 3, (row + 2) % 3);
            let (c, d) = ((column + 1) % 3, (column + 2) % 3);
            m[r][c] * m[s][d] - m[r][d] * m[s][c]
        };
        let determinant: f64 = (0..3).map(|column| m[0][column] * cofactor(0, column)).sum();
        let mut inverse = [[0.0; 3]; 3];
        for (row, line) in inverse.iter_mut().enumerate() {
            for (column, value) in line.iter_mut().enumerate() {
                *value = cofactor(column, row) / determinant;
            }
        }
        let last = inverse[2][2];
        let sound = determinant != 0.0 && last != 0.0;
        inverse.iter_mut().flatten().for_each(|value| *value /= last);
        (sound && inverse.iter().flatten().all(|value| value.is_finite())).then_some(Self(inverse))
    }

    /// Whether it is affine: its last row is (0, 0, 1).
    pub fn is_affine(&self) -> bool {
        self.0[2] == [0.0, 0.0, 1.0]
    }

    /// Maps a point.
    pub fn apply(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let row = |row: usize| self.0[row][0] * x + self.0[row][1] * y + self.0[row][2];
        let scale = row(2);
        [row(0) / scale, row(1) / scale]
    }

    /// The homography that maps four points to four others.
    pub fn from_points(from: &[[f64; 2]; 4], to: &[[f64; 2]; 4]) -> Option<Self> {
        let mut system = [[0.0; 9]; 8];
        for (point, ([x, y], [u, v])) in from.iter().zip(to).enumerate() {
            system[2 * point] = [*x, *y, 1.0, 0.0, 0.0, 0.0, -x * u, -y * u, *u];
            system[2 * point + 1] = [0.0, 0.0, 0.0, *x, *y, 1.0, -x * v, -y * v, *v];
        }
        let h = solve(&mut system)?;
        Some(Self([[h[0], h[1], h[2]], [h[3], h[4], h[5]], [h[6], h[7], 1.0]]))
    }

    /// Whether both maps are affine, and map every pixel of a frame of `size` (rows, columns) to
    /// places that are less than `distance` apart along each axis.
    pub(crate) fn is_within(
        &self,
        distance: f64,
        other: &Self,
        [rows, columns]: [usize; 2],
    ) -> bool {
        let (right, bottom) = (columns as f64 - 1.0, rows as f64 - 1.0);
        let corners = [[0.0, 0.0], [right, 0.0], [0.0, bottom], [right, bottom]];
        let near = |corner: [f64; 2]| {
            let (a, b) = (self.apply(corner), other.apply(corner));
            a.iter().zip(b).all(|(a, b)| (a - b).abs() < distance)
        };
        self.is_affine() && other.is_affine() && corners.into_iter().all(near)
    }

    /// The map in whole numbers, if it only consists of quarter turns, mirroring and shifts by
    /// whole pixels.
    pub(crate) fn whole(&self) -> Option<Whole> {
        let m = &self.0;
        let linear = [m[0][0], m[0][1], m[1][0], m[1][1]];
        let units = linear.iter().all(|value| [-1.0, 0.0, 1.0].contains(value));
        let permutes = m[0][0].abs() + m[0][1].abs() == 1.0
            && m[0][0].abs() + m[1][0].abs() == 1.0
            && m[0][0].abs() == m[1][1].abs();
        let moves = [m[0][2], m[1][2]];
        let whole = moves.iter().all(|value| value.fract() == 0.0 && value.abs() < 1e9);
        (self.is_affine() && units && permutes && whole).then(|| Whole {
            x: [m[0][0] as i64, m[0][1] as i64, moves[0] as i64],
            y: [m[1][0] as i64, m[1][1] as i64, moves[1] as i64],
        })
    }
}

/// A map onto whole pixels: `x' = x[0]·x + x[1]·y + x[2]`, `y'` likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// x'.
    pub x: [i64; 3],
    /// y'.
    pub y: [i64; 3],
}

impl Whole {
    /// Whether all pixels of a frame of size `to` (rows, columns) are mapped into one of size
    /// `from`.
    pub fn stays_inside(&self, to: [usize; 2], from: [usize; 2]) -> bool {
        let (last_x, last_y) = (to[1] as i64 - 1, to[0] as i64 - 1);
        [[0, 0], [last_x, last_y]].into_iter().all(|[x, y]| {
            let at = |map: [i64; 3]| map[0] * x + map[1] * y + map[2];
            (0..from[1] as i64).contains(&at(self.x)) && (0..from[0] as i64).contains(&at(self.y))
        })
    }
}

/// Gaussian elimination with pivoting for eight equations, whose right-hand sides are in the last
/// column.
fn solve(system: &mut [[f64; 9]; 8]) -> Option<[f64; 8]> {
    for step in 0..8 {
        let largest =
            |a: &usize, b: &usize| system[*a][step].abs().total_cmp(&system[*b][step].abs());
        let pivot = (step..8).max_by(largest)?;
        system.swap(step, pivot);
        if system[step][step].abs() < 1e-12 {
            return None;
        }
        let row = system[step];
        for (other, line) in system.iter_mut().enumerate() {
            if other != step {
                let factor = line[step] / row[step];
                line.iter_mut().zip(row).for_each(|(value, part)| *value -= factor * part);
            }
        }
    }
    let mut solution = [0.0; 8];
    for (row, value) in solution.iter_mut().enumerate() {
        *value = system[row][8] / system[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: &Matrix, b: &Matrix) -> bool {
        a.0.iter().flatten().zip(b.0.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-7)
    }

    proptest! {
        #[test]
        fn inverses_bring_points_back(values in prop::array::uniform6(-2.0..2.0f64), g in -1e-3..1e-3f64) {
            let [a, b, c, d, e, f] = values;
            let map = Matrix([[1.0 + a, b, 10.0 * c], [d, 1.0 + e, 10.0 * f], [g, -g, 1.0]]);
            prop_assume!(((1.0 + a) * (1.0 + e) - b * d).abs() > 0.1);
            if let Some(back) = map.inverse() {
                let [x, y] = back.apply(map.apply([7.0, -3.0]));
                prop_assert!((x - 7.0).abs() < 1e-6 && (y + 3.0).abs() < 1e-6, "{x} {y}");
            }
        }

        #[test]
        fn four_points_give_their_homography(shifts in prop::array::uniform8(-3.0..3.0f64)) {
            let from = [[0.0, 0.0], [20.0, 0.0], [20.0, 30.0], [0.0, 30.0]];
            let mut to = from;
            for (value, shift) in to.iter_mut().flatten().zip(shifts) {
                *value += shift;
            }
            let map = Matrix::from_points(&from, &to).unwrap();
            for (from, to) in from.into_iter().zip(to) {
                let [x, y] = map.apply(from);
                prop_assert!((x - to[0]).abs() < 1e-8 && (y - to[1]).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn maps_follow_one_another() {
        let (scale, shift) = (Matrix::axes(2.0, 0.0, 3.0, 0.0), Matrix::translation(1.0, 1.0));
        assert_eq!(shift.after(&scale).apply([1.0, 1.0]), [3.0, 4.0]);
        assert_eq!(scale.after(&shift).apply([1.0, 1.0]), [4.0, 6.0]);
        assert!(near(&scale.after(&scale.inverse().unwrap()), &Matrix::IDENTITY));
        assert_eq!(Matrix::axes(0.0, 0.0, 1.0, 0.0).inverse(), None);
        let line = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]];
        assert_eq!(Matrix::from_points(&line, &line), None);
    }

    #[test]
    fn maps_are_compared_over_the_whole_frame() {
        let (still, scaled) = (Matrix::IDENTITY, Matrix::axes(1.01, 0.0, 1.0, 0.0));
        assert!(
            scaled.is_within(0.5, &still, [100, 50]) && !scaled.is_within(0.5, &still, [1, 52])
        );
        assert!(!Matrix::translation(0.0, -0.5).is_within(0.5, &still, [1, 1]));
        let tilted = Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1e-9, 1.0]]);
        assert!(!tilted.is_within(0.5, &still, [2, 2]));
    }

    #[test]
    fn whole_maps_are_told_from_others() {
        let mirror = Matrix::axes(-1.0, 9.0, 1.0, 0.0);
        let whole = mirror.whole().unwrap();
        assert!(whole.stays_inside([4, 10], [4, 10]) && !whole.stays_inside([4, 11], [4, 10]));
        let quarter = Matrix([[0.0, 1.0, 0.0], [-1.0, 0.0, 4.0], [0.0, 0.0, 1.0]]);
        assert!(quarter.whole().unwrap().stays_inside([3, 5], [5, 3]));
        for other in [
            Matrix::translation(0.5, 0.0),
            Matrix::axes(2.0, 0.0, 1.0, 0.0),
            Matrix([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            Matrix([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]),
            Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1e-9, 0.0, 1.0]]),
        ] {
            assert_eq!(other.whole(), None, "{other:?}");
        }
    }
}
