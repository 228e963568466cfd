//! Targets: floats for each pixel of a cube, with one or several channels, such as abundances or concentrations. A target is
//! stored beside the image like a mask, and its values are made like those of a cube.

use std::path::Path;
use std::sync::Mutex;

use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::metadata::TargetMeaning;
use hsipack_format::{Codec, CubeShape, DType, Error, ErrorKind, Grid, Opt, Result, Tile, remedy};
use hsipack_source::{OpenOptions, Source};

use super::assignment::Assignment;
use super::encode::OpenCube;
use super::masks::CubeOfMask;
use super::named_files;
use super::options::LayoutOptions;
use super::transform::Transform;
use crate::fingerprint::fingerprint;

/// The role of a target, in errors.
pub(super) const ROLE: &str = "the target";

/// The type of packed targets. A network learns their values, so they are not rounded to fp16: one band of float32 is small
/// beside a spectrum.
pub const DTYPE: DType = DType::F32;

/// One target array of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedTarget {
    /// Name of the array.
    pub name: String,
    /// Its chunks and shards; its bands are the channels.
    pub grid: Grid,
    /// How its chunks are compressed.
    pub codec: Codec,
    /// Names of its channels, and the unit of its values.
    pub meaning: TargetMeaning,
}

impl PlannedTarget {
    /// The number of its axes: without channels, (sample, y, x).
    pub fn axes(&self) -> usize {
        if self.grid.shape().bands == 1 { 3 } else { 4 }
    }
}

/// Targets in the order of their names.
pub(super) fn sorted(targets: &[Assignment]) -> Vec<Assignment> {
    let mut targets = targets.to_vec();
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    targets
}

/// The grid of a target with `channels` beside images of this shape and element size.
///
/// # Errors
/// If its chunks would be too large.
pub(super) fn grid(
    layout: &LayoutOptions,
    image: CubeShape,
    image_size: usize,
    channels: usize,
) -> Result<Grid> {
    let shape = CubeShape { bands: channels, ..image };
    let tile = match layout.chunk {
        Some(_) => layout.tile(image, image_size),
        None => Tile::slab(shape, DTYPE.size(), TARGET_CHUNK),
    };
    let grid = Grid::new(shape, tile, Grid::samples_for(image, image_size, layout.shard_size))?;
    if grid.chunk_values() * DTYPE.size() > hsipack_format::codec::MAX_CHUNK {
        return Err(Error::conflict(format!(
            "a chunk of {}x{} pixels and {channels} channels of a target is above 2 GiB",
            tile.rows, tile.columns
        ))
        .with_remedy(remedy!["choose a smaller ", Opt::Chunk]));
    }
    Ok(grid)
}

/// An open target of one cube.
pub struct TargetReader {
    source: Box<dyn Source>,
}

impl TargetReader {
    /// Opens the file of a target.
    ///
    /// # Errors
    /// If the file is missing, cannot be read, holds no numbers, or has another size than the cube.
    pub fn open(target: &Assignment, cube: CubeOfMask<'_>) -> Result<Self> {
        let (input, image) = (cube.input, [cube.rows, cube.columns]);
        let Assignment { name, value: pattern } = target;
        let Some(file) = named_files::find(pattern, input, ROLE)? else {
            let why = named_files::absence(pattern, input);
            return Err(Error::new(
                ErrorKind::Io,
                format!("its target {name:?} is missing: {why}"),
            )
            .at(&input.file)
            .with_remedy(remedy!["check the pattern of ", Opt::Target]));
        };
        let options = OpenOptions {
            variable: file.variable.clone(),
            // Arrays with two axes, and pictures with their values.
            mask: true,
            colors: true,
            image: Some(image),
            sample: input.sample(),
            samples: input.number_of_samples()?,
            ..OpenOptions::default()
        };
        let source = hsipack_source::open(&file.file, &options)?;
        let shape = source.info().shape;
        if [shape.rows, shape.columns] != image {
            let why = match [shape.columns, shape.rows] == image {
                true => "; its sides are exchanged",
                false => "",
            };
            return Err(Error::conflict(format!(
                "the target {name:?} has {}x{} pixels, but its cube {} has {}x{}{why}",
                shape.rows,
                shape.columns,
                input.text(),
                image[0],
                image[1]
            ))
            .at(&file.file)
            .with_remedy("give a target with a value for each pixel of its cube, rows × columns"));
        }
        Ok(Self { source })
    }

    /// Number of its channels.
    pub fn channels(&self) -> usize {
        self.source.info().shape.bands
    }

    /// Names of its channels and the unit of its values, from its file.
    pub fn meaning(&self) -> TargetMeaning {
        let info = self.source.info();
        let channel_names = info.band_names.clone().filter(|_| self.channels() > 1);
        TargetMeaning { channel_names, unit: info.unit.clone() }
    }

    /// Its first file.
    pub fn file(&self) -> &Path {
        &self.source.info().files[0]
    }

    /// Fingerprint of its files.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        Ok(fingerprint(&self.source.info().files)?.1)
    }

    /// Its source, and how values are made: physical values, and NaN where they are missing.
    pub fn into_values(self) -> (Box<dyn Source>, Transform) {
        let transform = Transform { dtype: DTYPE, ..Transform::physical(self.source.info(), None) };
        (self.source, transform)
    }

    /// The target as a cube that is packed into an array with this grid and codec.
    ///
    /// # Errors
    /// If the array has another number of channels.
    pub fn into_cube(self, grid: Grid, codec: Codec) -> Result<OpenCube> {
        let (channels, planned) = (self.channels(), grid.shape().bands);
        if channels != planned {
            let what = format!("the target has {channels} channels instead of {planned}");
            return Err(Error::conflict(what)
                .at(self.file())
                .with_remedy("restore the file that was packed"));
        }
        let (source, transform) = self.into_values();
        Ok(OpenCube { source, transform, grid, codec, dtype: DTYPE, turn: Mutex::new(()) })
    }
}
