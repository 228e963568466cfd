//! A packed sample in runs of whole rows: what fits in memory where a large scene does not.

use std::ops::Range;

use hsipack_format::Result;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::memory;

/// Takes some whole rows: which, and their bytes.
pub type Each<'e> = dyn FnMut(Range<usize>, &[u8]) -> Result<()> + 'e;

/// Hands rows `rows` of sample `index` to `each`, one row of chunks at a time: which rows, and their
/// bytes in (row, column, band) order, little-endian.
///
/// # Errors
/// If a chunk cannot be read or is damaged, or `each` fails.
pub fn for_each(
    array: &ChunkArray,
    index: usize,
    rows: Range<usize>,
    each: &mut Each,
) -> Result<()> {
    let (grid, shape) = (array.grid(), array.shape());
    let pixel = shape.bands * array.meta().dtype.size();
    let row_bytes = shape.columns * pixel;
    let tile = grid.tile();
    let (mut stored, mut chunk_bytes) =
        (Vec::new(), memory::zeroed(array.chunk_bytes(), "a chunk")?);
    let mut slab = Vec::new();
    for down in rows.start / tile.rows..rows.end.div_ceil(tile.rows) {
        let first = down * tile.rows;
        let held = first..shape.rows.min(first + tile.rows);
        memory::room(&mut slab, held.len() * row_bytes, "a row of chunks")?;
        slab.resize(held.len() * row_bytes, 0);
        for chunk in down * grid.across()..(down + 1) * grid.across() {
            array.read_chunk(index, chunk, &mut stored, &mut chunk_bytes)?;
            let region = grid.region(chunk);
            let width = region.columns.len() * pixel;
            let lines = chunk_bytes.chunks_exact(tile.columns * pixel);
            for (to, from) in slab.chunks_exact_mut(row_bytes).zip(lines) {
                let start = region.columns.start * pixel;
                to[start..start + width].copy_from_slice(&from[..width]);
            }
        }
        let wanted = held.start.max(rows.start)..held.end.min(rows.end);
        let offset = |row: usize| (row - first) * row_bytes;
        each(wanted.clone(), &slab[offset(wanted.start)..offset(wanted.end)])?;
    }
    Ok(())
}
