//! Which items a batch has, and what was drawn for them.

use std::sync::Arc;

use hsipack_augment::{Frame, Op, Parameters, SampleKey};
use hsipack_format::{Error, Result};
use hsipack_read::plan::{EpochPlan, Item};
use hsipack_read::{Dataset, Replay};

use super::setup::Setup;
use crate::cube::deadline::Deadline;

/// A loader whose batches are shown.
#[derive(Debug)]
pub struct Batches {
    /// Its options.
    pub setup: Setup,
    /// Its batches.
    pub replay: Replay,
}

/// A batch, before any of its pixels are read.
#[derive(Debug)]
pub struct Batch {
    /// Its items.
    pub items: Vec<Item>,
    /// The shape of images before augmentations.
    pub before: Frame,
    /// The shape of images after augmentations.
    pub after: Frame,
    /// Random draws for its items, if there are augmentations.
    pub drawn: Option<Parameters>,
}

/// A window of a sample, and its place in the epoch.
#[derive(Clone, Copy, Debug)]
pub struct WindowPosition {
    /// The batch.
    pub batch: usize,
    /// The place in the batch.
    pub position: usize,
    /// The window.
    pub item: Item,
}

impl Batches {
    /// A loader of `dataset`.
    ///
    /// # Errors
    /// If the options contradict each other or the dataset.
    pub fn new(dataset: &Dataset, mut setup: Setup) -> Result<Self> {
        setup.hold_values(dataset);
        let replay = Replay::new(dataset, setup.loader.clone(), setup.images.clone())?;
        Ok(Self { setup, replay })
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<EpochPlan>> {
        self.replay.epoch(epoch)
    }

    /// The number of batches in an epoch.
    ///
    /// # Errors
    /// The errors of its [`EpochPlan`].
    pub fn len(&self, epoch: u64) -> Result<usize> {
        Ok(self.epoch(epoch)?.batches())
    }

    /// Batch `number` of an epoch.
    ///
    /// # Errors
    /// If there is no such batch, or augmentations do not fit its images.
    pub fn batch(&self, epoch: u64, number: usize) -> Result<Batch> {
        let plan = self.epoch(epoch)?;
        let batches = plan.batches();
        if number >= batches {
            return Err(Error::conflict(format!("epoch {epoch} has no batch {number}"))
                .with_remedy(format!(
                    "its batches are numbered from 0 to {}",
                    batches.max(1) - 1
                )));
        }
        let items = self.replay.items(epoch, number)?;
        let shape = plan.shape(number)?;
        let bands = self.setup.loader.bands.as_ref().map_or(shape.bands, Vec::len);
        let before = Frame { rows: shape.rows, columns: shape.columns, bands };
        let mut batch = Batch { items, before, after: before, drawn: None };
        if let Some(pipeline) = &self.setup.pipeline {
            let keys: Vec<SampleKey> = batch.items.iter().map(SampleKey::from).collect();
            batch.after = pipeline.frame(before)?;
            batch.drawn = Some(pipeline.draw(before, epoch, &keys)?);
        }
        Ok(batch)
    }

    /// The places of the first `most` windows of a sample in an epoch.
    ///
    /// # Errors
    /// If the search takes too long, or the epoch cannot be planned.
    pub fn places(
        &self,
        epoch: u64,
        sample: usize,
        most: usize,
        deadline: Deadline,
    ) -> Result<Vec<WindowPosition>> {
        let mut found = Vec::new();
        for batch in 0..self.len(epoch)? {
            deadline.check()?;
            let items = self.replay.items(epoch, batch)?;
            let places = items.into_iter().enumerate().filter(|(_, item)| item.sample == sample);
            found.extend(places.map(|(position, item)| WindowPosition { batch, position, item }));
            if found.len() >= most {
                found.truncate(most);
                break;
            }
        }
        Ok(found)
    }

    /// Whether the augmentation of an item depends on the other items of its batch.
    pub fn mixes(&self) -> bool {
        self.setup.pipeline.as_ref().is_some_and(|pipeline| pipeline.takes_from_others())
    }

    /// Whether augmentations change the unit of values, so that one stretch for both pictures would
    /// be meaningless.
    pub fn normalises(&self) -> bool {
        let other = |op: &Op| {
            matches!(op, Op::L1Normalize(_) | Op::L2Normalize(_) | Op::Snv(_) | Op::Standardize(_))
        };
        self.setup.pipeline.as_ref().is_some_and(|pipeline| pipeline.ops.iter().any(other))
    }
}
