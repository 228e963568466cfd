//! Adjacent rows of some cubes, prepared as for packing, and the chunks that a grid cuts them into.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::{Command, CubeShape, DType, ErrorKind, Opt, Tile};
use hsipack_pack::convert::plan::{self, ExactIntegers};
use hsipack_pack::convert::{ConvertOptions, PackedType, ValueOptions, integers};
use hsipack_pack::physical;
use hsipack_pack::precision::{self, Budget};
use hsipack_store::dataset::RowScratch;
use hsipack_store::{Dataset, Stack, is_packed, mirror};
use serde::Serialize;

use super::options::TuneOptions;
use crate::{Error, Result};

/// Maximum number of cubes in the sample.
const CUBES: usize = 16;
/// Bytes of a float16 value.
const VALUE: usize = 2;

/// Rows of one cube.
pub struct Piece {
    /// Name of the cube.
    pub name: String,
    /// Shape of the whole cube.
    pub shape: CubeShape,
    /// Which rows of the cube.
    pub rows: Range<usize>,
    /// Values before the cast, (row, column, band).
    pub values: Vec<f32>,
    /// The same values as float16.
    pub packed: Vec<f16>,
    /// The same values as they are stored in [`Sample::integers`]; otherwise empty.
    pub integers: Vec<u8>,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
}

/// The sample that all candidates are tried on.
pub struct Sample {
    /// Rows of cubes.
    pub pieces: Vec<Piece>,
    /// The integers that the values are exactly, if all cubes have such.
    pub integers: Option<ExactIntegers>,
    /// Number of all cubes.
    pub cubes: usize,
    /// Bytes of all cubes as float16, uncompressed.
    pub total_bytes: u64,
    /// Whether the values come from a packed dataset, and so are already cast.
    pub packed: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Size and origin of the sample.
#[derive(Clone, Debug, Serialize)]
pub struct SampleReport {
    /// Number of cubes in the sample.
    pub cubes: usize,
    /// Bytes of these rows, as float16.
    pub bytes: u64,
    /// Number of all cubes.
    pub all_cubes: usize,
    /// Bytes of all cubes, as float16.
    pub all_bytes: u64,
    /// Shapes of the cubes.
    pub shapes: Vec<String>,
    /// Whether the values come from a packed dataset.
    pub from_dataset: bool,
}

/// Bytes, cut into chunks.
pub struct Chunks {
    data: Vec<Vec<u8>>,
    cuts: Vec<(usize, Range<usize>)>,
}

impl Chunks {
    /// Cuts the `data` of each cube at its `cuts`. Chunks are taken from all cubes in turn, so that
    /// the first few are a fair sample.
    pub fn in_turn(data: Vec<Vec<u8>>, cuts: &[Vec<Range<usize>>]) -> Self {
        let deepest = cuts.iter().map(Vec::len).max().unwrap_or(0);
        let in_turn = (0..deepest).flat_map(|depth| {
            cuts.iter()
                .enumerate()
                .filter_map(move |(piece, cuts)| cuts.get(depth).map(|cut| (piece, cut.clone())))
        });
        Self { cuts: in_turn.collect(), data }
    }

    /// Number of chunks.
    pub fn len(&self) -> usize {
        self.cuts.len()
    }

    /// The chunk with index `at`.
    pub fn get(&self, at: usize) -> &[u8] {
        let (piece, range) = &self.cuts[at];
        &self.data[*piece][range.clone()]
    }

    /// Total size of all chunks in bytes.
    pub fn bytes(&self) -> usize {
        self.cuts.iter().map(|(_, range)| range.len()).sum()
    }

    /// Size of the largest chunk in bytes.
    pub fn largest(&self) -> usize {
        self.cuts.iter().map(|(_, range)| range.len()).max().unwrap_or(0)
    }
}

impl Sample {
    /// Reads rows of the cubes at the given paths.
    ///
    /// # Errors
    /// If the cubes cannot be read, or there are none.
    pub fn read(options: &TuneOptions, stop: &AtomicBool) -> Result<Self> {
        let path = std::path::Path::new(&options.paths[0]);
        let mut sample = match options.paths.as_slice() {
            [_] if is_packed(path) => Self::of_dataset(&Dataset::open(path)?, options, stop)?,
            _ => Self::of_cubes(options, stop)?,
        };
        let infinite = |piece: &Piece| {
            piece
                .values
                .iter()
                .zip(&piece.packed)
                .filter(|(x, y)| x.is_finite() && y.is_infinite())
                .count()
        };
        let overflow: usize = sample.pieces.iter().map(infinite).sum();
        if overflow > 0 {
            sample.notes.push(format!(
                "{overflow} values of the sample do not fit float16; pack them with {}",
                Command::Convert.with(Opt::Scale.to("auto"))
            ));
        }
        Ok(sample)
    }

    fn of_cubes(options: &TuneOptions, stop: &AtomicBool) -> Result<Self> {
        let mut convert = ConvertOptions::new(options.paths.clone(), "tune");
        convert.exclude = options.exclude.clone();
        convert.values.axes = options.axes.clone();
        let _inputs = mirror::session();
        let plan = plan::plan(&convert, None, stop).map_err(mirror::error_with_urls)?;
        let budget = Budget { values: options.sample_bytes() / VALUE, cubes: CUBES, blocks: 1 };
        let piece = |block: precision::Block| {
            let mut packed = vec![f16::ZERO; block.values.len()];
            packed.convert_from_f32_slice(block.values);
            Ok(Piece {
                name: block.sample.name.clone(),
                shape: block.shape,
                rows: block.rows,
                values: block.values.to_vec(),
                packed,
                integers: Vec::new(),
                wavelength: plan.stacks[block.sample.stack].wavelength.clone(),
            })
        };
        let mut pieces =
            precision::map_blocks(&plan, &convert.values, budget, convert.threads, stop, piece)?;
        let integers = plan::exact_integers(&plan, &convert.values, convert.resources(), stop)?;
        if let Some(exact) = &integers {
            let values = ValueOptions { dtype: exact.dtype, ..convert.values.clone() };
            let numbers = |block: precision::Block| integers_of(exact, block.values);
            let found =
                precision::map_blocks(&plan, &values, budget, convert.threads, stop, numbers)?;
            pieces.iter_mut().zip(found).for_each(|(piece, found)| piece.integers = found);
        }
        let is_exact = pieces.iter().all(|piece| !piece.integers.is_empty());
        let bytes = |stack: &plan::PlannedStack| {
            (stack.grid.shape().values() * VALUE * stack.samples.len()) as u64
        };
        Ok(Self {
            pieces,
            integers: integers.filter(|_| is_exact),
            cubes: plan.samples.len(),
            total_bytes: plan.stacks.iter().map(bytes).sum(),
            packed: false,
            notes: plan.notes,
        })
    }

    fn of_dataset(dataset: &Dataset, options: &TuneOptions, stop: &AtomicBool) -> Result<Self> {
        let all = dataset.samples();
        let cubes = all.len().min(CUBES);
        let mut pieces = Vec::new();
        for number in 0..cubes {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped"));
            }
            let id = number * all.len() / cubes;
            let stack = &dataset.stacks()[all.stack(id)];
            pieces.push(rows_of(dataset, stack, id, options.sample_bytes() / VALUE / cubes)?);
        }
        if pieces.is_empty() {
            return Err(Error::malformed("the dataset has no cubes").at(dataset.path()));
        }
        let bytes =
            |stack: &Stack| (stack.image.shape().values() * VALUE * stack.image.len()) as u64;
        let kept =
            dataset.stacks().iter().find_map(|stack| stack.image.meta().band_notes().keep_bits);
        let notes = kept.map(|bits| {
            format!("the dataset keeps only {bits} mantissa bits, so more cannot be tested; to keep more, convert from the sources")
        });
        let of_stack = |stack: &Stack| {
            let dtype = PackedType::of(stack.image.meta().dtype)?;
            let scaling = stack.image.scaling();
            (!dtype.dtype().is_float()).then_some(ExactIntegers { dtype, scaling })
        };
        let mut integers = dataset.stacks().iter().map(of_stack);
        let first = integers.next().flatten();
        Ok(Self {
            pieces,
            integers: first.filter(|first| integers.all(|other| other == Some(*first))),
            cubes: all.len(),
            total_bytes: dataset.stacks().iter().map(bytes).sum(),
            packed: true,
            notes: notes.into_iter().collect(),
        })
    }

    /// The same for the integers, which must be there.
    pub fn integer_chunks(&self, chunk_bytes: usize) -> Arc<Chunks> {
        let size = self.integers.map_or(VALUE, |exact| exact.dtype.dtype().size());
        let cuts = self.pieces.iter().map(|piece| piece.cuts_of(size, chunk_bytes));
        let data = self.pieces.iter().map(|piece| piece.integers.clone());
        Arc::new(Chunks::in_turn(data.collect(), &cuts.collect::<Vec<_>>()))
    }

    /// Cuts the sample as the grid of each cube does for chunks of about `chunk_bytes`, and rounds
    /// it to `keep_bits` mantissa bits.
    pub fn chunks(&self, chunk_bytes: usize, keep_bits: Option<u8>) -> Arc<Chunks> {
        let data = self.pieces.iter().map(|piece| match keep_bits {
            None => bytemuck::cast_slice(&piece.packed).to_vec(),
            Some(bits) => bytemuck::cast_slice(&piece.rounded(bits)).to_vec(),
        });
        let cuts: Vec<Vec<_>> = self.pieces.iter().map(|piece| piece.cuts(chunk_bytes)).collect();
        Arc::new(Chunks::in_turn(data.collect(), &cuts))
    }

    /// Bytes of the sample.
    pub fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.packed.len() * VALUE).sum()
    }

    /// Mean bytes of a cube.
    pub fn cube_bytes(&self) -> f64 {
        self.total_bytes as f64 / self.cubes.max(1) as f64
    }

    /// Describes the sample for the report.
    pub fn report(&self) -> SampleReport {
        let mut shapes: Vec<String> =
            self.pieces.iter().map(|piece| piece.shape.to_string()).collect();
        shapes.sort();
        shapes.dedup();
        SampleReport {
            cubes: self.pieces.len(),
            bytes: self.bytes() as u64,
            all_cubes: self.cubes,
            all_bytes: self.total_bytes,
            shapes,
            from_dataset: self.packed,
        }
    }
}

/// Rows from the middle of a packed cube with about `values` values.
fn rows_of(dataset: &Dataset, stack: &Stack, id: usize, values: usize) -> Result<Piece> {
    let (image, samples) = (&stack.image, dataset.samples());
    let shape = image.shape();
    let count = (values / shape.row_values()).clamp(1, shape.rows);
    let start = (shape.rows - count) / 2;
    let rows = start..start + count;
    let size = image.meta().dtype.size();
    let mut bytes = vec![0; count * shape.row_values() * size];
    image.read_rows(samples.index(id), rows.clone(), &mut RowScratch::default(), &mut bytes)?;
    let mut integers = Vec::new();
    let mut values = vec![0.0; count * shape.row_values()];
    let mut packed = vec![f16::ZERO; values.len()];
    if !image.meta().dtype.is_float() {
        // The physical values of integers, as loaders deliver them.
        values.clear();
        physical::Cube::of_sample(dataset, &samples.get(id)?)?.read_rows(
            rows.clone(),
            &mut |_, _, physical| {
                values.extend(physical.iter().map(|value| *value as f32));
                Ok(())
            },
        )?;
        packed.convert_from_f32_slice(&values);
        integers = bytes;
    } else if image.meta().dtype == DType::F32 {
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(&bytes);
        packed.convert_from_f32_slice(&values);
    } else {
        bytemuck::cast_slice_mut(&mut packed).copy_from_slice(&bytes);
        packed.convert_to_f32_slice(&mut values);
    }
    let wavelength = stack.wavelength.clone();
    Ok(Piece {
        name: samples.name(id).to_owned(),
        shape,
        rows,
        values,
        packed,
        integers,
        wavelength,
    })
}

/// The integers of a block, as they are stored; none if some value is not one of them.
fn integers_of(exact: &ExactIntegers, numbers: &[f32]) -> Result<Vec<u8>> {
    let (dtype, missing) =
        (exact.dtype.dtype(), exact.scaling.missing.map(|missing| missing as i64));
    let mut bytes = vec![0; numbers.len() * dtype.size()];
    let written = integers::write(numbers, dtype, missing, &mut bytes);
    Ok(if written.is_ok() { bytes } else { Vec::new() })
}

impl Piece {
    /// The values with `bits` mantissa bits, rounded as in a conversion.
    pub fn rounded(&self, bits: u8) -> Vec<f16> {
        let mut wide = vec![0.0; self.values.len()];
        precision::round_f16(&self.values, bits, &mut wide);
        let mut packed = vec![f16::ZERO; wide.len()];
        packed.convert_from_f32_slice(&wide);
        packed
    }

    /// Byte ranges of the chunks. Only whole chunks are used; if not even one fits, all rows form
    /// one chunk.
    fn cuts(&self, chunk_bytes: usize) -> Vec<Range<usize>> {
        self.cuts_of(VALUE, chunk_bytes)
    }

    /// The same for values of `size` bytes.
    fn cuts_of(&self, size: usize, chunk_bytes: usize) -> Vec<Range<usize>> {
        let row = self.shape.row_values() * size;
        let bytes = self.rows.len() * row;
        let chunk = (Tile::slab(self.shape, size, chunk_bytes).rows * row).min(bytes);
        (0..bytes / chunk).map(|at| at * chunk..(at + 1) * chunk).collect()
    }
}

#[cfg(test)]
pub(super) fn of_values(shape: CubeShape, values: Vec<f32>) -> Sample {
    let mut packed = vec![f16::ZERO; values.len()];
    packed.convert_from_f32_slice(&values);
    let total_bytes = (values.len() * VALUE) as u64;
    let rows = 0..shape.rows;
    let (name, integers) = ("cube".into(), Vec::new());
    let piece = Piece { name, shape, rows, values, packed, integers, wavelength: None };
    let (pieces, integers, notes) = (vec![piece], None, Vec::new());
    Sample { pieces, integers, cubes: 1, total_bytes, packed: false, notes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_are_the_grids(rows in 1usize..60, columns in 1usize..9, bands in 1usize..9, target in 1usize..5000) {
            let shape = CubeShape::new(rows, columns, bands);
            let values: Vec<f32> = (0..shape.values()).map(|at| at as f32).collect();
            let sample = of_values(shape, values);
            let chunks = sample.chunks(target, None);
            let tile = Tile::slab(shape, VALUE, target);
            prop_assert_eq!(chunks.len(), rows / tile.rows);
            prop_assert_eq!(chunks.largest(), tile.rows * shape.row_values() * VALUE);
            let all: Vec<u8> = (0..chunks.len()).flat_map(|at| chunks.get(at).to_vec()).collect();
            let packed: &[u8] = bytemuck::cast_slice(&sample.pieces[0].packed);
            prop_assert_eq!(&all[..], &packed[..all.len()]);
        }
    }
}
