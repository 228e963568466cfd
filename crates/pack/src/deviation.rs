//! How much packing changed the values of one cube: compares the packed values with those of its
//! source.

use std::path::Path;

use hsipack_format::{Error, Result, Sample};
use hsipack_store::Dataset;
use serde::Serialize;

use crate::convert::integers;
use crate::fingerprint::fingerprint;
use crate::validate::recipe;
use crate::validate::reproduction::{Memory, Reproduction};

/// The deviation of the values of a band, in physical units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BandDeviation {
    /// The greatest deviation.
    pub max_abs: f64,
    /// The mean deviation.
    pub mean_abs: f64,
    /// The greatest relative deviation, over values that are not 0.
    pub max_rel: f64,
    /// Number of values that were compared: those that are finite in both.
    pub count: u64,
}

/// The deviation of the values of a cube.
#[derive(Clone, Debug, Serialize)]
pub struct Deviation {
    /// One entry for each band.
    pub bands: Vec<BandDeviation>,
    /// Whether the source's files have changed since they were packed.
    pub source_changed: bool,
    /// A value for each pixel, row by row. For [`Quantity::Band`]: the packed value minus the
    /// source's value. For [`Quantity::Spectrum`]: the norm of the difference of the two spectra,
    /// divided by the norm of the source's spectrum. NaN where a value is missing.
    #[serde(skip)]
    pub map: Vec<f32>,
}

/// Quantity on the map of a [`Deviation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// One band, counted from 0.
    Band(usize),
    /// All bands together.
    Spectrum,
}

/// Compares a sample with its source. The source is searched for as `validate --source` does: at
/// its recorded path, in `root`, and beside the dataset. `go_on` is called repeatedly, and stops
/// the comparison by returning an error.
///
/// # Errors
/// If the source is missing, has another shape or cannot be read, the dataset does not record how
/// it was made, or `go_on` fails.
pub fn of_sample(
    dataset: &Dataset,
    sample: &Sample,
    root: Option<&Path>,
    of: Quantity,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Deviation> {
    let recipes = recipe::read(dataset)?;
    let recipe = recipe::of(&recipes, sample.id)
        .ok_or_else(|| Error::damaged("the dataset does not record how this sample was made"))?;
    let stack = dataset
        .stack(&sample.stack)
        .ok_or_else(|| Error::damaged(format!("there is no stack {}", sample.stack)))?;
    let input = recipe::locate(sample, dataset.path(), root)?;
    let both = Reproduction::open(sample, stack, recipe, &input)?;
    if !both.has_the_shape() {
        let shape = both.source.info().shape;
        return Err(Error::conflict(format!("the source now has the shape {shape}"))
            .at(&input.file)
            .with_remedy("pack it again"));
    }
    let shape = stack.image.shape();
    let (scaling, dtype, width) = (stack.image.scaling(), both.dtype(), shape.bands);
    let mut bands = vec![Sums::default(); width];
    let mut map = Vec::with_capacity(shape.rows * shape.columns);
    let mut packed = Vec::with_capacity(width);
    both.each_block(&mut Memory::default(), &mut |block, scratch| {
        go_on()?;
        let mut stored = block.packed.chunks_exact(width * dtype.size());
        both.transform.apply_f64(block.rows, block.start, scratch, &mut |_, values| {
            for spectrum in values.chunks_exact(width) {
                let bytes = stored.next().expect("as many pixels are packed");
                integers::read(bytes, dtype, &mut packed);
                packed.iter_mut().for_each(|value| *value = scaling.physical(*value));
                let original = |band: usize| scaling.physical(spectrum[band]);
                for (band, sums) in bands.iter_mut().enumerate() {
                    sums.add(original(band), packed[band]);
                }
                map.push(match of {
                    Quantity::Band(band) => packed[band] - original(band),
                    Quantity::Spectrum => relative((0..width).map(original), &packed),
                } as f32);
            }
            Ok(())
        })?;
        Ok(true)
    })?;
    let source_changed = fingerprint(&both.source.info().files)?.1 != sample.source.fingerprint;
    let bands = bands.iter().map(Sums::deviation).collect();
    Ok(Deviation { bands, source_changed, map })
}

/// The norm of the difference of two spectra, divided by the norm of the first.
fn relative(original: impl Iterator<Item = f64>, packed: &[f64]) -> f64 {
    let (mut difference, mut length) = (0.0, 0.0);
    for (original, packed) in original.zip(packed) {
        difference += (packed - original).powi(2);
        length += original.powi(2);
    }
    if difference == 0.0 { 0.0 } else { (difference / length).sqrt() }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    sum: f64,
    max_abs: f64,
    max_rel: f64,
}

impl Sums {
    fn add(&mut self, original: f64, packed: f64) {
        let difference = (packed - original).abs();
        if !difference.is_finite() {
            return;
        }
        self.count += 1;
        self.sum += difference;
        self.max_abs = self.max_abs.max(difference);
        if original != 0.0 {
            self.max_rel = self.max_rel.max(difference / original.abs());
        }
    }

    fn deviation(&self) -> BandDeviation {
        let Self { count, sum, max_abs, max_rel } = *self;
        let mean_abs = if count == 0 { 0.0 } else { sum / count as f64 };
        BandDeviation { max_abs, mean_abs, max_rel, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_values_are_not_compared() {
        let mut sums = Sums::default();
        for (original, packed) in
            [(1.0, 1.5), (0.0, 0.25), (f64::NAN, f64::NAN), (1.0, f64::INFINITY), (-4.0, -4.0)]
        {
            sums.add(original, packed);
        }
        let found = sums.deviation();
        assert_eq!(found, BandDeviation { max_abs: 0.5, mean_abs: 0.25, max_rel: 0.5, count: 3 });
        assert_eq!(Sums::default().deviation(), BandDeviation::default());
    }

    #[test]
    fn spectra_differ_by_the_length_of_their_difference() {
        assert_eq!(relative([3.0, 4.0].into_iter(), &[3.0, 5.0]), 0.2);
        assert_eq!(relative([0.0, 0.0].into_iter(), &[0.0, 0.0]), 0.0);
        assert!(relative([f64::NAN, 1.0].into_iter(), &[f64::NAN, 1.0]).is_nan());
    }
}
