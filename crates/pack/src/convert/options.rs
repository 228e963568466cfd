//! The options of a conversion.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hsipack_format::geo::cf;
use hsipack_format::{
    Codec, Compressor, CubeShape, DType, Error, Result, Shuffle, SpectralNorm, Tile,
};
use serde::{Deserialize, Serialize};

use super::classes::{ClassName, NewClass};
use super::{pairs, patterns};
use crate::input::Input;

/// The factor by which stored values must be multiplied to get physical values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Store physical values unchanged.
    None,
    /// A power of two for each stack, chosen so that its values fit fp16 and use its precision. It is 1 unless the
    /// greatest magnitude is above 65504 or below 1/16. Every cube is read twice.
    Auto,
    /// Divide values by this before the cast.
    Factor(f64),
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Auto => f.pad("auto"),
            Self::Factor(factor) => factor.fmt(f),
        }
    }
}

impl FromStr for Scale {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Factor).map_err(|_| {
                Error::conflict(format!("{text:?} is not a scale"))
                    .with_remedy("give none, auto or a number such as 2 or 0.001")
            }),
        }
    }
}

/// How missing values are packed. Missing values are those equal to the source's ignore value, NaN, and infinities if
/// spectra are normalised. They are replaced after normalising, so that the replacement is not part of any sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nodata {
    /// They are NaN in the packed cube.
    Nan,
    /// They become this physical value.
    Value(f64),
    /// They are an error.
    Error,
}

impl fmt::Display for Nodata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nan => f.pad("nan"),
            Self::Error => f.pad("error"),
            Self::Value(value) => value.fmt(f),
        }
    }
}

impl FromStr for Nodata {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "error" => Ok(Self::Error),
            // NaN in any spelling.
            Ok(value) if f64::is_nan(value) => Ok(Self::Nan),
            Ok(value) => Ok(Self::Value(value)),
            Err(_) => Err(Error::conflict(format!("{text:?} is not an option for missing values"))
                .with_remedy("give nan, error or a number")),
        }
    }
}

/// Normalisation of each pixel's spectrum. Missing and infinite values are not included, and are missing afterwards
/// (see [`hsipack_format::spectrum`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalize {
    /// No normalisation.
    None,
    /// Divide by the sum of magnitudes over bands; a spectrum of zeros stays zero.
    L1,
    /// Divide by the Euclidean norm over bands; a spectrum of zeros stays zero.
    L2,
    /// Standard normal variate: subtract the mean over bands, then divide by their standard deviation (n − 1). A
    /// constant spectrum becomes zero.
    Snv,
}

hsipack_format::option_names!(Normalize, "normalize", {
    None => "none",
    L1 => "l1",
    L2 => "l2",
    Snv => "snv",
});

impl Normalize {
    /// The normalisation, if there is one.
    pub fn norm(self) -> Option<SpectralNorm> {
        match self {
            Self::None => None,
            Self::L1 => Some(SpectralNorm::L1),
            Self::L2 => Some(SpectralNorm::L2),
            Self::Snv => Some(SpectralNorm::Snv),
        }
    }
}

/// How many mantissa bits of packed values are kept. The others are rounded away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeepBits {
    /// All bits of the type.
    #[default]
    All,
    /// As many bits as hold 99 % of the real information of a sample of the inputs. The plan determines the number, and
    /// the dataset records [`KeepBits::Bits`].
    Auto,
    /// This many: 1 to 10 for float16, 1 to 21 or 23 for float32.
    Bits(u8),
}

impl fmt::Display for KeepBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.pad("all"),
            Self::Auto => f.pad("auto"),
            Self::Bits(bits) => bits.fmt(f),
        }
    }
}

impl FromStr for KeepBits {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.parse()) {
            ("all", _) => Ok(Self::All),
            ("auto", _) => Ok(Self::Auto),
            (_, Ok(bits @ 1..=23)) => Ok(Self::Bits(bits)),
            _ => Err(Error::conflict(format!("{text:?} is not a number of mantissa bits"))
                .with_remedy("give 1 to 10 of float16, 1 to 21 or 23 of float32, auto or all")),
        }
    }
}

impl KeepBits {
    /// The number of bits, if it is known and not all bits are kept.
    pub fn bits(self) -> Option<u8> {
        match self {
            KeepBits::Bits(bits) => Some(bits),
            KeepBits::All | KeepBits::Auto => None,
        }
    }

    fn is_all(&self) -> bool {
        *self == KeepBits::All
    }

    fn check(self, dtype: DType) -> Result<()> {
        let KeepBits::Bits(bits) = self else { return Ok(()) };
        // Rounding to 22 bits only once would have to be computed in more precision than float32, and would gain
        // nothing.
        let (fits, range) = match dtype {
            DType::F32 => (matches!(bits, 1..=21 | 23), "1 to 21, or 23 for all,"),
            _ => (matches!(bits, 1..=10), "1 to 10"),
        };
        if fits {
            return Ok(());
        }
        Err(Error::conflict(format!("{dtype} cannot keep {bits} mantissa bits"))
            .with_remedy(format!("give {range} or auto")))
    }
}

/// Which bands to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BandSelection {
    /// Every band.
    All,
    /// Bands by number from 0, in this order.
    Numbers(Vec<usize>),
    /// Bands whose centre is in one of these ranges in nm, including the ends.
    Wavelengths(Vec<(f64, f64)>),
}

/// A white or dark reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reference {
    /// The cube in this file, averaged over its rows.
    File(String),
    /// For each cube, the file that this pattern gives, with `{dir}`, `{stem}` and `{path}` of the cube.
    Pattern(String),
    /// The reference beside each cube, by the naming rules of the camera makers (`convert/pairs.rs`).
    Auto,
}

impl Reference {
    /// Whether each cube has its own references.
    pub fn is_of_each_cube(&self) -> bool {
        !matches!(self, Self::File(_))
    }
}

/// The fields that patterns of references replace by parts of the cube's path.
const FIELDS: [&str; 4] = ["{dir}", "{stem}", "{path}", "{name}"];

impl FromStr for Reference {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            pattern if FIELDS.iter().any(|field| pattern.contains(field)) => {
                Self::Pattern(pattern.to_owned())
            }
            file => Self::File(file.to_owned()),
        })
    }
}

/// All options that decide the values of a packed cube for a given source. The dataset stores them, so that
/// `validate --source` and `repair` can compute the values again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ValueOptions {
    /// Stored element type: float16 or float32.
    #[serde(with = "dtype_name")]
    pub dtype: DType,
    /// Factor between stored and physical values.
    pub scale: Scale,
    /// How missing values are packed.
    pub nodata: Nodata,
    /// The number that marks missing values. It replaces that of the source.
    pub ignore_value: Option<f64>,
    /// Pack stored numbers, without the scale factors and offsets of the sources.
    pub raw_values: bool,
    /// Mantissa bits of packed values to keep. Recipes omit this if all are kept, because recipes of older versions do
    /// not have it.
    #[serde(skip_serializing_if = "KeepBits::is_all")]
    pub keep_bits: KeepBits,
    /// Normalisation of spectra.
    pub normalize: Normalize,
    /// Bands to keep.
    pub bands: BandSelection,
    /// Drop bands that the source's bad-band list marks.
    pub drop_bad_bands: bool,
    /// White reference.
    pub white: Option<Reference>,
    /// Dark reference.
    pub dark: Option<Reference>,
    /// Reflectance of the white reference panel, above 0 and at most 1.
    pub white_reflectance: f64,
    /// Order of array axes, e.g. `byx`. It replaces that of the source; `11yxb` also names axes of length 1.
    pub axes: Option<String>,
}

impl Default for ValueOptions {
    fn default() -> Self {
        Self {
            dtype: DType::F16,
            scale: Scale::None,
            nodata: Nodata::Nan,
            ignore_value: None,
            raw_values: false,
            keep_bits: KeepBits::All,
            normalize: Normalize::None,
            bands: BandSelection::All,
            drop_bad_bands: false,
            white: None,
            dark: None,
            white_reflectance: 1.0,
            axes: None,
        }
    }
}

mod dtype_name {
    use hsipack_format::DType;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(dtype.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = String::deserialize(deserializer)?;
        DType::from_name(&name).ok_or_else(|| D::Error::custom(format!("no type {name}")))
    }
}

/// How chunks and shards are laid out and compressed.
#[derive(Clone, Debug, PartialEq)]
pub struct LayoutOptions {
    /// Compressor inside Blosc.
    pub compressor: Compressor,
    /// Its level, 0 to 9.
    pub level: u8,
    /// Filter before compression.
    pub shuffle: Shuffle,
    /// Chunk shape; `None` chooses whole rows near 2 MiB.
    pub chunk: Option<ChunkShape>,
    /// The target size of a shard in uncompressed bytes.
    pub shard_bytes: usize,
}

/// A chunk shape chosen by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkShape {
    /// Rows.
    pub rows: usize,
    /// Columns; `None` is the cube's width.
    pub columns: Option<usize>,
}

/// As recorded in `docs/benchmarks`, lz4hc level 4 decodes a third faster than lz4 level 5 and is a tenth smaller.
/// Writing takes twenty times as long, but is done only once.
impl Default for LayoutOptions {
    fn default() -> Self {
        Self {
            compressor: Compressor::Lz4Hc,
            level: 4,
            shuffle: Shuffle::Byte,
            chunk: None,
            shard_bytes: hsipack_format::grid::TARGET_SHARD,
        }
    }
}

impl LayoutOptions {
    /// The codec for chunks of `dtype`.
    pub fn codec(&self, dtype: DType) -> Codec {
        let typesize = dtype.size() as u8;
        Codec {
            compressor: self.compressor,
            level: self.level,
            shuffle: self.shuffle,
            typesize,
            blocksize: 0,
        }
    }

    /// Rows × columns of a chunk of cubes of `shape`.
    pub fn tile(&self, shape: CubeShape, value_size: usize) -> Tile {
        match self.chunk {
            None => Tile::slab(shape, value_size, hsipack_format::grid::TARGET_CHUNK),
            Some(chunk) => Tile {
                rows: chunk.rows.min(shape.rows),
                columns: chunk.columns.unwrap_or(shape.columns).min(shape.columns),
            },
        }
    }
}

/// One `--mask`: where to find the mask of each cube.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskOption {
    /// Name of the mask array.
    pub name: String,
    /// Name of the boolean layer that this pattern gives, if a mask has several layers.
    pub layer: Option<String>,
    /// Path with `{dir}`, `{stem}`, `{name}` and `{path}` for the cube's folder, file name without extension, sample
    /// name, and whole path.
    pub pattern: String,
    /// New ids for its classes. Classes that are not listed keep their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<NewClass>,
    /// Names of its packed class ids. They replace those in mask files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<ClassName>,
}

impl MaskOption {
    /// A mask whose files `pattern` finds, with the classes that the files have.
    pub fn new(name: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            layer: None,
            pattern: pattern.into(),
            classes: Vec::new(),
            class_names: Vec::new(),
        }
    }
}

/// How a conversion treats what already exists at the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A new dataset; the output must not exist.
    Create,
    /// Resume a conversion or an append that was interrupted. If there is nothing to resume, begin it; with `append`,
    /// add to the existing dataset.
    Resume {
        /// Whether the command also requests an append.
        append: bool,
    },
    /// Add cubes to a dataset.
    Append,
}

/// A whole conversion.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Files, folders, globs, `file::variable`, or CSV lists with a `path` column.
    pub inputs: Vec<String>,
    /// Files that hold the arrays of a program. They come after the inputs.
    pub arrays: Vec<Input>,
    /// Files below input folders to skip: glob patterns on the path or the file name.
    pub exclude: Vec<String>,
    /// Skip inputs that cannot be opened, instead of stopping.
    pub skip_errors: bool,
    /// The dataset to write.
    pub output: PathBuf,
    /// What may already exist at the output.
    pub mode: Mode,
    /// Options that decide the values.
    pub values: ValueOptions,
    /// Options that decide the layout.
    pub layout: LayoutOptions,
    /// Masks.
    pub masks: Vec<MaskOption>,
    /// The mask value of cubes that have no mask file. If `None`, a missing mask file is an error.
    pub mask_fill: Option<u16>,
    /// A CSV with a `name` column and any other columns.
    pub table: Option<PathBuf>,
    /// A regular expression on the path whose named groups become columns.
    pub path_columns: Option<String>,
    /// The most by which wavelengths within a stack may differ, in nm.
    pub wavelength_tolerance: f64,
    /// Threads that read, cast and compress.
    pub jobs: usize,
    /// Bytes of memory that all reads together may use.
    pub memory: usize,
    /// The command, which the dataset records.
    pub command: String,
}

impl ConvertOptions {
    /// A conversion of `inputs` to a new dataset at `output`, with defaults for all other options.
    pub fn new(inputs: Vec<String>, output: impl Into<PathBuf>) -> Self {
        Self {
            inputs,
            arrays: Vec::new(),
            exclude: Vec::new(),
            skip_errors: false,
            output: output.into(),
            mode: Mode::Create,
            values: ValueOptions::default(),
            layout: LayoutOptions::default(),
            masks: Vec::new(),
            mask_fill: None,
            table: None,
            path_columns: None,
            wavelength_tolerance: 0.01,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            memory: 256 << 20,
            command: String::new(),
        }
    }

    /// Checks everything that can be checked without reading any file.
    ///
    /// # Errors
    /// If options contradict each other or are out of range.
    pub fn check(&self) -> Result<()> {
        let conflict =
            |what: &str, remedy: &'static str| Err(Error::conflict(what).with_remedy(remedy));
        if self.inputs.is_empty() && self.arrays.is_empty() {
            return conflict("no input was given", "name files, folders, globs or a CSV list");
        }
        if let Scale::Factor(factor) = self.values.scale
            && !(factor.is_finite() && factor > 0.0)
        {
            return conflict(
                "the scale is not a positive number",
                "give none, auto or a number such as 2 or 0.001",
            );
        }
        if !matches!(self.values.dtype, DType::F16 | DType::F32) {
            return conflict("the type is neither float16 nor float32", "choose one of them");
        }
        self.values.keep_bits.check(self.values.dtype)?;
        if self.layout.level > 9 {
            return conflict("the compression level is above 9", "give 0 to 9");
        }
        if self.layout.chunk.is_some_and(|chunk| chunk.rows == 0 || chunk.columns == Some(0)) {
            return conflict(
                "a side of the chunks is 0",
                "give at least 1 pixel, such as 64 rows and 64 columns",
            );
        }
        let panel = self.values.white_reflectance;
        if !(panel > 0.0 && panel <= 1.0) {
            return conflict(
                &format!(
                    "the reflectance of the white panel is {panel}, not above 0 and at most 1"
                ),
                "give it as a fraction of 1, such as 0.99",
            );
        }
        if panel != 1.0 && self.values.white.is_none() {
            return conflict(
                "a reflectance of the white panel is given, but no white reference",
                "give the white reference, or leave out its reflectance",
            );
        }
        for reference in [&self.values.white, &self.values.dark].into_iter().flatten() {
            pairs::check(reference)?;
        }
        for mask in &self.masks {
            patterns::check_fields("mask", &mask.pattern)?;
            check_mask_name(&mask.name)?;
        }
        Ok(())
    }
}

/// Refuses names that a mask array cannot have.
///
/// # Errors
/// If the name is not allowed.
pub(crate) fn check_mask_name(name: &str) -> Result<()> {
    let reserved = ["image", "wavelength", "fwhm", "c", "zarr.json", ""].contains(&name)
        || cf::NAMES.contains(&name);
    // File names on Linux have up to 255 bytes.
    let is_long = name.len() > 200;
    if reserved
        || is_long
        || name.contains(['/', '\\', '\0'])
        || name.starts_with('.')
        || name.starts_with("__")
    {
        return Err(Error::conflict(format!("{name:?} cannot be the name of a mask"))
            .with_remedy("choose another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: FromStr<Err = Error>>(text: &str) -> Option<T> {
        text.parse().ok()
    }

    #[test]
    fn values_that_may_be_numbers_are_read_as_they_are_shown() {
        for scale in [Scale::None, Scale::Auto, Scale::Factor(0.001), Scale::Factor(1e-300)] {
            assert_eq!(parsed(&scale.to_string()), Some(scale));
        }
        for nodata in [Nodata::Nan, Nodata::Error, Nodata::Value(-9999.0), Nodata::Value(0.1)] {
            assert_eq!(parsed(&nodata.to_string()), Some(nodata));
        }
        for bits in [KeepBits::All, KeepBits::Auto, KeepBits::Bits(1), KeepBits::Bits(23)] {
            assert_eq!(parsed(&bits.to_string()), Some(bits));
        }
        assert_eq!(parsed("NaN"), Some(Nodata::Nan));
        assert_eq!("auto".parse(), Ok(Reference::Auto));
        assert_eq!("white.dat".parse(), Ok(Reference::File("white.dat".to_owned())));
    }

    #[test]
    fn other_words_are_refused_with_those_that_there_are() {
        let refused = |error: Error, all: &[&str]| {
            let text = error.to_string();
            assert!(all.iter().all(|part| text.contains(part)), "{text}");
        };
        for bad in ["", "half", "1,5"] {
            refused(bad.parse::<Scale>().unwrap_err(), &["none", "auto", "number", bad]);
            refused(bad.parse::<Nodata>().unwrap_err(), &["nan", "error", "number", bad]);
        }
        for bad in ["", "0", "24", "-1", "2.5", "few"] {
            refused(bad.parse::<KeepBits>().unwrap_err(), &["1 to 10", "auto", bad]);
        }
    }
}
