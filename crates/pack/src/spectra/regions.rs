//! The regions in a cube's mask, and the pixels of each.

use std::ops::Range;

use hsipack_format::mask::{self, MAX_LAYERS};
use hsipack_format::{Command, Error, MaskValue, Result, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::memory;

use super::options::SpectraOptions;

/// The regions of one cube: classes of a mask, or its layers, which may overlap.
pub(super) struct Regions {
    /// Values of the mask, row by row.
    values: Vec<MaskValue>,
    columns: usize,
    /// Class ids, or numbers of layers, in ascending order.
    pub ids: Vec<u16>,
    /// Number of pixels of each region.
    pub pixels: Vec<u64>,
    /// The place of each id among `ids`.
    places: Places,
}

enum Places {
    /// By class id; `NONE` if the class is not a region.
    OfIds(Vec<u32>),
    /// Number and place of each layer that is a region.
    OfLayers(Vec<(u16, u32)>),
}

const NONE: u32 = u32::MAX;

impl Regions {
    /// The regions of the cube at `index`.
    ///
    /// # Errors
    /// If the mask cannot be read or is damaged, or class ids are neither uint8 nor uint16.
    pub(super) fn of(array: &ChunkArray, index: usize, options: &SpectraOptions) -> Result<Self> {
        let values = read(array, index)?;
        let layers = array.meta().mask_meaning().layers.len();
        let mut counts = match layers {
            0 => count_ids(&values),
            layers => count_layers(&values, layers.min(MAX_LAYERS)),
        };
        if layers == 0 && !options.background {
            counts[0] = 0;
        }
        for ignored in &options.ignore {
            if let Some(count) = counts.get_mut(*ignored as usize) {
                *count = 0;
            }
        }
        let least = options.min_pixels.max(1);
        let chosen: Vec<usize> = (0..counts.len()).filter(|id| counts[*id] >= least).collect();
        let ids: Vec<u16> = chosen.iter().map(|id| *id as u16).collect();
        let pixels = chosen.iter().map(|id| counts[*id]).collect();
        let places = match layers {
            0 => {
                let mut places = vec![NONE; counts.len()];
                (0..).zip(&chosen).for_each(|(region, id)| places[*id] = region);
                Places::OfIds(places)
            }
            _ => Places::OfLayers(ids.iter().copied().zip(0..).collect()),
        };
        Ok(Self { values, columns: array.shape().columns, ids, pixels, places })
    }

    /// Whether any pixel of these rows belongs to a region.
    pub(super) fn are_in(&self, rows: Range<usize>) -> bool {
        let values = &self.values[rows.start * self.columns..rows.end * self.columns];
        match &self.places {
            Places::OfIds(places) => values.iter().any(|id| places[*id as usize] != NONE),
            Places::OfLayers(layers) => {
                let any = layers.iter().fold(0, |any: MaskValue, (layer, _)| any | 1 << layer);
                values.iter().any(|bits| bits & any != 0)
            }
        }
    }

    /// Passes the place of each region of a pixel to `each`.
    pub(super) fn of_pixel(&self, row: usize, column: usize, mut each: impl FnMut(usize)) {
        let value = self.values[row * self.columns + column];
        match &self.places {
            Places::OfIds(places) => {
                let region = places[value as usize];
                if region != NONE {
                    each(region as usize);
                }
            }
            Places::OfLayers(layers) => {
                let of = layers.iter().filter(|(layer, _)| value >> layer & 1 == 1);
                of.for_each(|(_, region)| each(*region as usize));
            }
        }
    }
}

/// Reads the whole mask of a cube.
fn read(array: &ChunkArray, index: usize) -> Result<Vec<MaskValue>> {
    let dtype = array.meta().dtype;
    let is_wide = array.meta().mask_meaning().layers.is_empty() && dtype.size() > 2;
    if !mask::is_stored_as(dtype) || is_wide {
        return Err(Error::unsupported(format!("the mask has the type {dtype}"))
            .at(array.folder())
            .with_remedy(remedy!["pack the masks with ", Command::Convert]));
    }
    let mut bytes = memory::zeroed::<u8>(array.sample_bytes(), "a mask")?;
    array.read_sample(index, &mut bytes)?;
    let mut values = memory::reserved(array.shape().values(), "a mask")?;
    mask::read(dtype, &bytes, &mut values);
    Ok(values)
}

fn count_ids(values: &[MaskValue]) -> Vec<u64> {
    let greatest = values.iter().copied().max().unwrap_or(0);
    let mut counts = vec![0; greatest as usize + 1];
    values.iter().for_each(|id| counts[*id as usize] += 1);
    counts
}

fn count_layers(values: &[MaskValue], layers: usize) -> Vec<u64> {
    let of = |layer: usize| values.iter().filter(|bits| **bits >> layer & 1 == 1).count() as u64;
    (0..layers).map(of).collect()
}
