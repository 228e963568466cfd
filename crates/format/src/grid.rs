//! How a cube is cut into chunks and how cubes are gathered into shards.

use std::ops::Range;

use crate::{CubeShape, Error, Opt, Result, remedy};

/// Target size of an uncompressed chunk in bytes. It is large enough that a read and a task cost
/// little compared with decoding, and small enough that one cube keeps every thread busy.
pub const TARGET_CHUNK: usize = 2 << 20;
/// Target size of an uncompressed shard in bytes.
pub const TARGET_SHARD: usize = 512 << 20;

/// Rows × columns of a chunk; a chunk holds all bands of its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of a chunk.
    pub rows: usize,
    /// Columns of a chunk: the cube's width, unless the user tiled both axes.
    pub columns: usize,
}

impl Tile {
    /// Slabs of whole rows for cubes of `shape` with `value_size` bytes per value. The number of
    /// rows is the divisor of the cube's height that comes nearest to `target` bytes. If no divisor
    /// comes within a factor of four, it is the number of rows nearest to `target`, and the last
    /// slab overhangs.
    pub fn slab(shape: CubeShape, value_size: usize, target: usize) -> Self {
        let row = (shape.row_values() * value_size).max(1);
        let distance = |rows: &usize| ((rows * row) as f64 / target as f64).ln().abs();
        let best = (1..=shape.rows)
            .filter(|rows| shape.rows.is_multiple_of(*rows))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .unwrap_or(1);
        let ideal = (target / row).clamp(1, shape.rows.max(1));
        let rows = if distance(&best) <= distance(&ideal) + 4f64.ln() { best } else { ideal };
        Self { rows, columns: shape.columns }
    }
}

/// One chunk's place in its cube.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRegion {
    /// Rows of the cube, without overhang.
    pub rows: Range<usize>,
    /// Columns of the cube, without overhang.
    pub columns: Range<usize>,
}

/// The chunk grid of a stack of cubes of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    shape: CubeShape,
    tile: Tile,
    samples_per_shard: usize,
}

impl Grid {
    /// A grid of `tile` chunks over cubes of `shape`, with `samples_per_shard` cubes in each shard
    /// file.
    ///
    /// # Errors
    /// If an axis or the number of samples is zero, or the tile is larger than the cube.
    pub fn new(shape: CubeShape, tile: Tile, samples_per_shard: usize) -> Result<Self> {
        if shape.is_empty() || tile.rows == 0 || tile.columns == 0 || samples_per_shard == 0 {
            return Err(Error::malformed(format!(
                "a chunk grid over {shape} has an axis of length 0"
            )));
        }
        if tile.rows > shape.rows || tile.columns > shape.columns {
            return Err(Error::conflict(format!(
                "chunks of {}x{} pixels are larger than the cube of {}x{}",
                tile.rows, tile.columns, shape.rows, shape.columns
            ))
            .with_remedy(remedy!["choose a smaller ", Opt::Chunk]));
        }
        let grid = Self { shape, tile, samples_per_shard };
        grid.down()
            .checked_mul(grid.across())
            .and_then(|chunks| chunks.checked_mul(samples_per_shard))
            .and_then(|chunks| chunks.checked_mul(16))
            .ok_or_else(|| {
                Error::malformed(format!("a chunk grid over {shape} has too many chunks"))
            })?;
        Ok(grid)
    }

    /// The number of cubes that fit into `target` uncompressed bytes, at least one.
    pub fn samples_for(shape: CubeShape, value_size: usize, target: usize) -> usize {
        (target / (shape.values() * value_size).max(1)).max(1)
    }

    /// The same grid with at most `samples` cubes per shard.
    #[must_use]
    pub fn at_most_per_shard(self, samples: usize) -> Self {
        Self { samples_per_shard: self.samples_per_shard.min(samples.max(1)), ..self }
    }

    /// The cubes' shape.
    pub fn shape(&self) -> CubeShape {
        self.shape
    }

    /// Rows × columns of a chunk.
    pub fn tile(&self) -> Tile {
        self.tile
    }

    /// Cubes in a full shard.
    pub fn samples_per_shard(&self) -> usize {
        self.samples_per_shard
    }

    /// The number of chunks from top to bottom.
    pub fn down(&self) -> usize {
        self.shape.rows.div_ceil(self.tile.rows)
    }

    /// The number of chunks from left to right.
    pub fn across(&self) -> usize {
        self.shape.columns.div_ceil(self.tile.columns)
    }

    /// The number of chunks in one cube.
    pub fn chunks_per_sample(&self) -> usize {
        self.down() * self.across()
    }

    /// The number of entries in a shard's index.
    pub fn chunks_per_shard(&self) -> usize {
        self.chunks_per_sample() * self.samples_per_shard
    }

    /// The number of values in every stored chunk, including the overhang.
    pub fn chunk_values(&self) -> usize {
        self.tile.rows * self.tile.columns * self.shape.bands
    }

    /// The shard that holds sample `index`, and the number of the sample's first chunk in that
    /// shard.
    pub fn locate(&self, index: usize) -> (usize, usize) {
        (index / self.samples_per_shard, index % self.samples_per_shard * self.chunks_per_sample())
    }

    /// The region of the cube that chunk `chunk` covers. Chunks are numbered row by row.
    pub fn region(&self, chunk: usize) -> ChunkRegion {
        let (down, across) = (chunk / self.across(), chunk % self.across());
        let row = down * self.tile.rows;
        let column = across * self.tile.columns;
        ChunkRegion {
            rows: row..self.shape.rows.min(row + self.tile.rows),
            columns: column..self.shape.columns.min(column + self.tile.columns),
        }
    }

    /// The rows of chunks that contain rows `rows` of a cube.
    pub fn chunk_rows(&self, rows: &Range<usize>) -> Range<usize> {
        rows.start / self.tile.rows..rows.end.div_ceil(self.tile.rows)
    }

    /// The part of rows `rows` of a cube that is in row `down` of its chunks.
    pub fn rows_in(&self, down: usize, rows: &Range<usize>) -> Range<usize> {
        let first = down * self.tile.rows;
        first.max(rows.start)..(first + self.tile.rows).min(rows.end)
    }

    /// The chunks in row `down` of a cube's chunks that contain columns `columns`.
    pub fn chunks_in(&self, down: usize, columns: &Range<usize>) -> Range<usize> {
        let first = down * self.across();
        first + columns.start / self.tile.columns..first + columns.end.div_ceil(self.tile.columns)
    }

    /// Whether all chunks of a cube consist of whole rows and none overhangs. Then the decoded
    /// chunks, one after another, are the cube's (H, W, C) array.
    pub fn is_contiguous(&self) -> bool {
        self.tile.columns == self.shape.columns && self.shape.rows.is_multiple_of(self.tile.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slabs_are_divisors_near_the_target() {
        let slab = |h, w, c| Tile::slab(CubeShape::new(h, w, c), 2, TARGET_CHUNK).rows;
        assert_eq!(slab(480, 640, 100), 16); // 2.05 MB
        assert_eq!(slab(31, 43, 580), 31); // one chunk of 1.5 MB
        assert_eq!(slab(16, 16, 32), 16);
        assert_eq!(slab(1009, 1000, 200), 5); // a prime height: 2.0 MB with an overhang, not 0.4 MB
        assert_eq!(slab(1, 1600, 978), 1);
    }

    proptest! {
        #[test]
        fn regions_cover_a_cube_once(
            rows in 1usize..40, columns in 1usize..40, bands in 1usize..4, down in 1usize..40, across in 1usize..40
        ) {
            let tile = Tile { rows: down.min(rows), columns: across.min(columns) };
            let grid = Grid::new(CubeShape::new(rows, columns, bands), tile, 3).unwrap();
            let mut visits = vec![0; rows * columns];
            for chunk in 0..grid.chunks_per_sample() {
                let region = grid.region(chunk);
                for y in region.rows {
                    for x in region.columns.clone() {
                        visits[y * columns + x] += 1;
                    }
                }
            }
            prop_assert!(visits.iter().all(|count| *count == 1));
        }
    }
}
