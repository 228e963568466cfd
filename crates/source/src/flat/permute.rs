//! Reorders the axes of values, and swaps their bytes.

use bytemuck::Pod;
use hsipack_format::CubeShape;

use crate::{Axis, AxisOrder};

/// Reorders values of `size` bytes from `order` to (row, column, band). `shape` is the shape of
/// these values, not of the whole cube.
pub(crate) fn permute(
    order: AxisOrder,
    shape: CubeShape,
    rows_reversed: bool,
    size: usize,
    from: &[u8],
    to: &mut [u8],
) {
    match size {
        1 => permute_values::<u8>(order, shape, rows_reversed, from, to),
        2 => permute_values::<u16>(order, shape, rows_reversed, from, to),
        4 => permute_values::<u32>(order, shape, rows_reversed, from, to),
        _ => permute_values::<u64>(order, shape, rows_reversed, from, to),
    }
}

fn permute_values<T: Pod>(
    order: AxisOrder,
    shape: CubeShape,
    rows_reversed: bool,
    from: &[u8],
    to: &mut [u8],
) {
    let from: &[T] = bytemuck::cast_slice(from);
    let to: &mut [T] = bytemuck::cast_slice_mut(to);
    let rows = shape.rows;
    let lengths = order.lengths(shape);
    let strides = [lengths[1] * lengths[2], lengths[2], 1];
    let stride = |axis| strides[order.position(axis)];
    let (row, column, band) = (stride(Axis::Row), stride(Axis::Column), stride(Axis::Band));
    let row_values = shape.row_values();
    let out_row = |y: usize| if rows_reversed { rows - 1 - y } else { y };
    if band == 1 {
        for y in 0..rows {
            for x in 0..shape.columns {
                let pixel = &from[y * row + x * column..][..shape.bands];
                to[out_row(y) * row_values + x * shape.bands..][..shape.bands]
                    .copy_from_slice(pixel);
            }
        }
    } else if column == 1 {
        for y in 0..rows {
            let to = &mut to[out_row(y) * row_values..][..row_values];
            transpose(&from[y * row..], band, shape.bands, shape.columns, to, shape.bands);
        }
    } else {
        // Rows are fastest in the file: there is one (band, row) plane per column.
        for x in 0..shape.columns {
            let plane = &from[x * column..];
            for y in 0..rows {
                let to = &mut to[out_row(y) * row_values + x * shape.bands..][..shape.bands];
                for (b, value) in to.iter_mut().enumerate() {
                    *value = plane[b * band + y];
                }
            }
        }
    }
}

/// `to[f * to_stride + s] = from[s * from_stride + f]` for `slow` × `fast` values, in tiles, so
/// that both sides stay in the first-level cache.
fn transpose<T: Copy>(
    from: &[T],
    from_stride: usize,
    slow: usize,
    fast: usize,
    to: &mut [T],
    to_stride: usize,
) {
    const TILE: usize = 16;
    for f0 in (0..fast).step_by(TILE) {
        let fast_tile = TILE.min(fast - f0);
        for s0 in (0..slow).step_by(TILE) {
            let slow_tile = TILE.min(slow - s0);
            for f in f0..f0 + fast_tile {
                let to = &mut to[f * to_stride + s0..][..slow_tile];
                for (s, value) in to.iter_mut().enumerate() {
                    *value = from[(s0 + s) * from_stride + f];
                }
            }
        }
    }
}

/// Reverses the bytes of every element of `size` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    match size {
        2 => swap_each::<u16>(bytes, u16::swap_bytes),
        4 => swap_each::<u32>(bytes, u32::swap_bytes),
        8 => swap_each::<u64>(bytes, u64::swap_bytes),
        _ => {}
    }
}

fn swap_each<T: Pod>(bytes: &mut [u8], swap: impl Fn(T) -> T) {
    for value in bytemuck::cast_slice_mut::<u8, T>(bytes) {
        *value = swap(*value);
    }
}
