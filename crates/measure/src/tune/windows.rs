//! The cost of windows for each way to cut cubes into chunks, and what loaders would do about it.

use hsipack_format::{CubeShape, Grid, Tile};
use hsipack_read::plan::{BlockSize, chunks_touched};
use hsipack_store::memory;
use serde::Serialize;

use super::figures::Measured;

/// Sides of the tiles that are compared, in addition to whole rows.
const TILES: [usize; 4] = [16, 32, 64, 128];
/// With at least this many blocks at a time, the order is nearly that of a global shuffle.
const ENOUGH_BLOCKS: usize = 16;

/// Cost of windows of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Windows {
    /// Rows of a window.
    pub rows: u32,
    /// Columns of a window.
    pub columns: u32,
    /// Bytes of all cubes, decoded.
    pub all_bytes: u64,
    /// Bytes of memory that a loader with `cache="auto"` would use on this machine now: half of the
    /// free memory.
    pub memory_bytes: u64,
    /// Bytes of the shuffle window that the loader would use if not all cubes fit.
    pub shuffle_window_bytes: u64,
    /// Ways to cut cubes.
    pub layouts: Vec<Layout>,
    /// Index of the layout to choose.
    pub choice: usize,
}

/// A way to cut cubes into chunks. If cubes have several shapes, the first one is used.
#[derive(Clone, Debug, Serialize)]
pub struct Layout {
    /// The value for `convert --chunk`; `None` for the default.
    pub chunk: Option<String>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Mean number of chunks that a window touches.
    pub chunks_per_window: f64,
    /// Windows per second if no chunks are kept and every window decodes its own chunks.
    pub windows_per_s: f64,
    /// The choice of a loader with `cache="auto"`.
    pub auto: Auto,
}

/// How a loader handles windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Auto {
    /// Keep all chunks decoded: after the first epoch, windows are only copied.
    KeepAll,
    /// Hold a few blocks of cubes at a time.
    ShuffleWindow {
        /// Number of blocks held at a time.
        blocks: usize,
        /// Number of all blocks.
        of_blocks: usize,
        /// Number of times that a chunk is decoded per epoch.
        decoded: f64,
    },
    /// Neither fits into memory.
    DecodeEach,
}

impl Auto {
    /// Describes it in words.
    pub fn words(self) -> String {
        match self {
            Self::KeepAll => "keeps all chunks decoded".to_owned(),
            Self::ShuffleWindow { blocks, of_blocks, decoded } => {
                format!(
                    "shuffles {blocks} of {of_blocks} blocks, each chunk decoded {decoded:.2} times"
                )
            }
            Self::DecodeEach => "decodes for each window".to_owned(),
        }
    }
}

/// Facts about the cubes and the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub shape: CubeShape,
    pub cubes: usize,
    pub all_bytes: u64,
    /// Half of the free memory.
    pub memory: u64,
    pub shuffle_window: u64,
}

impl Facts {
    /// Facts with this machine's memory.
    pub(super) fn here(shape: CubeShape, cubes: usize, all_bytes: u64) -> Self {
        let memory = memory::available().map_or(0, |free| free.bytes / 2);
        let shuffle_window = memory::limit().map_or(0, hsipack_read::shuffle_window_bytes);
        Self { shape, cubes, all_bytes, memory, shuffle_window }
    }
}

/// Cost of windows of `size`. `rate` returns the decoding rate of chunks with this many bytes, in
/// bytes per second.
pub(super) fn reckon(
    facts: Facts,
    [rows, columns]: [u32; 2],
    rate: &dyn Fn(u64) -> f64,
) -> Windows {
    let shape = facts.shape;
    let value = 2;
    let tiles = TILES.iter().filter(|side| {
        **side >= rows.max(columns) as usize && **side < shape.rows.min(shape.columns)
    });
    let slab = |target: usize| Tile::slab(shape, value, target);
    let small = slab(256 << 10);
    let usual = slab(hsipack_format::grid::TARGET_CHUNK);
    let mut cuts = vec![(None, usual)];
    if small != usual {
        cuts.push((Some(small.rows.to_string()), small));
    }
    cuts.extend(
        tiles.map(|side| (Some(format!("{side}x{side}")), Tile { rows: *side, columns: *side })),
    );
    let layouts: Vec<Layout> = cuts
        .into_iter()
        .filter_map(|(chunk, tile)| layout(facts, [rows, columns], chunk, tile, rate))
        .collect();
    let choice = choose(&layouts);
    let Facts { all_bytes, memory, shuffle_window, .. } = facts;
    Windows {
        rows,
        columns,
        all_bytes,
        memory_bytes: memory,
        shuffle_window_bytes: shuffle_window,
        layouts,
        choice,
    }
}

fn layout(
    facts: Facts,
    [rows, columns]: [u32; 2],
    chunk: Option<String>,
    tile: Tile,
    rate: &dyn Fn(u64) -> f64,
) -> Option<Layout> {
    let grid = Grid::new(facts.shape, tile, 1).ok()?;
    let chunk_bytes = grid.chunk_values() as u64 * 2;
    let most = grid.chunks_per_sample() as f64;
    let touched = chunks_touched(&grid, (rows, columns)).min(most);
    let block = BlockSize::cut(&grid, (rows, columns));
    let of_blocks = block.count() * facts.cubes;
    let blocks = (facts.shuffle_window / 2).checked_div(block.chunks() * chunk_bytes);
    let blocks = blocks.map_or(0, |blocks| blocks as usize);
    let auto = match blocks {
        _ if facts.all_bytes <= facts.memory => Auto::KeepAll,
        0 => Auto::DecodeEach,
        blocks => Auto::ShuffleWindow {
            blocks: blocks.min(of_blocks),
            of_blocks,
            decoded: block.decoded(),
        },
    };
    let windows_per_s = rate(chunk_bytes) / (touched * chunk_bytes as f64);
    Some(Layout { chunk, chunk_bytes, chunks_per_window: touched, windows_per_s, auto })
}

/// Chooses a layout. It is the default, unless another one allows an order closer to a global
/// shuffle or, if nothing can be kept, is more than 20 % faster.
fn choose(layouts: &[Layout]) -> usize {
    let blocks = |layout: &Layout| match layout.auto {
        Auto::KeepAll => usize::MAX,
        Auto::ShuffleWindow { blocks, .. } => blocks.min(ENOUGH_BLOCKS),
        Auto::DecodeEach => 0,
    };
    let usual = &layouts[0];
    let better = |layout: &Layout| match (blocks(usual), blocks(layout)) {
        (0, 0) => layout.windows_per_s > 1.2 * usual.windows_per_s,
        (usual, other) => other > usual,
    };
    let rank = |at: &usize| {
        let layout = &layouts[*at];
        (blocks(layout), (layout.windows_per_s * 1e3) as u64)
    };
    (1..layouts.len()).filter(|at| better(&layouts[*at])).max_by_key(rank).unwrap_or(0)
}

/// The decoding rate for chunks of a given size: that of the candidate with the chosen codec whose
/// chunks are nearest in size.
pub(super) fn rate_of<'a>(
    tried: &'a [Measured],
    chosen: &'a Measured,
    cores: usize,
) -> impl Fn(u64) -> f64 + 'a {
    move |bytes| {
        let distance = |measured: &&Measured| {
            let ratio = measured.candidate.chunk_bytes as f64 / bytes as f64;
            (ratio.ln().abs() * 1e6) as u64
        };
        let same = tried.iter().filter(|measured| measured.name == chosen.name);
        let nearest = same.min_by_key(distance).unwrap_or(chosen);
        1e9 * nearest.decode_at(cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn facts(memory: u64) -> Facts {
        let shape = CubeShape::new(610, 340, 103);
        let all_bytes = 64 * 610 * 340 * 103 * 2;
        Facts { shape, cubes: 64, all_bytes, memory, shuffle_window: memory / 2 }
    }

    /// Small chunks decode a little slower.
    fn rate(bytes: u64) -> f64 {
        if bytes < 1 << 20 { 1.5e9 } else { 2e9 }
    }

    #[test]
    fn chunks_stay_as_they_are_if_everything_fits() {
        let windows = reckon(facts(8 * GIB), [9, 9], &rate);
        assert_eq!(windows.choice, 0);
        assert!(windows.layouts.iter().all(|layout| layout.auto == Auto::KeepAll));
        let usual = &windows.layouts[0];
        assert_eq!((usual.chunk.as_deref(), usual.chunk_bytes), (None, 61 * 340 * 103 * 2));
        // 8 window positions cross each of the 9 edges.
        assert!((usual.chunks_per_window - (1.0 + 72.0 / 610.0)).abs() < 1e-12);
        let each = usual.chunks_per_window * usual.chunk_bytes as f64;
        assert!((usual.windows_per_s * each / 2e9 - 1.0).abs() < 1e-12);
        let tile =
            windows.layouts.iter().find(|layout| layout.chunk.as_deref() == Some("32x32")).unwrap();
        assert_eq!(tile.chunk_bytes, 32 * 32 * 103 * 2);
        assert!((tile.chunks_per_window - 1.25 * 1.25).abs() < 0.03);
        assert!(tile.windows_per_s > 5.0 * usual.windows_per_s);
    }

    #[test]
    fn a_shuffle_window_of_enough_blocks_needs_no_other_chunks() {
        let windows = reckon(facts(2 * GIB), [9, 9], &rate);
        let Auto::ShuffleWindow { blocks, of_blocks, decoded } = windows.layouts[0].auto else {
            panic!("{windows:?}")
        };
        assert!(blocks >= ENOUGH_BLOCKS && of_blocks > 64 && decoded <= 1.2, "{windows:?}");
        assert_eq!(windows.choice, 0);
        // With less memory, tiles are chosen, because more of them fit.
        let less = reckon(facts(GIB / 8), [9, 9], &rate);
        assert_ne!(less.choice, 0, "{less:?}");
    }

    #[test]
    fn small_chunks_are_chosen_if_nothing_fits() {
        let windows = reckon(facts(0), [9, 9], &rate);
        assert!(windows.layouts.iter().all(|layout| layout.auto == Auto::DecodeEach));
        let best = &windows.layouts[windows.choice];
        assert!(windows.layouts.iter().all(|layout| layout.windows_per_s <= best.windows_per_s));
        assert_ne!(windows.choice, 0);
    }

    #[test]
    fn cubes_smaller_than_tiles_have_fewer_cuts() {
        let small = Facts { shape: CubeShape::new(20, 10, 5), ..facts(0) };
        let windows = reckon(small, [9, 9], &rate);
        assert_eq!(windows.layouts.len(), 1);
        assert_eq!(windows.choice, 0);
    }
}
