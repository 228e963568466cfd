//! Chooses the rows and columns of a cube for a picture, so that memory does not grow with the cube.

use std::ops::Range;

use hsipack_format::Result;
use hsipack_store::threads;

use super::classes::ClassMap;
use crate::physical::{Cube, readers};
use crate::spectra::Spectrum;

/// The pixels of a cube that are read. They are evenly spread, and the same on every run.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Rows, in ascending order.
    pub rows: Vec<usize>,
    /// Columns, in ascending order.
    pub columns: Vec<usize>,
}

impl Sampling {
    /// Selects at most `side` rows and columns, in the cube's proportions.
    pub fn new(rows: usize, columns: usize, side: usize) -> Self {
        let longest = rows.max(columns);
        let length = |length: usize| {
            if longest <= side { length } else { (length * side / longest).max(1) }
        };
        Self { rows: spread(rows, length(rows)), columns: spread(columns, length(columns)) }
    }

    /// Number of pixels that are read.
    pub fn pixels(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Which of the `count` pixels of row `row` from `column` on are in the picture: pairs of the place in the picture
    /// and the distance from `column`.
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

    /// Runs of sampled rows in the same block of `block` rows. Reading a run together costs one read.
    pub fn reads(&self, block: usize) -> impl Iterator<Item = Range<usize>> + '_ {
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

/// Values of a cube's sampled pixels.
pub struct Gathered {
    /// Red, green and blue of every sampled pixel, row by row.
    pub rgb: Vec<[f32; 3]>,
    /// One spectrum for each class, or one for all pixels.
    pub spectra: Vec<Spectrum>,
}

/// The number of parts in which a cube is read. It does not depend on the number of threads, because the rounding of
/// sums depends on where the parts begin.
const PARTS: usize = 16;

/// Reads the sampled pixels once: colours from `bands`, and spectra of each class, or of all pixels.
///
/// # Errors
/// If the cube cannot be read.
pub fn gather(
    cube: &Cube,
    sampling: &Sampling,
    bands: [usize; 3],
    classes: Option<&ClassMap>,
) -> Result<Gathered> {
    let reads: Vec<Range<usize>> = sampling.reads(cube.block_rows()).collect();
    let parts = reads.chunks(reads.len().div_ceil(PARTS).max(1));
    let threads = if cube.is_stream() { 1 } else { readers() };
    let gather =
        |(): &mut (), reads: &[Range<usize>]| gather_part(cube, sampling, bands, classes, reads);
    let mut parts = threads::in_turn(threads, "preview", parts, || (), gather)?.into_iter();
    let Some(mut all) = parts.next() else {
        return gather_part(cube, sampling, bands, classes, &[]);
    };
    for part in parts {
        all.rgb.extend(part.rgb);
        all.spectra.iter_mut().zip(&part.spectra).for_each(|(all, part)| all.merge(part));
    }
    Ok(all)
}

/// Reads the sampled pixels of some adjacent reads.
fn gather_part(
    cube: &Cube,
    sampling: &Sampling,
    bands: [usize; 3],
    classes: Option<&ClassMap>,
    reads: &[Range<usize>],
) -> Result<Gathered> {
    let width = cube.shape.bands;
    let rows = reads.first().map_or(0, |read| read.start)..reads.last().map_or(0, |read| read.end);
    let before = |row: usize| sampling.rows.partition_point(|sampled| *sampled < row);
    let first = before(rows.start) * sampling.columns.len();
    let pixels = before(rows.end) * sampling.columns.len() - first;
    let mut rgb = vec![[f32::NAN; 3]; pixels];
    let count = classes.map_or(1, |map| map.classes.len());
    let mut spectra = vec![Spectrum::new(width); count];
    for rows in reads {
        cube.read_rows(rows.clone(), &mut |row, column, values| {
            for (place, behind) in sampling.hits(row, column, values.len() / width) {
                let pixel = &values[behind * width..(behind + 1) * width];
                rgb[place - first] = bands.map(|band| pixel[band] as f32);
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
