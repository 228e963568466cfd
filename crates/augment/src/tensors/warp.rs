//! Warps as tensor operations: four rows of a table of pixels, weighted and added, for every pixel that comes out.
//!
//! `embedding_bag` does this in one pass over pixels' spectra, which lie together; positions are float32 whatever
//! the image's type. libtorch's own `grid_sampler` reads bands in planes, and wants positions of the image's type:
//! in float16 they are a quarter of a pixel off at 640 columns.

use tch::{Device, Kind, TchError, Tensor};

use super::super::matrix::Whole;
use super::super::ops::{Padding, Source};
use super::geometry::{Job, Move};
use hsipack_format::Result;
use crate::torch::run;

/// What a job makes of its array.
pub(super) fn moved(job: &Job<'_>) -> Result<Tensor> {
    run(|| {
        let [samples, rows, columns, values] = sizes(job.from);
        let to = job.to.map(|size| size as i64);
        let sampled: Vec<(usize, &Source)> = sources(job.moves).collect();
        let warped = if sampled.is_empty() { None } else { Some(warp(job, &sampled)?) };
        if let (Some(warped), true) = (&warped, sampled.len() as i64 == samples) {
            return Ok(warped.shallow_clone());
        }
        let options = (job.from.kind(), job.from.device());
        let out = Tensor::f_empty([samples, to[0], to[1], values], options)?;
        let mut next = 0;
        for (number, step) in job.moves.iter().enumerate() {
            let (from, mut place) = (job.from.f_get(number as i64)?, out.f_get(number as i64)?);
            match step {
                Move::Keep => place.f_copy_(&from)?,
                Move::Places(whole) => {
                    place.f_copy_(&placed(&from, whole, [rows, columns], to)?)?
                }
                Move::Sample(_) => {
                    next += 1;
                    let warped = warped.as_ref().expect("there are sampled ones");
                    place.f_copy_(&warped.f_get(next - 1)?)?;
                }
            }
        }
        Ok(out)
    })
}

fn sizes(tensor: &Tensor) -> [i64; 4] {
    tensor.size().try_into().expect("inner arrays have four axes")
}

fn sources(moves: &[Move]) -> impl Iterator<Item = (usize, &Source)> {
    moves.iter().enumerate().filter_map(|(number, step)| match step {
        Move::Sample(source) => Some((number, source)),
        _ => None,
    })
}

/// A view of (rows, columns, values) with the pixels in their new places.
fn placed(from: &Tensor, whole: &Whole, frame: [i64; 2], to: [i64; 2]) -> Result<Tensor, TchError> {
    let Whole { x, y } = whole;
    // Which axis of the frame the result's x runs along, and in which direction.
    let (turned, sign_x, sign_y) = (x[0] == 0, x[0] + y[0], x[1] + y[1]);
    let first = |map: &[i64; 3], len: [i64; 2]| {
        let ends =
            [0, len[0] - 1].map(|x| [0, len[1] - 1].map(|y| map[0] * x + map[1] * y + map[2]));
        ends.into_iter().flatten().min().unwrap_or(0)
    };
    let span = [to[1], to[0]];
    let (left, top) = (first(x, span), first(y, span));
    let (rows, columns) = if turned { (to[1], to[0]) } else { (to[0], to[1]) };
    debug_assert!(top + rows <= frame[0] && left + columns <= frame[1]);
    let window = from.f_narrow(0, top, rows)?.f_narrow(1, left, columns)?;
    let window = if turned { window.f_transpose(0, 1)? } else { window };
    let flips: Vec<i64> = [(sign_y, 0), (sign_x, 1)]
        .iter()
        .filter(|(sign, _)| *sign < 0)
        .map(|(_, axis)| *axis)
        .collect();
    if flips.is_empty() { Ok(window) } else { window.f_flip(flips) }
}

/// The sampled ones: (sampled, rows, columns, values).
fn warp(job: &Job<'_>, sampled: &[(usize, &Source)]) -> Result<Tensor, TchError> {
    let [samples, rows, columns, values] = sizes(job.from);
    let count = sampled.len() as i64;
    let to = job.to.map(|size| size as i64);
    let device = job.from.device();
    let (x, y) = positions(job, sampled, [rows, columns])?;
    // First pixel of every sample in the table of all pixels.
    let first: Vec<i64> =
        sampled.iter().map(|(number, _)| *number as i64 * rows * columns).collect();
    let first = to_device(Tensor::f_from_slice(&first)?, device)?.f_view([count, 1, 1])?;
    let table = job.from.f_view([samples * rows * columns, values])?;
    let index = |x: &Tensor, y: &Tensor| -> Result<Tensor, TchError> {
        let x = x.f_clamp(0, columns - 1)?.f_to_kind(Kind::Int64)?;
        let y = y.f_clamp(0, rows - 1)?.f_to_kind(Kind::Int64)?;
        y.f_mul_scalar(columns)?.f_add(&x)?.f_add(&first)
    };
    let inside = |x: &Tensor, y: &Tensor| -> Result<Tensor, TchError> {
        let x = x.f_ge(0)?.f_logical_and(&x.f_le(columns - 1)?)?;
        x.f_logical_and(&y.f_ge(0)?)?.f_logical_and(&y.f_le(rows - 1)?)
    };
    let shape = [count, to[0], to[1], values];
    let outside = job.together.outside;
    let filled = outside.is_some_and(|outside| outside.padding == Padding::Zeros);
    if job.nearest() {
        // Half to even, as libtorch's own sampling does.
        let (x, y) = (x.f_round()?, y.f_round()?);
        let taken = table.f_index_select(0, &index(&x, &y)?.f_view([-1])?)?.f_view(shape)?;
        if !filled {
            return Ok(taken);
        }
        let fill = Tensor::f_full([1], job.fill, (taken.kind(), device))?;
        return taken.f_where_self(&inside(&x, &y)?.f_unsqueeze(-1)?, &fill);
    }
    let (x0, y0) = (x.f_floor()?, y.f_floor()?);
    let (right, low) = (x.f_sub(&x0)?, y.f_sub(&y0)?);
    let (x1, y1) = (x0.f_add_scalar(1)?, y0.f_add_scalar(1)?);
    let one_minus = |part: &Tensor| part.f_neg()?.f_add_scalar(1);
    let (left, high) = (one_minus(&right)?, one_minus(&low)?);
    let mut indices = Vec::with_capacity(4);
    let mut weights = Vec::with_capacity(4);
    for (y, part_y) in [(&y0, &high), (&y1, &low)] {
        for (x, part_x) in [(&x0, &left), (&x1, &right)] {
            let weight = part_x.f_mul(part_y)?;
            weights.push(weight.f_mul(&inside(x, y)?)?);
            indices.push(index(x, y)?);
        }
    }
    let weights = Tensor::f_stack(&weights, -1)?;
    let bags = count * to[0] * to[1];
    let offsets = Tensor::f_arange_start_step(0, 4 * bags, 4, (Kind::Int64, device))?;
    let (out, ..) = Tensor::f_embedding_bag(
        &table,
        &Tensor::f_stack(&indices, -1)?.f_view([-1])?,
        &offsets,
        false,
        0, // sum
        false,
        Some(&weights.f_to_kind(table.kind())?.f_view([-1])?),
        false,
    )?;
    let out = out.f_view(shape)?;
    if filled && job.fill != 0.0 {
        let missing =
            one_minus(&weights.f_sum_dim_intlist([-1i64].as_slice(), true, Kind::Float)?)?;
        return out.f_add(&missing.f_mul_scalar(job.fill)?.f_to_kind(out.kind())?);
    }
    Ok(out)
}

/// Where the pixels that come out lie in the frame: x and y, each (sampled, rows, columns), float32.
fn positions(
    job: &Job<'_>,
    sampled: &[(usize, &Source)],
    frame: [i64; 2],
) -> Result<(Tensor, Tensor), TchError> {
    let device = job.from.device();
    let count = sampled.len() as i64;
    let mut numbers: Vec<f32> = Vec::with_capacity(13 * sampled.len());
    let (right, bottom) = (frame[1] as f64 - 1.0, frame[0] as f64 - 1.0);
    for (_, source) in sampled {
        numbers.extend(job.map(source).0.iter().flatten().map(|value| *value as f32));
        let bounds = source.bounds.unwrap_or([0.0, right, 0.0, bottom]);
        numbers.extend(bounds.map(|bound| bound as f32));
    }
    // One copy to the device for everything that was drawn.
    let numbers = to_device(Tensor::f_from_slice(&numbers)?.f_view([count, 13, 1, 1])?, device)?;
    let number = |index: i64| numbers.f_select(1, index);
    let options = (Kind::Float, device);
    let mut x = Tensor::f_arange(job.to[1] as i64, options)?.f_view([1, 1, -1])?;
    let mut y = Tensor::f_arange(job.to[0] as i64, options)?.f_view([1, -1, 1])?;
    if sampled.iter().any(|(number, _)| job.fields[*number].is_some()) {
        let shape = [2, job.to[0] as i64, job.to[1] as i64];
        let still = Tensor::f_zeros(shape, options)?;
        let fields: Vec<&Tensor> = sampled
            .iter()
            .map(|(number, _)| job.fields[*number].as_ref().unwrap_or(&still))
            .collect();
        let fields = Tensor::f_stack(&fields, 0)?;
        (x, y) = (fields.f_select(1, 0)?.f_add(&x)?, fields.f_select(1, 1)?.f_add(&y)?);
    }
    let row = |first: i64| -> Result<Tensor, TchError> {
        let along = x.f_mul(&number(first)?)?.f_add(&y.f_mul(&number(first + 1)?)?)?;
        along.f_add(&number(first + 2)?)
    };
    let (mut px, mut py) = (row(0)?, row(3)?);
    if sampled.iter().any(|(_, source)| !job.map(source).is_affine()) {
        let scale = row(6)?;
        // The horizon itself lies far outside, and at no place that could not be an index.
        let far = |p: Tensor| p.f_nan_to_num(-1e6, 1e6, -1e6);
        (px, py) = (far(px.f_div(&scale)?)?, far(py.f_div(&scale)?)?);
    }
    let Some(outside) = job.together.outside else { return Ok((px, py)) };
    let place = |p: Tensor, size: i64, least: i64| -> Result<Tensor, TchError> {
        match outside.padding {
            Padding::Zeros => Ok(p),
            Padding::Border => p.f_maximum(&number(least)?)?.f_minimum(&number(least + 1)?),
            // However often it is mirrored.
            Padding::Reflection if size == 1 => p.f_zeros_like(),
            Padding::Reflection => {
                reflected(&p, size, outside.align_corners)?.f_clamp(0.0, size as f64 - 1.0)
            }
        }
    };
    Ok((place(px, frame[1], 9)?, place(py, frame[0], 11)?))
}

/// Places mirrored into a frame of `size` pixels.
fn reflected(p: &Tensor, size: i64, align_corners: bool) -> Result<Tensor, TchError> {
    let (low, span) = if align_corners { (0.0, size as f64 - 1.0) } else { (-0.5, size as f64) };
    let p = p.f_sub_scalar(low)?.f_abs()?;
    let rest = p.f_fmod(span)?;
    let odd = p.f_div_scalar_mode(span, "floor")?.f_fmod(2.0)?.f_ne(0.0)?;
    rest.f_neg()?.f_add_scalar(span)?.f_where_self(&odd, &rest)?.f_add_scalar(low)
}

/// Numbers to a device, without waiting for it.
pub(super) fn to_device(numbers: Tensor, device: Device) -> Result<Tensor, TchError> {
    match device {
        Device::Cpu => Ok(numbers),
        _ => numbers.f_pin_memory(device)?.f_to_device_(device, numbers.kind(), true, false),
    }
}
