//! Labels of a window.

use hsipack_format::Result;
use hsipack_pack::preview::Sampling;
use hsipack_store::dataset::ChunkArray;

/// Labels of sample `index` of a mask at the pixels of `shown`.
///
/// # Errors
/// If the mask cannot be read.
pub fn read(mask: &ChunkArray, index: usize, shown: &Sampling) -> Result<Vec<u16>> {
    let (shape, size) = (mask.shape(), mask.meta().dtype.size());
    let mut labels = vec![0; shown.pixels()];
    for rows in shown.reads(mask.grid().tile().rows) {
        mask.each_slab(index, rows, &mut |rows, bytes| {
            for (row, bytes) in rows.zip(bytes.chunks_exact(shape.columns * size)) {
                for (place, column) in shown.hits(row, 0, shape.columns) {
                    labels[place] = label(&bytes[column * size..][..size]);
                }
            }
            Ok(())
        })?;
    }
    Ok(labels)
}

/// A label of one byte or of two, little-endian.
fn label(bytes: &[u8]) -> u16 {
    match bytes {
        [low] => u16::from(*low),
        [low, high, ..] => u16::from_le_bytes([*low, *high]),
        [] => 0,
    }
}
