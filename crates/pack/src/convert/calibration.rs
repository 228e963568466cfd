//! Calibrating by a white and a dark reference: (value − dark) / (white − dark), of physical values.

/// References of one cube, averaged over their rows: one value a column and band.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Subtracted; one value a (column, band) of the selected bands.
    dark: Vec<f64>,
    /// Divided by, after the subtraction: (white − dark) / reflectance of the panel, for the cube's integration time.
    span: Vec<f64>,
}

impl Calibration {
    /// Of what is subtracted, and then divided by: one value a (column, band) each.
    pub fn new(dark: Vec<f64>, span: Vec<f64>) -> Self {
        Self { dark, span }
    }

    /// Calibrates whole pixels of `bands` bands in place, the first being in `column` of a row of
    /// `columns`. Where white and dark agree the result is NaN: nothing is known there.
    pub fn apply(&self, values: &mut [f64], bands: usize, column: usize, columns: usize) {
        for (pixel, spectrum) in values.chunks_exact_mut(bands).enumerate() {
            let start = (column + pixel) % columns * bands;
            let references = self.dark[start..].iter().zip(&self.span[start..]);
            for (value, (dark, span)) in spectrum.iter_mut().zip(references) {
                *value = if *span == 0.0 { f64::NAN } else { (*value - dark) / span };
            }
        }
    }
}
