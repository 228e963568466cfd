//! How cubes of one shape are cut into blocks. The windows of a block come together.
//!
//! A window that begins in one block may reach into the next one, and the chunks there are then
//! decoded for both blocks. So blocks are large enough to keep this small, and otherwise as small
//! as possible: the more blocks come together, the better the order.

use std::ops::Range;

use hsipack_format::Grid;

use super::blocks::Block;

/// The most chunks that are decoded in an epoch, for every chunk that there is.
const MAX_DECODES_PER_CHUNK: f64 = 1.2;

/// How many chunks a window of `rows` × `columns` lies in, on average over all pixels that it may
/// be centred on.
pub fn chunks_touched(grid: &Grid, (rows, columns): (u32, u32)) -> f64 {
    // At each edge between two chunks, the windows with pixels on both sides reach over it: `size` - 1 of them.
    let along = |size: u32, chunks: usize, length: usize| {
        1.0 + (chunks - 1) as f64 * f64::from(size - 1) / length as f64
    };
    let shape = grid.shape();
    along(rows, grid.down(), shape.rows) * along(columns, grid.across(), shape.columns)
}

/// How cubes of one shape are cut, down and across.
#[derive(Clone, Copy, Debug)]
pub struct BlockSize {
    down: Axis,
    across: Axis,
}

/// How one axis is cut.
#[derive(Clone, Copy, Debug)]
struct Axis {
    /// Number of chunks.
    chunks: usize,
    /// Number of parts, all of nearly the same number of chunks.
    parts: usize,
    /// Number of chunks of the next part that windows reach into.
    halo: usize,
}

impl Axis {
    /// An axis in one part, for windows of `size` pixels and chunks of `chunk` pixels.
    fn new(chunks: usize, chunk: usize, size: u32) -> Self {
        Self { chunks, parts: 1, halo: (size as usize - 1).div_ceil(chunk) }
    }

    /// The same axis in parts of at most this many chunks each.
    fn in_parts_of(self, chunks: usize) -> Self {
        Self { parts: self.chunks.div_ceil(chunks), ..self }
    }

    /// How many chunks are decoded, for every chunk that there is.
    fn decoded(self) -> f64 {
        let again = (self.parts - 1) * self.halo.min(self.chunks);
        1.0 + again as f64 / self.chunks as f64
    }

    /// Number of chunks of the largest part, with those that its windows reach into.
    fn largest(self) -> usize {
        (self.chunks.div_ceil(self.parts) + self.halo).min(self.chunks)
    }

    /// The chunks of a part.
    fn part(self, part: usize) -> Range<usize> {
        part * self.chunks / self.parts..(part + 1) * self.chunks / self.parts
    }
}

impl BlockSize {
    /// Blocks that are whole cubes.
    pub fn whole(grid: &Grid) -> Self {
        let axis = |chunks| Axis { chunks, parts: 1, halo: 0 };
        Self { down: axis(grid.down()), across: axis(grid.across()) }
    }

    /// The smallest blocks with which few chunks are decoded more than once, for windows of `rows`
    /// × `columns`.
    pub fn cut(grid: &Grid, (rows, columns): (u32, u32)) -> Self {
        let down = Axis::new(grid.down(), grid.tile().rows, rows);
        let across = Axis::new(grid.across(), grid.tile().columns, columns);
        let mut best = Self { down, across };
        for tall in 1..=down.chunks {
            let down = down.in_parts_of(tall);
            if down.decoded() > MAX_DECODES_PER_CHUNK {
                continue;
            }
            // The narrowest blocks of this height.
            let fits = |wide: &usize| {
                Self { down, across: across.in_parts_of(*wide) }.decoded() <= MAX_DECODES_PER_CHUNK
            };
            let narrowest = (1..=across.chunks).find(fits).unwrap_or(across.chunks);
            let axes = Self { down, across: across.in_parts_of(narrowest) };
            if axes.chunks() < best.chunks() {
                best = axes;
            }
        }
        best
    }

    /// How often a chunk is decoded in an epoch, on average.
    pub fn decoded(self) -> f64 {
        self.down.decoded() * self.across.decoded()
    }

    /// Number of chunks of the largest block, with those that its windows reach into.
    pub fn chunks(self) -> u64 {
        (self.down.largest() * self.across.largest()) as u64
    }

    /// Number of blocks in a cube.
    pub fn count(self) -> usize {
        self.down.parts * self.across.parts
    }

    /// The blocks of a sample's cube that has this grid.
    pub fn blocks(self, grid: &Grid, sample: usize) -> impl Iterator<Item = Block> {
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

    fn size_of(
        (rows, columns): (usize, usize),
        tile: (usize, usize),
        size: u32,
    ) -> (Grid, BlockSize) {
        let tile = Tile { rows: tile.0, columns: tile.1 };
        let grid = Grid::new(CubeShape::new(rows, columns, 10), tile, 1).unwrap();
        let block = BlockSize::cut(&grid, (size, size));
        (grid, block)
    }

    #[test]
    fn chunks_that_windows_lie_in_are_counted() {
        for (shape, tile, size) in
            [((61, 34), (10, 34), 9), ((40, 40), (8, 8), 5), ((30, 20), (30, 20), 4)]
        {
            let (grid, _) = size_of(shape, tile, size);
            let along = |length: usize, tile: usize| -> f64 {
                let half = i64::from(size / 2);
                let touched = |centre: i64| {
                    let first = (centre - half).max(0) as usize;
                    let last = (centre - half + i64::from(size) - 1).min(length as i64 - 1);
                    last as usize / tile - first / tile + 1
                };
                (0..length as i64).map(touched).sum::<usize>() as f64 / length as f64
            };
            let want = along(shape.0, tile.0) * along(shape.1, tile.1);
            let have = chunks_touched(&grid, (size, size));
            // Fewer windows reach a last chunk of one pixel.
            assert!((have / want - 1.0).abs() < 0.03, "{shape:?}: {have} {want}");
        }
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
            let (grid, cut) = size_of(shape, tile, size);
            let blocks: Vec<Block> = cut.blocks(&grid, 7).collect();
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
            assert!(
                share <= MAX_DECODES_PER_CHUNK && share <= cut.decoded() + 1e-9,
                "{shape:?}: {share}"
            );
            let largest = blocks.iter().map(of).max().unwrap();
            assert!(largest <= cut.chunks() as usize && largest <= most, "{shape:?}: {largest}");
        }
    }
}
