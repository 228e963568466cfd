//! Augmentations that take pixels from other samples of the batch, or rearrange parts of one
//! sample.

use serde::{Deserialize, Serialize};

use super::{Action, Augmentation, BatchPosition, Op, Single, half, one, yes};
use crate::drawn::{Drawn, applied, check_donor};
use crate::frame::Frame;
use crate::mixed::Mixed;
use crate::operation::{Blank, Cut, Operation, Rectangle, Transplanting};
use crate::range::{Range, beta};
use hsipack_format::random::Random;
use hsipack_format::{Error, Result, option_names};

/// Which sample of the batch is the donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The previous one, as in Kornia's RandomTransplantation; for the first sample it is the last
    /// one.
    #[default]
    Prev,
    /// The next one, as in HTC.
    Next,
}

option_names!(Direction, "direction", { Prev => "prev", Next => "next" });

/// How many samples of a batch are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Each sample with probability p.
    #[default]
    Bernoulli,
    /// The samples whose donors are the first p·B of the batch, as in HTC. This depends on
    /// positions in the batch.
    Fixed,
}

option_names!(Count, "count", { Bernoulli => "bernoulli", Fixed => "fixed" });

/// Copies all pixels of one label from another sample: an organ, a plant, an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transplant {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The mask with the labels; the first mask if none is named.
    pub mask: Option<String>,
    /// Labels that are never copied.
    pub excluded_labels: Vec<i64>,
    /// A mask that is not 0 where labels count; if none is named, all labels count.
    pub valid: Option<String>,
    /// Which sample is the donor.
    pub direction: Direction,
    /// How many samples are changed.
    pub count: Count,
}

/// Copies a rectangle from another sample, in masks as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CutMix {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The share that is kept has the distribution Beta(beta, beta).
    pub beta: f64,
}

/// Mixes the image with that of another sample. Masks stay unchanged; mix one-hot labels with the
/// returned partners and shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MixUp {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// The share of the other sample.
    pub lambda: Range,
}

/// Cuts the frame into cells and shuffles them, in masks as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jigsaw {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Number of cells along rows and columns; they must divide the frame.
    pub grid: [usize; 2],
}

/// Hides patches of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HideAndSeek {
    /// Share of the samples it is applied to.
    pub p: f64,
    /// Patch sizes (rows, columns); one is drawn for every sample. Patches that extend beyond the
    /// frame are cut off.
    pub patches: Vec<[usize; 2]>,
    /// Share of the patches that are drawn.
    pub proportion: f64,
    /// Draw with replacement, as in HTC, so that fewer patches are hidden.
    pub with_replacement: bool,
    /// Value of hidden pixels, in all bands.
    pub fill: f64,
}

impl Default for Transplant {
    fn default() -> Self {
        let (excluded_labels, direction, count) = (Vec::new(), Direction::Prev, Count::Bernoulli);
        Self { p: half(), mask: None, excluded_labels, valid: None, direction, count }
    }
}

impl Transplant {
    /// The donor of the sample at `index`.
    fn donor(&self, index: usize, samples: usize) -> usize {
        match self.direction {
            Direction::Prev => (index + samples - 1) % samples,
            Direction::Next => (index + 1) % samples,
        }
    }
}

impl Augmentation for Transplant {
    fn p(&self) -> f64 {
        self.p
    }

    fn draw(
        &self,
        BatchPosition { index, samples, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let donor = self.donor(index, samples);
        Ok(Drawn::Transplant { donor, pick: random.unit(), label: None })
    }

    fn applies(
        &self,
        by_chance: bool,
        BatchPosition { index, samples, .. }: BatchPosition,
    ) -> bool {
        match self.count {
            Count::Bernoulli => by_chance,
            Count::Fixed => self.donor(index, samples) < (self.p * samples as f64) as usize,
        }
    }

    fn masks(&self) -> [Option<&str>; 2] {
        [self.mask.as_deref(), self.valid.as_deref()]
    }

    fn takes_from_others(&self) -> bool {
        true
    }

    fn needs_mask(&self) -> bool {
        true
    }

    fn moves_boxes(&self) -> bool {
        false
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for Transplant {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        let samples = drawn.len();
        let mut transplanting = Transplanting {
            mask: self.mask.clone(),
            valid: self.valid.clone(),
            donors: vec![None; samples],
            picks: vec![0.0; samples],
            fixed: vec![None; samples],
            excluded: self.excluded_labels.clone(),
        };
        for (sample, parameters) in applied(drawn) {
            let Drawn::Transplant { donor, pick, label } = parameters else {
                return Err(parameters.misfit(op.name()));
            };
            check_donor(*donor, samples)?;
            transplanting.donors[sample] = Some(*donor);
            transplanting.picks[sample] = *pick as f32;
            transplanting.fixed[sample] = *label;
        }
        Ok(Operation::Transplant(transplanting))
    }
}

impl Default for CutMix {
    fn default() -> Self {
        Self { p: one(), beta: one() }
    }
}

impl Augmentation for CutMix {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.beta).check("beta", f64::MIN_POSITIVE, f64::INFINITY)
    }

    fn draw(
        &self,
        BatchPosition { donor, frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        let cut = (1.0 - beta(self.beta, random)).sqrt();
        let [height, width] = [frame.rows, frame.columns].map(|side| (cut * side as f64) as usize);
        let x = random.below((frame.columns - width + 1) as u64) as usize;
        let y = random.below((frame.rows - height + 1) as u64) as usize;
        let lambda = (width * height) as f64 / (frame.rows * frame.columns) as f64;
        Ok(Drawn::CutMix { donor, x, y, width, height, lambda })
    }

    fn mixes_images(&self) -> bool {
        true
    }

    fn moves_boxes(&self) -> bool {
        false
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for CutMix {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let mut mixed = Mixed::nobody(drawn.len());
        let mut cuts = Vec::new();
        for (sample, parameters) in applied(drawn) {
            let Drawn::CutMix { donor, x, y, width, height, lambda } = parameters else {
                return Err(parameters.misfit(op.name()));
            };
            check_donor(*donor, drawn.len())?;
            (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
            let to = Rectangle::new([*x, *y, *width, *height], frame)?;
            cuts.push(Cut { sample, to, donor: *donor, from: to });
        }
        Ok(Operation::Paste(cuts, Some(mixed)))
    }
}

impl Default for MixUp {
    fn default() -> Self {
        Self { p: one(), lambda: Range::new(0.0, 1.0) }
    }
}

impl Augmentation for MixUp {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        self.lambda.check("lambda", 0.0, 1.0)
    }

    fn draw(
        &self,
        BatchPosition { donor, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
        Ok(Drawn::MixUp { donor, lambda: self.lambda.draw(random) })
    }

    fn mixes_images(&self) -> bool {
        true
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for MixUp {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], _: Frame) -> Result<Operation> {
        let mut mixed = Mixed::nobody(drawn.len());
        for (sample, parameters) in applied(drawn) {
            let Drawn::MixUp { donor, lambda } = parameters else {
                return Err(parameters.misfit(op.name()));
            };
            check_donor(*donor, drawn.len())?;
            (mixed.partners[sample], mixed.shares[sample]) = (*donor, *lambda);
        }
        Ok(Operation::Mix(mixed))
    }
}

impl Default for Jigsaw {
    fn default() -> Self {
        Self { p: half(), grid: [4, 4] }
    }
}

impl Augmentation for Jigsaw {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, frame: Frame) -> Result<()> {
        let [rows, columns] = self.grid;
        let whole = rows > 0 && columns > 0;
        if whole && frame.rows.is_multiple_of(rows) && frame.columns.is_multiple_of(columns) {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "a frame of {} x {} cannot be cut into {rows} x {columns} equal cells",
            frame.rows, frame.columns
        ))
        .with_remedy("choose a grid that divides the frame, or crop first"))
    }

    fn draw(&self, _: BatchPosition, random: &mut Random) -> Result<Drawn> {
        let mut order: Vec<usize> = (0..self.grid[0] * self.grid[1]).collect();
        random.shuffle(&mut order);
        Ok(Drawn::Jigsaw { order })
    }

    fn moves_boxes(&self) -> bool {
        false
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for Jigsaw {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let [down, across] = self.grid;
        let (height, width) = (frame.rows / down, frame.columns / across);
        let cell = |row: usize, column: usize| {
            Rectangle::new([column * width, row * height, width, height], frame)
        };
        let mut cuts = Vec::new();
        for (sample, drawn) in applied(drawn) {
            let Drawn::Jigsaw { order } = drawn else { return Err(drawn.misfit(op.name())) };
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..down * across) {
                return Err(drawn.misfit(op.name()));
            }
            for (to, from) in order.iter().enumerate() {
                // As in Kornia: target cells are counted column by column, source cells row by row.
                let to = cell(to % down, to / down)?;
                let from = cell(from / across, from % across)?;
                cuts.push(Cut { sample, to, donor: sample, from });
            }
        }
        Ok(Operation::Paste(cuts, None))
    }
}

impl Default for HideAndSeek {
    fn default() -> Self {
        let patches = vec![[16, 16], [32, 32], [44, 44], [56, 56]];
        Self { p: half(), patches, proportion: 0.5, with_replacement: yes(), fill: 0.0 }
    }
}

impl Augmentation for HideAndSeek {
    fn p(&self) -> f64 {
        self.p
    }

    fn check(&self, _: Frame) -> Result<()> {
        Range::only(self.proportion).check("proportion", 0.0, 1.0)?;
        if self.patches.is_empty() || self.patches.iter().flatten().any(|size| *size == 0) {
            return Err(Error::conflict("there are no patches, or empty ones")
                .with_remedy("give sizes above 0 as [[rows, columns], …]"));
        }
        Ok(())
    }

    fn draw(
        &self,
        BatchPosition { frame, .. }: BatchPosition,
        random: &mut Random,
    ) -> Result<Drawn> {
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
        Ok(Drawn::Patches { size, hidden })
    }

    fn action(&self, _: &Op) -> Action<'_> {
        Action::Single(self)
    }
}

impl Single for HideAndSeek {
    fn pass(&self, op: &Op, drawn: &[Option<Drawn>], frame: Frame) -> Result<Operation> {
        let mut blanks = Vec::new();
        for (sample, drawn) in applied(drawn) {
            let Drawn::Patches { size, hidden } = drawn else {
                return Err(drawn.misfit(op.name()));
            };
            let [high, wide] = size.map(|size| size.max(1));
            let across = frame.columns.div_ceil(wide);
            for patch in hidden {
                let y = (patch / across).saturating_mul(high);
                let x = patch % across * wide;
                if y >= frame.rows {
                    return Err(drawn.misfit(op.name()));
                }
                let size = [wide.min(frame.columns - x), high.min(frame.rows - y)];
                let rectangle = Rectangle::new([x, y, size[0], size[1]], frame)?;
                blanks.push(Blank { sample, rectangle, values: vec![self.fill; frame.bands] });
            }
        }
        Ok(Operation::Blank(blanks))
    }
}
