//! Some bands of a window.

use std::ops::Range;

use hsipack_format::Result;
use hsipack_pack::physical::Cube;
use hsipack_pack::preview::Sampling;
use hsipack_store::threads;

use super::cache::CachedCube;
use super::deadline::Deadline;

/// Maximum number of bands in an answer.
pub const MAX_BANDS: usize = 16;

/// Values of `bands` at the pixels of `shown`, one band after the other; missing values are NaN.
/// Uses `held` if it has all of these pixels.
///
/// # Errors
/// If the cube cannot be read, or reading takes too long.
pub fn read(
    cube: &Cube,
    held: Option<&CachedCube>,
    shown: &Sampling,
    bands: &[usize],
    deadline: Deadline,
) -> Result<Vec<f32>> {
    let mut values = vec![f32::NAN; shown.pixels() * bands.len()];
    if let Some(held) = held
        && (held.is_whole || held.sampling == *shown)
    {
        take(held, shown, bands, &mut values);
    } else if cube.has_cheap_bands() {
        let planes = values.chunks_exact_mut(shown.pixels().max(1));
        for (band, plane) in bands.iter().zip(planes) {
            read_band(cube, shown, *band, plane, deadline)?;
        }
    } else {
        let pixels = shown.pixels();
        each_spectrum(cube, None, shown, deadline, &mut |at, spectrum| {
            for (plane, band) in bands.iter().enumerate() {
                values[plane * pixels + at] = spectrum[*band];
            }
        })?;
    }
    Ok(values)
}

fn take(held: &CachedCube, shown: &Sampling, bands: &[usize], values: &mut [f32]) {
    let pixels = shown.pixels();
    each_held(held, shown, &mut |at, spectrum| {
        for (plane, band) in bands.iter().enumerate() {
            values[plane * pixels + at] = spectrum[*band];
        }
    });
}

/// Passes the spectra of the pixels of `shown` to `each`, with their places. `held` has all of
/// these pixels.
fn each_held(held: &CachedCube, shown: &Sampling, each: &mut impl FnMut(usize, &[f32])) {
    let mut at = 0;
    for row in &shown.rows {
        for column in &shown.columns {
            let index = if held.is_whole { held.place(*row, *column) } else { at };
            each(at, held.spectrum(index));
            at += 1;
        }
    }
}

/// Passes the spectra of the pixels of `shown` to `each`, with their places, in any order.
///
/// # Errors
/// If the cube cannot be read, or reading takes too long.
pub fn each_spectrum(
    cube: &Cube,
    held: Option<&CachedCube>,
    shown: &Sampling,
    deadline: Deadline,
    each: &mut impl FnMut(usize, &[f32]),
) -> Result<()> {
    if let Some(held) = held
        && (held.is_whole || held.sampling == *shown)
    {
        each_held(held, shown, each);
        return Ok(());
    }
    let bands = cube.shape.bands;
    let mut spectrum = vec![0.0; bands];
    for rows in shown.reads(cube.block_rows()) {
        deadline.check()?;
        cube.read_rows(rows, &mut |row, column, values| {
            for (pixel, offset) in shown.hits(row, column, values.len() / bands) {
                let from = &values[offset * bands..][..bands];
                spectrum.iter_mut().zip(from).for_each(|(to, from)| *to = *from as f32);
                each(pixel, &spectrum);
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Rows to read at once: runs of consecutive shown rows.
fn runs(shown: &Sampling) -> impl Iterator<Item = Range<usize>> + '_ {
    const MAX_RUN_ROWS: usize = 64;
    let runs = shown.rows.chunk_by(|a, b| a + 1 == *b);
    runs.flat_map(|run| run.chunks(MAX_RUN_ROWS)).map(|run| run[0]..run[run.len() - 1] + 1)
}

/// Reads one band with several threads, because every run of rows may be a wait for the disk.
fn read_band(
    cube: &Cube,
    shown: &Sampling,
    band: usize,
    plane: &mut [f32],
    deadline: Deadline,
) -> Result<()> {
    let columns = shown.columns.len();
    let parts = shown.rows.chunks(ROWS).zip(plane.chunks_mut(ROWS * columns));
    let read = |(): &mut (), (rows, plane): (&[usize], &mut [f32])| {
        let part = Sampling { rows: rows.to_vec(), columns: shown.columns.clone() };
        for rows in runs(&part) {
            deadline.check()?;
            cube.read_band(band, rows, &mut |row, column, values| {
                for (pixel, offset) in part.hits(row, column, values.len()) {
                    plane[pixel] = values[offset] as f32;
                }
                Ok(())
            })?;
        }
        Ok(())
    };
    threads::in_turn(THREADS, "view", parts, || (), read)?;
    Ok(())
}

/// Number of rows that a thread reads before it takes the next ones.
const ROWS: usize = 64;
/// Number of threads that read. There may be more than cores, because they wait for the disk.
const THREADS: usize = 8;
