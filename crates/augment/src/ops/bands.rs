//! Augmentations that draw the bands that images have.

use hsipack_format::random::Random;
use hsipack_format::{Error, Result, option_names};
use serde::{Deserialize, Serialize};

use super::{Action, Augmentation, BatchPosition, Op, Single, no, yes};
use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::operation::Operation;

/// Whether a random choice holds for a batch or for an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// One for all items of a batch. It depends on which samples the batch has.
    #[default]
    Batch,
    /// One for each item.
    Item,
}

option_names!(Per, "per", { Batch => "batch", Item => "item" });

/// Keeps random bands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomBands {
    /// Number of bands that are kept.
    pub count: usize,
    /// Whether they are adjacent.
    #[serde(default = "no")]
    pub contiguous: bool,
    /// Whether they are drawn once for a batch, or for each item.
    #[serde(default)]
    pub per: Per,
    /// Whether they keep their order. Otherwise the order is random, too.
    #[serde(default = "yes")]
    pub sorted: bool,
}

/// Draws `count` of `all`; adjacent and sorted if asked for.
pub(super) fn drawn(all: usize, count: usize, contiguous: bool, random: &mut Random) -> Vec<usize> {
    if contiguous {
        let first = random.below((all - count + 1) as u64) as usize;
        return (first..first + count).collect();
    }
    let mut chosen: Vec<usize> = (0..all).collect();
    random.shuffle(&mut chosen);
    chosen.truncate(count);
    chosen
}

impl Augmentation for RandomBands {
    fn check(&self, frame: Frame) -> Result<()> {
        if (1..=frame.bands).contains(&self.count) {
            return Ok(());
        }
        Err(Error::conflict(format!("it cannot keep {} of {} bands", self.count, frame.bands))
            .with_remedy("give a count from 1 to the number of bands"))
    }

    fn bands(&self, _: Frame) -> usize {
        self.count
    }

    fn draws_for_batches(&self) -> bool {
        self.per == Per::Batch
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let mut bands = drawn(frame.bands, self.count, self.contiguous, random);
        match self.sorted {
            true => bands.sort_unstable(),
            false => random.shuffle(&mut bands),
        }
        Ok(Drawn::Bands { bands })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for RandomBands {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let chosen = drawn.iter().map(|drawn| match drawn {
            Some(Drawn::Bands { bands })
                if bands.len() == self.count && bands.iter().all(|band| *band < frame.bands) =>
            {
                Ok(bands.clone())
            }
            Some(other) => Err(other.misfit(op.name())),
            None => Err(Drawn::Plain.misfit(op.name())),
        });
        Ok(Operation::Select(chosen.collect::<Result<_>>()?))
    }
}
