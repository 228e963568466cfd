//! Into which blocks cubes are cut whose windows come together, where not all chunks fit into memory decoded.
//!
//! A window that begins in one block may reach into the next, whose chunks there are decoded for both. So blocks are so
//! large that this is little, and otherwise as small as can be: the more of them come together, the better the order.

use std::ops::Range;

use hsipack_format::Grid;

use crate::Result;
use crate::dataset::Dataset;
use crate::plan::{Block, Crop, Order, Plan, ShuffleBlocks};

/// Chunks decoded an epoch, for every chunk that there is.
const MOST_DECODED: f64 = 1.2;
/// Windows of a chunk from which on it is worth holding: with fewer, decoding each for itself costs little more.
const WORTH: f64 = 1.5;

/// The blocks of a plan, and how many come together.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    pub blocks: ShuffleBlocks,
    /// Chunks decoded an epoch, for every chunk that there is.
    pub decoded: f64,
}

/// Why there are no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBlocks {
    /// The order is none in which windows may come in blocks.
    Order,
    /// Each chunk is wanted about once anyway.
    NothingGained,
    /// One block is larger than half of the memory.
    TooLarge,
    /// All of them fit at once.
    AllFit,
}

impl NoBlocks {
    /// As the end of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Order => "in this order windows cannot come block by block",
            Self::NothingGained => "windows hardly share chunks",
            Self::TooLarge => "one cube, or block of one, is larger than half of it",
            Self::AllFit => "all blocks fit",
        }
    }
}

/// Blocks for a plan, two groups of which take at most `bytes` of images decoded: while the windows of one come, the next is
/// decoded. They depend on nothing else, so that a training can go on elsewhere.
pub(super) fn cut(dataset: &Dataset, plan: &Plan, bytes: u64) -> Result<Result<Cutting, NoBlocks>> {
    let options = plan.options();
    let cuts = match options.crop {
        Crop::Whole | Crop::Centre { .. } => return Ok(Err(NoBlocks::Order)),
        _ if options.order != Order::Shuffled => return Ok(Err(NoBlocks::Order)),
        Crop::Windows(_) => true,
        Crop::Random { .. } | Crop::Grid { .. } => false,
    };
    let mut blocks = Vec::new();
    let (mut largest, mut chunks, mut decoded, mut wanted) = (0, 0.0, 0.0, 0.0);
    // Stacks of one shape each.
    let mut known: Vec<Option<Axes>> = vec![None; dataset.stacks().len()];
    for (sample, items) in plan.samples().iter().zip(plan.counts()) {
        let stack = dataset.stack_of(sample.sample)?;
        let image = dataset.image(stack);
        let size = plan.window_size(sample);
        let axes = known[stack].get_or_insert_with(|| match cuts {
            true => Axes::cut(image.grid(), size),
            false => Axes::whole(image.grid()),
        });
        let own = image.grid().chunks_per_sample() as f64;
        chunks += own;
        decoded += own * axes.decoded();
        wanted += f64::from(*items) * touched(image.grid(), size).min(own);
        largest = largest.max(axes.largest() * image.chunks.chunk_bytes() as u64);
        blocks.extend(axes.blocks(image.grid(), sample.sample));
    }
    let together = (bytes / 2).checked_div(largest).unwrap_or(0) as usize;
    Ok(if wanted < WORTH * chunks {
        Err(NoBlocks::NothingGained)
    } else if together == 0 {
        Err(NoBlocks::TooLarge)
    } else if together >= blocks.len() {
        Err(NoBlocks::AllFit)
    } else {
        let blocks = ShuffleBlocks { blocks, together };
        Ok(Cutting { blocks, decoded: decoded / chunks })
    })
}

/// Chunks that a window lies in, on average.
fn touched(grid: &Grid, (rows, columns): (u32, u32)) -> f64 {
    let along = |size: u32, chunk: usize| 1.0 + f64::from(size - 1) / chunk as f64;
    along(rows, grid.tile().rows) * along(columns, grid.tile().columns)
}

/// How cubes of one shape are cut, down and across.
#[derive(Clone, Copy, Debug)]
struct Axes {
    down: Axis,
    across: Axis,
}

/// How one axis is cut.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// Chunks.
    chunks: usize,
    /// Parts, of nearly the same number of chunks.
    parts: usize,
    /// Chunks of the next part that windows reach into.
    halo: usize,
}

impl Axis {
    /// `size` pixels of windows, chunks of `chunk`.
    fn new(chunks: usize, chunk: usize, size: u32) -> Self {
        Self { chunks, parts: 1, halo: (size as usize - 1).div_ceil(chunk) }
    }

    /// Parts of at most so many chunks each.
    fn in_parts_of(self, chunks: usize) -> Self {
        Self { parts: self.chunks.div_ceil(chunks), ..self }
    }

    /// Chunks decoded, for every chunk that there is.
    fn decoded(self) -> f64 {
        let again = (self.parts - 1) * self.halo.min(self.chunks);
        1.0 + again as f64 / self.chunks as f64
    }

    /// Chunks of the largest part, with those that its windows reach into.
    fn largest(self) -> usize {
        (self.chunks.div_ceil(self.parts) + self.halo).min(self.chunks)
    }

    /// Chunks of a part.
    fn part(self, part: usize) -> Range<usize> {
        part * self.chunks / self.parts..(part + 1) * self.chunks / self.parts
    }
}

impl Axes {
    fn whole(grid: &Grid) -> Self {
        let axis = |chunks| Axis { chunks, parts: 1, halo: 0 };
        Self { down: axis(grid.down()), across: axis(grid.across()) }
    }

    /// The least blocks of which few chunks are decoded more than once.
    fn cut(grid: &Grid, (rows, columns): (u32, u32)) -> Self {
        let down = Axis::new(grid.down(), grid.tile().rows, rows);
        let across = Axis::new(grid.across(), grid.tile().columns, columns);
        let mut best = Self { down, across };
        for tall in 1..=down.chunks {
            let down = down.in_parts_of(tall);
            if down.decoded() > MOST_DECODED {
                continue;
            }
            // The narrowest that go with it.
            let fits = |wide: &usize| {
                Self { down, across: across.in_parts_of(*wide) }.decoded() <= MOST_DECODED
            };
            let narrowest = (1..=across.chunks).find(fits).unwrap_or(across.chunks);
            let axes = Self { down, across: across.in_parts_of(narrowest) };
            if axes.largest() < best.largest() {
                best = axes;
            }
        }
        best
    }

    fn decoded(self) -> f64 {
        self.down.decoded() * self.across.decoded()
    }

    /// Chunks of the largest block.
    fn largest(self) -> u64 {
        (self.down.largest() * self.across.largest()) as u64
    }

    fn blocks(self, grid: &Grid, sample: usize) -> impl Iterator<Item = Block> {
        let pixels = |chunks: Range<usize>, chunk: usize, length: usize| {
            (chunks.start * chunk) as u32..(chunks.end * chunk).min(length) as u32
        };
        let (tile, shape) = (grid.tile(), grid.shape());
        (0..self.down.parts).flat_map(move |down| {
            (0..self.across.parts).map(move |across| Block {
                sample,
                rows: pixels(self.down.part(down), tile.rows, shape.rows),
                columns: pixels(self.across.part(across), tile.columns, shape.columns),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, Tile};

    use super::*;

    fn axes((rows, columns): (usize, usize), tile: (usize, usize), size: u32) -> (Grid, Axes) {
        let tile = Tile { rows: tile.0, columns: tile.1 };
        let grid = Grid::new(CubeShape::new(rows, columns, 10), tile, 1).unwrap();
        let axes = Axes::cut(&grid, (size, size));
        (grid, axes)
    }

    #[test]
    fn few_chunks_are_decoded_twice() {
        for (shape, tile, size, most) in [
            ((610, 340), (30, 340), 9, 6),
            ((610, 340), (30, 340), 1, 1),
            ((480, 640), (16, 640), 64, 30),
            ((4000, 4000), (64, 64), 9, 130),
            ((4000, 4000), (64, 64), 129, 600),
        ] {
            let (grid, axes) = axes(shape, tile, size);
            let blocks: Vec<Block> = axes.blocks(&grid, 7).collect();
            let area: u64 = blocks
                .iter()
                .map(|block| block.rows.len() as u64 * block.columns.len() as u64)
                .sum();
            assert_eq!(area, (shape.0 * shape.1) as u64);
            // Counted one by one: every chunk that a window of a block may touch.
            let chunks = |range: &Range<u32>, tile: usize, length: usize| {
                let end = (range.end as usize - 1 + size as usize).min(length);
                end.div_ceil(tile) - range.start as usize / tile
            };
            let of = |block: &Block| {
                chunks(&block.rows, tile.0, shape.0) * chunks(&block.columns, tile.1, shape.1)
            };
            let decoded: usize = blocks.iter().map(of).sum();
            let share = decoded as f64 / grid.chunks_per_sample() as f64;
            assert!(share <= MOST_DECODED && share <= axes.decoded() + 1e-9, "{shape:?}: {share}");
            let largest = blocks.iter().map(of).max().unwrap();
            assert!(largest <= axes.largest() as usize && largest <= most, "{shape:?}: {largest}");
        }
    }
}
