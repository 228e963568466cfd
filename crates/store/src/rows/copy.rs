//! Copying a window out of a decoded chunk.

use std::ops::Range;

use super::Values;

/// Which part of a chunk is copied to which part of the window. Both are (row, column, band)
/// arrays.
#[derive(Clone, Debug)]
pub struct WindowCopy<'a> {
    /// First row in the chunk.
    pub from_row: usize,
    /// First column in the chunk.
    pub from_column: usize,
    /// Columns of the chunk.
    pub from_width: usize,
    /// First column in the window.
    pub to_column: usize,
    /// Columns of the window.
    pub to_width: usize,
    /// Rows of the part.
    pub rows: usize,
    /// Columns of the part.
    pub columns: usize,
    /// The values, and how they are delivered.
    pub values: Values<'a>,
    /// Bands of the chunk, with those beyond the last one of the cube.
    pub bands: usize,
    /// Bands of the cube.
    pub of_bands: usize,
    /// The chunk's bands of the cube.
    pub group: Range<usize>,
    /// Bands of the window, all if `None`.
    pub chosen: Option<&'a [usize]>,
}

/// Bands that follow one another both in the chunk and in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    from: usize,
    to: usize,
    bands: usize,
}

impl WindowCopy<'_> {
    /// Copies the part from the chunk to the window.
    pub fn run(&self, from: &[u8], to: &mut [u8]) {
        if self.group.len() < self.of_bands {
            for run in self.runs() {
                self.each_row(from, to, |from, to| self.interleave(run, from, to));
            }
            return;
        }
        match self.chosen {
            None => self.each_row(from, to, |from, to| self.values.put(from, to)),
            Some(bands) => self.each_row(from, to, |from, to| self.gather(bands, from, to)),
        }
    }

    /// Calls `copy` with the part of each row in the chunk and in the window.
    fn each_row(&self, from: &[u8], to: &mut [u8], copy: impl Fn(&[u8], &mut [u8])) {
        let from_pixel = self.bands * self.values.stored;
        let to_pixel = self.chosen.map_or(self.of_bands, <[usize]>::len) * self.values.delivered();
        let from_rows = from.chunks_exact(self.from_width * from_pixel).skip(self.from_row);
        let to_rows = to.chunks_exact_mut(self.to_width * to_pixel);
        for (from, to) in from_rows.zip(to_rows).take(self.rows) {
            copy(
                &from[self.from_column * from_pixel..][..self.columns * from_pixel],
                &mut to[self.to_column * to_pixel..][..self.columns * to_pixel],
            );
        }
    }

    fn gather(&self, bands: &[usize], from: &[u8], to: &mut [u8]) {
        match self.values.stored {
            1 => gather_as::<u8>(self.bands, bands, from, to),
            2 => gather_as::<[u8; 2]>(self.bands, bands, from, to),
            _ => gather_as::<[u8; 4]>(self.bands, bands, from, to),
        }
    }

    /// The bands of the window that the chunk has.
    fn runs(&self) -> impl Iterator<Item = Run> {
        let all = Run { from: 0, to: self.group.start, bands: self.group.len() };
        let (chosen, group) = (self.chosen.unwrap_or_default(), self.group.clone());
        let mut to = 0;
        let chosen_runs = std::iter::from_fn(move || {
            to += chosen[to..].iter().take_while(|band| !group.contains(band)).count();
            let first = *chosen.get(to)?;
            let follow = chosen[to..].iter().zip(first..group.end);
            let bands = follow.take_while(|(band, next)| *band == next).count();
            let run = Run { from: first - group.start, to, bands };
            to += bands;
            Some(run)
        });
        self.chosen.is_none().then_some(all).into_iter().chain(chosen_runs)
    }

    /// Copies some bands of a row of pixels.
    fn interleave(&self, run: Run, from: &[u8], to: &mut [u8]) {
        let element = self.values.stored;
        let from_pixel = self.bands * element;
        let to_pixel = to.len() / self.columns;
        let (from, to) = (&from[run.from * element..], &mut to[run.to * element..]);
        let pixels = from.chunks(from_pixel).zip(to.chunks_mut(to_pixel));
        match run.bands * element {
            2 => copy_each::<2>(pixels),
            4 => copy_each::<4>(pixels),
            8 => copy_each::<8>(pixels),
            16 => copy_each::<16>(pixels),
            32 => copy_each::<32>(pixels),
            64 => copy_each::<64>(pixels),
            bytes => pixels.for_each(|(from, to)| to[..bytes].copy_from_slice(&from[..bytes])),
        }
    }
}

/// Copies the first bytes of each pixel. The compiler knows their number, so this is a few
/// instructions for each pixel.
fn copy_each<'a, const BYTES: usize>(pixels: impl Iterator<Item = (&'a [u8], &'a mut [u8])>) {
    pixels.for_each(|(from, to)| to[..BYTES].copy_from_slice(&from[..BYTES]));
}

fn gather_as<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(
    all: usize,
    bands: &[usize],
    from: &[u8],
    to: &mut [u8],
) {
    let (from, to): (&[T], &mut [T]) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to));
    for (from, to) in from.chunks_exact(all).zip(to.chunks_exact_mut(bands.len())) {
        for (to, band) in to.iter_mut().zip(bands) {
            *to = from[*band];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 256 }))]
        #[test]
        fn windows_are_copied_as_value_by_value(
            chunk in (1usize..6, 1usize..6), (bands, group) in (1usize..20, 1usize..20), at in any::<[prop::sample::Index; 6]>(),
            margin in 0usize..4, element in prop::sample::select(vec![1usize, 2, 4]),
            chosen in prop::option::of(prop::collection::vec(0usize..100, 1..9))
        ) {
            let (height, width) = chunk;
            let group = group.min(bands);
            let first = at[5].index(bands.div_ceil(group)) * group;
            let in_chunk = first..bands.min(first + group);
            let chosen: Option<Vec<usize>> = chosen.map(|list| list.iter().map(|band| band % bands).collect());
            let (from_row, from_column) = (at[0].index(height), at[1].index(width));
            let (rows, columns) = (at[2].index(height - from_row) + 1, at[3].index(width - from_column) + 1);
            let to_width = columns + margin;
            let to_column = at[4].index(margin + 1);
            let from: Vec<u8> = (0..height * width * group * element).map(|i| (i * 7 + 1) as u8).collect();
            let list = chosen.clone().unwrap_or_else(|| (0..bands).collect());
            let mut want = vec![0; rows * to_width * list.len() * element];
            for y in 0..rows {
                for x in 0..columns {
                    for (position, band) in list.iter().enumerate().filter(|(_, band)| in_chunk.contains(band)) {
                        let band = band - in_chunk.start;
                        let source = (((from_row + y) * width + from_column + x) * group + band) * element;
                        let target = ((y * to_width + to_column + x) * list.len() + position) * element;
                        want[target..target + element].copy_from_slice(&from[source..source + element]);
                    }
                }
            }
            let mut got = vec![0; want.len()];
            let copy = WindowCopy {
                from_row, from_column, from_width: width, to_column, to_width, rows, columns, values: Values::stored(element), bands: group,
                of_bands: bands, group: in_chunk, chosen: chosen.as_deref(),
            };
            copy.run(&from, &mut got);
            prop_assert_eq!(got, want);
        }
    }
}
