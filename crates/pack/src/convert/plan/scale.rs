//! `--scale auto`: the factor that brings a cube's values into the range of fp16.

use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::{DType, Error, ErrorKind, Opt, Result, remedy};
use hsipack_source::Scaling;
use hsipack_store::threads::Pool;

use super::PlannedSample;
use super::pieces::{Opened, Piece, Room};
use crate::convert::encode::LIKELY_MISSING;
use crate::convert::options::{Resources, ValueOptions};

/// float16 rounds values below this to 0.
const VANISHES: f64 = 1.0 / (1 << 25) as f64;

/// The power of two by which the values of some cubes are divided. The threads of `pool` read each
/// cube once.
///
/// # Errors
/// If a cube cannot be read, a value that most likely marks missing pixels would make all others
/// vanish, or `stop` was set.
pub(super) fn scale_for<'a>(
    samples: impl Iterator<Item = &'a PlannedSample> + Send,
    values: &ValueOptions,
    resources: Resources,
    pool: &Pool,
    stop: &AtomicBool,
) -> Result<f64> {
    let pieces = samples.flat_map(|sample| match cut(sample, values, resources) {
        Ok(pieces) => pieces.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    let found = pool.in_turn(pieces, Room::default, |room, piece| {
        let Piece { cube, reads } = piece?;
        let (mut greatest, mut ordinary) = (0f64, 0f64);
        for rows in reads {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped")
                    .with_remedy("nothing was written yet"));
            }
            cube.read_f64(rows, room, &mut |values| {
                for value in values.iter().filter(|value| value.is_finite()) {
                    let magnitude = value.abs();
                    if magnitude > greatest.abs() {
                        greatest = *value;
                    }
                    if magnitude < LIKELY_MISSING {
                        ordinary = ordinary.max(magnitude);
                    }
                }
            })?;
        }
        Ok((greatest, ordinary, cube.sample))
    })?;
    let ordinary = found.iter().map(|(_, ordinary, _)| *ordinary).fold(0.0, f64::max);
    let greatest = found.into_iter().max_by(|(a, ..), (b, ..)| a.abs().total_cmp(&b.abs()));
    let Some((greatest, _, sample)) = greatest else { return Ok(1.0) };
    let scale = power_of_two_for(greatest.abs());
    let is_marker = greatest.abs() >= LIKELY_MISSING && values.dtype() == DType::F16;
    if is_marker && ordinary > 0.0 && ordinary / scale < VANISHES {
        let Scaling { multiply, divide, add } = match values.raw_values {
            true => Scaling::NONE,
            false => sample.description.shared().scaling,
        };
        let stored = (greatest - add) * divide / multiply;
        return Err(Error::new(
            ErrorKind::Overflow,
            format!(
                "the value {greatest:e} most likely marks missing pixels; with a scale for it, all other values would become 0"
            ),
        )
        .at(&sample.input.file)
        .with_remedy(remedy![
            "pass ",
            Opt::Nodata.to(format!("{stored:e}")),
            "; if it is a value, pass ",
            Opt::Dtype.to("float32")
        ]));
    }
    Ok(scale)
}

/// Cuts a cube into reads that fit into the memory of one thread.
pub(super) fn cut<'a>(
    sample: &'a PlannedSample,
    values: &ValueOptions,
    resources: Resources,
) -> Result<Vec<Piece<'a>>> {
    let cube = Opened::new(sample, values, 1.0)?;
    let rows = sample.shape().rows;
    let affordable = cube.source.preferred_rows(resources.buffer_per_thread());
    let step = affordable.max(16).min(rows);
    let reads = (0..rows).step_by(step).map(|start| start..rows.min(start + step));
    Ok(cube.pieces(reads.collect()))
}

/// The power of two by which values are divided if the greatest is `greatest`; 1 if fp16 holds them
/// well.
fn power_of_two_for(greatest: f64) -> f64 {
    const MAX: f64 = 65504.0;
    if greatest > MAX {
        let mut scale = 1.0;
        while greatest / scale > MAX {
            scale *= 2.0;
        }
        scale
    } else if greatest > 0.0 && greatest < 1.0 / 16.0 {
        let mut scale = 1.0;
        while greatest / scale < 0.5 && scale > 1e-30 {
            scale /= 2.0;
        }
        scale
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_scales_are_powers_of_two_that_fit() {
        assert_eq!(power_of_two_for(0.4), 1.0);
        assert_eq!(power_of_two_for(65504.0), 1.0);
        assert_eq!(power_of_two_for(70000.0), 2.0);
        assert_eq!(power_of_two_for(1e6), 16.0);
        assert_eq!(power_of_two_for(0.01), 1.0 / 64.0);
        assert_eq!(power_of_two_for(0.0), 1.0);
    }
}
