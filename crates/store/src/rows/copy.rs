//! Copying a window out of a decoded chunk.

/// Which part of a chunk is copied to which part of the window. Both are (row, column, band)
/// arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy<'a> {
    /// First row and column in the chunk, and the chunk's width.
    pub from_row: usize,
    pub from_column: usize,
    pub from_width: usize,
    /// First column in the window, and the window's width.
    pub to_column: usize,
    pub to_width: usize,
    pub rows: usize,
    pub columns: usize,
    /// Size of an element in bytes.
    pub element: usize,
    /// Bands of the chunk.
    pub bands: usize,
    /// Bands of the window, all if `None`.
    pub chosen: Option<&'a [usize]>,
}

impl Copy<'_> {
    /// Copies the part.
    pub(super) fn run(&self, from: &[u8], to: &mut [u8]) {
        let from_pixel = self.bands * self.element;
        let to_pixel = self.chosen.map_or(self.bands, <[usize]>::len) * self.element;
        let from_rows = from.chunks_exact(self.from_width * from_pixel).skip(self.from_row);
        let to_rows = to.chunks_exact_mut(self.to_width * to_pixel);
        for (from, to) in from_rows.zip(to_rows).take(self.rows) {
            let from = &from[self.from_column * from_pixel..][..self.columns * from_pixel];
            let to = &mut to[self.to_column * to_pixel..][..self.columns * to_pixel];
            match self.chosen {
                None => to.copy_from_slice(from),
                Some(bands) => self.gather(bands, from, to),
            }
        }
    }

    fn gather(&self, bands: &[usize], from: &[u8], to: &mut [u8]) {
        match self.element {
            1 => gather_as::<u8>(self.bands, bands, from, to),
            2 => gather_as::<[u8; 2]>(self.bands, bands, from, to),
            _ => gather_as::<[u8; 4]>(self.bands, bands, from, to),
        }
    }
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
            chunk in (1usize..6, 1usize..6, 1usize..5), at in any::<[prop::sample::Index; 5]>(), margin in 0usize..4,
            element in prop::sample::select(vec![1usize, 2, 4]), chosen in prop::option::of(prop::collection::vec(0usize..100, 1..4))
        ) {
            let (height, width, bands) = chunk;
            let chosen: Option<Vec<usize>> = chosen.map(|list| list.iter().map(|band| band % bands).collect());
            let (from_row, from_column) = (at[0].index(height), at[1].index(width));
            let (rows, columns) = (at[2].index(height - from_row) + 1, at[3].index(width - from_column) + 1);
            let to_width = columns + margin;
            let to_column = at[4].index(margin + 1);
            let from: Vec<u8> = (0..height * width * bands * element).map(|i| (i * 7 + 1) as u8).collect();
            let list = chosen.clone().unwrap_or_else(|| (0..bands).collect());
            let mut want = vec![0; rows * to_width * list.len() * element];
            for y in 0..rows {
                for x in 0..columns {
                    for (position, band) in list.iter().enumerate() {
                        let source = (((from_row + y) * width + from_column + x) * bands + band) * element;
                        let target = ((y * to_width + to_column + x) * list.len() + position) * element;
                        want[target..target + element].copy_from_slice(&from[source..source + element]);
                    }
                }
            }
            let mut got = vec![0; want.len()];
            let copy = Copy {
                from_row, from_column, from_width: width, to_column, to_width, rows, columns, element, bands,
                chosen: chosen.as_deref(),
            };
            copy.run(&from, &mut got);
            prop_assert_eq!(got, want);
        }
    }
}
