//! Loops over rows of an image: blur, noise, mixing.

use tch::{Device, Kind, Tensor};

use super::element::Element;
use super::{Place, each_piece, takes_image};
use crate::Result;
use crate::torch::{bytes_of, fill_normal, run, written};

/// What lies around a frame that is blurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Around {
    /// The frame, mirrored about its outermost pixels' centres.
    Mirrored,
    /// Zeros.
    Zeros,
}

/// Blurs one sample (rows, columns, values) with these weights along rows and columns; a new tensor.
pub(in super::super) fn blur(
    image: &Tensor,
    down: &[f32],
    across: &[f32],
    around: Around,
) -> Result<Tensor> {
    debug_assert!(takes_image(image));
    let kind = image.kind();
    let size: Vec<usize> = image.size().iter().map(|size| *size as usize).collect();
    let shape = [size[0], size[1], size[2]];
    let from = bytes_of(image);
    written(&image.size(), kind, |into| {
        if kind == Kind::Half {
            let (from, into) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(into));
            blurred::<half::f16>(from, into, shape, [down, across], around);
        } else {
            let (from, into) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(into));
            blurred::<f32>(from, into, shape, [down, across], around);
        }
        Ok(())
    })
}

fn blurred<T: Element>(
    from: &[T],
    into: &mut [T],
    [rows, columns, values]: [usize; 3],
    [down, across]: [&[f32]; 2],
    around: Around,
) {
    let line = columns * values;
    let (high, wide) = (down.len() / 2, across.len() / 2);
    each_piece(into, line, |row, out| {
        // A row blurred along columns, with what lies beside its ends.
        let mut tall = vec![0.0f32; line + 2 * wide * values];
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
        if around == Around::Mirrored {
            let last = wide + columns - 1;
            for step in 1..=wide {
                for (to, mirror) in [(wide - step, wide + step), (last + step, last - step)] {
                    tall.copy_within(mirror * values..(mirror + 1) * values, to * values);
                }
            }
        }
        let mut sums = vec![0.0f32; line];
        for (tap, weight) in across.iter().enumerate() {
            f32::add(&mut sums, &tall[tap * values..][..line], *weight);
        }
        T::store_all(out, &sums);
    });
}

/// Values that a thread mixes at once.
const MIXED: usize = 1 << 14;

/// out = own·(1 - share) + other·share, all of one shape and type.
pub(in super::super) fn mix(mut out: Place<'_>, own: &Tensor, other: &Tensor, share: f32) {
    let kind = out.kind();
    let (out, own, other) = (out.bytes(), bytes_of(own), bytes_of(other));
    if kind == Kind::Half {
        let rows = [bytemuck::cast_slice(own), bytemuck::cast_slice(other)];
        mixed::<half::f16>(bytemuck::cast_slice_mut(out), rows, share);
    } else {
        let rows = [bytemuck::cast_slice(own), bytemuck::cast_slice(other)];
        mixed::<f32>(bytemuck::cast_slice_mut(out), rows, share);
    }
}

fn mixed<T: Element>(out: &mut [T], rows: [&[T]; 2], share: f32) {
    each_piece(out, MIXED, |number, out| {
        let mut sums = vec![0.0f32; out.len()];
        for (row, weight) in rows.into_iter().zip([1.0 - share, share]) {
            T::add(&mut sums, &row[number * MIXED..][..out.len()], weight);
        }
        T::store_all(out, &sums);
    });
}

/// The pixel at `place` - `reach`, mirrored about the outermost ones of `size`.
fn mirrored(place: usize, reach: usize, size: usize) -> usize {
    let last = size as i64 - 1;
    let place = (place as i64 - reach as i64).abs();
    (if place > last { 2 * last - place } else { place }).max(0) as usize
}

/// Values that one seed makes noise for.
const PIECE: usize = 1 << 20;

/// Adds normal noise to one sample's values.
pub(in super::super) fn noise(mut place: Place<'_>, seed: u64, mean: f32, std: f32) -> Result<()> {
    let kind = place.kind();
    let bytes = place.bytes();
    if kind == Kind::Half {
        noisy::<half::f16>(bytemuck::cast_slice_mut(bytes), seed, mean, std)
    } else {
        noisy::<f32>(bytemuck::cast_slice_mut(bytes), seed, mean, std)
    }
}

fn noisy<T: Element>(values: &mut [T], seed: u64, mean: f32, std: f32) -> Result<()> {
    let failed = std::sync::Mutex::new(None);
    each_piece(values, PIECE, |number, piece| {
        let made = run(|| Tensor::f_empty([piece.len() as i64], (Kind::Float, Device::Cpu)))
            .and_then(|mut made| {
                // Pieces have seeds of their own, so that they need not wait for one another.
                let seed = crate::plan::random::fold([seed, number as u64]);
                fill_normal(&mut made, seed)?;
                let noise: &[f32] = bytemuck::cast_slice(bytes_of(&made));
                for (value, noise) in piece.iter_mut().zip(noise) {
                    *value = T::store(value.load() + noise.mul_add(std, mean));
                }
                Ok(())
            });
        if let Err(error) = made {
            *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed.map_or(Ok(()), Err)
}
