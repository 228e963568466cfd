//! Shapes of labels, in pixels of their cube.

use std::ops::Range;

/// How the points of a shape belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rings. Pixels are inside if an odd number of rings surrounds them.
    Polygon,
    /// Lines from point to point.
    Line,
    /// Single points.
    Point,
    /// A disc, given by two opposite corners of the square around it.
    Disc,
}

/// A geometry: points, of which some at a time form a ring or a line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// How points belong together.
    pub kind: Kind,
    /// The points as (x, y): positions on a map, later (column, row) in pixels.
    pub points: Vec<[f64; 2]>,
    /// Where each ring or line ends in `points`.
    pub ends: Vec<usize>,
}

impl Shape {
    /// A shape of these rings or lines.
    pub fn new(kind: Kind, parts: impl IntoIterator<Item = Vec<[f64; 2]>>) -> Self {
        let (mut points, mut ends) = (Vec::new(), Vec::new());
        for part in parts {
            points.extend(part);
            ends.push(points.len());
        }
        Self { kind, points, ends }
    }

    /// Whether the smallest box around its points, in pixels, touches a cube.
    pub fn touches(&self, [rows, columns]: [usize; 2]) -> bool {
        [columns, rows].into_iter().enumerate().all(|(axis, length)| {
            let values = || self.points.iter().map(|point| point[axis]);
            values().any(|value| value <= length as f64) && values().any(|value| value >= 0.0)
        })
    }

    /// Its rings or lines, as ranges of points.
    pub fn parts(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start..*end)
    }
}

impl Shape {
    /// Gives the rings of a polygon, whose points are positions on a map, the direction of a clock,
    /// as GDAL does before it draws them. It decides which pixels an edge covers that runs exactly
    /// through their centres.
    pub fn clockwise(&mut self) {
        if self.kind == Kind::Polygon {
            let parts: Vec<_> = self.parts().collect();
            for part in parts {
                let ring = &mut self.points[part];
                if !is_clockwise(ring) {
                    ring.reverse();
                }
            }
        }
    }
}

/// Points this close are the same point, as in GDAL.
const TOLERANCE: f64 = 1e-5;

/// Whether a ring, which ends where it begins, turns right, by the corner at its lowest point. If
/// this corner says nothing, its area decides.
fn is_clockwise(ring: &[[f64; 2]]) -> bool {
    let len = ring.len();
    if len < 2 {
        return true;
    }
    let (mut lowest, mut is_vague) = (0, false);
    for at in 1..len - 1 {
        let ([x, y], [low_x, low_y]) = (ring[at], ring[lowest]);
        if y < low_y || y == low_y && x > low_x {
            (lowest, is_vague) = (at, false);
        } else if [x, y] == [low_x, low_y] {
            is_vague = true;
        }
    }
    let mut to = |other: usize| {
        let [dx, dy] = [ring[other][0] - ring[lowest][0], ring[other][1] - ring[lowest][1]];
        is_vague |= dx.abs() < TOLERANCE && dy.abs() < TOLERANCE;
        [dx, dy]
    };
    let [dx0, dy0] = to(lowest.checked_sub(1).unwrap_or(len.saturating_sub(2)));
    let [dx1, dy1] = to(if lowest + 1 < len - 1 { lowest + 1 } else { 0 });
    let turn = dx1 * dy0 - dx0 * dy1;
    if !is_vague && turn != 0.0 {
        return turn < 0.0;
    }
    let around = |at: usize| [ring[(at + 1) % len][1], ring[(at + len - 1) % len][1]];
    let area: f64 = (0..len).map(|at| ring[at][0] * (around(at)[0] - around(at)[1])).sum();
    area < 0.0
}

/// A shape and the id of its class.
#[derive(Clone, Debug)]
pub(super) struct Labelled {
    /// The shape in pixels.
    pub shape: Shape,
    /// The class id.
    pub id: u16,
    /// Rows in which it has points, as far as they are in the cube.
    pub rows: Range<usize>,
}

impl Labelled {
    /// A shape of a cube with `rows` rows; `None` if it is above or below the cube.
    pub fn new(shape: Shape, id: u16, rows: usize) -> Option<Self> {
        let ys = || shape.points.iter().map(|[_, y]| *y);
        let (low, high) =
            (ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max));
        // One row more on each side, for what touches the edge of a pixel.
        let first = (low - 1.0).floor().clamp(0.0, rows as f64) as usize;
        let end = (high + 2.0).floor().clamp(0.0, rows as f64) as usize;
        (first < end).then_some(Self { shape, id, rows: first..end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_touch_a_cube_inside_across_or_around_it() {
        let touches = |corners: [[f64; 2]; 2]| {
            Shape::new(Kind::Polygon, [corners.to_vec()]).touches([10, 20])
        };
        assert!(touches([[1.0, 1.0], [2.0, 2.0]]) && touches([[-5.0, -5.0], [50.0, 50.0]]));
        assert!(touches([[19.0, 9.0], [30.0, 30.0]]));
        assert!(!touches([[-2.0, 1.0], [-1.0, 2.0]]) && !touches([[1.0, 11.0], [2.0, 12.0]]));
        assert!(!Shape::new(Kind::Point, []).touches([10, 20]));
    }

    #[test]
    fn rings_turn_like_a_clock() {
        let square = [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0]];
        let mut turned = square;
        turned.reverse();
        assert!(is_clockwise(&square) && !is_clockwise(&turned));
        let small = |ring: [[f64; 2]; 5]| ring.map(|point| point.map(|number| number * 1e-6));
        assert!(is_clockwise(&small(square)) && !is_clockwise(&small(turned)));
        for ring in [&[][..], &square[..1], &square[..2], &square[..3], &[[0.0; 2]; 4]] {
            is_clockwise(ring);
        }
        let mut both = Shape::new(Kind::Polygon, [square.to_vec(), turned.to_vec()]);
        both.clockwise();
        assert_eq!(both, Shape::new(Kind::Polygon, [square.to_vec(), square.to_vec()]));
    }
}
