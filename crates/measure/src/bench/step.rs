//! What stands for training: a wait, or a small network.

use std::thread::sleep;
use std::time::Duration;

use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind, TchError, Tensor};

use super::device::{failed, run, wait};
use super::options;
use crate::Result;

/// Classes that the network tells apart.
const CLASSES: i64 = 8;

/// What is done with every batch.
pub enum Step {
    /// Waits for so long, as for a device that computes by itself: without the CPU.
    Wait(Duration),
    /// Trains a network.
    Network(Box<Network>),
}

impl Step {
    /// The step for cubes of so many bands.
    pub fn new(step: options::Step, bands: usize, device: Device) -> Self {
        match step {
            options::Step::Time(seconds) => {
                Self::Wait(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO))
            }
            options::Step::Network => Self::Network(Box::new(Network::new(bands, device))),
        }
    }

    /// Trains on images (B, C, H, W), and returns when the device is done.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn train(&mut self, image: &Tensor) -> Result<()> {
        match self {
            Self::Wait(time) => {
                wait(image.device());
                sleep(*time);
                Ok(())
            }
            Self::Network(network) => network.train(image),
        }
    }
}

/// Three convolutions, pooling, and a linear layer; trained with momentum on labels that mean nothing.
pub struct Network {
    layers: nn::Sequential,
    optimizer: nn::Optimizer,
    // Owns the weights.
    _weights: nn::VarStore,
}

impl Network {
    fn new(bands: usize, device: Device) -> Self {
        let weights = nn::VarStore::new(device);
        let root = weights.root();
        let config = |stride| nn::ConvConfig { stride, padding: 1, ..nn::ConvConfig::default() };
        let layers = nn::seq()
            .add(nn::conv2d(&root / "spectra", bands as i64, 16, 1, nn::ConvConfig::default()))
            .add_fn(Tensor::relu)
            .add(nn::conv2d(&root / "first", 16, 32, 3, config(4)))
            .add_fn(Tensor::relu)
            .add(nn::conv2d(&root / "second", 32, 32, 3, config(2)))
            .add_fn(|features| features.relu().mean_dim([2i64, 3].as_slice(), false, None::<Kind>))
            .add(nn::linear(&root / "classes", 32, CLASSES, nn::LinearConfig::default()));
        let optimizer = nn::sgd(0.9, 0.0, 0.0, false).build(&weights, 1e-3);
        let optimizer = optimizer.expect("plain options of an optimiser");
        Self { layers, optimizer, _weights: weights }
    }

    fn train(&mut self, image: &Tensor) -> Result<()> {
        let wide = run(|| image.f_to_kind(Kind::Float))?;
        let loss = || -> Result<Tensor, TchError> {
            let labels = Tensor::f_arange(image.size()[0], (Kind::Int64, image.device()))?;
            let labels = labels.f_remainder(CLASSES)?;
            self.layers.forward(&wide).f_cross_entropy_loss(
                &labels,
                None::<Tensor>,
                tch::Reduction::Mean,
                -100,
                0.0,
            )
        };
        self.optimizer.backward_step(&loss().map_err(failed)?);
        wait(image.device());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn the_network_learns_on_the_device_and_a_wait_waits() {
        let image = Tensor::rand([3, 16, 20, 5], (Kind::Half, Device::Cpu)).permute([0, 3, 1, 2]);
        let mut network = Step::new(options::Step::Network, 5, Device::Cpu);
        network.train(&image).unwrap();
        let start = Instant::now();
        Step::new(options::Step::Time(0.02), 5, Device::Cpu).train(&image).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
