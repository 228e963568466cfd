//! Mean and standard deviation of many spectra.

/// Sums of the finite values of every band.
#[derive(Clone, Debug)]
pub struct Spectrum {
    pixels: u64,
    bands: Vec<Sums>,
}

#[derive(Clone, Copy, Debug)]
struct Sums {
    count: u64,
    /// The first value: sums of differences from it lose nothing where all values are large.
    shift: f64,
    sum: f64,
    squares: f64,
}

/// One line of a chart: mean and standard deviation of each band, NaN where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Means.
    pub mean: Vec<f64>,
    /// Standard deviations.
    pub std: Vec<f64>,
}

impl Spectrum {
    /// No spectra yet.
    pub fn new(bands: usize) -> Self {
        Self {
            pixels: 0,
            bands: vec![Sums { count: 0, shift: 0.0, sum: 0.0, squares: 0.0 }; bands],
        }
    }

    /// Adds one pixel.
    pub fn add(&mut self, pixel: &[f64]) {
        self.pixels += 1;
        for (sums, value) in self.bands.iter_mut().zip(pixel) {
            if value.is_finite() {
                if sums.count == 0 {
                    sums.shift = *value;
                }
                let difference = value - sums.shift;
                sums.count += 1;
                sums.sum += difference;
                sums.squares += difference * difference;
            }
        }
    }

    /// Pixels added.
    pub fn pixels(&self) -> u64 {
        self.pixels
    }

    /// Mean and standard deviation (dividing by the number of values).
    pub fn curve(&self) -> Curve {
        let mean = |sums: &Sums| sums.shift + sums.sum / sums.count as f64;
        let std = |sums: &Sums| {
            let n = sums.count as f64;
            (sums.squares / n - (sums.sum / n).powi(2)).max(0.0).sqrt()
        };
        let known = |sums: &Sums, value: f64| if sums.count == 0 { f64::NAN } else { value };
        Curve {
            mean: self.bands.iter().map(|sums| known(sums, mean(sums))).collect(),
            std: self.bands.iter().map(|sums| known(sums, std(sums))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_mean_and_deviation_of_what_is_finite() {
        let mut spectrum = Spectrum::new(3);
        for pixel in [[1e6 + 1.0, 5.0, f64::NAN], [1e6 + 3.0, f64::NAN, f64::INFINITY]] {
            spectrum.add(&pixel);
        }
        let curve = spectrum.curve();
        assert_eq!(curve.mean[..2], [1e6 + 2.0, 5.0]);
        assert_eq!(curve.std[..2], [1.0, 0.0]);
        assert!(curve.mean[2].is_nan() && curve.std[2].is_nan());
    }
}
