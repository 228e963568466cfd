//! `--scale auto`: the factor that brings a cube's values into the range of fp16.

use hsipack_format::Result;

use super::{PlannedSample, open_source};
use crate::convert::options::ConvertOptions;
use crate::convert::transform::Scratch;
use crate::source::RowBuffer;

pub(super) fn greatest_magnitude(sample: &PlannedSample, options: &ConvertOptions) -> Result<f64> {
    let source = open_source(&sample.input, &options.values)?;
    let transform = sample.transform(&options.values, 1.0)?;
    let rows = sample.info.shape.rows;
    let (mut buffer, mut scratch, mut greatest) = (RowBuffer::new(), Scratch::default(), 0f64);
    let step = source.preferred_rows(options.memory / options.jobs.max(1)).max(16).min(rows);
    for start in (0..rows).step_by(step) {
        source.read_rows(start..rows.min(start + step), &mut buffer)?;
        let fold = |_, values: &[f64]| {
            let finite = values.iter().filter(|value| value.is_finite());
            greatest = finite.fold(greatest, |greatest, value| greatest.max(value.abs()));
            Ok(())
        };
        let mut fold = fold;
        transform
            .apply_f64(&buffer, start, &mut scratch, &mut fold)
            .map_err(|error| error.at(&sample.input.file))?;
    }
    Ok(greatest)
}

/// The power of two to divide values by, the greatest being `greatest`: 1 if fp16 holds them well.
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
