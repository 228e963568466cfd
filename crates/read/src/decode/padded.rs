//! Windows that reach beyond the edge of their cube.

use std::ops::Range;

use half::f16;
use hsipack_format::metadata::Role;
use hsipack_format::{DType, Ratio};

use super::{Decoder, Scratch};
use crate::dataset::array::ArrayRef;
use crate::plan::{Pad, Window};
use crate::{Error, Result};

/// The rows and columns of an array that a window of it takes its values from.
pub(crate) fn inside(
    array: ArrayRef<'_>,
    window: Window,
    pad: Pad,
) -> (Range<usize>, Range<usize>) {
    let shape = array.shape();
    if window.is_inside(shape.rows, shape.columns) {
        return (window.row_range(), window.column_range());
    }
    let [down, across] = axes(array, window, pad);
    (down.range(), across.range())
}

/// Rows and columns of a window of an array.
fn axes(array: ArrayRef<'_>, window: Window, pad: Pad) -> [Axis; 2] {
    let (shape, ratio) = (array.shape(), array.chunks.ratio());
    let axis = |start: i32, size: u32, length: usize| Axis {
        start: i64::from(start),
        size,
        length,
        ratio,
        pad,
    };
    [axis(window.row, window.rows, shape.rows), axis(window.column, window.columns, shape.columns)]
}

/// Where the pixels of a window come from along one axis.
struct Axis {
    start: i64,
    size: u32,
    length: usize,
    ratio: Ratio,
    pad: Pad,
}

impl Axis {
    /// For each coordinate of the window, the pixel of the cube; `None` if it is padded with a
    /// value.
    fn pixels(&self) -> impl Iterator<Item = Option<usize>> {
        (self.start..self.start + i64::from(self.size))
            .map(|coordinate| self.pad.pixel(coordinate, self.length, self.ratio))
    }

    /// The range from the first to the last of these pixels.
    fn range(&self) -> Range<usize> {
        let pixels = || self.pixels().flatten();
        pixels().min().unwrap_or(0)..pixels().max().map_or(0, |last| last + 1)
    }
}

impl Decoder<'_> {
    /// Reads a window that reaches beyond the edge of the cube at `index` into `out`, which it
    /// fills.
    pub(crate) fn padded(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        window: Window,
        pad: Pad,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let [down, across] = axes(array, window, pad);
        let (rows, columns) = (down.range(), across.range());
        if rows.is_empty() || columns.is_empty() {
            let shape = array.shape();
            return Err(Error::bug(format!("{window:?} has no pixel of a cube of {shape:?}")));
        }
        let read = Window {
            row: rows.start as i32,
            column: columns.start as i32,
            rows: rows.len() as u32,
            columns: columns.len() as u32,
        };
        let row_bytes = self.row_bytes(array, read);
        let pixel_bytes = row_bytes / columns.len();
        // Taken out, because decoding chunks needs the rest of the scratch.
        let mut values = std::mem::take(&mut scratch.edge);
        values.inside.resize(rows.len() * row_bytes, 0);
        let done = self.all_rows(array, index, read, &mut values.inside, scratch);
        if done.is_ok() {
            let (fill, element) = fill(array, pad);
            gather_runs(across.pixels(), &mut values.runs);
            let rows_out = out.chunks_exact_mut(pixel_bytes * window.columns as usize);
            for (row, out) in down.pixels().zip(rows_out) {
                let from =
                    row.map(|row| &values.inside[(row - rows.start) * row_bytes..][..row_bytes]);
                let mut remaining = out;
                for run in &values.runs {
                    let (out, after) = remaining.split_at_mut(run.len * pixel_bytes);
                    remaining = after;
                    match from.zip(run.first) {
                        Some((from, first)) => {
                            let start = (first - columns.start) * pixel_bytes;
                            out.copy_from_slice(&from[start..start + out.len()]);
                        }
                        None => out
                            .chunks_exact_mut(element)
                            .for_each(|out| out.copy_from_slice(&fill[..element])),
                    }
                }
            }
        }
        scratch.edge = values;
        done
    }
}

/// Working memory for windows that reach beyond the edge.
#[derive(Debug, Default)]
pub(super) struct Edge {
    /// The part of the window that lies inside its cube.
    inside: Vec<u8>,
    runs: Vec<Run>,
}

/// Pixels that lie side by side both in the cube and in the window.
#[derive(Debug)]
struct Run {
    /// The first pixel; `None` if these are padded with a value.
    first: Option<usize>,
    len: usize,
}

fn gather_runs(pixels: impl Iterator<Item = Option<usize>>, runs: &mut Vec<Run>) {
    runs.clear();
    for pixel in pixels {
        match runs.last_mut() {
            Some(run) if run.first.map(|first| first + run.len) == pixel => run.len += 1,
            _ => runs.push(Run { first: pixel, len: 1 }),
        }
    }
}

/// The value beyond the edge as bytes of the array's type, and how many bytes it has. In masks it
/// is 0, in targets NaN.
pub(crate) fn fill(array: ArrayRef<'_>, pad: Pad) -> ([u8; 8], usize) {
    let value = match pad {
        Pad::Value(value) if array.is_image() => value,
        _ if array.chunks.role() == Some(Role::Target) => f64::NAN,
        _ => 0.0,
    };
    let mut bytes = [0; 8];
    match array.dtype() {
        DType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DType::F32 => bytes[..4].copy_from_slice(&(value as f32).to_le_bytes()),
        DType::U8 => bytes[0] = value as u8,
        DType::U16 => bytes[..2].copy_from_slice(&(value as u16).to_le_bytes()),
        DType::I16 => bytes[..2].copy_from_slice(&(value as i16).to_le_bytes()),
        _ => {}
    }
    (bytes, array.dtype().size())
}
