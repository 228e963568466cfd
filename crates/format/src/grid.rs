//! How a cube is cut into chunks and how cubes are gathered into shards.

use std::ops::Range;

use crate::{CubeShape, Error, Opt, Result, remedy};

/// Target size of an uncompressed chunk in bytes. It is large enough that a read and a task cost
/// little compared with decoding, and small enough that one cube keeps every thread busy.
pub const TARGET_CHUNK: usize = 2 << 20;
/// Target size of an uncompressed chunk with one band group in bytes. While a cube is packed, all
/// groups of a row of chunks are in memory.
pub const TARGET_GROUP: usize = 512 << 10;
/// Target size of an uncompressed shard in bytes.
pub const TARGET_SHARD: usize = 512 << 20;

/// Rows × columns of a chunk.
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
    /// Bands of the cube, without overhang.
    pub bands: Range<usize>,
}

/// The chunk grid of a stack of cubes of one shape.
///
/// A chunk holds all bands of its pixels, or the bands of one *band group*: as many adjacent bands
/// as every other group has. The last group may have fewer; its chunks overhang, as those at the
/// lower and right edge of a cube do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    shape: CubeShape,
    tile: Tile,
    /// Bands of a chunk, and the number of such groups.
    band_group: usize,
    band_groups: usize,
    samples_per_shard: usize,
}

impl Grid {
    /// A grid of `tile` chunks over cubes of `shape`, with `samples_per_shard` cubes in each shard
    /// file. A chunk holds all bands of its pixels.
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
        let band_group = shape.bands;
        Self { shape, tile, band_group, band_groups: 1, samples_per_shard }.checked()
    }

    /// The same grid with chunks of `bands` bands, or of all bands if a cube has fewer.
    ///
    /// # Errors
    /// If `bands` is zero, or there would be too many chunks.
    pub fn in_band_groups(self, bands: usize) -> Result<Self> {
        if bands == 0 {
            return Err(Error::malformed("a chunk has no bands"));
        }
        let band_group = bands.min(self.shape.bands);
        let band_groups = self.shape.bands.div_ceil(band_group);
        Self { band_group, band_groups, ..self }.checked()
    }

    /// This grid, if its chunks can be counted.
    fn checked(self) -> Result<Self> {
        let chunks = [self.across(), self.band_groups, self.samples_per_shard, 16];
        match chunks.into_iter().try_fold(self.down(), usize::checked_mul) {
            Some(_) => Ok(self),
            None => Err(Error::malformed(format!(
                "a chunk grid over {} has too many chunks",
                self.shape
            ))),
        }
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

    /// Bands of a chunk, including the overhang: all bands of the cube, unless they are stored in
    /// groups.
    pub fn band_group(&self) -> usize {
        self.band_group
    }

    /// The number of band groups; 1 if chunks hold all bands.
    pub fn band_groups(&self) -> usize {
        self.band_groups
    }

    /// Whether band group `group` has any of `bands`. All groups have if it is `None`.
    fn has_any(&self, group: usize, bands: Option<&[usize]>) -> bool {
        // Windows ask this for every group, and a division for each band would take longer than copying their values.
        let of_group = group * self.band_group..(group + 1) * self.band_group;
        bands.is_none_or(|bands| bands.iter().any(|band| of_group.contains(band)))
    }

    /// The band groups that have any of `bands`; all groups if it is `None`.
    pub fn groups_with(&self, bands: Option<&[usize]>) -> impl Iterator<Item = usize> {
        (0..self.band_groups).filter(move |group| self.has_any(*group, bands))
    }

    /// The number of band groups that have any of `bands`; all groups if it is `None`.
    pub fn groups_of(&self, bands: Option<&[usize]>) -> usize {
        self.groups_with(bands).count()
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
        self.down() * self.across() * self.band_groups
    }

    /// The number of chunks in one cube that have any of `bands`; of all chunks if it is `None`.
    pub fn chunks_with(&self, bands: Option<&[usize]>) -> usize {
        self.down() * self.across() * self.groups_of(bands)
    }

    /// The number of chunks in one row of a cube's chunks.
    pub fn chunks_per_row(&self) -> usize {
        self.across() * self.band_groups
    }

    /// The number of entries in a shard's index.
    pub fn chunks_per_shard(&self) -> usize {
        self.chunks_per_sample() * self.samples_per_shard
    }

    /// The number of values in every stored chunk, including the overhang.
    pub fn chunk_values(&self) -> usize {
        self.tile.rows * self.tile.columns * self.band_group
    }

    /// The shard that holds sample `index`, and the number of the sample's first chunk in that
    /// shard.
    pub fn locate(&self, index: usize) -> (usize, usize) {
        (index / self.samples_per_shard, index % self.samples_per_shard * self.chunks_per_sample())
    }

    /// The region of the cube that chunk `chunk` covers. Chunks are numbered row by row, from left
    /// to right, and by their bands.
    pub fn region(&self, chunk: usize) -> ChunkRegion {
        let (chunk, group) = (chunk / self.band_groups, chunk % self.band_groups);
        let (down, across) = (chunk / self.across(), chunk % self.across());
        let part = |number: usize, size: usize, length: usize| {
            number * size..length.min((number + 1) * size)
        };
        ChunkRegion {
            rows: part(down, self.tile.rows, self.shape.rows),
            columns: part(across, self.tile.columns, self.shape.columns),
            bands: part(group, self.band_group, self.shape.bands),
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

    /// The chunks in row `down` of a cube's chunks that contain columns `columns` and any of
    /// `bands`; all bands if it is `None`.
    pub fn chunks_in<'b>(
        &self,
        down: usize,
        columns: &Range<usize>,
        bands: Option<&'b [usize]>,
    ) -> impl Iterator<Item = usize> + use<'b> {
        let (grid, groups) = (*self, self.band_groups);
        let first = down * self.across();
        let start = first + columns.start / self.tile.columns;
        let end = first + columns.end.div_ceil(self.tile.columns);
        let chunks = start * groups..end * groups;
        chunks.filter(move |chunk| groups == 1 || grid.has_any(chunk % groups, bands))
    }

    /// Whether all chunks of a cube consist of whole rows with all bands and none overhangs. Then
    /// the decoded chunks, one after another, are the cube's (H, W, C) array.
    pub fn is_contiguous(&self) -> bool {
        self.tile.columns == self.shape.columns
            && self.band_groups == 1
            && self.shape.rows.is_multiple_of(self.tile.rows)
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
            rows in 1usize..40, columns in 1usize..40, bands in 1usize..9, down in 1usize..40, across in 1usize..40,
            group in 1usize..12
        ) {
            let tile = Tile { rows: down.min(rows), columns: across.min(columns) };
            let shape = CubeShape::new(rows, columns, bands);
            let grid = Grid::new(shape, tile, 3).unwrap().in_band_groups(group).unwrap();
            let mut visits = vec![0; shape.values()];
            for chunk in 0..grid.chunks_per_sample() {
                let region = grid.region(chunk);
                for y in region.rows {
                    for x in region.columns.clone() {
                        for band in region.bands.clone() {
                            visits[(y * columns + x) * bands + band] += 1;
                        }
                    }
                }
            }
            prop_assert!(visits.iter().all(|count| *count == 1));
        }

        #[test]
        fn chunks_are_found_by_their_columns_and_bands(
            (width, tile) in (1usize..40, 1usize..40), (bands, group) in (1usize..20, 1usize..24),
            at in any::<[prop::sample::Index; 2]>(),
            chosen in prop::option::of(prop::collection::vec(any::<prop::sample::Index>(), 1..5))
        ) {
            let shape = CubeShape::new(4, width, bands);
            let grid = Grid::new(shape, Tile { rows: 2, columns: tile.min(width) }, 1).unwrap();
            let grid = grid.in_band_groups(group).unwrap();
            let start = at[0].index(width);
            let columns = start..start + at[1].index(width - start) + 1;
            let chosen: Option<Vec<usize>> =
                chosen.map(|list| list.iter().map(|band| band.index(bands)).collect());
            let wanted = |chunk: &usize| {
                let region = grid.region(*chunk);
                let meets = region.columns.start < columns.end && columns.start < region.columns.end;
                let is_chosen = |chosen: &Vec<usize>| chosen.iter().any(|band| region.bands.contains(band));
                region.rows.start == 2 && meets && chosen.as_ref().is_none_or(is_chosen)
            };
            let want: Vec<usize> = (0..grid.chunks_per_sample()).filter(wanted).collect();
            let found: Vec<usize> = grid.chunks_in(1, &columns, chosen.as_deref()).collect();
            prop_assert_eq!(found, want.clone());
            let across = columns.end.div_ceil(grid.tile().columns) - columns.start / grid.tile().columns;
            prop_assert_eq!(grid.groups_of(chosen.as_deref()) * across, want.len());
        }
    }
}
