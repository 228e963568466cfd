//! Operations that depend on labels, as tensor operations.

use hsipack_format::Result;

use super::{Binary, Tensors, Through, Unary};
use crate::array::ElementType;
use crate::engine::Held;
use crate::pass::Transplanting;

impl<T: Tensors> Through<T> {
    /// The first layer: (samples, rows, columns, 1).
    pub(super) fn first_layer(&self, labels: &Held<T::Tensor>) -> Result<T::Tensor> {
        self.0.narrow(&labels.array, 3, 0, 1)
    }

    pub(super) fn chosen(
        &self,
        labels: &Held<T::Tensor>,
        valid: Option<&Held<T::Tensor>>,
        what: &Transplanting,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let [samples, rows, columns, _] = labels.shape;
        let each = |numbers: Vec<i64>, element| self.integers(&numbers, &[samples, 1], element);
        let yes =
            |which: Vec<bool>| each(which.into_iter().map(i64::from).collect(), ElementType::Bool);
        let donors = what.donors.iter().enumerate();
        let donors = self.indices(donors.map(|(sample, donor)| donor.unwrap_or(sample)))?;
        let theirs = |layers: &Held<T::Tensor>| -> Result<T::Tensor> {
            let theirs = t.index_select(&self.first_layer(layers)?, &donors)?;
            t.reshape(&theirs, &[samples, rows * columns])
        };
        let label = t.to(&theirs(labels)?, ElementType::I64)?;
        // The labels that occur, out of at most 65536, whatever the element type. No shape here depends on their
        // number.
        let most: i64 = match labels.element {
            ElementType::Bool => 2,
            ElementType::U8 | ElementType::I8 => 256,
            _ => 65536,
        };
        let mut counts = t.binary(
            Binary::LogicalAnd,
            &t.with(Binary::Ge, &label, 0.0)?,
            &t.with(Binary::Lt, &label, most as f64)?,
        )?;
        if let Some(valid) = valid {
            let valid = t.with(Binary::Ne, &theirs(valid)?, 0.0)?;
            counts = t.binary(Binary::LogicalAnd, &counts, &valid)?;
        }
        for excluded in what.excluded.iter().filter(|label| (0..most).contains(*label)) {
            let other = t.with(Binary::Ne, &label, *excluded as f64)?;
            counts = t.binary(Binary::LogicalAnd, &counts, &other)?;
        }
        // Pixels that do not count are collected at an index after the last label.
        let spare = self.integers(&[most], &[1], ElementType::I64)?;
        let index = t.r#where(&counts, &label, &spare)?;
        let places = most as usize;
        let there = t.full(&[samples, places + 1], 0.0, ElementType::I64)?;
        let there = t.narrow(&t.scatter(&there, 1, &index, 1.0)?, 1, 0, places)?;
        let number = t.sum(&there, 1)?;
        let picks: Vec<f64> = what.picks.iter().map(|pick| f64::from(*pick)).collect();
        let picks = self.numbers(&picks, &[samples, 1], ElementType::F32)?;
        let wanted = t.unary(Unary::Floor, &t.binary(Binary::Mul, &picks, &number)?)?;
        // A pick just below 1 may round to 1 in float32.
        let wanted = t.binary(Binary::Minimum, &t.with(Binary::Add, &wanted, 1.0)?, &number)?;
        let reached = t.binary(Binary::Ge, &t.cumsum(&there, 1)?, &wanted)?;
        let picked = t.argmax(&t.to(&reached, ElementType::I8)?, 1)?;
        // All pixels of a label that was given by hand count.
        let by_hand = what.given.iter().map(|label| label.unwrap_or(0)).collect();
        let by_hand = each(by_hand, ElementType::I64)?;
        let is_given = yes(what.given.iter().map(Option::is_some).collect())?;
        let takes = yes(what.donors.iter().map(Option::is_some).collect())?;
        let picked = t.r#where(&is_given, &by_hand, &picked)?;
        let any = t.binary(Binary::LogicalOr, &t.with(Binary::Gt, &number, 0.0)?, &is_given)?;
        let counts = t.binary(Binary::LogicalOr, &counts, &is_given)?;
        let taken = [any, takes, counts]
            .iter()
            .try_fold(t.binary(Binary::Eq, &label, &picked)?, |taken, also| {
                t.binary(Binary::LogicalAnd, &taken, also)
            })?;
        t.reshape(&taken, &[samples, rows, columns, 1])
    }

    pub(super) fn transplanted(
        &self,
        held: &mut Held<T::Tensor>,
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
            self.change(&held.array, &samples, |place| {
                self.0.copy_(place, &self.0.r#where(&takes, &theirs, place)?)
            })?;
        }
        Ok(())
    }

    /// The samples that have no pixel left in the first layer: (samples, 1, 1, 1).
    pub(super) fn without_labels(&self, labels: &Held<T::Tensor>) -> Result<T::Tensor> {
        let [samples, rows, columns, _] = labels.shape;
        let there = self.0.with(Binary::Ne, &self.first_layer(labels)?, 0.0)?;
        let there = self.0.reshape(&there, &[samples, rows * columns])?;
        let lost = self.0.unary(Unary::LogicalNot, &self.0.any(&there, 1)?)?;
        self.0.reshape(&lost, &[samples, 1, 1, 1])
    }
}
