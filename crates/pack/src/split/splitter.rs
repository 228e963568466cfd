//! Reads the masks of a dataset twice: first to count pixels, then to divide them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use hsipack_format::{Color, DType, Error, ErrorKind, MaskValue, Opt, Result, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::{Dataset, memory};

use super::SplitOptions;
use super::decide::{self, By, Census, Decision, Map, NONE, Seen};
use super::ground;
use super::report::{ClassReport, Report, SeenReport, SplitReport, share};
use crate::add_mask::MaskIds;
use crate::export::find_mask;
use crate::progress::Progress;

/// Divides the samples one after the other.
pub struct Splitter<'a> {
    options: &'a SplitOptions,
    dataset: &'a Dataset,
    progress: &'a Progress,
    /// The mask in each stack.
    masks: Vec<&'a ChunkArray>,
    /// Greatest labelled id of each stack.
    greatest: Vec<u16>,
    decision: Decision,
    units: Option<usize>,
    tally: Tally,
    /// The sample being written.
    current: Option<Divided>,
}

/// A sample whose pixels have been divided.
struct Divided {
    sample: usize,
    columns: usize,
    ids: Vec<u16>,
    split_of: Vec<u8>,
}

/// Counts that are collected while samples are divided.
struct Tally {
    /// For each class: all pixels, those of each split, those of no split, and those that the
    /// buffer removed.
    classes: BTreeMap<u16, ClassReport>,
    leaks: Vec<Seen>,
}

impl<'a> Splitter<'a> {
    /// Counts the labelled pixels of all samples and decides how to divide them.
    ///
    /// # Errors
    /// If a stack has no such mask of class ids, a chunk cannot be read, no pixel is labelled, or
    /// `progress.stop` was set.
    pub fn decide(
        dataset: &'a Dataset,
        options: &'a SplitOptions,
        progress: &'a Progress,
    ) -> Result<Self> {
        let masks = dataset.stacks().iter().map(|stack| {
            let mask = find_mask(dataset, stack, &options.mask)?;
            check_ids(mask).map(|()| mask)
        });
        let masks = masks.collect::<Result<Vec<_>>>()?;
        let mut census = Census::new(options.units());
        let mut greatest = vec![0; masks.len()];
        for (stack, mask) in masks.iter().enumerate() {
            for index in 0..mask.len() {
                let ids = read(mask, index, &options.ignore, progress)?;
                greatest[stack] = ids.iter().copied().fold(greatest[stack], u16::max);
                census.add(Map { columns: mask.shape().columns, ids: &ids });
            }
        }
        let counts = census.counts().clone();
        if counts.is_empty() {
            return Err(Error::conflict(format!("no pixel of mask {} has a label", options.mask))
                .at(dataset.path())
                .with_remedy(remedy!["check the mask, and ", Opt::Ignore]));
        }
        let splits = options.shares.splits();
        let names = names(&masks);
        let class = |(id, pixels): (u16, u64)| {
            let name = names.get(usize::from(id)).cloned();
            let name = name.filter(|name| !name.is_empty());
            let splits = vec![0; splits];
            (id, ClassReport { id, name, pixels, splits, unused: 0, buffered: 0 })
        };
        let classes = counts.into_iter().map(class).collect();
        let units = (options.units() != By::Pixels).then(|| census.units());
        Ok(Self {
            options,
            dataset,
            progress,
            masks,
            greatest,
            decision: census.decide(&options.shares, options.per_class, options.seed),
            units,
            tally: Tally { classes, leaks: vec![Seen::default(); splits - 1] },
            current: None,
        })
    }

    /// Names of the mask's classes in each stack.
    pub fn class_names(&self) -> Vec<Option<Vec<String>>> {
        self.masks.iter().map(|mask| mask.meta().mask_meaning().class_names).collect()
    }

    /// Colours of the mask's classes in each stack.
    pub fn class_colors(&self) -> Vec<Vec<Option<Color>>> {
        self.masks.iter().map(|mask| mask.meta().mask_meaning().class_colors).collect()
    }

    /// Divides all samples without writing anything.
    ///
    /// # Errors
    /// If a chunk cannot be read, or `progress.stop` was set.
    pub fn go_through(&mut self) -> Result<()> {
        for stack in 0..self.masks.len() {
            for index in 0..self.masks[stack].len() {
                self.divide(stack, index)?;
            }
        }
        Ok(())
    }

    /// Divides a sample. Each sample is divided once, in the order in which samples were counted.
    fn divide(&mut self, stack: usize, index: usize) -> Result<(Vec<u16>, Vec<u8>)> {
        let mask = self.masks[stack];
        let ids = read(mask, index, &self.options.ignore, self.progress)?;
        let columns = mask.shape().columns;
        let mut split_of = self.decision.next(Map { columns, ids: &ids });
        let before = self.options.buffer.distance(self.options.patch).map(|distance| {
            let before = split_of.clone();
            decide::buffer(columns, &mut split_of, distance.map(|side| side as usize));
            before
        });
        self.tally.add(&ids, &split_of, before.as_deref());
        let patch = self.options.patch.map(|side| side as usize);
        let splits = self.options.shares.splits();
        self.tally.see(&decide::seen(columns, &split_of, splits, patch));
        Ok((ids, split_of))
    }

    /// The result, after all samples have been divided.
    ///
    /// # Errors
    /// If nothing is left to train on.
    pub fn report(self, start: Instant) -> Result<Report> {
        let (options, classes) = (self.options, self.tally.classes.into_values());
        let classes: Vec<ClassReport> = classes.collect();
        let sum = |of: &dyn Fn(&ClassReport) -> u64| classes.iter().map(of).sum::<u64>();
        let pixels = sum(&|class| class.pixels);
        let names = options.shares.names().map(str::to_owned).zip(options.masks());
        let splits: Vec<SplitReport> = names
            .enumerate()
            .map(|(split, (name, mask))| {
                let split_pixels = sum(&|class| class.splits[split]);
                SplitReport {
                    name,
                    mask,
                    pixels: split_pixels,
                    share: share(split_pixels, pixels),
                    stored_bytes: 0,
                }
            })
            .collect();
        let buffered = sum(&|class| class.buffered);
        if splits[0].pixels == 0 {
            return Err(nothing_to_train_on(options, buffered).at(&options.dataset));
        }
        let leaks = splits[1..].iter().zip(&self.tally.leaks).map(|(split, leak)| SeenReport {
            split: split.name.clone(),
            pixels: leak.pixels,
            inside: leak.inside,
            inside_share: share(leak.inside, leak.pixels),
            overlapping: leak.overlapping,
            overlapping_share: share(leak.overlapping, leak.pixels),
        });
        Ok(Report {
            dataset: options.dataset.display().to_string(),
            mask: options.mask.clone(),
            by: options.units().name(),
            block: match options.units() {
                By::Blocks(side) => Some(side),
                _ => None,
            },
            units: self.units,
            seed: options.seed,
            samples: self.dataset.samples().len(),
            pixels,
            seen: leaks.collect(),
            unused: sum(&|class| class.unused),
            patch: options.patch,
            buffer: options.buffer.distance(options.patch),
            buffered,
            replaced: Vec::new(),
            dry_run: false,
            seconds: start.elapsed().as_secs_f64(),
            notes: notes(&splits, &classes)
                .into_iter()
                .chain(ground::note(self.dataset)?)
                .collect(),
            splits,
            classes,
        })
    }
}

impl MaskIds for Splitter<'_> {
    fn greatest(&mut self, stack: usize) -> Result<MaskValue> {
        Ok(self.greatest[stack].into())
    }

    fn read(
        &mut self,
        mask: usize,
        sample: usize,
        rows: Range<usize>,
        ids: &mut Vec<MaskValue>,
    ) -> Result<()> {
        if self.current.as_ref().is_none_or(|current| current.sample != sample) {
            let (stack, index) =
                (self.dataset.samples().stack(sample), self.dataset.samples().index(sample));
            let (ids, split_of) = self.divide(stack, index)?;
            let columns = self.masks[stack].shape().columns;
            self.current = Some(Divided { sample, columns, ids, split_of });
        }
        let current = self.current.as_ref().expect("divided above");
        let pixels = rows.start * current.columns..rows.end * current.columns;
        let pairs = current.ids[pixels.clone()].iter().zip(&current.split_of[pixels]);
        ids.clear();
        ids.extend(pairs.map(|(id, split)| match usize::from(*split) == mask {
            true => MaskValue::from(*id),
            false => 0,
        }));
        Ok(())
    }
}

impl Tally {
    /// Counts the pixels of a sample. `before` has the splits before the buffer was applied.
    fn add(&mut self, ids: &[u16], split_of: &[u8], before: Option<&[u8]>) {
        let before = before.unwrap_or(split_of);
        let mut remaining = ids;
        while let Some(id) = remaining.first() {
            // Looks up the class once for each run of pixels of that class.
            let run = remaining.iter().take_while(|other| *other == id).count();
            let start = ids.len() - remaining.len();
            remaining = &remaining[run..];
            let Some(class) = self.classes.get_mut(id) else { continue };
            for pixel in start..start + run {
                match (before[pixel], split_of[pixel]) {
                    (NONE, _) => class.unused += 1,
                    (_, NONE) => class.buffered += 1,
                    (_, split) => class.splits[usize::from(split)] += 1,
                }
            }
        }
    }

    fn see(&mut self, leaks: &[Seen]) {
        for (all, leak) in self.leaks.iter_mut().zip(leaks) {
            all.pixels += leak.pixels;
            all.inside += leak.inside;
            all.overlapping += leak.overlapping;
        }
    }
}

/// Refuses masks that do not hold class ids.
fn check_ids(mask: &ChunkArray) -> Result<()> {
    let layers = mask.meta().mask_meaning().layers;
    if !layers.is_empty() {
        return Err(Error::conflict(format!(
            "mask {} holds boolean layers ({}), but only class ids can be split",
            mask.name(),
            layers.join(", ")
        ))
        .at(mask.folder())
        .with_remedy("choose a mask of class ids"));
    }
    let pixels = mask.shape().checked_values().filter(|pixels| u32::try_from(*pixels).is_ok());
    match (mask.meta().dtype, pixels) {
        (DType::U8 | DType::U16, Some(_)) => Ok(()),
        (DType::U8 | DType::U16, None) => {
            Err(Error::unsupported("samples have more than 4294967295 pixels").at(mask.folder()))
        }
        (other, _) => Err(Error::unsupported(format!("mask {} has the type {other}", mask.name()))
            .at(mask.folder())
            .with_remedy("class ids must be uint8 or uint16")),
    }
}

/// The class ids of a sample, with ignored ids replaced by 0.
fn read(mask: &ChunkArray, index: usize, ignore: &[u16], progress: &Progress) -> Result<Vec<u16>> {
    if progress.stop.load(Ordering::Relaxed) {
        return Err(
            Error::new(ErrorKind::Interrupted, "stopped").with_remedy("the dataset is as it was")
        );
    }
    let mut bytes = memory::zeroed(mask.sample_bytes(), "the mask of a sample")?;
    mask.read_sample(index, &mut bytes)?;
    progress.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    let mut ids: Vec<u16> = memory::reserved(mask.shape().pixels(), "the mask of a sample")?;
    match mask.meta().dtype {
        DType::U8 => ids.extend(bytes.iter().copied().map(u16::from)),
        _ => ids.extend(bytes.as_chunks::<2>().0.iter().map(|id| u16::from_le_bytes(*id))),
    }
    if !ignore.is_empty() {
        ids.iter_mut().filter(|id| ignore.contains(id)).for_each(|id| *id = 0);
    }
    Ok(ids)
}

/// Names of the classes, each from the first stack that has one.
fn names(masks: &[&ChunkArray]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for names in masks.iter().filter_map(|mask| mask.meta().mask_meaning().class_names) {
        for (id, name) in names.into_iter().enumerate() {
            match all.get_mut(id) {
                None => all.push(name),
                Some(earlier) if earlier.is_empty() => *earlier = name,
                Some(_) => {}
            }
        }
    }
    all
}

fn nothing_to_train_on(options: &SplitOptions, buffered: u64) -> Error {
    let first = &options.shares.all()[0].0;
    if buffered == 0 {
        return Error::conflict(format!("no pixel is left for {first}"))
            .with_remedy(remedy!["give it a larger share, or a smaller ", Opt::Block]);
    }
    let what = format!("the buffer takes all {buffered} pixels of {first}");
    Error::conflict(what).with_remedy(match options.units() {
        By::Pixels => {
            remedy!["split ", Opt::By.to("blocks"), ", or choose a smaller ", Opt::Buffer]
        }
        _ => remedy!["choose a larger ", Opt::Block, ", or a smaller ", Opt::Buffer],
    })
}

/// Notes on classes that are missing in a split.
fn notes(splits: &[SplitReport], classes: &[ClassReport]) -> Vec<String> {
    const SHOWN: usize = 8;
    let missing = splits.iter().enumerate().filter_map(|(index, split)| {
        let without: Vec<String> = classes
            .iter()
            .filter(|class| class.splits[index] == 0)
            .map(|class| match &class.name {
                Some(name) => format!("{} ({name})", class.id),
                None => class.id.to_string(),
            })
            .collect();
        let more = without.len().saturating_sub(SHOWN);
        let shown = without[..without.len().min(SHOWN)].join(", ");
        match (without.len(), more) {
            (0, _) => None,
            (1, _) => Some(format!("{} has no pixel of class {shown}", split.name)),
            (_, 0) => Some(format!("{} has no pixel of classes {shown}", split.name)),
            (_, more) => {
                Some(format!("{} has no pixel of classes {shown} and {more} more", split.name))
            }
        }
    });
    missing.collect()
}
