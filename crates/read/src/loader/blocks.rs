//! Decides which blocks come together if the decoded chunks do not all fit into memory.

use crate::Result;
use crate::dataset::Dataset;
use crate::plan::{BlockSize, Crop, Order, Plan, ShuffleBlocks, chunks_touched};

/// Chunks are held if at least this many windows lie in each on average. With fewer, decoding the
/// chunks for each window costs little more.
const WORTH: f64 = 1.5;

/// The blocks of a plan, and how many come together.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    pub blocks: ShuffleBlocks,
    /// How many chunks are decoded in an epoch, for every chunk that there is.
    pub decoded: f64,
}

/// Why there are no blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoBlocks {
    /// In this order, windows cannot come in blocks.
    Order,
    /// Each chunk is needed about once anyway.
    NothingGained,
    /// One block is larger than half of the memory.
    TooLarge,
    /// All blocks fit at once.
    AllFit,
}

impl NoBlocks {
    /// As the end of a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Order => "windows cannot be read block by block in this order",
            Self::NothingGained => "windows hardly share chunks",
            Self::TooLarge => "one cube, or one block of a cube, is larger than half of it",
            Self::AllFit => "all blocks fit",
        }
    }
}

/// The number of band groups of each stack's images that have any of `bands`.
pub(super) fn groups_of(dataset: &Dataset, bands: Option<&[usize]>) -> Vec<usize> {
    dataset.stacks().iter().map(|stack| stack.image.grid().groups_of(bands)).collect()
}

/// Blocks for a plan that reads these bands. Two groups of blocks take at most `bytes` of decoded
/// images, because the next group is decoded while the windows of one come. The blocks depend on
/// nothing else, so that a training can go on elsewhere.
pub(super) fn cut(
    dataset: &Dataset,
    plan: &Plan,
    bands: Option<&[usize]>,
    bytes: u64,
) -> Result<Result<Cutting, NoBlocks>> {
    let options = plan.options();
    let cuts = match options.crop {
        Crop::Whole | Crop::Centre { .. } => return Ok(Err(NoBlocks::Order)),
        _ if options.order != Order::Shuffled => return Ok(Err(NoBlocks::Order)),
        Crop::Windows(_) => true,
        Crop::Random { .. } | Crop::Grid { .. } => false,
    };
    let mut blocks = Vec::new();
    let (mut largest, mut chunks, mut decoded, mut wanted) = (0, 0.0, 0.0, 0.0);
    let groups = groups_of(dataset, bands);
    // Each stack has one shape.
    let mut block_sizes: Vec<Option<BlockSize>> = vec![None; dataset.stacks().len()];
    for (sample, items) in plan.samples().iter().zip(plan.counts()) {
        let stack = dataset.stack_of(sample.sample)?;
        let image = dataset.image(stack);
        let size = plan.window_size(sample);
        let block = block_sizes[stack].get_or_insert_with(|| match cuts {
            true => BlockSize::cut(image.grid(), size),
            false => BlockSize::whole(image.grid()),
        });
        let grid = image.grid();
        let cube_chunks = (grid.down() * grid.across() * groups[stack]) as f64;
        chunks += cube_chunks;
        decoded += cube_chunks * block.decoded();
        wanted += f64::from(*items)
            * (chunks_touched(grid, size) * groups[stack] as f64).min(cube_chunks);
        let block_chunks = block.chunks() * groups[stack] as u64;
        largest = largest.max(block_chunks * image.chunks.chunk_bytes() as u64);
        blocks.extend(block.blocks(grid, sample.sample));
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
