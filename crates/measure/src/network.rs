//! A small network on the CPU: a convolution over the spectrum of each pixel, a ReLU, the mean over
//! all pixels, and a linear layer. It is trained by gradient descent with momentum on meaningless
//! labels.
//!
//! ```text
//! h = relu(W·x + b) of each pixel,  p = mean of h,  z = V·p + c,  loss = cross entropy of softmax(z)
//! dz = softmax(z) - label,  dV = dz⊗p,  dc = dz,  dh = V'·dz / pixels,  dW = Σ dh⊗x,  db = Σ dh, both where h > 0
//! ```

use half::f16;
use hsipack_read::augment::{Array, ElementType};
use hsipack_store::threads;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::random::{GAMMA, mix};
use crate::step::Trainer;
use crate::{Error, ErrorKind, Result};

/// Features per pixel: one for each bit of the `u16` that records which of them are above 0.
const FEATURES: usize = 16;
/// Number of classes.
const CLASSES: usize = 8;
const LEARNING_RATE: f32 = 1e-3;
const MOMENTUM: f32 = 0.9;

/// The network, its momentum, and the threads that run it.
pub struct Network {
    parameters: Vec<f32>,
    velocity: Vec<f32>,
    bands: usize,
    threads: ThreadPool,
}

impl Network {
    /// A network for images with this many bands, run by this many threads.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    pub fn new(bands: usize, threads: usize) -> Result<Self> {
        let count = bands * FEATURES + FEATURES + FEATURES * CLASSES + CLASSES;
        let most = 1.0 / (bands.max(1) as f32).sqrt();
        // Uniform in ±most, and the same for every network.
        let drawn = |index: usize| {
            let number = mix((index as u64 + 1).wrapping_mul(GAMMA)) >> 40;
            (number as f32 / (1u64 << 23) as f32 - 1.0) * most
        };
        let start = |thread: rayon::ThreadBuilder| {
            threads::start("network", move || thread.run()).map(drop).map_err(std::io::Error::other)
        };
        let pool = ThreadPoolBuilder::new().num_threads(threads).spawn_handler(start).build();
        let pool = pool.map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot start threads: {error}"))
                .with_remedy("end other processes, or raise the limit on threads")
        })?;
        let (parameters, velocity) = ((0..count).map(drawn).collect(), vec![0.0; count]);
        Ok(Self { parameters, velocity, bands, threads: pool })
    }

    /// W (bands, features), b, V (features, classes) and c.
    fn parts(&self) -> [&[f32]; 4] {
        let (w, remaining) = self.parameters.split_at(self.bands * FEATURES);
        let (b, remaining) = remaining.split_at(FEATURES);
        let (v, c) = remaining.split_at(FEATURES * CLASSES);
        [w, b, v, c]
    }

    /// Loss of a sample with pixels (row, column, band), and its gradient.
    fn gradient<T: Copy + Into<f32>>(&self, spectra: &[T], label: usize) -> (f32, Vec<f32>) {
        let [_, _, v, c] = self.parts();
        let (pooled, above) = self.pooled(spectra);
        let mut logits: [f32; CLASSES] = std::array::from_fn(|class| c[class]);
        for (feature, weights) in pooled.iter().zip(v.chunks_exact(CLASSES)) {
            logits.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += feature * weight);
        }
        let greatest = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - greatest).exp()).sum();
        let loss = sum.ln() + greatest - logits[label];
        let mut dz = logits.map(|logit| (logit - greatest).exp() / sum);
        dz[label] -= 1.0;
        let dh: [f32; FEATURES] = std::array::from_fn(|feature| {
            let weights = &v[feature * CLASSES..][..CLASSES];
            weights.iter().zip(dz).map(|(v, dz)| v * dz).sum::<f32>() / above.len() as f32
        });
        let mut gradient = self.spectral(spectra, &above, dh);
        gradient.extend(pooled.iter().flat_map(|feature| dz.map(|dz| feature * dz)));
        gradient.extend(dz);
        (loss, gradient)
    }

    /// The mean of every feature, and for each pixel the features that are above 0, one bit each.
    fn pooled<T: Copy + Into<f32>>(&self, spectra: &[T]) -> ([f32; FEATURES], Vec<u16>) {
        let [w, b, ..] = self.parts();
        let mut pooled = [0.0; FEATURES];
        let above: Vec<u16> = spectra
            .chunks_exact(self.bands)
            .map(|spectrum| {
                let mut features: [f32; FEATURES] = std::array::from_fn(|feature| b[feature]);
                for (value, weights) in spectrum.iter().zip(w.chunks_exact(FEATURES)) {
                    let value: f32 = (*value).into();
                    features
                        .iter_mut()
                        .zip(weights)
                        .for_each(|(sum, weight)| *sum += value * weight);
                }
                pooled.iter_mut().zip(features).for_each(|(sum, feature)| *sum += feature.max(0.0));
                let bit = |(index, feature): (usize, &f32)| u16::from(*feature > 0.0) << index;
                features.iter().enumerate().map(bit).sum()
            })
            .collect();
        (pooled.map(|sum| sum / above.len() as f32), above)
    }

    /// The gradient of W and b, from the gradient `dh` of the features.
    fn spectral<T: Copy + Into<f32>>(
        &self,
        spectra: &[T],
        above: &[u16],
        dh: [f32; FEATURES],
    ) -> Vec<f32> {
        let mut gradient = vec![0.0; (self.bands + 1) * FEATURES];
        let (dw, db) = gradient.split_at_mut(self.bands * FEATURES);
        for (spectrum, bits) in spectra.chunks_exact(self.bands).zip(above) {
            let active: [f32; FEATURES] =
                std::array::from_fn(|feature| dh[feature] * f32::from(bits >> feature & 1));
            db.iter_mut().zip(active).for_each(|(db, dh)| *db += dh);
            for (value, dw) in spectrum.iter().zip(dw.chunks_exact_mut(FEATURES)) {
                let value: f32 = (*value).into();
                dw.iter_mut().zip(active).for_each(|(dw, dh)| *dw += value * dh);
            }
        }
        gradient
    }

    /// One step of gradient descent on consecutive samples; returns their mean loss.
    fn descend<T: Copy + Into<f32> + Sync>(&mut self, samples: &[T], each: usize) -> f32 {
        let of = |(number, spectra): (usize, &[T])| self.gradient(spectra, number % CLASSES);
        // Summed in the order of the samples, so that the order of the threads does not matter.
        let all: Vec<_> =
            self.threads.install(|| samples.par_chunks(each).enumerate().map(of).collect());
        let share = 1.0 / all.len() as f32;
        for (index, velocity) in self.velocity.iter_mut().enumerate() {
            let gradient: f32 = all.iter().map(|(_, gradient)| gradient[index] * share).sum();
            *velocity = MOMENTUM * *velocity + gradient;
            self.parameters[index] -= LEARNING_RATE * *velocity;
        }
        all.iter().map(|(loss, _)| loss * share).sum()
    }
}

impl Trainer<Array> for Network {
    fn train(&mut self, image: &Array) -> Result<()> {
        let [_, bands, rows, columns] = image.shape()[..] else {
            return Err(Error::bug(format!("images of shape {:?}", image.shape())));
        };
        let (stored, each) = (image.permuted(&[0, 2, 3, 1]), rows * columns * bands);
        let half = stored.elements::<f16>().filter(|_| image.element() == ElementType::F16);
        let single = stored.elements::<f32>().filter(|_| image.element() == ElementType::F32);
        match (half, single) {
            (Some(values), _) if bands == self.bands && each > 0 => self.descend(values, each),
            (_, Some(values)) if bands == self.bands && each > 0 => self.descend(values, each),
            _ => {
                return Err(Error::bug(format!("a network of {} bands for {image:?}", self.bands)));
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u64) -> Vec<f32> {
        let number =
            |index| (mix(GAMMA.wrapping_mul(seed + index)) >> 40) as f32 / (1u64 << 24) as f32;
        (0..count as u64).map(number).collect()
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let (bands, pixels) = (7, 30);
        let mut network = Network::new(bands, 1).unwrap();
        let spectra = values(bands * pixels, 1);
        let (loss, gradient) = network.gradient(&spectra, 3);
        assert!((loss - (CLASSES as f32).ln()).abs() < 0.7, "{loss}");
        let start = network.parameters.clone();
        let ends = [bands * FEATURES, FEATURES, FEATURES * CLASSES, CLASSES];
        let mut first = 0;
        // Each kind of parameter separately, in random directions. The step is so small that hardly any feature crosses
        // 0.
        for (kind, count) in ends.into_iter().enumerate() {
            for seed in [100, 200, 300] {
                let mut direction = vec![0.0; start.len()];
                let drawn = values(count, seed).into_iter().map(|value| value - 0.5);
                direction[first..first + count].iter_mut().zip(drawn).for_each(|(d, v)| *d = v);
                let mut at = |by: f32| {
                    let moved = start.iter().zip(&direction).map(|(start, d)| start + by * d);
                    network.parameters = moved.collect();
                    f64::from(network.gradient(&spectra, 3).0)
                };
                let differences = (at(1e-3) - at(-1e-3)) / 2e-3;
                let slope: f64 =
                    gradient.iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
                let off = (differences - slope).abs();
                assert!(off < 0.005 * slope.abs() + 3e-4, "{kind} {seed}: {differences} {slope}");
            }
            first += count;
        }
        assert_eq!(first, start.len());
    }

    #[test]
    fn it_learns_the_same_whatever_the_threads_and_types() {
        let (bands, each) = (5, 5 * 12);
        let single = values(6 * each, 9);
        let half: Vec<f16> = single.iter().copied().map(f16::from_f32).collect();
        let wide: Vec<f32> = half.iter().map(|value| value.to_f32()).collect();
        let mut networks = [1, 3].map(|threads| Network::new(bands, threads).unwrap());
        let losses = networks
            .each_mut()
            .map(|network| (0..400).map(|_| network.descend(&half, each)).collect::<Vec<_>>());
        assert_eq!(losses[0], losses[1]);
        assert_eq!(networks[0].parameters, networks[1].parameters);
        assert!(losses[0][399] < losses[0][0] - 0.01, "{:?}", (losses[0][0], losses[0][399]));
        let mut again = Network::new(bands, 1).unwrap();
        assert_eq!(again.descend(&wide, each), losses[0][0]);
    }
}
