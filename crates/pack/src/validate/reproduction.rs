//! Gives the packed values of a sample together with those of its source, block by block.

use hsipack_format::{DType, Result, Sample};
use hsipack_source::{RowBuffer, Source};
use hsipack_store::Stack;
use hsipack_store::dataset::{ChunkArray, RowScratch};

use super::recipe::Recipe;
use crate::convert::CompanionReader;
use crate::convert::plan;
use crate::convert::transform::{Scratch, Transform};
use crate::input::Input;

/// A sample's source, opened in the same way as for packing.
pub struct Reproduction<'a> {
    /// The source.
    pub source: Box<dyn Source>,
    /// Computes the values that were packed, before the cast, from the source's stored numbers.
    pub transform: Transform,
    array: &'a ChunkArray,
    index: usize,
}

/// Some whole rows: the first row, the rows of the source, and the packed values.
pub struct Block<'a> {
    /// The first row.
    pub start: usize,
    /// The source's rows.
    pub rows: &'a RowBuffer,
    /// The packed values, little-endian, in (row, column, band) order.
    pub packed: &'a [u8],
}

/// Working memory, which is reused for the next sample.
#[derive(Default)]
pub struct Memory {
    rows: RowBuffer,
    /// Working memory of [`Transform::apply_f64`].
    pub scratch: Scratch,
    packed: Vec<u8>,
}

impl<'a> Reproduction<'a> {
    /// Opens `input`, the source of `sample`, with the options in `recipe`.
    ///
    /// # Errors
    /// If the source or its references cannot be opened.
    pub fn open(sample: &Sample, stack: &'a Stack, recipe: &Recipe, input: &Input) -> Result<Self> {
        let source = plan::open_source(input, &recipe.values)?;
        let info = source.info();
        let bands = plan::select_bands(info, &recipe.values)?;
        let scale = stack.image.scale_factor();
        let transform = plan::transform(input, info, bands, &recipe.values, scale)?;
        Ok(Self { source, transform, array: &stack.image, index: sample.index })
    }

    /// The same for the companion in `array`.
    pub fn of_companion(sample: &Sample, array: &'a ChunkArray, reader: CompanionReader) -> Self {
        let (source, transform) = reader.into_values(array.meta().dtype);
        Self { source, transform, array, index: sample.index }
    }

    /// Whether the source has as many rows, columns and bands as were packed.
    pub fn has_the_shape(&self) -> bool {
        let (info, shape) = (self.source.info(), self.array.shape());
        (info.shape.rows, info.shape.columns, self.transform.out_bands())
            == (shape.rows, shape.columns, shape.bands)
    }

    /// The type of the packed values.
    pub fn dtype(&self) -> DType {
        self.array.meta().dtype
    }

    /// The packed integer that stands for missing values.
    pub fn missing(&self) -> Option<f64> {
        self.array.meta().missing().map(|missing| missing as f64)
    }

    /// Passes all rows to `each`, which returns whether it wants more.
    ///
    /// # Errors
    /// If the source or the dataset cannot be read, or `each` fails.
    pub fn each_block(
        &self,
        memory: &mut Memory,
        each: &mut dyn FnMut(&Block, &mut Scratch) -> Result<bool>,
    ) -> Result<()> {
        let array = self.array;
        let (shape, slab) = (array.shape(), array.grid().tile().rows);
        let block = self.source.preferred_rows(64 << 20).div_ceil(slab) * slab;
        let mut scratch = RowScratch::default();
        for start in (0..shape.rows).step_by(block) {
            let rows = start..shape.rows.min(start + block);
            self.source.read_rows(rows.clone(), &mut memory.rows)?;
            memory.packed.resize(rows.len() * shape.row_values() * self.dtype().size(), 0);
            array.read_rows(self.index, rows, &mut scratch, &mut memory.packed)?;
            let block = Block { start, rows: &memory.rows, packed: &memory.packed };
            if !each(&block, &mut memory.scratch)? {
                break;
            }
        }
        Ok(())
    }
}
