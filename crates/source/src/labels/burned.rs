//! A mask of shapes. Rows are computed when they are read, so memory is that of the shapes.

use std::ops::Range;

use hsipack_format::{CubeShape, DType, Result};

use super::rasterize::Canvas;
use super::shapes::Labelled;
use crate::{Access, CubeInfo, RowBuffer, Source};

/// A mask of shapes; later ones cover earlier ones.
pub(super) struct Burned {
    /// Shape, classes and files.
    pub info: CubeInfo,
    /// The shapes in the order in which they are drawn.
    pub shapes: Vec<Labelled>,
    /// Whether shapes cover all pixels that they touch.
    pub all_touched: bool,
}

impl Source for Burned {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        (budget / self.info.row_bytes().max(1)).clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let CubeShape { rows: height, columns: width, .. } = self.info.shape;
        out.reset(DType::U16, rows.len() * width);
        let pixels = out.values_mut::<u16>();
        pixels.fill(0);
        let mut canvas = Canvas { height, width, rows: rows.clone(), pixels };
        let is_there =
            |shape_rows: &Range<usize>| shape_rows.start < rows.end && shape_rows.end > rows.start;
        for labelled in self.shapes.iter().filter(|labelled| is_there(&labelled.rows)) {
            canvas.burn(&labelled.shape, self.all_touched, labelled.id);
        }
        Ok(())
    }
}
