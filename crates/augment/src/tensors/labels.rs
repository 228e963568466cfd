//! Operations that depend on labels, as tensor operations.

use hsipack_format::{Error, Result};

use super::{Binary, TensorEngine, Tensors, Unary};
use crate::array::ElementType;
use crate::engine::BatchArray;
use crate::operation::Transplanting;

/// The label that was picked for every sample, (samples, 1), and whether there was any.
struct Picked<T: Tensors> {
    label: T::Tensor,
    any: T::Tensor,
}

impl<T: Tensors> TensorEngine<T> {
    /// The first layer: (samples, rows, columns, 1).
    pub(super) fn first_layer(&self, labels: &BatchArray<T::Tensor>) -> Result<T::Tensor> {
        self.0.narrow(&labels.array, 3, 0, 1)
    }

    pub(super) fn chosen(
        &self,
        labels: &BatchArray<T::Tensor>,
        valid: Option<&BatchArray<T::Tensor>>,
        what: &Transplanting,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let [samples, rows, columns, _] = labels.shape;
        let each = |numbers: Vec<i64>, element| self.integers(&numbers, &[samples, 1], element);
        let yes =
            |which: Vec<bool>| each(which.into_iter().map(i64::from).collect(), ElementType::Bool);
        let donors = what.donors.iter().enumerate();
        let donors = self.indices(donors.map(|(sample, donor)| donor.unwrap_or(sample)))?;
        let theirs = |layers: &BatchArray<T::Tensor>| -> Result<T::Tensor> {
            let theirs = t.index_select(&self.first_layer(layers)?, &donors)?;
            t.reshape(&theirs, &[samples, rows * columns])
        };
        let label = t.to(&theirs(labels)?, ElementType::I64)?;
        let mut counts = t.full(&[1], 1.0, ElementType::Bool)?;
        if let Some(valid) = valid {
            let valid = t.with(Binary::Ne, &theirs(valid)?, 0.0)?;
            counts = t.binary(Binary::LogicalAnd, &counts, &valid)?;
        }
        for excluded in &what.excluded {
            let excluded = self.integers(&[*excluded], &[1], ElementType::I64)?;
            let other = t.binary(Binary::Ne, &label, &excluded)?;
            counts = t.binary(Binary::LogicalAnd, &counts, &other)?;
        }
        let picks: Vec<f64> = what.picks.iter().map(|pick| f64::from(*pick)).collect();
        let picks = self.numbers(&picks, &[samples, 1], ElementType::F32)?;
        let Picked { label: picked, any } =
            self.picked(&label, &counts, &picks, labels.element.whole_numbers())?;
        // All pixels of a label that was set by hand count.
        let by_hand = what.fixed.iter().map(|label| label.unwrap_or(0)).collect();
        let by_hand = each(by_hand, ElementType::I64)?;
        let is_fixed = yes(what.fixed.iter().map(Option::is_some).collect())?;
        let takes = yes(what.donors.iter().map(Option::is_some).collect())?;
        let picked = t.r#where(&is_fixed, &by_hand, &picked)?;
        let any = t.binary(Binary::LogicalOr, &any, &is_fixed)?;
        let counts = t.binary(Binary::LogicalOr, &counts, &is_fixed)?;
        let taken = [any, takes, counts]
            .iter()
            .try_fold(t.binary(Binary::Eq, &label, &picked)?, |taken, also| {
                t.binary(Binary::LogicalAnd, &taken, also)
            })?;
        t.reshape(&taken, &[samples, rows, columns, 1])
    }

    /// Picks one of the different labels of each sample, (samples, pixels), among those that count;
    /// `picks` are shares of their number. No shape here depends on it.
    fn picked(
        &self,
        label: &T::Tensor,
        counts: &T::Tensor,
        picks: &T::Tensor,
        range: Option<(i64, i64)>,
    ) -> Result<Picked<T>> {
        let t = &self.0;
        let whole = |number: i64| self.integers(&[number], &[1], ElementType::I64);
        let [samples, pixels] = t.shape(label)?[..] else {
            return Err(Error::bug("labels without pixels"));
        };
        // A pick just below 1 may round to 1 in float32.
        let wanted = |number: &T::Tensor| -> Result<T::Tensor> {
            let wanted = t.unary(Unary::Floor, &t.binary(Binary::Mul, picks, number)?)?;
            t.binary(Binary::Minimum, &t.with(Binary::Add, &wanted, 1.0)?, number)
        };
        if let Some((least, most)) = range
            && most.checked_sub(least).is_some_and(|span| span < 1 << 16)
        {
            // A place for every label. Pixels that do not count are collected at a place after the last.
            let places = (most - least + 1) as usize;
            let index = t.binary(Binary::Sub, label, &whole(least)?)?;
            let index = t.r#where(counts, &index, &whole(places as i64)?)?;
            let present = t.full(&[samples, places + 1], 0.0, ElementType::I64)?;
            let present = t.narrow(&t.scatter(&present, 1, &index, 1.0)?, 1, 0, places)?;
            let number = t.sum(&present, 1)?;
            let reached = t.binary(Binary::Ge, &t.cumsum(&present, 1)?, &wanted(&number)?)?;
            let index = t.argmax(&t.to(&reached, ElementType::I8)?, 1)?;
            let label = t.binary(Binary::Add, &index, &whole(least)?)?;
            return Ok(Picked { label, any: t.with(Binary::Gt, &number, 0.0)? });
        }
        // Sorted, a label is new where it differs from the one before. The largest that counts stands for those that do not.
        let count = t.r#where(counts, &whole(1)?, &t.with(Binary::Mul, label, 0.0)?)?;
        let any = t.with(Binary::Gt, &t.amax(&count, 1)?, 0.0)?;
        let largest = t.amax(&t.r#where(counts, label, &whole(i64::MIN)?)?, 1)?;
        let sorted = t.sort(&t.r#where(counts, label, &largest)?, 1)?;
        let first = t.narrow(&sorted, 1, 0, 1)?;
        if pixels == 1 {
            return Ok(Picked { label: first, any });
        }
        let later = t.narrow(&sorted, 1, 1, pixels - 1)?;
        let new = t.binary(Binary::Ne, &later, &t.narrow(&sorted, 1, 0, pixels - 1)?)?;
        let rank = t.cumsum(&t.to(&new, ElementType::I64)?, 1)?;
        let number = t.with(Binary::Add, &t.narrow(&rank, 1, pixels - 2, 1)?, 1.0)?;
        // The wanted label is the largest of those up to its rank.
        let up_to_rank = t.binary(Binary::Lt, &rank, &wanted(&number)?)?;
        Ok(Picked { label: t.amax(&t.r#where(&up_to_rank, &later, &first)?, 1)?, any })
    }

    pub(super) fn transplanted(
        &self,
        held: &mut BatchArray<T::Tensor>,
        chosen: &T::Tensor,
        donors: &[Option<usize>],
    ) -> Result<()> {
        let before = self.replace_by_copy(held)?;
        let takers: Vec<(usize, usize)> = donors
            .iter()
            .enumerate()
            .filter_map(|(sample, donor)| Some((sample, (*donor)?)))
            .collect();
        for block in takers.chunks(self.at_once(held, held.shape[3])) {
            let (samples, donors): (Vec<usize>, Vec<usize>) = block.iter().copied().unzip();
            let (theirs, takes) = (self.part(&before, &donors)?, self.part(chosen, &samples)?);
            self.change(&held.array, &samples, |part| {
                self.0.copy_(part, &self.0.r#where(&takes, &theirs, part)?)
            })?;
        }
        Ok(())
    }

    /// The samples that have no pixel left in the first layer: (samples, 1, 1, 1).
    pub(super) fn without_labels(&self, labels: &BatchArray<T::Tensor>) -> Result<T::Tensor> {
        let [samples, rows, columns, _] = labels.shape;
        let labelled = self.0.with(Binary::Ne, &self.first_layer(labels)?, 0.0)?;
        let labelled = self.0.reshape(&labelled, &[samples, rows * columns])?;
        let lost = self.0.unary(Unary::LogicalNot, &self.0.any(&labelled, 1)?)?;
        self.0.reshape(&lost, &[samples, 1, 1, 1])
    }
}
