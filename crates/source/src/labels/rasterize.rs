//! The pixels that shapes cover, exactly as GDAL's rasterizer finds them (`alg/llrasterize.cpp`),
//! so that labels equal those of `gdal_rasterize`, QGIS and `rasterio.features.rasterize`.
//!
//! ```text
//! polygon:      for each row, the edges cross the line through the centres of its pixels; pixels between an odd
//!               crossing and the next one are inside. Crossings are rounded to the nearest edge between pixels.
//! all touched:  also the pixels that the edges run through.
//! line:         Bresenham's line between the pixels of its points.
//! point:        the pixel in which it lies.
//! disc:         the pixels whose centres are in it, or that it touches. GDAL has none.
//! ```

use std::ops::Range;

use super::shapes::{Kind, Shape};

/// The most crossings of a polygon's edges with rows that are in memory at once.
const MAX_CROSSINGS: usize = 1 << 22;
/// Edges this close to the edge of a pixel run along it, and touch no pixel on its other side.
const ALIGNED: f64 = 1e-4;
/// Edges that are this upright or flat count as vertical or horizontal.
const STRAIGHT: f64 = 0.01;
/// The least step along an edge.
const LEAST_STEP: f64 = 1e-9;

/// An image whose pixels are set: rows, columns, and the rows that are of interest.
pub(super) struct Canvas<'a> {
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub width: usize,
    /// The rows that `pixels` holds.
    pub rows: Range<usize>,
    /// Ids of the pixels of these rows.
    pub pixels: &'a mut [u16],
}

impl Canvas<'_> {
    /// Sets the pixels that a shape covers.
    pub fn burn(&mut self, shape: &Shape, all_touched: bool, id: u16) {
        match shape.kind {
            Kind::Polygon => {
                self.fill(shape, self.rows.clone(), id);
                if all_touched {
                    self.each_segment(shape, |canvas, from, to| canvas.touch(from, to, true, id));
                }
            }
            Kind::Line if all_touched => {
                self.each_segment(shape, |canvas, from, to| canvas.touch(from, to, false, id));
            }
            Kind::Line => self.each_segment(shape, |canvas, from, to| canvas.line(from, to, id)),
            Kind::Disc => self.disc(shape, all_touched, id),
            Kind::Point => {
                for [x, y] in &shape.points {
                    self.set(y.floor() as i64, x.floor() as i64, id);
                }
            }
        }
    }

    /// Sets the pixels whose centres are in a disc, or that it touches.
    fn disc(&mut self, shape: &Shape, all_touched: bool, id: u16) {
        let [[left, top], [right, bottom]] = shape.points[..] else { return };
        let ([x, y], radius) = ([(left + right) / 2.0, (top + bottom) / 2.0], (right - left) / 2.0);
        for row in self.rows.clone() {
            let upper = row as f64;
            let away = match all_touched {
                true => (upper - y).max(y - upper - 1.0).max(0.0),
                false => upper + 0.5 - y,
            };
            let half = (radius * radius - away * away).sqrt();
            if half.is_nan() {
                continue;
            }
            let (first, last) = match all_touched {
                true => ((x - half).floor(), (x + half).ceil() - 1.0),
                false => ((x - half - 0.5).ceil(), (x + half - 0.5).floor()),
            };
            self.span(row as i64, first as i64, last as i64, id);
        }
    }

    fn set(&mut self, row: i64, column: i64, id: u16) {
        self.span(row, column, column, id);
    }

    /// Sets pixels `first` to `last` of a row, as far as they are in the image.
    fn span(&mut self, row: i64, first: i64, last: i64, id: u16) {
        let Ok(row) = usize::try_from(row) else { return };
        let (first, last) = (first.max(0) as usize, last.min(self.width as i64 - 1));
        if !self.rows.contains(&row) || last < first as i64 {
            return;
        }
        let start = (row - self.rows.start) * self.width;
        self.pixels[start + first..=start + last as usize].fill(id);
    }

    /// Segments in the order in which GDAL follows them, which is from the last point to the first
    /// one.
    fn each_segment(&mut self, shape: &Shape, mut each: impl FnMut(&mut Self, [f64; 2], [f64; 2])) {
        for part in shape.parts() {
            for pair in shape.points[part].windows(2).rev() {
                each(self, pair[1], pair[0]);
            }
        }
    }

    /// Fills a polygon in some rows.
    fn fill(&mut self, shape: &Shape, rows: Range<usize>, id: u16) {
        let mut count = 0usize;
        each_edge(shape, |low, high| count = count.saturating_add(crossed(low, high, &rows).len()));
        if count > MAX_CROSSINGS && rows.len() > 1 {
            let middle = rows.start + rows.len() / 2;
            self.fill(shape, rows.start..middle, id);
            return self.fill(shape, middle..rows.end, id);
        }
        let mut crossings = Vec::with_capacity(count);
        each_edge(shape, |from, to| {
            if from[1] == to[1] {
                // The lower edge of a polygon; the upper one is filled with the pixels above it.
                let row = from[1].floor();
                if from[1] == row + 0.5 && from[0] > to[0] {
                    let pixel_at = |x: f64| (x + 0.5).floor() as i64;
                    if rows.contains(&(row.max(0.0) as usize)) && row >= 0.0 {
                        self.span(
                            row as i64,
                            pixel_at(to[0]),
                            pixel_at(from[0]).saturating_sub(1),
                            id,
                        );
                    }
                }
                return;
            }
            let (low, high) = if from[1] < to[1] { (from, to) } else { (to, from) };
            for row in crossed(from, to, &rows) {
                let middle = row as f64 + 0.5;
                if middle >= low[1] && middle < high[1] {
                    let x = (middle - low[1]) * (high[0] - low[0]) / (high[1] - low[1]) + low[0];
                    crossings.push((row, (x + 0.5).floor() as i64));
                }
            }
        });
        crossings.sort_unstable();
        for of_row in crossings.chunk_by(|a, b| a.0 == b.0) {
            for pair in of_row.chunks_exact(2) {
                self.span(pair[0].0 as i64, pair[0].1, pair[1].1.saturating_sub(1), id);
            }
        }
    }

    /// Sets the pixels that a segment runs through. For edges of polygons, those that run along
    /// edges of pixels touch none.
    fn touch(&mut self, from: [f64; 2], to: [f64; 2], is_edge: bool, id: u16) {
        let (width, height) = (self.width as f64, self.height as f64);
        let ([mut x, mut y], [mut end_x, mut end_y]) = (from, to);
        if (y < 0.0 && end_y < 0.0)
            || (y > height && end_y > height)
            || (x < 0.0 && end_x < 0.0)
            || (x > width && end_x > width)
        {
            return;
        }
        let rows = (self.rows.start as f64 - 1.0, self.rows.end as f64 + 1.0);
        if y.max(end_y) < rows.0 || y.min(end_y) > rows.1 {
            return;
        }
        if x > end_x {
            (x, y, end_x, end_y) = (end_x, end_y, x, y);
        }
        let is_aligned = |a: f64, b: f64| {
            is_edge && (a - a.round()).abs() < ALIGNED && (b - b.round()).abs() < ALIGNED
        };
        if x.floor() == end_x.floor() || (x - end_x).abs() < STRAIGHT {
            if is_aligned(x, end_x) {
                return;
            }
            let (low, high) = (y.min(end_y), y.max(end_y));
            let first = (low.floor() as i64).max(self.rows.start as i64);
            let last = ((high - ALIGNED).floor() as i64).min(self.rows.end as i64 - 1);
            for row in first..=last {
                self.set(row, end_x.floor() as i64, id);
            }
            return;
        }
        if y.floor() == end_y.floor() || (y - end_y).abs() < STRAIGHT {
            if is_aligned(y, end_y) {
                return;
            }
            let last = (end_x - ALIGNED).floor() as i64;
            return self.span(y.floor() as i64, x.floor() as i64, last, id);
        }
        let slope = (end_y - y) / (end_x - x);
        if end_x > width {
            end_y -= (end_x - width) * slope;
            end_x = width;
        }
        if x < 0.0 {
            y += -x * slope;
            x = 0.0;
        }
        if end_y > y {
            if y < 0.0 {
                x += -y / slope;
                y = 0.0;
            }
            if end_y >= height {
                end_x += (end_y - height) / slope;
            }
        } else {
            if y >= height {
                x += (height - y) / slope;
                y = height;
            }
            if end_y < 0.0 {
                end_x -= end_y / slope;
            }
        }
        while x >= 0.0 && x < end_x && x < width {
            let row = y.floor();
            self.set(row as i64, x.floor() as i64, id);
            let step_x = (x + 1.0).floor() - x;
            let step_y = step_x * slope;
            if (y + step_y).floor() == row {
                x += step_x;
                y += step_y;
                continue;
            }
            let step_y = match slope < 0.0 {
                true => (row - y).min(-LEAST_STEP),
                false => (row + 1.0 - y).max(LEAST_STEP),
            };
            x += step_y / slope;
            y += step_y;
            if (slope < 0.0 && y < -1.0) || (slope > 0.0 && y > height + 1.0) {
                return;
            }
        }
    }

    /// Bresenham's line, with the steps along its longer axis that are in the image.
    fn line(&mut self, from: [f64; 2], to: [f64; 2], id: u16) {
        let pixel = |at: f64| at.floor() as i64;
        let (start, end) = (from.map(pixel), to.map(pixel));
        let length = |axis: usize| end[axis].saturating_sub(start[axis]).unsigned_abs();
        let (long, short) = if length(0) >= length(1) { (0, 1) } else { (1, 0) };
        let (along, across) = (i128::from(length(long)), i128::from(length(short)));
        let sign = |axis: usize| if start[axis] > end[axis] { -1i128 } else { 1 };
        let size = i128::from([self.width as i64, self.height as i64][long]);
        let origin = i128::from(start[long]);
        // Steps for which the position along the longer axis is in the image.
        let (first, last) = match sign(long) {
            1 => (-origin, size - 1 - origin),
            _ => (origin - size + 1, origin),
        };
        for step in first.max(0)..=last.min(along) {
            let aside = if along == 0 {
                0
            } else {
                let (over, by) = (2 * across * step - along, 2 * along);
                // Rounded up.
                (over + by - 1).div_euclid(by).max(0)
            };
            let mut pixel = [0i64; 2];
            pixel[long] = (origin + sign(long) * step) as i64;
            pixel[short] = (i128::from(start[short]) + sign(short) * aside) as i64;
            self.set(pixel[1], pixel[0], id);
        }
    }
}

/// The edges of a polygon's rings, which need not be closed.
fn each_edge(shape: &Shape, mut each: impl FnMut([f64; 2], [f64; 2])) {
    for part in shape.parts() {
        let ring = &shape.points[part];
        let (Some(first), Some(last)) = (ring.first(), ring.last()) else { continue };
        each(*last, *first);
        for pair in ring.windows(2) {
            each(pair[0], pair[1]);
        }
    }
}

/// Rows, among `rows`, whose centres an edge may cross.
fn crossed(from: [f64; 2], to: [f64; 2], rows: &Range<usize>) -> Range<usize> {
    if from[1] == to[1] {
        return 0..0;
    }
    let (low, high) = (from[1].min(to[1]), from[1].max(to[1]));
    let within = |row: f64| row.clamp(rows.start as f64, rows.end as f64) as usize;
    let (first, end) = (within((low - 0.5).floor()), within((high + 0.5).floor()));
    first..end.max(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polygons_far_to_the_left_cover_nothing() {
        let corners = [[-1e300, 0.0], [-2e300, 0.0], [-2e300, 2.0], [-1e300, 2.0], [-1e300, 0.0]];
        let shape = Shape::new(Kind::Polygon, [corners.to_vec()]);
        for all_touched in [false, true] {
            let mut pixels = [0; 6];
            let mut canvas = Canvas { height: 2, width: 3, rows: 0..2, pixels: &mut pixels };
            canvas.burn(&shape, all_touched, 1);
            assert_eq!(pixels, [0; 6]);
        }
    }
}
