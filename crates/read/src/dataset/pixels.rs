//! How many pixels of a mask are of which class.

use std::collections::BTreeMap;

use hsipack_format::{Command, DType, Error, remedy};
use hsipack_store::threads;

use super::new_ids::{IdTable, NewIds};
use super::open::Dataset;
use crate::Result;

/// The pixels of one class of a mask, or of one boolean layer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClassPixels {
    /// Class id, or number of the layer.
    pub id: u32,
    /// Its name, where the dataset has one (of stacks that differ, that of the first one).
    pub name: Option<String>,
    /// Pixels in all samples. Layers overlap.
    pub pixels: u64,
    /// Pixels in the samples of each split; samples without one are in none.
    pub splits: BTreeMap<String, u64>,
}

/// Layers that fit the widest mask.
const LAYERS: usize = 16;

impl Dataset {
    /// Counts the pixels of every class that a mask has in these samples, ascending by id; of a mask of boolean layers those
    /// of every layer. Every chunk is read once, by so many threads.
    ///
    /// # Errors
    /// If a sample's stack has no such mask, or one with other layers than another's; it cannot be read or is damaged; or
    /// there are new ids for what holds none.
    pub fn class_pixels(
        &self,
        samples: &[usize],
        mask: &str,
        new: Option<&NewIds>,
        jobs: usize,
    ) -> Result<Vec<ClassPixels>> {
        let mut stacks =
            samples.iter().map(|sample| self.stack_of(*sample)).collect::<Result<Vec<_>>>()?;
        stacks.sort_unstable();
        stacks.dedup();
        self.check_layers(&stacks, mask)?;
        let tables: BTreeMap<usize, IdTable> = match new {
            Some(new) => stacks.iter().copied().zip(self.id_tables(&stacks, new)?).collect(),
            None => BTreeMap::new(),
        };
        // A few samples at a time: the counts of a mask of instances are many.
        let mut all: BTreeMap<u32, ClassPixels> = BTreeMap::new();
        for some in samples.chunks(jobs.max(1) * 64) {
            let count = |(): &mut (), sample: &usize| self.count(*sample, mask);
            let counts = threads::in_turn(jobs, "count", some.iter(), || (), count)?;
            for (sample, counts) in some.iter().zip(counts) {
                let stack = self.samples().stack(*sample);
                let split = self.samples().splits().get(*sample);
                for (id, pixels) in counts {
                    let new_id = tables.get(&stack).map_or(id, |table| table.of(id));
                    let class = all.entry(new_id).or_insert_with(|| ClassPixels {
                        id: new_id,
                        // Under other ids the dataset's names mean something else.
                        name: if new.is_some() { None } else { self.class_name(stack, mask, id) },
                        pixels: 0,
                        splits: BTreeMap::new(),
                    });
                    class.pixels += pixels;
                    if let Some(split) = split {
                        *class.splits.entry(split.clone()).or_default() += pixels;
                    }
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Refuses layers that mean something else in another stack.
    fn check_layers(&self, stacks: &[usize], mask: &str) -> Result<()> {
        let Some((first, others)) = stacks.split_first() else { return Ok(()) };
        let layers = self.mask_layers(*first, mask);
        match others.iter().find(|stack| self.mask_layers(**stack, mask) != layers) {
            None => Ok(()),
            Some(other) => {
                let [one, other] = [*first, *other].map(|stack| &self.stacks()[stack].name);
                let what =
                    format!("mask {mask} has other layers in stack {other} than in stack {one}");
                Err(Error::conflict(what)
                    .at(self.path())
                    .with_remedy("count the samples of each stack by themselves"))
            }
        }
    }

    /// Pixels of one sample, by id.
    fn count(&self, sample: usize, mask: &str) -> Result<Vec<(u32, u64)>> {
        let layers = self.mask_layers(self.stack_of(sample)?, mask).len().min(LAYERS);
        let cube = self.mask(sample, mask)?;
        let mut counts = match cube.dtype {
            DType::U8 => {
                let mut counts = vec![0u64; 1 << 8];
                cube.bytes().iter().for_each(|id| counts[usize::from(*id)] += 1);
                counts
            }
            DType::U16 => {
                let mut counts = vec![0u64; 1 << 16];
                for pair in cube.bytes().as_chunks::<2>().0 {
                    counts[usize::from(u16::from_le_bytes(*pair))] += 1;
                }
                counts
            }
            other => {
                return Err(Error::unsupported(format!("mask {mask} is of {other}"))
                    .at(self.path())
                    .with_remedy(remedy!["pack the masks with ", Command::Convert]));
            }
        };
        if layers > 0 {
            let of = |layer: usize| {
                (0..counts.len())
                    .filter(|bits| bits >> layer & 1 == 1)
                    .map(|bits| counts[bits])
                    .sum()
            };
            counts = (0..layers).map(of).collect();
        }
        let some = (0..).zip(counts).filter(|(_, pixels)| layers > 0 || *pixels > 0);
        Ok(some.collect())
    }

    /// The name of a class of a mask of a stack, or of a layer.
    fn class_name(&self, stack: usize, mask: &str, id: u32) -> Option<String> {
        let layers = self.mask_layers(stack, mask);
        let names = if layers.is_empty() { self.class_names(stack, mask) } else { layers };
        names.into_iter().nth(id as usize).filter(|name| !name.is_empty())
    }
}
