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
    /// The first value. Differences from it are summed, so that sums stay precise even if all
    /// values are large.
    shift: f64,
    sum: f64,
    squares: f64,
}

impl Sums {
    fn merge(&mut self, other: &Sums) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                *self = *other;
            }
            return;
        }
        // Shifts the other's differences to this shift.
        let (count, between) = (other.count as f64, other.shift - self.shift);
        self.squares += other.squares + 2.0 * between * other.sum + count * between * between;
        self.sum += other.sum + count * between;
        self.count += other.count;
    }
}

/// One line of a chart: mean and standard deviation of each band, NaN if there is none.
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

    /// Adds the pixels of `other`, which come after those added so far.
    pub fn merge(&mut self, other: &Spectrum) {
        self.pixels += other.pixels;
        self.bands.iter_mut().zip(&other.bands).for_each(|(sums, other)| sums.merge(other));
    }

    /// Number of pixels added.
    pub fn pixels(&self) -> u64 {
        self.pixels
    }

    /// For each band, the number of pixels without a finite value.
    pub fn missing(&self) -> Vec<u64> {
        self.bands.iter().map(|sums| self.pixels - sums.count).collect()
    }

    /// Mean and standard deviation (dividing by the number of values).
    pub fn curve(&self) -> Curve {
        let mean = |sums: &Sums| sums.shift + sums.sum / sums.count as f64;
        let std = |sums: &Sums| {
            let n = sums.count as f64;
            (sums.squares / n - (sums.sum / n).powi(2)).max(0.0).sqrt()
        };
        let nan_if_empty = |sums: &Sums, value: f64| if sums.count == 0 { f64::NAN } else { value };
        Curve {
            mean: self.bands.iter().map(|sums| nan_if_empty(sums, mean(sums))).collect(),
            std: self.bands.iter().map(|sums| nan_if_empty(sums, std(sums))).collect(),
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

    #[test]
    fn spectra_of_parts_make_that_of_the_whole() {
        let pixels: Vec<[f64; 3]> = (0..40)
            .map(|at| {
                let value = 1e4 + f64::from(at * 7919 % 101);
                [value, if at < 15 { f64::NAN } else { value }, f64::NAN]
            })
            .collect();
        let of = |pixels: &[[f64; 3]]| {
            let mut spectrum = Spectrum::new(3);
            pixels.iter().for_each(|pixel| spectrum.add(pixel));
            spectrum
        };
        for cut in [0, 1, 15, 20, 40] {
            let mut both = of(&pixels[..cut]);
            both.merge(&of(&pixels[cut..]));
            assert_eq!(both.pixels(), 40);
            let (both, whole) = (both.curve(), of(&pixels).curve());
            for band in 0..2 {
                assert!((both.mean[band] - whole.mean[band]).abs() < 1e-9, "{cut}");
                assert!((both.std[band] - whole.std[band]).abs() < 1e-9, "{cut}");
            }
            assert!(both.mean[2].is_nan() && both.std[2].is_nan());
        }
    }
}
