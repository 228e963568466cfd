//! Rectangles, and mixing, as tensor operations.

use hsipack_format::Result;

use super::engine::wide;
use super::{Binary, TensorEngine, Tensors, Unary};
use crate::engine::BatchArray;
use crate::mixed::Mixing;
use crate::operation::{Blank, Cut, Rectangle};

impl<T: Tensors> TensorEngine<T> {
    /// A view of a rectangle in one sample: (1, rows, columns, values).
    fn rectangle(
        &self,
        array: &T::Tensor,
        sample: usize,
        rectangle: Rectangle,
    ) -> Result<T::Tensor> {
        let Rectangle { x, y, width, height } = rectangle;
        let rows = self.0.narrow(&self.sample(array, sample)?, 1, y, height)?;
        self.0.narrow(&rows, 2, x, width)
    }

    pub(super) fn blanked(
        &self,
        held: &mut BatchArray<T::Tensor>,
        blanks: &[Blank],
        label: Option<i64>,
    ) -> Result<()> {
        self.own(held)?;
        let (element, values) = (held.element, held.shape[3]);
        let all = match label {
            // As many values as pixels have: a kernel copies them in vectors.
            Some(label) => self.integers(&vec![label; values], &[1, values], element)?,
            None => {
                let numbers: Vec<f64> =
                    blanks.iter().flat_map(|blank| &blank.values).copied().collect();
                self.numbers(&numbers, &[blanks.len(), values], element)?
            }
        };
        if self.blanked_by_kernels(held, &all, blanks, label.is_some())? {
            return Ok(());
        }
        for (number, blank) in blanks.iter().enumerate() {
            let target = self.rectangle(&held.array, blank.sample, blank.rectangle)?;
            let number = if label.is_some() { 0 } else { number };
            self.0.copy_(&target, &self.0.narrow(&all, 0, number, 1)?)?;
        }
        Ok(())
    }

    pub(super) fn pasted(&self, held: &mut BatchArray<T::Tensor>, cuts: &[Cut]) -> Result<()> {
        let before = self.replace_by_copy(held)?;
        if self.pasted_by_kernels(held, &before, cuts)? {
            return Ok(());
        }
        for cut in cuts {
            let from = self.rectangle(&before, cut.donor, cut.from)?;
            self.0.copy_(&self.rectangle(&held.array, cut.sample, cut.to)?, &from)?;
        }
        Ok(())
    }

    pub(super) fn mixed(
        &self,
        held: &mut BatchArray<T::Tensor>,
        partners: &[usize],
        shares: &[f64],
    ) -> Result<()> {
        let t = &self.0;
        let [samples, _, _, bands] = held.shape;
        let out = t.empty(&held.shape, held.element)?;
        let [_, rows, columns, _] = held.shape;
        let frame = Rectangle { x: 0, y: 0, width: columns, height: rows };
        let (mut mixing, mut copied) = (Vec::new(), Vec::new());
        for sample in 0..samples {
            let from = match Mixing::of(sample, partners[sample], shares[sample]) {
                Mixing::Own => sample,
                Mixing::Theirs => partners[sample],
                Mixing::Both => {
                    mixing.push(sample);
                    continue;
                }
            };
            copied.push(Cut { sample, to: frame, donor: from, from: frame });
        }
        let before = std::mem::replace(&mut held.array, out.clone());
        if !self.pasted_by_kernels(held, &before, &copied)? {
            for cut in &copied {
                t.copy_(&self.sample(&out, cut.sample)?, &self.sample(&before, cut.donor)?)?;
            }
        }
        for block in mixing.chunks(self.at_once(held, bands)) {
            let part = |share: &dyn Fn(f64) -> f64, who: Vec<usize>| {
                let shares: Vec<f64> = block.iter().map(|sample| share(shares[*sample])).collect();
                let shares = self.numbers(&shares, &[block.len(), 1, 1, 1], wide(held.element))?;
                t.binary(Binary::Mul, &self.part(&before, &who)?, &shares)
            };
            let original = part(&|share| 1.0 - share, block.to_vec())?;
            let other =
                part(&|share| share, block.iter().map(|sample| partners[*sample]).collect())?;
            self.change(&out, block, |target| {
                if held.element != wide(held.element) {
                    // Means of float16 and bfloat16 do not overflow in float32.
                    return t.binary_out(Binary::Add, target, &original, &other);
                }
                let sum = t.binary(Binary::Add, &original, &other)?;
                let most = held.element.greatest();
                let finite = |part| t.with(Binary::Le, &t.unary(Unary::Abs, part)?, most);
                let finite = t.binary(Binary::LogicalAnd, &finite(&original)?, &finite(&other)?)?;
                t.copy_(target, &t.r#where(&finite, &self.clamped(&sum, held.element)?, &sum)?)
            })?;
        }
        held.ours = true;
        Ok(())
    }
}
