//! Moving pixels.

use super::element::{Element, NEGATIVE_ZERO, Wide};
use super::workers::Workers;
use crate::geometry::{Outside, Padding, Source};
use crate::matrix::{Matrix, Whole};
use crate::resample::{ResampleJob, Resampling};

/// The part of a job that all threads share.
#[derive(Clone, Copy)]
pub(super) struct WarpArguments<'a> {
    job: &'a ResampleJob<'a>,
    outside: Option<Outside>,
    /// Displacements (2, rows, columns) in pixels, x first, for samples that have them.
    fields: &'a [Option<Vec<f32>>],
    rows: usize,
    columns: usize,
    to_rows: usize,
    to_columns: usize,
    /// Number of elements in a pixel.
    values: usize,
}

impl<'a> WarpArguments<'a> {
    /// The plan for an array (samples, rows, columns, values).
    pub(super) fn new(
        job: &'a ResampleJob<'a>,
        [_, rows, columns, values]: [usize; 4],
        fields: &'a [Option<Vec<f32>>],
    ) -> Self {
        let [to_rows, to_columns] = job.to;
        Self { job, outside: job.outside(), fields, rows, columns, to_rows, to_columns, values }
    }
}

/// Moves an image with interpolation.
pub(super) fn moved<T: Element>(
    workers: &Workers,
    plan: WarpArguments<'_>,
    from: &[T],
    into: &mut [T],
) {
    let zeros = plan.outside.is_some_and(|outside| outside.padding == Padding::Zeros);
    let base = if zeros { plan.job.fill } else { 0.0 };
    each_row(workers, plan, from, into, |from, places, row, line| {
        for (column, out) in line.chunks_exact_mut(plan.values).enumerate() {
            blend(from, plan, places.at(row, column), out, base);
        }
    });
}

/// Moves whole elements of any type, as bytes.
pub(super) fn moved_whole(
    workers: &Workers,
    plan: WarpArguments<'_>,
    from: &[u8],
    into: &mut [u8],
    fill: &[u8],
) {
    let plan = WarpArguments { values: plan.values * fill.len(), ..plan };
    each_row(workers, plan, from, into, |from, places, row, line| {
        for (column, out) in line.chunks_exact_mut(plan.values).enumerate() {
            // Round half to even, as libtorch's sampling does.
            let [x, y] = places.at(row, column).map(f64::round_ties_even);
            if x >= 0.0 && y >= 0.0 && x < plan.columns as f64 && y < plan.rows as f64 {
                let start = (y as usize * plan.columns + x as usize) * plan.values;
                out.copy_from_slice(&from[start..start + plan.values]);
            } else {
                out.chunks_exact_mut(fill.len()).for_each(|value| value.copy_from_slice(fill));
            }
        }
    });
}

/// Fills every row of every sample of the result; `sample` fills the rows of samples that are
/// resampled.
fn each_row<T: Copy + Send + Sync>(
    workers: &Workers,
    plan: WarpArguments<'_>,
    from: &[T],
    into: &mut [T],
    sample: impl Fn(&[T], &Places<'_>, usize, &mut [T]) + Sync + Send,
) {
    let line = plan.to_columns * plan.values;
    let all = plan.rows * plan.columns * plan.values;
    workers.each(into, line, |number, out| {
        let (index, row) = (number / plan.to_rows, number % plan.to_rows);
        let from = &from[index * all..][..all];
        match &plan.job.moves[index] {
            Resampling::Keep => out.copy_from_slice(&from[row * line..][..line]),
            Resampling::Places(whole) => put(from, plan, whole, row, out),
            Resampling::Sample(source) => {
                sample(from, &Places::new(plan, source, plan.fields[index].as_deref()), row, out);
            }
        }
    });
}

/// Copies a row of pixels that only change places.
fn put<T: Copy>(from: &[T], plan: WarpArguments<'_>, whole: &Whole, row: usize, out: &mut [T]) {
    let WarpArguments { columns, values, .. } = plan;
    let at = |column: usize| {
        let coordinate =
            |map: [i64; 3]| (map[0] * column as i64 + map[1] * row as i64 + map[2]) as usize;
        (coordinate(whole.y) * columns + coordinate(whole.x)) * values
    };
    if whole.x[0] == 1 {
        out.copy_from_slice(&from[at(0)..][..out.len()]);
        return;
    }
    for (column, out) in out.chunks_exact_mut(values).enumerate() {
        out.copy_from_slice(&from[at(column)..][..values]);
    }
}

/// The source positions of a result's pixels.
struct Places<'a> {
    map: &'a Matrix,
    affine: bool,
    plan: WarpArguments<'a>,
    /// Minimum and maximum x, minimum and maximum y.
    bounds: [f64; 4],
    field: Option<&'a [f32]>,
}

impl<'a> Places<'a> {
    fn new(plan: WarpArguments<'a>, source: &'a Source, field: Option<&'a [f32]>) -> Self {
        let map = plan.job.map(source);
        let whole = [0.0, plan.columns as f64 - 1.0, 0.0, plan.rows as f64 - 1.0];
        let bounds = source.bounds.unwrap_or(whole);
        Self { map, affine: map.is_affine(), plan, bounds, field }
    }

    fn at(&self, row: usize, column: usize) -> [f64; 2] {
        let (mut x, mut y) = (column as f64, row as f64);
        if let Some(field) = self.field {
            let index = row * self.plan.to_columns + column;
            x += f64::from(field[index]);
            y += f64::from(field[index + self.plan.to_rows * self.plan.to_columns]);
        }
        let m = &self.map.0;
        let [mut px, mut py] =
            [m[0][0] * x + m[0][1] * y + m[0][2], m[1][0] * x + m[1][1] * y + m[1][2]];
        if !self.affine {
            let scale = m[2][0] * x + m[2][1] * y + m[2][2];
            (px, py) = (px / scale, py / scale);
        }
        let Some(outside) = self.plan.outside else { return [px, py] };
        let [left, right, top, bottom] = self.bounds;
        [
            place(outside, px, self.plan.columns, left, right),
            place(outside, py, self.plan.rows, top, bottom),
        ]
    }
}

/// A position along an axis of `size` pixels, moved inside if the padding requires it.
fn place(outside: Outside, p: f64, size: usize, least: f64, most: f64) -> f64 {
    match outside.padding {
        Padding::Zeros => p,
        Padding::Border => p.max(least).min(most),
        // A single pixel is mirrored onto itself.
        Padding::Reflection if size == 1 => 0.0,
        Padding::Reflection => reflected(p, size, outside.align_corners),
    }
}

fn reflected(p: f64, size: usize, align_corners: bool) -> f64 {
    let size = size as f64;
    let (low, span) = if align_corners { (0.0, size - 1.0) } else { (-0.5, size) };
    let last = size - 1.0;
    if (0.0..=last).contains(&p) {
        return p;
    }
    let p = (p - low).abs();
    let (remainder, turns) = (p % span, (p / span).floor());
    let inside = if turns % 2.0 == 0.0 { remainder + low } else { span - remainder + low };
    inside.max(0.0).min(last)
}

/// Positions this close to the centre of a pixel are at its centre. Maps are rounded, and would
/// otherwise give its neighbours weights of 1e-16.
const CENTRE_TOLERANCE: f64 = 1.0 / (1u64 << 32) as f64;

/// The pixel at or before a position, and how far the position is from it: from 0 to less than 1.
fn split(p: f64) -> (f64, f64) {
    let (near, before) = (p.round_ties_even(), p.floor());
    if (p - near).abs() <= CENTRE_TOLERANCE { (near, 0.0) } else { (before, p - before) }
}

/// The pixels along one axis that have a weight other than 0.
struct Taps {
    places: [usize; 2],
    weights: [f64; 2],
    count: usize,
}

impl Taps {
    fn along(first: i64, part: f64, size: usize) -> Self {
        let mut taps = Self { places: [0; 2], weights: [0.0; 2], count: 0 };
        for (pixel, weight) in [(first, 1.0 - part), (first.saturating_add(1), part)] {
            if weight != 0.0 && (0..size as i64).contains(&pixel) {
                (taps.places[taps.count], taps.weights[taps.count]) = (pixel as usize, weight);
                taps.count += 1;
            }
        }
        taps
    }

    /// Exactly 1 if no tap lies outside.
    fn weight(&self) -> f64 {
        self.weights[0] + self.weights[1]
    }
}

/// Interpolates a pixel between up to four others. Those with a weight of 0 are not read, because
/// 0·NaN is NaN.
fn blend<T: Element>(
    from: &[T],
    plan: WarpArguments<'_>,
    [x, y]: [f64; 2],
    out: &mut [T],
    base: f64,
) {
    let WarpArguments { rows, columns, values, .. } = plan;
    let ((left, part_x), (top, part_y)) = (split(x), split(y));
    let inside = x.is_finite() && y.is_finite();
    // Positions far outside saturate, and NaN becomes 0; neither is used.
    let (left, top) = (left as i64, top as i64);
    let pixel = |x: usize, y: usize| &from[(y * columns + x) * values..][..values];
    let within = left >= 0 && top >= 0 && left < columns as i64 - 1 && top < rows as i64 - 1;
    if inside && within && part_x != 0.0 && part_y != 0.0 {
        let (x, y) = (left as usize, top as usize);
        let taps = [pixel(x, y), pixel(x + 1, y), pixel(x, y + 1), pixel(x + 1, y + 1)];
        let weights = [
            (1.0 - part_x) * (1.0 - part_y),
            part_x * (1.0 - part_y),
            (1.0 - part_x) * part_y,
            part_x * part_y,
        ];
        T::blend(out, taps, weights, NEGATIVE_ZERO);
        return;
    }
    let (across, down) = (Taps::along(left, part_x, columns), Taps::along(top, part_y, rows));
    let count = across.count * down.count;
    if !inside || count == 0 {
        out.fill(T::store(T::Wide::of(base)));
        return;
    }
    let mut taps: [(&[T], f64); 4] = [(&[], 0.0); 4];
    for (tap, index) in taps.iter_mut().zip(0..count) {
        let (x, y) = (index % across.count, index / across.count);
        *tap = (pixel(across.places[x], down.places[y]), across.weights[x] * down.weights[y]);
    }
    let missing = 1.0 - across.weight() * down.weight();
    let outside = if missing == 0.0 { NEGATIVE_ZERO } else { base * missing };
    let [(first, weight), (second, part), third, last] = taps;
    match count {
        1 if weight == 1.0 => out.copy_from_slice(first),
        1 => T::blend(out, [first], [weight], outside),
        2 => T::blend(out, [first, second], [weight, part], outside),
        _ => T::blend(out, taps.map(|tap| tap.0), [weight, part, third.1, last.1], outside),
    }
}
