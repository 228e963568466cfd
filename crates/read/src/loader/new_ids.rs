//! New class ids in the batches that a loader delivers.

use hsipack_format::{Error, Opt, remedy};

use super::arrays::place;
use super::options::LoaderOptions;
use crate::Result;
use crate::dataset::array::ArrayRef;
use crate::dataset::{Dataset, IdTable};
use crate::plan::Item;

/// The tables of new ids for a loader's masks. Empty if no new ids are asked for.
#[derive(Debug, Default)]
pub(crate) struct IdTables {
    /// By stack and array; empty if there are no new ids.
    of_arrays: Vec<Vec<Option<IdTable>>>,
    /// By stack: the array that labels of windows come from.
    labels: Vec<Option<usize>>,
}

impl IdTables {
    /// The tables that the options ask for, for the stacks that are read.
    pub(super) fn new(
        dataset: &Dataset,
        options: &LoaderOptions,
        masks: &[String],
        stacks: &[usize],
    ) -> Result<Self> {
        if options.new_ids.is_empty() {
            return Ok(Self::default());
        }
        let arrays = |stack: &hsipack_store::Stack| stack.masks.len() + 1;
        let mut of_arrays: Vec<Vec<Option<IdTable>>> =
            dataset.stacks().iter().map(|stack| vec![None; arrays(stack)]).collect();
        let of_regions = options.regions.as_ref().and_then(|(_, regions)| regions.labels.as_ref());
        let labels = options.patches.as_ref().map(|(mask, _)| mask).or(of_regions);
        for new in &options.new_ids {
            if options.regions.as_ref().is_some_and(|(mask, _)| *mask == new.mask) {
                return Err(Error::conflict(format!(
                    "new class ids are given for mask {}, whose regions are the windows",
                    new.mask
                ))
                .at(dataset.path())
                .with_remedy("give new ids to the mask of the labels"));
            }
            if !masks.contains(&new.mask) && labels != Some(&new.mask) {
                return Err(Error::conflict(format!(
                    "new class ids are given for mask {}, which is not read",
                    new.mask
                ))
                .at(dataset.path())
                .with_remedy(remedy!["read it with ", Opt::Masks]));
            }
            for (stack, table) in stacks.iter().zip(dataset.id_tables(stacks, new)?) {
                let twice = of_arrays[*stack][place(dataset, *stack, &new.mask)?].replace(table);
                if twice.is_some() {
                    return Err(Error::conflict(format!(
                        "new ids are given twice for mask {}",
                        new.mask
                    ))
                    .with_remedy("give all of them together"));
                }
            }
        }
        let of_stack = |stack| labels.and_then(|mask| place(dataset, stack, mask).ok());
        let labels = (0..of_arrays.len()).map(of_stack).collect();
        Ok(Self { of_arrays, labels })
    }

    /// The table of an array.
    pub(super) fn of(&self, array: ArrayRef<'_>) -> Option<&IdTable> {
        self.of_arrays.get(array.stack)?.get(array.array)?.as_ref()
    }

    /// Gives the labels of windows around labelled pixels their new ids.
    pub(super) fn relabel(&self, dataset: &Dataset, items: &mut [Item]) {
        if self.of_arrays.is_empty() {
            return;
        }
        for item in items {
            let stack = dataset.samples().stack(item.sample);
            let array = self.labels[stack];
            let table = array.and_then(|array| self.of_arrays[stack][array].as_ref());
            item.label = item.label.map(|label| table.map_or(label, |table| table.of(label)));
        }
    }
}
