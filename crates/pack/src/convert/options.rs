//! The options of a conversion.
//!
//! An option is a field, here and nowhere else: its name, its default, its documentation, and the values that it takes.
//! `serde` makes fields the keyword arguments of Python's `hsipack.convert`, what datasets and plans record, and what is
//! compared if a conversion is resumed. The feature `clap` makes them the flags of `hsipack convert` and the keys of its
//! configuration files; the documentation is then also the help.

// The help of arguments: `<group>` in it is not HTML.
#![allow(rustdoc::invalid_html_tags)]

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{bytes, one_of};
use hsipack_format::codec::TARGET_BLOCK;
use hsipack_format::geo::cf;
use hsipack_format::names::{self, by_name};
use hsipack_format::{
    Codec, Compressor, CubeShape, DType, Error, Opt, Result, Shuffle, SpectralNorm, Tile, remedy,
};
use hsipack_source::{Axes, BandPattern, Mosaic};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "clap")]
use super::arguments;
use super::assignment::Assignment;
use super::band_centers::{self, BandCenters};
use super::class_files::CLASS;
use super::classes::{ClassName, NewClass, OptionOfClass};
use crate::input::Input;
use crate::pattern::Pattern;
use crate::table::SplitList;

/// The factor by which stored values must be multiplied to get physical values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
                    .with_remedy(format!("give {SCALES}"))
            }),
        }
    }
}

/// How missing values are packed. Missing values are those equal to the source's ignore value, NaN, and infinities if
/// spectra are normalised. They are replaced after normalising, so that the replacement is not part of any sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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
                .with_remedy(format!("give {NODATA}"))),
        }
    }
}

/// Normalisation of each pixel's spectrum. Missing and infinite values are not included, and are missing afterwards
/// (see [`hsipack_format::spectrum`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
                .with_remedy(format!("give {KEPT_BITS}"))),
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

/// What happens to a cube that no table or list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// It is packed, without the columns of the table or list.
    Keep,
    /// It is left out.
    Skip,
    /// It is an error.
    Error,
}

hsipack_format::option_names!(Unlisted, "unlisted", {
    Keep => "keep",
    Skip => "skip",
    Error => "error",
});

impl Serialize for Unlisted {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// A white or dark reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reference {
    /// The cube in this file, averaged over its rows.
    File(String),
    /// For each cube, the file that this pattern gives.
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

impl FromStr for Reference {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            pattern if Pattern(pattern).is_of_each_cube() => Self::Pattern(pattern.to_owned()),
            file => Self::File(file.to_owned()),
        })
    }
}

const SCALES: &str = "none, auto or a number such as 2 or 0.001";
const NODATA: &str = "nan, error or a number";
const KEPT_BITS: &str = "1 to 10 of float16, 1 to 21 or 23 of float32, auto or all";

/// A value as users give it, a word or a number, or as datasets record it: with its kind, as in `{"factor": 2.0}`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    Word(String),
    Number(f64),
    OfKind(BTreeMap<String, Given>),
}

impl Given {
    fn text(self) -> String {
        match self {
            Self::Word(word) => word,
            Self::Number(number) => number.to_string(),
            Self::OfKind(kinds) => kinds.into_values().map(Self::text).collect(),
        }
    }
}

const SOMETHING_ELSE: Unexpected<'_> = Unexpected::Other("value");

/// Reads a value from [`Given`]. `takes` says what the option takes.
pub(crate) fn words<'de, T, D>(from: D, takes: &str) -> std::result::Result<T, D::Error>
where
    T: FromStr,
    D: Deserializer<'de>,
{
    let given = Given::deserialize(from);
    let text = given.map_err(|_| D::Error::invalid_type(SOMETHING_ELSE, &takes))?.text();
    text.parse().map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &takes))
}

macro_rules! from_words {
    ($($type:ident: $takes:expr;)+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                words(from, $takes)
            }
        }
    )+};
}

from_words! {
    Scale: SCALES;
    Nodata: NODATA;
    KeepBits: KEPT_BITS;
    Reference: "a path, a pattern or auto";
    Unlisted: "keep, skip or error";
}

/// All options that decide the values of a packed cube for a given source. The dataset stores them, so that
/// `validate --source` and `repair` can compute the values again.
// Datasets record them in this order, the help shows them in the order of `display_order`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Values"))]
#[serde(default)]
pub struct ValueOptions {
    /// Type of the packed values
    #[serde(serialize_with = "by_name::serialize", deserialize_with = "dtype")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TYPE", value_parser = one_of(&DTYPES), default_value_t = DType::F16, display_order = 21))]
    pub dtype: DType,
    /// Divide values by this factor before the cast. It is recorded as scale_factor, so that readers undo it
    ///
    /// auto takes a power of two for each cube shape, which is 1 unless values exceed 65504 or stay below 1/16. It reads
    /// every cube twice.
    #[cfg_attr(feature = "clap", arg(long, value_name = "none|auto|FACTOR", default_value_t = Scale::None, display_order = 20))]
    pub scale: Scale,
    /// How to pack missing values (the file's ignore value, and NaN), after normalising: as nan, as this
    /// VALUE, or not at all (error)
    #[cfg_attr(feature = "clap", arg(long, value_name = "nan|VALUE|error", default_value_t = Nodata::Nan, allow_negative_numbers = true, display_order = 17))]
    pub nodata: Nodata,
    /// Stored number that marks missing values; overrides the file
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "VALUE", allow_negative_numbers = true, display_order = 18)
    )]
    pub ignore_value: Option<f64>,
    /// Pack numbers as they are stored: do not apply the scale factor and offset of the file
    #[cfg_attr(feature = "clap", arg(long, display_order = 19))]
    pub raw_values: bool,
    /// Round values to N mantissa bits; float16 has 10, float32 has 23
    ///
    /// The other bits become zero, and take almost no space once compressed. auto keeps as many bits as hold 99 % of the
    /// real information in a sample of the cubes. `hsipack tune` shows the gain and the cost.
    // Recipes omit this if all are kept, because recipes of older versions do not have it.
    #[serde(skip_serializing_if = "KeepBits::is_all")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "all|auto|N", default_value_t = KeepBits::All, display_order = 22))]
    pub keep_bits: KeepBits,
    /// Normalise each spectrum
    ///
    /// l1 divides by the sum of magnitudes, l2 by the Euclidean norm. snv gives mean 0 and standard deviation 1 (over
    /// n - 1). Missing and infinite values are not counted, and are missing afterwards. A spectrum of zeros becomes
    /// zeros; with snv, so does a spectrum of equal values.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = one_of(&Normalize::ALL), default_value_t = Normalize::None, display_order = 16))]
    pub normalize: Normalize,
    /// Bands to keep.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub bands: BandSelection,
    /// Drop the bands that the file's bad-band list marks as bad
    #[cfg_attr(feature = "clap", arg(long, display_order = 15))]
    pub drop_bad_bands: bool,
    /// White reference: a cube of the same sensor, averaged over its rows
    ///
    /// Give a file for all cubes; or a pattern with fields, as --mask, such as {dir}/white/{stem}.hdr;
    /// or `auto` for the reference beside each cube, WHITEREF_NAME (Specim) or whiteReference (Headwall). Packs
    /// (value - dark) / (white - dark), each file in its own scale, times the ratio of integration times if they differ.
    /// --dry-run lists the references of each cube.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE|PATTERN|auto", display_order = 10))]
    pub white: Option<Reference>,
    /// Dark reference, given like --white (auto takes DARKREF_NAME or darkReference)
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE|PATTERN|auto", display_order = 11))]
    pub dark: Option<Reference>,
    /// Reflectance of the white panel, above 0 and at most 1
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "R", default_value_t = 1.0, requires = "white", display_order = 12)
    )]
    pub white_reflectance: f64,
    /// Order of the axes of arrays, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b (row, column, band) once
    /// each, 1 for axes of length 1 to drop, as in 11yxb, and n for an axis of samples, each of which is a cube, as in nyxb.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ORDER", help_heading = "Inputs"))]
    pub axes: Option<String>,
    /// ENVI header of raw files that have none: a path with {dir}, {stem} or {path} of each file, such as
    /// '{dir}/camera.hdr'
    // Recipes omit this and the following options if they are not used, because those of older versions do not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Inputs"))]
    pub header: Option<String>,
    /// Band centres: first:last (400:700), a list (400,410,420), a file, or an array in one ('{path}::VAR')
    ///
    /// Centres are in nm, or in µm if all are below 100; a unit may follow a number, as in 0.4um:0.7um. first:last is for
    /// bands at equal distances, both ends included. A file is a text of one centre for each band, a CSV with a column
    /// wavelength, an ENVI header, or holds an array; its path may contain {dir}, {stem} and {path} of each cube. Centres
    /// in the cube's own file are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "A:B|LIST|FILE", help_heading = "Inputs"))]
    pub band_centers: Option<String>,
    /// Cubes with a file for each band: a pattern of the files, such as '*_{band}.png' or 'TOA_{nm}nm.tif'
    ///
    /// {band} is the number of the band, {nm} or {um} its wavelength; bands are in this order. Every folder below the input
    /// that holds such files is a cube. If the stars match different texts in one folder, each of them is a cube. The
    /// pattern may contain folders, as in '{nm}/*.tif'.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Inputs"))]
    pub bands_from: Option<String>,
    /// Frames of a snapshot camera: rows x columns of the tile of filters, such as 4x4
    ///
    /// A whole tile is a pixel, and its bands are in row order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWSxCOLUMNS", help_heading = "Inputs"))]
    pub mosaic: Option<Mosaic>,
}

/// Options of values that recipes omit if they are not used.
const LATER_VALUES: [&str; 4] = ["header", "band_centers", "bands_from", "mosaic"];

/// The types of packed values.
const DTYPES: [DType; 2] = [DType::F16, DType::F32];

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
            header: None,
            band_centers: None,
            bands_from: None,
            mosaic: None,
        }
    }
}

impl ValueOptions {
    /// The order of axes that the user gives.
    ///
    /// # Errors
    /// If it is not one.
    pub fn axes(&self) -> Result<Option<Axes>> {
        let parse = |text: &String| {
            Axes::parse(text).ok_or_else(|| {
                Error::conflict(format!("{text:?} is not a valid order of axes")).with_remedy(
                    "spell it with y, x and b, each once, such as byx, 1 for axes of length 1 to leave out, \
                     such as 11yxb, and n for an axis of samples, such as nyxb",
                )
            })
        };
        self.axes.as_ref().map(parse).transpose()
    }
}

fn dtype<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<DType, D::Error> {
    let name = String::deserialize(from)?;
    names::value("dtype", &name, &DTYPES, DType::name)
        .map_err(|error| names::refused(&name, &error))
}

/// How chunks and shards are laid out and compressed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Layout"))]
#[serde(default)]
pub struct LayoutOptions {
    /// Compressor: lz4hc (fastest to read), lz4 (20 times faster to write, a tenth larger), zstd
    /// (smallest, slowest to read), zlib or blosclz
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = one_of(&Compressor::ALL), default_value_t = Compressor::Lz4Hc))]
    pub codec: Compressor,
    /// Compression level, 0 (no compression) to 9
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9)))]
    pub level: u8,
    /// Shuffle filter before compression
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = one_of(&Shuffle::ALL), default_value_t = Shuffle::Byte))]
    pub shuffle: Shuffle,
    /// Chunk shape in pixels: ROWS (full width), or ROWSxCOLUMNS for crops of large scenes
    /// [default: whole rows of about 2 MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWS[xCOLUMNS]"))]
    pub chunk: Option<ChunkShape>,
    /// Target size of the blocks of a chunk, uncompressed, within Blosc's limits (64 KiB to 1 MiB).
    /// Blocks divide a chunk evenly if they can. Small ones suit GPUs, which decompress each alone
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "128kB"))]
    pub block_size: usize,
    /// Target size of a shard file, uncompressed; a shard holds at least one cube
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "512MiB"))]
    pub shard_size: usize,
}

fn at_least_1<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<usize, D::Error> {
    NonZeroUsize::deserialize(from).map(usize::from)
}

/// A chunk shape chosen by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "(usize, Option<usize>)")]
pub struct ChunkShape {
    /// Rows.
    pub rows: usize,
    /// Columns; `None` is the cube's width.
    pub columns: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GivenChunk {
    Rows(usize),
    Both(usize, Option<usize>),
}

impl<'de> Deserialize<'de> for ChunkShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let takes = "at least 1 pixel: rows, or (rows, columns)";
        match GivenChunk::deserialize(from) {
            Ok(GivenChunk::Rows(0) | GivenChunk::Both(0, _) | GivenChunk::Both(_, Some(0))) => {
                Err(D::Error::invalid_value(Unexpected::Unsigned(0), &takes))
            }
            Ok(GivenChunk::Rows(rows)) => Ok(Self { rows, columns: None }),
            Ok(GivenChunk::Both(rows, columns)) => Ok(Self { rows, columns }),
            Err(_) => Err(D::Error::invalid_type(SOMETHING_ELSE, &takes)),
        }
    }
}

impl From<ChunkShape> for (usize, Option<usize>) {
    fn from(chunk: ChunkShape) -> Self {
        (chunk.rows, chunk.columns)
    }
}

impl FromStr for ChunkShape {
    type Err = String;

    /// Parses `ROWS` or `ROWSxCOLUMNS`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let number = |part: &str| {
            part.parse().map_err(|_| "give ROWS or ROWSxCOLUMNS, such as 16 or 64x64".to_owned())
        };
        match text.split_once(['x', 'X']) {
            Some((rows, columns)) => {
                Ok(Self { rows: number(rows)?, columns: Some(number(columns)?) })
            }
            None => Ok(Self { rows: number(text)?, columns: None }),
        }
    }
}

/// As recorded in `docs/benchmarks`, lz4hc level 4 decodes a third faster than lz4 level 5 and is a tenth smaller.
/// Writing takes twenty times as long, but is done only once.
impl Default for LayoutOptions {
    fn default() -> Self {
        Self {
            codec: Compressor::Lz4Hc,
            level: 4,
            shuffle: Shuffle::Byte,
            chunk: None,
            block_size: TARGET_BLOCK,
            shard_size: hsipack_format::grid::TARGET_SHARD,
        }
    }
}

impl LayoutOptions {
    /// The codec for chunks with this number of values of `dtype`.
    pub fn codec(&self, dtype: DType, values: usize) -> Codec {
        let codec = Codec::new(self.codec, self.level, self.shuffle, dtype);
        codec.with_blocks(self.block_size, values.saturating_mul(dtype.size()))
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
    /// Path with fields.
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

impl MaskOption {
    /// Whether it has a file for each class.
    pub(crate) fn is_by_class(&self) -> bool {
        self.layer.as_deref() == Some(CLASS)
    }

    /// Patterns with its fields. The class is not a field of cubes.
    fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let parts = self.is_by_class().then(|| self.pattern.split(CLASS));
        let whole = (!self.is_by_class()).then_some(&*self.pattern);
        parts.into_iter().flatten().chain(whole).map(Pattern)
    }
}

impl FromStr for MaskOption {
    type Err = String;

    /// Parses `PATTERN`, `NAME=PATTERN`, `NAME:LAYER=PATTERN` or `NAME:{class}=PATTERN`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let plain = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "_-.:# ".contains(c))
        };
        let (name, pattern) = match text.split_once('=') {
            Some((name, pattern)) if plain(name.strip_suffix(":{class}").unwrap_or(name)) => {
                (name, pattern)
            }
            _ => ("mask", text),
        };
        if pattern.is_empty() {
            return Err("the pattern is empty".into());
        }
        let (name, layer) = match name.split_once(':') {
            Some((name, layer)) => (name, Some(layer.to_owned())),
            None => (name, None),
        };
        Ok(Self { layer, ..Self::new(name, pattern) })
    }
}

/// How a conversion treats what already exists at the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct Mode {
    /// Continue an interrupted conversion or append (run the same command plus --resume)
    // If there is nothing to resume, begin it.
    #[cfg_attr(feature = "clap", arg(long))]
    pub resume: bool,
    /// Add the cubes to the dataset at OUT
    #[cfg_attr(feature = "clap", arg(long))]
    pub append: bool,
}

impl Mode {
    /// A new dataset; the output must not exist.
    pub const CREATE: Self = Self { resume: false, append: false };
    /// Add cubes to a dataset.
    pub const APPEND: Self = Self { resume: false, append: true };
    /// Resume a conversion or an append that was interrupted.
    pub const RESUME: Self = Self { resume: true, append: false };
}

/// A whole conversion.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ConvertOptions {
    /// Files, folders and archives (searched for cubes), globs in quotes, file::variable, CSV lists, or URLs of these.
    /// Hidden files in folders and globs are skipped
    #[cfg_attr(feature = "clap", arg(required = true, value_name = "INPUT"))]
    pub inputs: Vec<String>,
    /// Files that hold the arrays of a program. They come after the inputs.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub arrays: Vec<Input>,
    /// Dataset to write: a folder that does not exist yet, or a URL (s3://, gs://, az://) where nothing is stored yet
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "OUT"))]
    pub output: PathBuf,
    /// What may already exist at the output.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub mode: Mode,
    /// Skip files and folders below input folders whose path or name matches this glob (repeatable)
    #[cfg_attr(feature = "clap", arg(long, value_name = "GLOB", help_heading = "Inputs"))]
    pub exclude: Vec<String>,
    /// Skip inputs that cannot be opened, and list them, instead of stopping
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Inputs"))]
    pub skip_errors: bool,
    /// CSV, TSV, JSON, JSON lines or Parquet with a `name` column. The other columns (label, group, split, any) go to
    /// samples.jsonl as numbers, booleans (True, False) or text; empty cells become null
    ///
    /// FILE.json::KEY names a part of a JSON file. Keys of nested objects become columns with dots: files.header. A column
    /// with the name of a field that hsipack writes itself becomes table.NAME.
    ///
    /// The name of a cube is its path below the folder that was given, without the ending: day1/scan_01. For files and
    /// patterns it is the file's name without the ending: scan_01.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = "Samples"))]
    pub table: Option<PathBuf>,
    /// Column of the table that identifies a cube, and the text that it has for the cube, such as file={stem}.npy
    /// [default: name={name}]
    ///
    /// The pattern has fields, as --mask.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "COLUMN=PATTERN", requires = "table", help_heading = "Samples",)
    )]
    pub table_key: Option<Assignment>,
    /// Add the columns of another table (repeatable): OTHER is a key of the same JSON file, or another file; its rows are
    /// found by the equal value in COLUMN of the table, as in annotations.record_id=id
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "OTHER.COLUMN=COLUMN",
            requires = "table",
            help_heading = "Samples",
        )
    )]
    pub table_join: Vec<Assignment>,
    /// List of the samples of a split (repeatable): names, stems or paths, one a line, or a JSON list; or a JSON file with
    /// such lists by the names of splits
    ///
    /// Lists of folds, as in [{"train": [...], "val": [...]}, ...], become the columns fold0/train, fold0/val, fold1/train, ...,
    /// which are true for the samples in a list and false for others.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAME=FILE|FILE.json", help_heading = "Samples",)
    )]
    pub split: Vec<SplitList>,
    /// Column that is the label of each sample [default: label]
    #[cfg_attr(feature = "clap", arg(long, value_name = "COLUMN", help_heading = "Samples"))]
    pub label_column: Option<String>,
    /// Whether to keep or skip cubes without a row in the table or without a list, or stop with an error
    /// [default: error for tables, keep for lists]
    #[cfg_attr(feature = "clap", arg(long, value_name = "keep|skip|error", value_parser = one_of(&Unlisted::ALL), help_heading = "Samples"))]
    pub unlisted: Option<Unlisted>,
    /// Name of each sample, with fields, as --mask; such as '{group}#{time}' [default: the path below the input folder]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Samples"))]
    pub name: Option<String>,
    /// Regular expression for the path of each cube. Its named groups become columns, as in
    /// '(?P<group>patient\d+)/(?P<label>\w+)_', and fields of patterns
    #[cfg_attr(feature = "clap", arg(long, value_name = "REGEX", help_heading = "Samples"))]
    pub path_columns: Option<String>,
    /// Pack a mask with each cube: a path with {dir}, {stem}, {name} or {path} of the cube in it, such as
    /// '{dir}/{stem}_mask.png' or '{path}::gt' (repeatable) [default NAME: mask]
    ///
    /// Further fields are {relative} (the path below the input folder), {parent} (the name of the cube's folder),
    /// {variable} and {group} (what follows '::' in an input, and the group of that variable), {1}, {2}, … (what the stars
    /// of an input matched), the columns of --table, and the named groups of --path-columns, as in '{dir}/{scene}_gt.mat'.
    ///
    /// Masks are PNG, NumPy, MATLAB, ENVI, TIFF or HDF5 files. A relative path is tried from the working directory and
    /// beside the cube. NAME:LAYER= packs boolean layers into the bits of one mask. The word `product` makes layers of
    /// the quality files of EnMAP, DESIS, PRISMA, … (quality=product). With a file for each class, write {class} in the
    /// place of LAYER and in the path, as in 'organs:{class}={dir}/{stem}_{class}.png'.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "[NAME[:LAYER]=]PATTERN|product", help_heading = "Samples")
    )]
    pub mask: Vec<MaskOption>,
    /// Class id, 0 to 65535, for cubes that have no mask file, and for pixels without a class (NaN, negative or nodata)
    /// [default: both are errors]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "ID", requires = "mask", help_heading = "Samples")
    )]
    pub mask_fill: Option<u16>,
    /// Give classes of a mask new ids, such as tumour=3,7=3,*=255 (repeatable)
    /// [default: classes that are not named keep their ids]
    ///
    /// CLASS is a class id of the mask file, another whole number in it or nan, as in -1=255, the name of a class in the
    /// file, or * for everything else. With several masks, write NAME.CLASS=ID.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "CLASS=ID",
            value_delimiter = ',',
            allow_hyphen_values = true,
            requires = "mask",
            help_heading = "Samples"
        )
    )]
    pub classes: Vec<OptionOfClass<u16>>,
    /// Name the classes of a mask, such as 1=tumour,2=vessel (repeatable) [default: the names in the mask files]
    ///
    /// Tables, pictures and pages then show the names. ID is a class id as it is packed, after --classes is applied. With
    /// several masks, write the mask's name before it, such as organs.1=liver. Names cannot contain commas.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "ID=NAME",
            value_delimiter = ',',
            requires = "mask",
            help_heading = "Samples"
        )
    )]
    pub class_names: Vec<OptionOfClass<String>>,
    /// Options that decide the values.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub values: ValueOptions,
    /// Maximum difference of the wavelengths of cubes of one shape, in nm
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NM", default_value_t = 0.01, help_heading = "Values")
    )]
    pub wavelength_tolerance: f64,
    /// Options that decide the layout.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub layout: LayoutOptions,
    /// Number of threads [default: one per core]
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(short, long, value_parser = arguments::threads(), default_value_t = cores(), hide_default_value = true, help_heading = "Resources"))]
    pub jobs: usize,
    /// Memory for reading, for all threads together; more memory makes transposing large scenes faster
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256MiB", help_heading = "Resources"))]
    pub memory: usize,
    /// The command, which the dataset records.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

/// The default of [`ConvertOptions::memory`].
pub(super) const MEMORY: usize = 256 << 20;

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            inputs: Vec::new(),
            arrays: Vec::new(),
            output: PathBuf::new(),
            mode: Mode::CREATE,
            exclude: Vec::new(),
            skip_errors: false,
            table: None,
            table_key: None,
            table_join: Vec::new(),
            split: Vec::new(),
            label_column: None,
            unlisted: None,
            name: None,
            path_columns: None,
            mask: Vec::new(),
            mask_fill: None,
            classes: Vec::new(),
            class_names: Vec::new(),
            values: ValueOptions::default(),
            wavelength_tolerance: 0.01,
            layout: LayoutOptions::default(),
            jobs: cores(),
            memory: MEMORY,
            command: String::new(),
        }
    }
}

impl ConvertOptions {
    /// A conversion of `inputs` to a new dataset at `output`, with defaults for all other options.
    pub fn new(inputs: Vec<String>, output: impl Into<PathBuf>) -> Self {
        Self { inputs, output: output.into(), ..Self::default() }
    }

    /// All options by name.
    pub fn by_name(&self) -> Map<String, Value> {
        let Value::Object(mut all) = serde_json::json!(self) else { unreachable!("a structure") };
        // Recipes omit some defaults.
        all.entry("keep_bits").or_insert_with(|| serde_json::json!(self.values.keep_bits));
        for name in LATER_VALUES {
            all.entry(name).or_insert(Value::Null);
        }
        all
    }

    /// The same options, with new ids and names of classes in their masks.
    ///
    /// # Errors
    /// If a class is of no mask, or has two new ids or names.
    pub(crate) fn with_classes(&self) -> Result<Self> {
        let mut options = self.clone();
        for class in options.classes.drain(..) {
            let (mask, class, id) = class.among(&options.mask);
            MaskOption::give_class(&mut options.mask, mask.as_deref(), NewClass { class, id })?;
        }
        for class in options.class_names.drain(..) {
            let (mask, class, name) = class.among(&options.mask);
            let class = ClassName { id: class.id()?, name };
            MaskOption::name_class(&mut options.mask, mask.as_deref(), class)?;
        }
        Ok(options)
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
        if self.mask_fill.is_some() && self.mask.is_empty() {
            let what = format!("{} without {}", Opt::MaskFill, Opt::Mask);
            return Err(Error::conflict(what)
                .with_remedy(remedy!["give the paths of the masks with ", Opt::Mask]));
        }
        if !DTYPES.contains(&self.values.dtype) {
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
        if self.table_key.is_some() && self.table.is_none() {
            let what = format!("{} without {}", Opt::TableKey, Opt::Table);
            return Err(
                Error::conflict(what).with_remedy(remedy!["give the table with ", Opt::Table])
            );
        }
        if let Some(centers) = &self.values.band_centers {
            BandCenters::parse(centers)?;
        }
        if let Some(pattern) = &self.values.bands_from {
            BandPattern::parse(pattern)?;
        }
        self.mask.iter().try_for_each(|mask| check_mask_name(&mask.name))
    }

    /// The patterns of all options, whose fields are looked up for each cube.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let references = [&self.values.white, &self.values.dark].into_iter().flatten();
        let references = references.filter_map(|reference| match reference {
            Reference::Pattern(pattern) => Some(pattern),
            Reference::File(_) | Reference::Auto => None,
        });
        let masks = self.mask.iter().flat_map(MaskOption::patterns);
        let of_table = self.table_key.iter().map(|key| &key.value);
        let centers = self.values.band_centers.iter();
        let of_bands = centers.filter(|centers| band_centers::is_pattern(centers));
        let of_bands = self.values.header.iter().chain(of_bands);
        let others = references.chain(of_bands).chain(&self.name).chain(of_table);
        masks.chain(others.map(|text| Pattern(text)))
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
    use serde_json::json;

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
    fn masks_have_names_and_layers() {
        let parts = |text: &str| {
            let mask: MaskOption = text.parse().unwrap();
            (mask.name, mask.layer, mask.pattern)
        };
        assert_eq!(parts("{dir}/{stem}.png"), ("mask".into(), None, "{dir}/{stem}.png".into()));
        assert_eq!(parts("organs=a.png"), ("organs".into(), None, "a.png".into()));
        assert_eq!(parts("t:bone=a.png"), ("t".into(), Some("bone".into()), "a.png".into()));
        assert_eq!(parts("/a=b/{stem}.png"), ("mask".into(), None, "/a=b/{stem}.png".into()));
        let by_class: MaskOption = "organs:{class}={dir}/{stem}_{class}.png".parse().unwrap();
        assert!(by_class.is_by_class() && by_class.name == "organs");
        let fields: Vec<&str> = by_class.patterns().flat_map(Pattern::fields).collect();
        assert_eq!(fields, ["dir", "stem"]);
        assert_eq!(parts("{stem}=a.png"), ("mask".into(), None, "{stem}=a.png".into()));
        assert!("organs=".parse::<MaskOption>().is_err());
    }

    #[test]
    fn options_are_read_as_given_and_as_recorded() {
        let read = |given: Value| serde_json::from_value::<ConvertOptions>(given);
        let given = read(json!({
            "inputs": ["a"], "output": "b", "append": true, "scale": 2, "nodata": -1.5, "keep_bits": 7, "white": "w.hdr",
            "chunk": [8, 4], "codec": "zstd", "mask": [{ "name": "m", "pattern": "{stem}.png" }],
        }))
        .unwrap();
        assert_eq!((given.mode, given.values.scale), (Mode::APPEND, Scale::Factor(2.0)));
        assert_eq!(given.values.nodata, Nodata::Value(-1.5));
        assert_eq!(given.values.keep_bits, KeepBits::Bits(7));
        assert_eq!(given.values.white, Some(Reference::File("w.hdr".to_owned())));
        assert_eq!((given.layout.codec, given.mask.len()), (Compressor::Zstd, 1));
        let again = read(Value::Object(given.by_name())).unwrap();
        assert_eq!(again.by_name(), given.by_name());
        assert_eq!(given.by_name()["scale"], json!({ "factor": 2.0 }));
        for (wrong, expected) in [
            (json!({ "append": 1 }), "expected a boolean"),
            (json!({ "level": -1 }), "expected u8"),
            (json!({ "jobs": 0 }), "nonzero"),
            (json!({ "chunk": 0 }), "at least 1 pixel"),
            (json!({ "chunk": "8x8" }), "invalid type: value, expected at least 1 pixel"),
            (json!({ "scale": "half" }), "none, auto or a number"),
            (json!({ "scale": [1] }), "invalid type: value, expected none, auto or a number"),
            (json!({ "keep_bits": 7.5 }), "1 to 10"),
            (json!({ "dtype": "int8" }), "float16, float32"),
            (json!({ "codec": 3 }), "expected a string"),
        ] {
            let error = read(wrong.clone()).unwrap_err().to_string();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
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
