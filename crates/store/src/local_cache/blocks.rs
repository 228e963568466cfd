//! Divides a shard into blocks.

use std::ops::Range;

/// Maximum size in bytes of a block with more than one chunk. It is the size of one request.
const MAX_BLOCK_BYTES: u64 = 4 << 20;
/// Cubes smaller than this (in bytes) share a block: one file for each mask would be too many.
const LEAST: u64 = 512 << 10;

/// The blocks of a shard, in order of their positions. `chunks` are the positions of its chunks,
/// `per_sample` for each cube. Each block holds whole chunks of one cube, or several whole cubes if
/// they are small. Empty chunks are in no block.
pub(super) fn cut(chunks: &[Option<Range<u64>>], per_sample: usize) -> Vec<Range<u64>> {
    let mut blocks: Vec<Range<u64>> = Vec::new();
    // Whether the next cube may be added to the last block.
    let mut open = false;
    for cube in chunks.chunks(per_sample.max(1)) {
        let mut spans: Vec<Range<u64>> =
            cube.iter().flatten().filter(|span| span.start < span.end).cloned().collect();
        spans.sort_unstable_by_key(|span| span.start);
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { continue };
        let extent = last.end - first.start;
        if let Some(block) = blocks.last_mut().filter(|_| open)
            && first.start >= block.end
            && last.end - block.start <= LEAST
        {
            block.end = last.end;
            continue;
        }
        open = extent <= LEAST;
        let mut piece: Option<Range<u64>> = None;
        for span in spans {
            piece = match piece {
                Some(piece) if span.start < piece.end => {
                    // hsipack never writes overlapping chunks.
                    Some(piece.start..piece.end.max(span.end))
                }
                Some(piece) if span.end - piece.start <= MAX_BLOCK_BYTES => {
                    Some(piece.start..span.end)
                }
                Some(piece) => {
                    blocks.push(piece);
                    Some(span)
                }
                None => Some(span),
            };
        }
        blocks.extend(piece);
    }
    blocks.sort_unstable_by_key(|block| block.start);
    join_overlapping(blocks)
}

fn join_overlapping(blocks: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(blocks.len());
    for block in blocks {
        match joined.last_mut() {
            Some(last) if block.start < last.end => last.end = last.end.max(block.end),
            _ => joined.push(block),
        }
    }
    joined
}

/// The block that contains `span`.
pub(super) fn holding(blocks: &[Range<u64>], span: &Range<u64>) -> Option<usize> {
    let index = blocks.partition_point(|block| block.start <= span.start).checked_sub(1)?;
    (span.end <= blocks[index].end).then_some(index)
}

/// The blocks that overlap `span`.
pub(super) fn touched(blocks: &[Range<u64>], span: &Range<u64>) -> Range<usize> {
    let first = blocks.partition_point(|block| block.end <= span.start);
    let end = blocks.partition_point(|block| block.start < span.end);
    first..end.max(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_a_row(lens: &[u64]) -> Vec<Option<Range<u64>>> {
        let mut at = 0;
        let spans = lens.iter().map(|len| {
            at += len;
            Some(at - len..at)
        });
        spans.collect()
    }

    #[test]
    fn a_cube_is_cut_into_blocks_of_its_own() {
        // 20 chunks of 1.2 MB per cube: 6 pieces, none of which is shared by two cubes.
        let chunks = in_a_row(&[1_200_000; 40]);
        let blocks = cut(&chunks, 20);
        assert_eq!(blocks[0].start, 0);
        assert!(blocks.iter().any(|block| block.end == 20 * 1_200_000), "{blocks:?}");
        assert!(
            blocks.iter().all(|block| block.end - block.start <= MAX_BLOCK_BYTES),
            "{blocks:?}"
        );
        assert!(blocks.len() <= 16, "{blocks:?}");
    }

    #[test]
    fn small_cubes_share_blocks() {
        let blocks = cut(&in_a_row(&[10_000; 100]), 1);
        assert_eq!(blocks.len(), 2, "{blocks:?}");
        assert_eq!(blocks[0], 0..520_000);
    }

    proptest! {
        #[test]
        fn every_chunk_lies_in_one_block_and_all_processes_cut_alike(
            lens in prop::collection::vec((0u64..3_000_000, any::<bool>()), 1..60),
            per_sample in 1usize..9,
        ) {
            let mut at = 0;
            let chunks: Vec<Option<Range<u64>>> = lens.iter().map(|(len, is_present)| {
                at += len + 7;
                is_present.then(|| at - len..at)
            }).collect();
            let blocks = cut(&chunks, per_sample);
            prop_assert!(blocks.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let wanted = chunks.iter().flatten().filter(|span| span.start < span.end);
            for span in wanted.clone() {
                let block = holding(&blocks, span).unwrap();
                prop_assert_eq!(touched(&blocks, span), block..block + 1);
            }
            let most = wanted.map(|span| span.end - span.start).max().unwrap_or(0).max(MAX_BLOCK_BYTES);
            prop_assert!(blocks.iter().all(|block| block.end - block.start <= most));
        }
    }
}
