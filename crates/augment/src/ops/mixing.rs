//! Augmentations that take pixels of other samples of the batch, or move pieces of one.

use serde::{Deserialize, Serialize};

use super::super::names::names;
use super::super::range::{Range, beta};
use super::{Drawn, Frame, half, one, yes};
use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Which sample of the batch gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The one before, as Kornia's RandomTransplantation has it; the first one's is the last.
    #[default]
    Prev,
    /// The one after, as HTC has it.
    Next,
}

names!(Direction, "direction", {Prev: "prev", Next: "next"});

/// How many samples of a batch are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Each with probability p.
    #[default]
    Bernoulli,
    /// The first p·B acceptors in the donors' order, as HTC has it. This depends on the places in the batch.
    Fixed,
}

names!(Count, "count", {Bernoulli: "bernoulli", Fixed: "fixed"});

/// Copies all pixels of one label from another sample: the organ, the plant, the object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transplant {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The mask that has the labels; the first one where none is named.
    pub mask: Option<String>,
    /// Labels that are never copied.
    pub excluded_labels: Vec<i64>,
    /// A mask that is not 0 where labels count; all do where none is named.
    pub valid: Option<String>,
    /// Who gives.
    pub direction: Direction,
    /// How many take.
    pub count: Count,
}

/// Copies a rectangle of another sample, masks too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CutMix {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The part that is kept has the distribution Beta(beta, beta).
    pub beta: f64,
}

/// Mixes the image with another sample's. Masks stay; mix one-hot labels by the returned partners and shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixUp {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The other one's share.
    pub lambda: Range,
}

/// Cuts the frame into cells and puts them in another order, masks too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jigsaw {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Cells along rows and columns; they divide the frame.
    pub grid: [usize; 2],
}

/// Hides patches of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HideAndSeek {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Sizes (rows, columns) of patches, of which one is drawn for every sample. Patches that reach beyond the
    /// frame are cut off.
    pub patches: Vec<[usize; 2]>,
    /// Patches that are drawn, as a share of all.
    pub proportion: f64,
    /// Draw with replacement as HTC does, so that fewer patches are hidden.
    pub with_replacement: bool,
    /// What hidden pixels become, in all bands.
    pub fill: f64,
}

impl Default for Transplant {
    fn default() -> Self {
        let (excluded_labels, direction, count) = (Vec::new(), Direction::Prev, Count::Bernoulli);
        Self { p: half(), mask: None, excluded_labels, valid: None, direction, count }
    }
}

impl Transplant {
    pub(super) fn draw(&self, place: usize, samples: usize, random: &mut Random) -> Drawn {
        let donor = match self.direction {
            Direction::Prev => (place + samples - 1) % samples,
            Direction::Next => (place + 1) % samples,
        };
        Drawn::Transplant { donor, pick: random.unit(), label: None }
    }

    /// Whether the sample at `place` of `samples` takes, where that is no matter of chance.
    pub(super) fn fixed(&self, place: usize, samples: usize) -> Option<bool> {
        (self.count == Count::Fixed).then(|| {
            let donors = (self.p * samples as f64) as usize;
            let donor = match self.direction {
                Direction::Prev => (place + samples - 1) % samples,
                Direction::Next => (place + 1) % samples,
            };
            donor < donors
        })
    }
}

impl Default for CutMix {
    fn default() -> Self {
        Self { p: one(), beta: one() }
    }
}

impl CutMix {
    pub(super) fn check(&self) -> Result<()> {
        Range::only(self.beta).check("beta", f64::MIN_POSITIVE, f64::INFINITY)
    }

    pub(super) fn draw(&self, donor: usize, frame: Frame, random: &mut Random) -> Drawn {
        let cut = (1.0 - beta(self.beta, random)).sqrt();
        let [height, width] = [frame.rows, frame.columns].map(|side| (cut * side as f64) as usize);
        let x = random.below((frame.columns - width + 1) as u64) as usize;
        let y = random.below((frame.rows - height + 1) as u64) as usize;
        let lambda = (width * height) as f64 / (frame.rows * frame.columns) as f64;
        Drawn::CutMix { donor, x, y, width, height, lambda }
    }
}

impl Default for MixUp {
    fn default() -> Self {
        Self { p: one(), lambda: Range::new(0.0, 1.0) }
    }
}

impl MixUp {
    pub(super) fn draw(&self, donor: usize, random: &mut Random) -> Drawn {
        Drawn::MixUp { donor, lambda: self.lambda.draw(random) }
    }
}

impl Default for Jigsaw {
    fn default() -> Self {
        Self { p: half(), grid: [4, 4] }
    }
}

impl Jigsaw {
    pub(super) fn check(&self, frame: Frame) -> Result<()> {
        let [rows, columns] = self.grid;
        let whole = rows > 0 && columns > 0;
        if whole && frame.rows.is_multiple_of(rows) && frame.columns.is_multiple_of(columns) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "a jigsaw of {rows} x {columns} cells of a frame of {} x {}",
            frame.rows, frame.columns
        ))
        .with_remedy("choose a grid that divides the frame, or crop before"))
    }

    pub(super) fn draw(&self, random: &mut Random) -> Drawn {
        let mut order: Vec<usize> = (0..self.grid[0] * self.grid[1]).collect();
        random.shuffle(&mut order);
        Drawn::Jigsaw { order }
    }
}

impl Default for HideAndSeek {
    fn default() -> Self {
        let patches = vec![[16, 16], [32, 32], [44, 44], [56, 56]];
        Self { p: half(), patches, proportion: 0.5, with_replacement: yes(), fill: 0.0 }
    }
}

impl HideAndSeek {
    pub(super) fn check(&self) -> Result<()> {
        Range::only(self.proportion).check("proportion", 0.0, 1.0)?;
        if self.patches.is_empty() || self.patches.iter().flatten().any(|size| *size == 0) {
            return Err(Error::conflict("hide_and_seek without patches, or with empty ones")
                .with_remedy("give sizes as [[rows, columns], …]"));
        }
        Ok(())
    }

    pub(super) fn draw(&self, frame: Frame, random: &mut Random) -> Drawn {
        let size = self.patches[random.below(self.patches.len() as u64) as usize];
        let patches = frame.rows.div_ceil(size[0]) * frame.columns.div_ceil(size[1]);
        let wanted = (self.proportion * patches as f64) as usize;
        let mut hidden: Vec<usize> = if self.with_replacement {
            (0..wanted).map(|_| random.below(patches as u64) as usize).collect()
        } else {
            let mut all: Vec<usize> = (0..patches).collect();
            random.shuffle(&mut all);
            all.truncate(wanted);
            all
        };
        hidden.sort_unstable();
        hidden.dedup();
        Drawn::Patches { size, hidden }
    }
}
