//! Which samples of a batch were mixed with which.

use hsipack_format::{Error, Result};

/// Which samples were mixed with which, so that class labels can be mixed in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    /// For every sample, the index of its partner in the batch; its own index if it was not mixed.
    pub partners: Vec<usize>,
    /// For every sample, the share of its partner, from 0 to 1.
    pub shares: Vec<f64>,
}

/// Result for one sample when samples are mixed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mixing {
    /// It stays.
    Own,
    /// It becomes its partner: its own share is 0, and 0·NaN would be NaN.
    Theirs,
    /// It becomes a mean.
    Both,
}

impl Mixing {
    /// For the sample at `index`. Shares that float32 cannot tell from 0 are 0.
    pub(crate) fn of(index: usize, partner: usize, share: f64) -> Self {
        if index == partner || share as f32 == 0.0 {
            Self::Own
        } else if share == 1.0 {
            Self::Theirs
        } else {
            Self::Both
        }
    }
}

impl Mixed {
    pub(crate) fn nobody(samples: usize) -> Self {
        Self { partners: (0..samples).collect(), shares: vec![0.0; samples] }
    }

    /// Mixes labels in place as the images were mixed. `labels` has `classes` numbers for every
    /// sample, one-hot or probabilities.
    ///
    /// # Errors
    /// If the number of samples differs.
    pub fn labels(&self, labels: &mut [f32], classes: usize) -> Result<()> {
        if labels.len() != self.partners.len().saturating_mul(classes) {
            return Err(Error::conflict(format!(
                "{} numbers are not labels of {classes} classes for the batch",
                labels.len()
            ))
            .with_remedy(format!(
                "give {classes} numbers for each of {} samples",
                self.partners.len()
            )));
        }
        let before = labels.to_vec();
        for (sample, (partner, share)) in self.partners.iter().zip(&self.shares).enumerate() {
            for class in 0..classes {
                let value = before[sample * classes + class];
                let theirs = before[partner * classes + class];
                labels[sample * classes + class] = value + (theirs - value) * *share as f32;
            }
        }
        Ok(())
    }
}
