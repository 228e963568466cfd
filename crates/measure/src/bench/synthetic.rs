//! Cubes that compress about as well as real ones: smooth mixtures of smooth spectra under uneven
//! light, with a sensor's noise. scripts/dev/make_cubes.py generates the same kind.

use super::options::CubeSize;
use crate::random::{GAMMA, mix};

/// Number of materials in a scene.
const MATERIALS: usize = 4;

/// Cube `number`: reflectances, (row, column, band). The same number always gives the same cube.
pub fn cube(number: u64, shape: CubeSize) -> Vec<f32> {
    let mut random = Random(GAMMA ^ (number + 1).wrapping_mul(0xd134_2543_de82_ef95));
    let spectra: Vec<Vec<f32>> =
        (0..MATERIALS).map(|_| spectrum(&mut random, shape.bands)).collect();
    let fields: Vec<Field> = (0..MATERIALS + 1).map(|_| Field::new(&mut random)).collect();
    let gain: Vec<f32> =
        (0..shape.bands).map(|band| 1.0 + 3.0 * middle(band, shape.bands).powi(4)).collect();
    let mut values = Vec::with_capacity(shape.values());
    let mut normals = Normals::new(&mut random);
    for row in 0..shape.rows {
        for column in 0..shape.columns {
            let at = [row as f32 / shape.rows as f32, column as f32 / shape.columns as f32];
            let shares = shares(&fields, at);
            let light = 1.0 + 0.2 * fields[MATERIALS].at(at);
            for band in 0..shape.bands {
                let mixed: f32 = (0..MATERIALS).map(|m| shares[m] * spectra[m][band]).sum();
                let clean = (mixed * light).max(0.0);
                // Shot noise of the light, plus noise of the electronics; both are stronger at the ends of the sensor's
                // range.
                let noise = (0.002 * clean.sqrt() + 0.0006) * gain[band];
                values.push((clean + noise * normals.next()).max(0.0002));
            }
        }
    }
    values
}

/// Position of a band relative to the middle, −1 to 1.
fn middle(band: usize, bands: usize) -> f32 {
    2.0 * band as f32 / bands.max(2) as f32 - 1.0
}

/// A baseline with a slope and two dips.
fn spectrum(random: &mut Random, bands: usize) -> Vec<f32> {
    let [level, slope] = [0.15 + 0.5 * random.unit(), 0.3 * (random.unit() - 0.5)];
    let dips = [(); 2].map(|()| [random.unit(), 0.03 + 0.1 * random.unit(), 0.5 * random.unit()]);
    let value = |band: usize| {
        let x = band as f32 / bands as f32;
        let dip =
            |[at, width, depth]: [f32; 3]| 1.0 - depth * (-0.5 * ((x - at) / width).powi(2)).exp();
        (level + slope * (x - 0.5)).max(0.05) * dips.into_iter().map(dip).product::<f32>()
    };
    (0..bands).map(value).collect()
}

/// A smooth map of the scene: the sum of three waves.
struct Field([[f32; 3]; 3]);

impl Field {
    fn new(random: &mut Random) -> Self {
        Self([(); 3].map(|()| {
            [12.0 * random.unit(), 12.0 * random.unit(), std::f32::consts::TAU * random.unit()]
        }))
    }

    /// The value at a point, between −1 and 1.
    fn at(&self, [y, x]: [f32; 2]) -> f32 {
        self.0
            .iter()
            .map(|[down, across, phase]| (down * y + across * x + phase).sin())
            .sum::<f32>()
            / 3.0
    }
}

/// The share of each material in a pixel; the shares add up to 1.
fn shares(fields: &[Field], at: [f32; 2]) -> [f32; MATERIALS] {
    let weights: [f32; MATERIALS] = std::array::from_fn(|m| (4.0 * fields[m].at(at)).exp());
    let sum: f32 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number from 0 to 1.
    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 24) as f32
    }
}

/// Standard normal numbers, in pairs after Box and Muller.
struct Normals<'a> {
    random: &'a mut Random,
    second: Option<f32>,
}

impl<'a> Normals<'a> {
    fn new(random: &'a mut Random) -> Self {
        Self { random, second: None }
    }

    fn next(&mut self) -> f32 {
        if let Some(second) = self.second.take() {
            return second;
        }
        let radius = (-2.0 * (1.0 - self.random.unit()).ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * self.random.unit()).sin_cos();
        self.second = Some(radius * sin);
        radius * cos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_are_reflectances_with_noise_and_reproducible() {
        let shape = CubeSize { rows: 40, columns: 50, bands: 30 };
        let first = cube(3, shape);
        assert_eq!(first.len(), shape.values());
        assert!(first == cube(3, shape) && first != cube(4, shape));
        assert!(first.iter().all(|value| (0.0..2.0).contains(value)));
        // Neighbouring bands differ by about as much as the noise: the cube is neither flat nor rough.
        let steps: Vec<f32> = first.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        let mean = steps.iter().sum::<f32>() / steps.len() as f32;
        assert!((1e-4..5e-2).contains(&mean), "{mean}");
    }
}
