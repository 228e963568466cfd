//! The shown cube in memory, decoded, or as much of it as fits.
//!
//! Chunks of a packed cube hold all bands, so without this, every new band, spectrum or mask would
//! decode the cube again.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::Result;
use hsipack_pack::physical::Cube;
use hsipack_pack::preview::Sampling;
use hsipack_store::{memory, threads};

use super::deadline::Deadline;
use super::grid;
use crate::subject::CubeKey;

/// Number of threads that decode a cube.
const THREADS: usize = 4;

/// Physical values of the pixels of a cube that are held.
#[derive(Debug)]
pub struct CachedCube {
    /// Rows and columns of these pixels.
    pub sampling: Sampling,
    /// Whether these are all pixels of the cube.
    pub is_whole: bool,
    bands: usize,
    values: Vec<f32>,
}

impl CachedCube {
    /// Reads the values.
    ///
    /// # Errors
    /// If the cube cannot be read, reading takes too long, or there is not enough memory.
    pub fn read(cube: &Cube, deadline: Deadline) -> Result<Self> {
        let sampling = grid::held(cube.shape);
        let bands = cube.shape.bands;
        let mut values = Vec::new();
        memory::room(&mut values, sampling.pixels() * bands, "the cube in view")?;
        values.resize(sampling.pixels() * bands, f32::NAN);
        let mut remaining = &mut values[..];
        let mut reads = Vec::new();
        for rows in sampling.reads(cube.block_rows()) {
            let shown = sampling.rows.partition_point(|row| *row < rows.end)
                - sampling.rows.partition_point(|row| *row < rows.start);
            let part;
            (part, remaining) = remaining.split_at_mut(shown * sampling.columns.len() * bands);
            reads.push((rows, part));
        }
        let threads = if cube.is_stream() {
            1
        } else {
            std::thread::available_parallelism().map_or(1, usize::from).min(THREADS)
        };
        let read = |(): &mut (), (rows, part): (Range<usize>, &mut [f32])| {
            deadline.check()?;
            read_part(cube, &sampling, rows, part)
        };
        threads::in_turn(threads, "view", reads.into_iter(), || (), read)?;
        let is_whole = grid::is_whole(cube.shape, &sampling);
        Ok(Self { sampling, is_whole, bands, values })
    }

    /// The spectrum of a pixel, by its number among the held pixels.
    pub fn spectrum(&self, pixel: usize) -> &[f32] {
        &self.values[pixel * self.bands..][..self.bands]
    }

    /// The place of the pixel in row `row` and column `column` of a cube that is held whole.
    pub fn place(&self, row: usize, column: usize) -> usize {
        debug_assert!(self.is_whole);
        row * self.sampling.columns.len() + column
    }

    /// Number of pixels.
    pub fn pixels(&self) -> usize {
        self.sampling.pixels()
    }
}

/// Reads those pixels of `rows` into `part` that are to be held.
fn read_part(cube: &Cube, sampling: &Sampling, rows: Range<usize>, part: &mut [f32]) -> Result<()> {
    let bands = cube.shape.bands;
    let first = sampling.rows.partition_point(|row| *row < rows.start) * sampling.columns.len();
    cube.read_rows(rows, &mut |row, column, values| {
        for (pixel, offset) in sampling.hits(row, column, values.len() / bands) {
            let to = &mut part[(pixel - first) * bands..][..bands];
            let from = &values[offset * bands..][..bands];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from as f32);
        }
        Ok(())
    })
}

/// The cubes that are held, the one that was read last at the end.
#[derive(Debug, Default)]
pub struct CubeCache(Mutex<Vec<(CubeKey, Arc<CachedCube>)>>);

impl CubeCache {
    /// The cube of this key, which is read unless it is held already. Other callers wait meanwhile,
    /// so that no two cubes are read at once.
    ///
    /// # Errors
    /// The errors of [`CachedCube::read`].
    pub fn hold(&self, key: CubeKey, cube: &Cube, deadline: Deadline) -> Result<Arc<CachedCube>> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = find(&cached, &key) {
            return Ok(held);
        }
        // First drop those that do not fit beside it: two arrays that are shown together are often small.
        let mut bytes = grid::held(cube.shape).pixels() * cube.shape.bands * size_of::<f32>();
        let mut first = cached.len();
        while first > 0 {
            bytes += size_of_val(&*cached[first - 1].1.values);
            if bytes > grid::MAX_CACHED_BYTES {
                break;
            }
            first -= 1;
        }
        cached.drain(..first);
        let held = Arc::new(CachedCube::read(cube, deadline)?);
        cached.push((key, Arc::clone(&held)));
        Ok(held)
    }

    /// The cube of this key if it is held; does not wait.
    pub fn if_held(&self, key: &CubeKey) -> Option<Arc<CachedCube>> {
        find(&self.0.try_lock().ok()?, key)
    }
}

fn find(cached: &[(CubeKey, Arc<CachedCube>)], key: &CubeKey) -> Option<Arc<CachedCube>> {
    cached.iter().find(|(cached_key, _)| cached_key == key).map(|(_, held)| Arc::clone(held))
}
