//! Reads the pixels of a picture in one pass: their colours, and spectra of classes.

use std::ops::Range;

use hsipack_format::Result;
use hsipack_store::threads;

use super::classes::ClassMap;
use super::sampling::Sampling;
use crate::physical::{Cube, readers};
use crate::spectra::Spectrum;

/// Values of a cube's sampled pixels.
pub struct Gathered {
    /// Red, green and blue of every sampled pixel, row by row.
    pub rgb: Vec<[f32; 3]>,
    /// One spectrum for each class, or one for all pixels.
    pub spectra: Vec<Spectrum>,
}

/// The number of parts in which a cube is read. It does not depend on the number of threads,
/// because the rounding of sums depends on where the parts begin.
const PARTS: usize = 16;

/// Reads the sampled pixels once: colours from `bands`, and spectra of each class, or of all
/// pixels.
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
            for (index, offset) in sampling.hits(row, column, values.len() / width) {
                let pixel = &values[offset * width..(offset + 1) * width];
                rgb[index - first] = bands.map(|band| pixel[band] as f32);
                match classes {
                    None => spectra[0].add(pixel),
                    Some(map) => map.of_pixel(index).for_each(|class| spectra[class].add(pixel)),
                }
            }
            Ok(())
        })?;
    }
    Ok(Gathered { rgb, spectra })
}
