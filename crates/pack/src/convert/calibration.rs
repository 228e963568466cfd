//! Calibrates column by column: (value − dark) / span, from references or from the camera's
//! calibration in a file.

use hsipack_source::PlaceScaling;

use super::pixel_position::PixelPosition;

/// For each column and band, what is subtracted from the values and what they are divided by.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Subtracted first: one value for each (column, band) of the selected bands.
    dark: Vec<f64>,
    /// The change of `dark` over the cube. Each row adds the fraction of it that corresponds to the
    /// rows above.
    drift: Option<Vec<f64>>,
    /// The divisor after the subtraction: (white − dark) / reflectance of the panel, for the cube's
    /// integration time.
    span: Vec<f64>,
}

impl Calibration {
    /// Creates a calibration. `dark` is subtracted, then `span` divides. Both have one value for
    /// each (column, band).
    pub fn new(dark: Vec<f64>, span: Vec<f64>) -> Self {
        Self { dark, drift: None, span }
    }

    /// The camera's calibration in a file of `all` bands, for the selected bands.
    pub fn of_places(scaling: &PlaceScaling, all: usize, bands: Option<&[usize]>) -> Self {
        let picked = |values: &[f64]| -> Vec<f64> {
            match bands {
                None => values.to_vec(),
                Some(bands) => values
                    .chunks_exact(all)
                    .flat_map(|spectrum| bands.iter().map(|band| spectrum[*band]))
                    .collect(),
            }
        };
        let dark = picked(&scaling.background);
        let drift = scaling
            .last_background
            .as_deref()
            .map(|last| picked(last).iter().zip(&dark).map(|(last, first)| last - first).collect());
        Self { dark, drift, span: picked(&scaling.divisor) }
    }

    /// Combines this calibration and `next`, which is applied after it.
    pub fn then(self, next: &Self) -> Self {
        let dark = self.dark.iter().zip(&self.span).zip(&next.dark);
        let span = self.span.iter().zip(&next.span);
        Self {
            dark: dark.map(|((dark, span), next)| dark + span * next).collect(),
            span: span.map(|(span, next)| span * next).collect(),
            drift: self.drift,
        }
    }

    /// Calibrates whole pixels of `bands` bands in place. The first is at `position` of a cube of
    /// `rows` × `columns`. If the span is 0, the result is NaN, because the value is not known.
    pub fn apply(
        &self,
        values: &mut [f64],
        bands: usize,
        position: PixelPosition,
        [rows, columns]: [usize; 2],
    ) {
        for (pixel, spectrum) in values.chunks_exact_mut(bands).enumerate() {
            let at = position.column + pixel;
            let start = at % columns * bands;
            let references = self.dark[start..].iter().zip(&self.span[start..]);
            if let Some(drift) = &self.drift {
                let part = (position.row + at / columns) as f64 / rows as f64;
                let drift = drift[start..].iter();
                for ((value, (dark, span)), drift) in spectrum.iter_mut().zip(references).zip(drift)
                {
                    *value = calibrated(*value, dark + part * drift, *span);
                }
                continue;
            }
            for (value, (dark, span)) in spectrum.iter_mut().zip(references) {
                *value = calibrated(*value, *dark, *span);
            }
        }
    }
}

fn calibrated(value: f64, dark: f64, span: f64) -> f64 {
    if span == 0.0 { f64::NAN } else { (value - dark) / span }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backgrounds_change_from_row_to_row_and_references_come_after() {
        let scaling = PlaceScaling {
            background: vec![1.0, 2.0, 3.0, 4.0],
            last_background: Some(vec![3.0, 2.0, 5.0, 4.0]),
            divisor: vec![2.0, 4.0, 0.0, 8.0],
        };
        let calibration = Calibration::of_places(&scaling, 2, None);
        // Two pixels in a cube with 4 rows: row 1, column 1, then row 2, column 0.
        let mut values = [100.0, 12.0, 12.0, 12.0];
        calibration.apply(&mut values, 2, PixelPosition { row: 1, column: 1 }, [4, 2]);
        assert!(values[0].is_nan());
        assert_eq!(values[1..], [1.0, 5.0, 2.5]);
        // One band only, followed by a dark reference.
        let single_band = Calibration::of_places(&scaling, 2, Some(&[1]));
        let both = single_band.clone().then(&Calibration::new(vec![0.5, 0.25], vec![2.0, 0.5]));
        let (mut corrected, mut scaled) = ([12.0, 12.0], [12.0, 12.0]);
        let position = PixelPosition { row: 0, column: 0 };
        both.apply(&mut corrected, 1, position, [4, 2]);
        single_band.apply(&mut scaled, 1, position, [4, 2]);
        assert_eq!(corrected, [(scaled[0] - 0.5) / 2.0, (scaled[1] - 0.25) / 0.5]);
    }
}
