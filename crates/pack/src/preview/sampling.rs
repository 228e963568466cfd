//! Rows and columns of a cube that go into a picture, so that memory does not grow with the cube.

use hsipack_format::Result;

use super::classes::ClassMap;
use super::spectra::Spectrum;
use crate::physical::Cube;

/// The pixels of a cube that are looked at: evenly spread, the same on every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Rows, ascending.
    pub rows: Vec<usize>,
    /// Columns, ascending.
    pub columns: Vec<usize>,
}

impl Sampling {
    /// At most `side` rows and columns, in the cube's proportions.
    pub fn new(rows: usize, columns: usize, side: usize) -> Self {
        let longest = rows.max(columns);
        let length = |length: usize| {
            if longest <= side { length } else { (length * side / longest).max(1) }
        };
        Self { rows: spread(rows, length(rows)), columns: spread(columns, length(columns)) }
    }

    /// Pixels looked at.
    pub fn pixels(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// The place in the picture of the pixels of row `row` from `column` on, `count` of them: pairs
    /// of the picture's pixel and how far behind `column` it lies.
    pub fn hits(
        &self,
        row: usize,
        column: usize,
        count: usize,
    ) -> impl Iterator<Item = (usize, usize)> + '_ {
        let place = self.rows.binary_search(&row).ok();
        let first = self.columns.partition_point(|c| *c < column);
        let columns = self.columns[first..].iter().take_while(move |c| **c < column + count);
        place.into_iter().flat_map(move |place| {
            let start = place * self.columns.len() + first;
            columns.clone().enumerate().map(move |(i, c)| (start + i, c - column))
        })
    }

    /// Runs of sampled rows that lie in one block of `block` rows: read together, they cost one read.
    pub fn reads(&self, block: usize) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        let block = block.max(1);
        self.rows.chunk_by(move |a, b| a / block == b / block).map(|run| {
            let (first, last) = (run[0], run[run.len() - 1]);
            first..last + 1
        })
    }
}

/// `count` numbers spread over 0..`length`.
pub fn spread(length: usize, count: usize) -> Vec<usize> {
    let count = count.min(length);
    (0..count).map(|i| (2 * i + 1) * length / (2 * count)).collect()
}

/// What a cube's sampled pixels came to.
pub struct Gathered {
    /// Red, green and blue of every sampled pixel, row by row.
    pub rgb: Vec<[f32; 3]>,
    /// One spectrum for each class, or one for all pixels.
    pub spectra: Vec<Spectrum>,
}

/// Reads the sampled pixels once: colours from `bands`, and spectra of the classes, or of all pixels.
///
/// # Errors
/// If the cube cannot be read.
pub fn gather(
    cube: &Cube,
    sampling: &Sampling,
    bands: [usize; 3],
    classes: Option<&ClassMap>,
) -> Result<Gathered> {
    let width = cube.shape.bands;
    let mut rgb = vec![[f32::NAN; 3]; sampling.pixels()];
    let count = classes.map_or(1, |map| map.classes.len());
    let mut spectra = vec![Spectrum::new(width); count];
    for rows in sampling.reads(cube.block_rows()) {
        cube.read_rows(rows, &mut |row, column, values| {
            for (place, behind) in sampling.hits(row, column, values.len() / width) {
                let pixel = &values[behind * width..(behind + 1) * width];
                rgb[place] = bands.map(|band| pixel[band] as f32);
                match classes {
                    None => spectra[0].add(pixel),
                    Some(map) => map.of_pixel(place).for_each(|class| spectra[class].add(pixel)),
                }
            }
            Ok(())
        })?;
    }
    Ok(Gathered { rgb, spectra })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cubes_are_taken_whole() {
        let all = Sampling::new(3, 5, 10);
        assert_eq!((all.rows, all.columns), (vec![0, 1, 2], vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn large_cubes_keep_their_proportions() {
        let some = Sampling::new(100, 1000, 100);
        assert_eq!((some.rows.len(), some.columns.len()), (10, 100));
        assert_eq!(some.rows[..3], [5, 15, 25]);
        assert_eq!(Sampling::new(1, 1_000_000, 100).rows, [0]);
    }

    #[test]
    fn hits_are_the_sampled_pixels() {
        let some = Sampling { rows: vec![1, 4], columns: vec![0, 3, 6] };
        assert_eq!(some.hits(4, 2, 5).collect::<Vec<_>>(), [(4, 1), (5, 4)]);
        assert_eq!(some.hits(2, 0, 9).count(), 0);
        assert_eq!(some.reads(4).collect::<Vec<_>>(), [1..2, 4..5]);
        assert!(some.reads(100).eq(std::iter::once(1..5)));
    }
}
