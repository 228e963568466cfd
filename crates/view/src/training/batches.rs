//! Which items a batch has, and what was drawn for them.

use std::sync::Arc;

use hsipack_augment::{Frame, Op, Parameters, SampleKey};
use hsipack_format::{Error, Result};
use hsipack_read::plan::{EpochPlan, Item};
use hsipack_read::{Dataset, Replay};

use super::setup::Setup;
use crate::cube::deadline::Deadline;

/// A loader that is looked at.
#[derive(Debug)]
pub struct Batches {
    /// What it was asked for.
    pub setup: Setup,
    /// What it gives.
    pub replay: Replay,
}

/// A batch, before anything of it is read.
#[derive(Debug)]
pub struct Batch {
    /// Its items.
    pub items: Vec<Item>,
    /// What goes into augmentations.
    pub before: Frame,
    /// What comes out of them.
    pub after: Frame,
    /// What was drawn for its items, if there are augmentations.
    pub drawn: Option<Parameters>,
}

/// A window of a sample, and where it comes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The batch.
    pub batch: usize,
    /// The place in it.
    pub place: usize,
    /// The window.
    pub item: Item,
}

impl Batches {
    /// A loader of `dataset`.
    ///
    /// # Errors
    /// If what is asked for contradicts itself or the dataset.
    pub fn new(dataset: &Dataset, setup: Setup) -> Result<Self> {
        let replay = Replay::new(dataset, setup.loader.clone(), setup.images.clone())?;
        Ok(Self { setup, replay })
    }

    fn epoch(&self, epoch: u64) -> Result<Arc<EpochPlan>> {
        self.replay.epoch(epoch)
    }

    /// Batches of an epoch.
    ///
    /// # Errors
    /// As [`EpochPlan`] of it.
    pub fn len(&self, epoch: u64) -> Result<usize> {
        Ok(self.epoch(epoch)?.batches())
    }

    /// Batch `number` of an epoch.
    ///
    /// # Errors
    /// If there is none, or augmentations do not fit its images.
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

    /// Where windows of a sample come in an epoch, the first `most` of them.
    ///
    /// # Errors
    /// If it takes too long, or the epoch cannot be planned.
    pub fn places(
        &self,
        epoch: u64,
        sample: usize,
        most: usize,
        deadline: Deadline,
    ) -> Result<Vec<Place>> {
        let mut found = Vec::new();
        for batch in 0..self.len(epoch)? {
            deadline.check()?;
            let items = self.replay.items(epoch, batch)?;
            let places = items.into_iter().enumerate().filter(|(_, item)| item.sample == sample);
            found.extend(places.map(|(place, item)| Place { batch, place, item }));
            if found.len() >= most {
                found.truncate(most);
                break;
            }
        }
        Ok(found)
    }

    /// Whether what becomes of an item depends on who else is in its batch.
    pub fn mixes(&self) -> bool {
        self.setup.pipeline.as_ref().is_some_and(|pipeline| pipeline.takes_from_others())
    }

    /// Whether values come out of augmentations in other units, so that colours of one stretch would say nothing.
    pub fn normalises(&self) -> bool {
        let other = |op: &Op| {
            matches!(op, Op::L1Normalize(_) | Op::L2Normalize(_) | Op::Snv(_) | Op::Standardize(_))
        };
        self.setup.pipeline.as_ref().is_some_and(|pipeline| pipeline.ops.iter().any(other))
    }
}
