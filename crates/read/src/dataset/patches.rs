//! Windows around the labelled pixels of masks.

use hsipack_format::{DType, Error, Opt, remedy};

use super::access::Cube;
use super::open::Dataset;
use crate::decode::is_damage;
use crate::plan::{LabelledPixels, Patches, Windows};
use crate::{OnDamage, Result};

impl Dataset {
    /// Windows around the pixels of these samples that the mask labels, in the order of the
    /// samples. If [`Patches::per_class`] limits their number, `seed` decides which are taken.
    /// Also the damage of samples that `on_damage` skips.
    ///
    /// # Errors
    /// If a stack has no such mask; if the mask cannot be read, is damaged, or holds boolean layers
    /// instead of class ids; if no pixel is left, or there are more than 2^32.
    pub fn windows_around_labels(
        &self,
        samples: &[usize],
        mask: &str,
        patches: &Patches,
        seed: u64,
        on_damage: OnDamage,
    ) -> Result<(Windows, Vec<Error>)> {
        let mut pixels = LabelledPixels::new(patches.clone());
        let mut skipped = Skipped::new(on_damage);
        for sample in samples {
            let Some(ids) = skipped.unless_damaged(self.class_ids(*sample, mask))? else {
                continue;
            };
            pixels.add(*sample, (ids.rows, ids.columns), ids.values)?;
        }
        skipped.beside(pixels.windows(seed).map_err(|error| error.at(self.path())))
    }

    /// The class ids of a sample's mask.
    ///
    /// # Errors
    /// If there is no such mask; if it cannot be read, is damaged, or holds boolean layers.
    pub(super) fn class_ids(&self, sample: usize, mask: &str) -> Result<ClassIds> {
        let stack = self.stack_of(sample)?;
        let layers = self.mask_layers(stack, mask);
        if !layers.is_empty() {
            return Err(Error::conflict(format!(
                "mask {mask} holds boolean layers ({}), where patches and regions need class ids",
                layers.join(", ")
            ))
            .at(self.path())
            .with_remedy(remedy!["choose another mask, or ", Opt::Crop]));
        }
        let labels = self.mask(sample, mask)?;
        let values = match labels.dtype {
            DType::U8 | DType::Bool => labels.bytes().iter().copied().map(u32::from).collect(),
            DType::U16 => wide(&labels, u16::from_le_bytes).collect(),
            DType::U32 => wide(&labels, u32::from_le_bytes).collect(),
            other => {
                return Err(Error::unsupported(format!("mask {mask} has the type {other}"))
                    .at(self.path())
                    .with_remedy("class ids must be uint8, uint16 or uint32"));
            }
        };
        let (rows, columns) = (labels.shape.rows as u32, labels.shape.columns as u32);
        Ok(ClassIds { rows, columns, values })
    }
}

/// The class ids of a cube's pixels, row by row.
pub(super) struct ClassIds {
    pub rows: u32,
    pub columns: u32,
    pub values: Vec<u32>,
}

/// The damage of samples that are skipped because their masks are damaged.
pub(super) struct Skipped {
    on_damage: OnDamage,
    damage: Vec<Error>,
}

impl Skipped {
    pub fn new(on_damage: OnDamage) -> Self {
        Self { on_damage, damage: Vec::new() }
    }

    /// The result of a read, or `None` if it is damaged and its sample is skipped.
    pub fn unless_damaged<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if self.on_damage == OnDamage::Skip && is_damage(&error) => {
                self.damage.push(error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// The windows and the damage. If there are no windows, the first damage may be why.
    pub fn beside(mut self, windows: Result<Windows>) -> Result<(Windows, Vec<Error>)> {
        match windows {
            Ok(windows) => Ok((windows, self.damage)),
            Err(_) if !self.damage.is_empty() => Err(self.damage.swap_remove(0)),
            Err(error) => Err(error),
        }
    }
}

/// The values of a mask, as 32-bit numbers.
fn wide<const N: usize, T: Into<u32>>(
    labels: &Cube,
    value: impl Fn([u8; N]) -> T,
) -> impl Iterator<Item = u32> {
    labels.bytes().as_chunks::<N>().0.iter().map(move |bytes| value(*bytes).into())
}
