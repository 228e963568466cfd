//! Companions: arrays of floats beside the image of each cube. Their values are made like those of
//! a cube.
//!
//! | role | option | values |
//! |---|---|---|
//! | target | `--target` | float32, for each pixel; one or several channels |
//! | further image | `--image` | own bands, perhaps a whole ratio finer or coarser; a type that loses nothing (see [`dtype_of`]) |

use std::path::Path;
use std::sync::Mutex;

use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::metadata::{CompanionMeaning, Role};
use hsipack_format::{
    Codec, CubeShape, DType, Error, ErrorKind, Grid, Opt, Ratio, Result, Tile, remedy,
};
use hsipack_source::labels::Alignment;
use hsipack_source::{CubeInfo, OpenOptions, Source};

use super::encode::OpenCube;
use super::fit::fitted;
use super::masks::CubeOfMask;
use super::named_files;
use super::options::CompanionOption;
use super::transform::Transform;
use crate::fingerprint::{self, fingerprint};
use crate::input::Input;

/// One companion of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCompanion {
    /// Name of the array.
    pub name: String,
    /// Type of its values.
    pub dtype: DType,
    /// Its chunks and shards. The bands of a target are its channels.
    pub grid: Grid,
    /// How its chunks are compressed.
    pub codec: Codec,
    /// Its role, its resolution, and the names of its bands.
    pub meaning: CompanionMeaning,
}

impl PlannedCompanion {
    /// The number of its axes. A target of one channel has no axis of channels.
    pub fn axes(&self) -> usize {
        match self.meaning.role {
            Role::Target if self.grid.shape().bands == 1 => 3,
            Role::Target | Role::Image => 4,
        }
    }

    /// Bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        self.grid.shape().values() * self.dtype.size()
    }

    /// Refuses another companion of the same name that has another role, type, number of bands,
    /// resolution or unit, or bands that differ by more than `tolerance` nm.
    ///
    /// # Errors
    /// If they differ.
    pub fn check_like(
        &self,
        dtype: DType,
        bands: usize,
        meaning: &CompanionMeaning,
        tolerance: f64,
    ) -> Result<()> {
        let Some([ours, theirs]) = self.difference(dtype, bands, meaning, tolerance) else {
            return Ok(());
        };
        let (name, role) = (&self.name, self.meaning.role.words());
        let what = format!("its {role} {name:?} {ours}, but {theirs} in other cubes");
        Err(Error::conflict(what).with_remedy(match ours.contains("channel") {
            true => "give every cube a target with the same channels".to_owned(),
            false => format!("give every cube a {role} of the same kind"),
        }))
    }

    /// How it differs from one of the same name in another cube: its own words, and those of the
    /// other.
    fn difference(
        &self,
        dtype: DType,
        bands: usize,
        meaning: &CompanionMeaning,
        tolerance: f64,
    ) -> Option<[String; 2]> {
        let (role, own_bands) = (self.meaning.role, self.grid.shape().bands);
        if role != meaning.role {
            return Some([
                format!("is a {}", role.words()),
                format!("is a {}", meaning.role.words()),
            ]);
        }
        if own_bands != bands {
            return Some([format!("has {own_bands} {}s", role.bands()), bands.to_string()]);
        }
        if self.dtype != dtype {
            return Some([format!("is packed as {}", self.dtype), format!("as {dtype}")]);
        }
        let [own_ratio, ratio] = [self.meaning.ratio, meaning.ratio];
        if own_ratio != ratio {
            let words = |ratio: Ratio| format!("{ratio} times the rows and columns");
            return Some([format!("has {} of its cube", words(own_ratio)), words(ratio)]);
        }
        if let (Some(ours), Some(theirs)) = (&self.meaning.unit, &meaning.unit)
            && ours != theirs
        {
            return Some([format!("is in {ours}"), format!("in {theirs}")]);
        }
        let (ours, theirs) = (self.meaning.wavelength.as_ref()?, meaning.wavelength.as_ref()?);
        let band = ours.iter().zip(theirs).position(|(a, b)| (a - b).abs() > tolerance)?;
        Some([format!("has band {band} at {} nm", ours[band]), format!("at {} nm", theirs[band])])
    }

    /// Its name with its type, number of bands and resolution, as in
    /// `rgb (float16, 3 bands, 2 x the rows and columns)`.
    pub fn text(&self) -> String {
        let Self { name, dtype, meaning, .. } = self;
        if meaning.role == Role::Target {
            return name.clone();
        }
        let bands = match self.grid.shape().bands {
            1 => "1 band".to_owned(),
            bands => format!("{bands} bands"),
        };
        let ratio = match meaning.ratio.is_same() {
            true => String::new(),
            false => format!(", {} x the rows and columns", meaning.ratio),
        };
        format!("{name} ({dtype}, {bands}{ratio})")
    }
}

/// The type of a companion's values, whose image has the type `image`. It holds the values of the
/// source exactly, unless these are computed or are floats: such values are rounded as those of the
/// image are.
fn dtype_of(role: Role, info: &CubeInfo, is_computed: bool, image: DType) -> DType {
    // A network learns the values of targets, so they are not rounded to fp16: one band of float32 is small beside a spectrum.
    if role == Role::Target {
        return DType::F32;
    }
    let is_stored = info.scaling.is_none() && info.band_scaling.is_none() && !is_computed;
    match info.dtype {
        DType::Bool | DType::U8 | DType::I8 if is_stored => DType::F16,
        DType::U16 | DType::I16 if is_stored => DType::F32,
        _ if image.is_float() => image,
        _ => DType::F16,
    }
}

/// The grid of a companion of this shape and type, beside images of the shape `image`, of which a
/// shard has `per_shard`. `tile` is the chunk shape that the user chose for the images; companions
/// with their pixels have it, too.
///
/// # Errors
/// If its chunks would be too large.
pub(crate) fn grid(
    tile: Option<Tile>,
    per_shard: usize,
    image: CubeShape,
    shape: CubeShape,
    dtype: DType,
) -> Result<Grid> {
    let has_pixels = (shape.rows, shape.columns) == (image.rows, image.columns);
    let tile = tile.filter(|_| has_pixels);
    let tile = tile.unwrap_or_else(|| Tile::slab(shape, dtype.size(), TARGET_CHUNK));
    let grid = Grid::new(shape, tile, per_shard)?;
    if grid.chunk_values() * dtype.size() > hsipack_format::codec::MAX_CHUNK {
        return Err(Error::conflict(format!(
            "a chunk of {}x{} pixels and {} bands is above 2 GiB",
            tile.rows, tile.columns, shape.bands
        ))
        .with_remedy(remedy!["choose a smaller ", Opt::Chunk]));
    }
    Ok(grid)
}

/// Opens the file of a companion, whatever its size is.
fn open_source(role: Role, file: &Input, cube: CubeOfMask<'_>) -> Result<Box<dyn Source>> {
    let (input, image) = (cube.input, [cube.rows, cube.columns]);
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
    if role == Role::Target {
        return hsipack_source::open(&file.file, &options);
    }
    // A further image is a cube itself, with bands and perhaps a product. An array that is none, or whose axes do not fit, is
    // opened like a mask: its axes are those that fit the cube.
    let as_cube = OpenOptions { variable: file.variable.clone(), ..OpenOptions::default() };
    let fits = |source: &dyn Source| {
        let shape = source.info().shape;
        Ratio::of([shape.rows, shape.columns], image).is_some()
    };
    match hsipack_source::open(&file.file, &as_cube) {
        Ok(source) if fits(&*source) => Ok(source),
        opened => match hsipack_source::open(&file.file, &options) {
            Ok(source) if fits(&*source) || opened.is_err() => Ok(source),
            _ => opened,
        },
    }
}

/// An open companion of one cube.
pub struct CompanionReader {
    role: Role,
    source: Box<dyn Source>,
    ratio: Ratio,
    /// Whether its values are means of those of its file.
    is_computed: bool,
    /// A note about its place on Earth.
    pub(super) place_note: Option<String>,
}

impl CompanionReader {
    /// Opens the file of a companion.
    ///
    /// # Errors
    /// If the file is missing, cannot be read, holds no numbers, or its size does not fit the cube.
    pub fn open(companion: &CompanionOption, cube: CubeOfMask<'_>) -> Result<Self> {
        let (input, image) = (cube.input, [cube.rows, cube.columns]);
        let CompanionOption { role, name, pattern, fit } = companion;
        let Some(file) = named_files::find(pattern, input, companion.words())? else {
            let why = named_files::absence(pattern, input);
            let what = format!("its {} {name:?} is missing: {why}", role.words());
            return Err(Error::new(ErrorKind::Io, what)
                .at(&input.file)
                .with_remedy(remedy!["check the pattern of ", companion.option()]));
        };
        let source = open_source(companion.role, &file, cube)?;
        let shape = source.info().shape;
        let size = [shape.rows, shape.columns];
        let ratio = Ratio::of(size, image);
        let alignment = match (cube.geo, &source.info().geo, ratio) {
            (Some(ours), Some(theirs), Some(_)) => Alignment::of(ours, image, theirs, size),
            _ => Alignment::OnCube(0.0),
        };
        let place_note = alignment.note(&format!("{} {name}", role.words()));
        if alignment == Alignment::Elsewhere {
            let what = format!(
                "the {} {name:?} lies elsewhere on Earth than its cube {}, by the coordinates in both files",
                role.words(),
                input.text()
            );
            return Err(Error::conflict(what).at(&file.file).with_remedy(
                "warp it to the pixels of the cube (gdalwarp), or correct or remove the coordinates of one of the files",
            ));
        }
        let (ratio, is_fitted) = match (ratio, role, fit) {
            (Some(ratio), ..) if ratio.is_same() => (ratio, false),
            (Some(ratio), _, Some(_)) => (ratio, true),
            (Some(ratio), Role::Image, None) => (ratio, false),
            _ => {
                let error = Error::conflict(format!(
                    "the {} {name:?} has {}x{} pixels, but its cube {} has {}x{}{}",
                    role.words(),
                    size[0],
                    size[1],
                    input.text(),
                    image[0],
                    image[1],
                    if [size[1], size[0]] == image { "; its sides are exchanged" } else { "" }
                ));
                return Err(error.at(&file.file).with_remedy(match (role, ratio) {
                    (Role::Target, Some(_)) => remedy![
                        "give a target with a value for each pixel of its cube, or bring it to them with ",
                        Opt::Fit
                    ],
                    (Role::Target, None) => {
                        "give a target with a value for each pixel of its cube, rows × columns".into()
                    }
                    (Role::Image, _) => {
                        "give an image with the rows and columns of its cube, or both a whole number of times as many, or as few"
                            .into()
                    }
                }));
            }
        };
        let Some(fit) = fit.filter(|_| is_fitted) else {
            return Ok(Self { role: *role, source, ratio, is_computed: false, place_note });
        };
        let (source, is_computed) = fitted(source, fit, ratio);
        Ok(Self { role: *role, source, ratio: Ratio::EQUAL, is_computed, place_note })
    }

    /// Shape of its values.
    pub fn shape(&self) -> CubeShape {
        self.source.info().shape
    }

    /// The type of its values, if those of the image have the type `image`.
    pub fn dtype(&self, image: DType) -> DType {
        dtype_of(self.role, self.source.info(), self.is_computed, image)
    }

    /// Its resolution, the names of its bands and the unit of its values, from its file.
    pub fn meaning(&self) -> CompanionMeaning {
        let (info, role) = (self.source.info(), self.role);
        let names = info.band_names.clone();
        let (band_names, wavelength, fwhm) = match role {
            Role::Target => (names.filter(|_| info.shape.bands > 1), None, None),
            Role::Image => (names, info.wavelength.clone(), info.fwhm.clone()),
        };
        CompanionMeaning {
            role,
            ratio: self.ratio,
            band_names,
            unit: info.unit.clone(),
            wavelength,
            fwhm,
        }
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

    /// Whether its files are those that were planned, with this fingerprint.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn is_as_planned(&self, planned: &str) -> Result<bool> {
        fingerprint::is_still(&self.source.info().files, planned)
    }

    /// Its source, and how values of this type are made: physical values, and NaN where they are
    /// missing.
    pub fn into_values(self, dtype: DType) -> (Box<dyn Source>, Transform) {
        let transform = Transform { dtype, ..Transform::physical(self.source.info(), None) };
        (self.source, transform)
    }

    /// The companion as a cube that is packed into an array with this grid, codec and type.
    ///
    /// # Errors
    /// If the array has another shape.
    pub fn into_cube(self, grid: Grid, codec: Codec, dtype: DType) -> Result<OpenCube> {
        let (shape, planned) = (self.shape(), grid.shape());
        if shape != planned {
            let what =
                format!("the {} has the shape {shape} instead of {planned}", self.role.words());
            return Err(Error::conflict(what)
                .at(self.file())
                .with_remedy("restore the file that was packed"));
        }
        let (source, transform) = self.into_values(dtype);
        Ok(OpenCube { source, transform, grid, codec, dtype, missing: None, turn: Mutex::new(()) })
    }
}
