//! `--scale auto`: the factor that brings a cube's values into the range of fp16.

use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_store::threads::Pool;

use super::PlannedSample;
use super::pieces::{Opened, Piece, Room};
use crate::convert::options::{Resources, ValueOptions};

/// The greatest magnitude of the finite values of some cubes. The threads of `pool` read each cube
/// once.
///
/// # Errors
/// If a cube cannot be read, or `stop` was set.
pub(super) fn greatest_magnitude<'a>(
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
    let greatest = pool.in_turn(pieces, Room::default, |room, piece| {
        let Piece { cube, reads } = piece?;
        let mut greatest = 0f64;
        for rows in reads {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped")
                    .with_remedy("nothing was written yet"));
            }
            cube.read_f64(rows, room, &mut |values| {
                let finite = values.iter().filter(|value| value.is_finite());
                greatest = finite.fold(greatest, |greatest, value| greatest.max(value.abs()));
            })?;
        }
        Ok(greatest)
    })?;
    Ok(greatest.into_iter().fold(0.0, f64::max))
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
pub(super) fn power_of_two_for(greatest: f64) -> f64 {
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
