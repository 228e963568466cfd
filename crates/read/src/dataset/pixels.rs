//! How many pixels each class of a mask has.

use std::collections::BTreeMap;

use hsipack_format::mask::{self, MAX_LAYERS};
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
    /// The name, if the dataset has one. If stacks differ, the name in the first one.
    pub name: Option<String>,
    /// Pixels in all samples. A pixel may be in several layers.
    pub pixels: u64,
    /// Pixels in the samples of each split. Samples without a split are in none.
    pub splits: BTreeMap<String, u64>,
}

impl Dataset {
    /// Counts the pixels of every class that a mask has in these samples, or of every layer if the
    /// mask has boolean layers. The result is ascending by id. Every chunk is read once, by
    /// `threads` threads.
    ///
    /// # Errors
    /// If a sample's stack has no such mask, or its layers differ from those of another stack; if
    /// the mask cannot be read or is damaged; if new ids are given for a mask that holds no ids.
    pub fn class_pixels(
        &self,
        samples: &[usize],
        mask: &str,
        new: Option<&NewIds>,
        threads: usize,
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
        // A few samples at a time, because a mask of instances has many counts.
        let mut all: BTreeMap<u32, ClassPixels> = BTreeMap::new();
        for some in samples.chunks(threads.max(1) * 64) {
            let count = |(): &mut (), sample: &usize| self.count(*sample, mask);
            let counts = threads::in_turn(threads, "count", some.iter(), || (), count)?;
            for (sample, counts) in some.iter().zip(counts) {
                let stack = self.samples().stack(*sample);
                let split = self.samples().splits().get(*sample);
                for (id, pixels) in counts {
                    let new_id = tables.get(&stack).map_or(id, |table| table.of(id));
                    let class = all.entry(new_id).or_insert_with(|| ClassPixels {
                        id: new_id,
                        // With new ids, the dataset's names would mean something else.
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

    /// Refuses layers that differ between stacks.
    fn check_layers(&self, stacks: &[usize], mask: &str) -> Result<()> {
        let Some((first, others)) = stacks.split_first() else { return Ok(()) };
        let layers = self.mask_layers(*first, mask);
        match others.iter().find(|stack| self.mask_layers(**stack, mask) != layers) {
            None => Ok(()),
            Some(other) => {
                let [first, other] = [*first, *other].map(|stack| &self.stacks()[stack].name);
                let what = format!(
                    "mask {mask} has different layers in stack {other} than in stack {first}"
                );
                Err(Error::conflict(what)
                    .at(self.path())
                    .with_remedy("count the samples of each stack separately"))
            }
        }
    }

    /// Pixels of one sample, by id.
    fn count(&self, sample: usize, mask: &str) -> Result<Vec<(u32, u64)>> {
        let layers = self.mask_layers(self.stack_of(sample)?, mask).len().min(MAX_LAYERS);
        let cube = self.mask(sample, mask)?;
        if layers > 0 && mask::is_stored_as(cube.dtype) {
            let mut values = Vec::new();
            mask::read(cube.dtype, cube.bytes(), &mut values);
            let of = |layer: usize| values.iter().filter(|bits| **bits >> layer & 1 == 1).count();
            return Ok((0..).zip((0..layers).map(|layer| of(layer) as u64)).collect());
        }
        let counts = match cube.dtype {
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
                return Err(Error::unsupported(format!("mask {mask} has the type {other}"))
                    .at(self.path())
                    .with_remedy(remedy!["pack the masks with ", Command::Convert]));
            }
        };
        Ok((0..).zip(counts).filter(|(_, pixels)| *pixels > 0).collect())
    }

    /// The name of a class of a mask of a stack, or of a layer.
    fn class_name(&self, stack: usize, mask: &str, id: u32) -> Option<String> {
        let layers = self.mask_layers(stack, mask);
        let names = if layers.is_empty() { self.class_names(stack, mask) } else { layers };
        names.into_iter().nth(id as usize).filter(|name| !name.is_empty())
    }
}
