//! Loops over rows of an image: blur, mixing.

use hsipack_format::spectrum::Real;

use super::element::{Element, NEGATIVE_ZERO, Wide, settle};
use super::workers::Workers;
use crate::ops::mirrored;

/// The values outside a frame that is blurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Around {
    /// The frame, mirrored at the centres of its outermost pixels.
    Mirrored,
    /// Zeros.
    Zeros,
}

/// Blurs one sample (rows, columns, values) with these weights along rows (down) and columns
/// (across).
pub(super) fn blur<T: Element>(
    workers: &Workers,
    from: &[T],
    into: &mut [T],
    [rows, columns, values]: [usize; 3],
    weights: [&[f64]; 2],
    around: Around,
) {
    let [down, across] = weights
        .map(|weights| weights.iter().map(|weight| T::Wide::of(*weight)).collect::<Vec<_>>());
    let line = columns * values;
    let (high, wide) = (down.len() / 2, across.len() / 2);
    let nothing = T::Wide::of(NEGATIVE_ZERO);
    workers.each(into, line, |row, out| {
        // A row, blurred along the columns, with the values beyond its ends.
        let mut tall = vec![nothing; line + 2 * wide * values];
        let middle = wide * values;
        for (tap, weight) in down.iter().enumerate() {
            let from_row = match around {
                Around::Mirrored => Some(mirrored(row + tap, high, rows)),
                Around::Zeros => (row + tap).checked_sub(high).filter(|row| *row < rows),
            };
            if let Some(from_row) = from_row {
                let from = &from[from_row * line..][..line];
                T::add(&mut tall[middle..middle + line], from, *weight);
            }
        }
        if !T::NARROWER {
            let finite = |tap: usize, at: usize| {
                let from_row = match around {
                    Around::Mirrored => mirrored(row + tap, high, rows),
                    Around::Zeros => (row + tap).wrapping_sub(high),
                };
                from_row >= rows || from[from_row * line + at].load().is_finite()
            };
            let tall = &mut tall[middle..middle + line];
            settle(tall, |at| (0..down.len()).all(|tap| finite(tap, at)));
        }
        if around == Around::Mirrored {
            let last = wide + columns - 1;
            for step in 1..=wide {
                for (to, mirror) in [(wide - step, wide + step), (last + step, last - step)] {
                    tall.copy_within(mirror * values..(mirror + 1) * values, to * values);
                }
            }
        }
        let mut sums = vec![nothing; line];
        for (tap, weight) in across.iter().enumerate() {
            let row = &tall[tap * values..][..line];
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum = weight.mul_add(*value, *sum);
            }
        }
        if !T::NARROWER {
            let finite = |tap: usize, at: usize| tall[tap * values + at].is_finite();
            settle(&mut sums, |at| (0..across.len()).all(|tap| finite(tap, at)));
        }
        T::round_all(out, &sums);
    });
}

/// Number of values that a thread mixes at a time.
const MIXED: usize = 1 << 14;

/// out = own·(1 - share) + other·share.
pub(super) fn mix<T: Element>(workers: &Workers, out: &mut [T], rows: [&[T]; 2], share: f64) {
    let weights = [1.0 - share, share].map(T::Wide::of);
    workers.each(out, MIXED, |number, out| {
        let mut sums = vec![T::Wide::of(NEGATIVE_ZERO); out.len()];
        for (row, weight) in rows.into_iter().zip(weights) {
            T::add(&mut sums, &row[number * MIXED..][..out.len()], weight);
        }
        if !T::NARROWER {
            let finite = |row: &[T], index: usize| row[number * MIXED + index].load().is_finite();
            settle(&mut sums, |index| rows.into_iter().all(|row| finite(row, index)));
        }
        T::round_all(out, &sums);
    });
}
