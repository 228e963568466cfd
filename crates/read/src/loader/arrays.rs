//! The stored arrays that a batch is read from.

use hsipack_store::dataset::ChunkArray;

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::plan::Item;

/// The array of a mask or companion in a stack.
pub(crate) fn place(dataset: &Dataset, stack: usize, name: &str) -> Result<usize> {
    let beside = dataset.stacks()[stack].arrays().skip(1);
    let position = beside.map(ChunkArray::name).position(|array| array == name);
    position.map(|position| position + 1).ok_or_else(|| dataset.no_mask(stack, name))
}

/// The stored array that array `number` of a batch is read from, for one of its items.
pub(crate) fn array_of<'a>(
    dataset: &'a Dataset,
    beside: &[String],
    item: Item,
    number: usize,
) -> Result<ArrayRef<'a>> {
    let stack = dataset.stack_of(item.sample)?;
    let array = match number.checked_sub(1) {
        None => 0,
        Some(array) => place(dataset, stack, &beside[array])?,
    };
    Ok(dataset.array(stack, array))
}
