//! Options that decide the values of packed cubes.

// The help of arguments: `<group>` in it is not HTML.
#![allow(rustdoc::invalid_html_tags)]

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "clap")]
use hsipack_format::arguments::one_of;
use hsipack_format::names::by_name;
use hsipack_format::{DType, Error, Opt, Result, SpectralNorm, remedy};
use hsipack_source::{Axes, BandGrid, Mosaic};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use super::words::words;
#[cfg(feature = "clap")]
use crate::convert::arguments;
use crate::pattern::Pattern;

/// The factor by which stored values must be multiplied to get physical values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Store physical values unchanged.
    None,
    /// A power of two for each stack, chosen so that its values fit fp16 and use its precision. It
    /// is 1 unless the greatest magnitude is above 65504 or below 1/16. Every cube is read twice.
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

/// Type of packed values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackedType {
    /// Half precision.
    #[default]
    F16,
    /// Single precision.
    F32,
    /// The integers of the inputs, as they are.
    I16,
    /// The integers of the inputs, as they are.
    U16,
    /// The integers of the inputs, as they are.
    U8,
    /// The narrowest integer type that holds the values of all inputs exactly; float16 if there is
    /// none. The plan chooses it, and the dataset records the type.
    Auto,
}

hsipack_format::option_names!(PackedType, "dtype", {
    F16 => "float16",
    F32 => "float32",
    I16 => "int16",
    U16 => "uint16",
    U8 => "uint8",
    Auto => "auto",
});

impl PackedType {
    /// The element type. Before a plan chooses it, cubes are planned as float16.
    pub const fn dtype(self) -> DType {
        match self {
            Self::F16 | Self::Auto => DType::F16,
            Self::F32 => DType::F32,
            Self::I16 => DType::I16,
            Self::U16 => DType::U16,
            Self::U8 => DType::U8,
        }
    }

    /// The packed type with this element type; `None` if values are never packed so.
    pub fn of(dtype: DType) -> Option<Self> {
        Self::ALL.into_iter().find(|packed| packed.dtype() == dtype)
    }
}

/// How missing values are packed. Missing values are those equal to the marker
/// ([`ValueOptions::nodata`]), NaN, and infinities if spectra are normalised. They are replaced
/// after normalising, so that the replacement is not part of any sum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// They are NaN in the packed cube.
    Nan,
    /// They become this physical value.
    Value(f64),
    /// They are an error.
    Error,
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nan => f.pad("nan"),
            Self::Error => f.pad("error"),
            Self::Value(value) => value.fmt(f),
        }
    }
}

impl FromStr for Fill {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "error" => Ok(Self::Error),
            // NaN in any spelling.
            Ok(value) if f64::is_nan(value) => Ok(Self::Nan),
            Ok(value) => Ok(Self::Value(value)),
            Err(_) => Err(Error::conflict(format!("{text:?} is not an option for missing values"))
                .with_remedy(format!("give {FILLS}"))),
        }
    }
}

/// Normalisation of each pixel's spectrum. Missing and infinite values are not included, and are
/// missing afterwards (see [`hsipack_format::spectrum`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    /// No normalisation.
    None,
    /// Divide by the sum of magnitudes over bands; a spectrum of zeros stays zero.
    L1,
    /// Divide by the Euclidean norm over bands; a spectrum of zeros stays zero.
    L2,
    /// Standard normal variate: subtract the mean over bands, then divide by their standard
    /// deviation (n − 1). A constant spectrum becomes zero.
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
    /// As many bits as hold 99 % of the real information of a sample of the inputs. The plan
    /// determines the number, and the dataset records [`KeepBits::Bits`].
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

    pub(super) fn check(self, dtype: DType) -> Result<()> {
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
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reference {
    /// The cube in this file, averaged over its rows.
    File(String),
    /// For each cube, the file that this pattern gives.
    Pattern(String),
    /// The reference beside each cube, by the naming rules of the camera makers
    /// (`convert/pairs.rs`).
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
const FILLS: &str = "nan, error or a number";
const KEPT_BITS: &str = "1 to 10 of float16, 1 to 21 or 23 of float32, auto or all";

from_words! {
    Scale: SCALES;
    Fill: FILLS;
    KeepBits: KEPT_BITS;
    Reference: "a path, a pattern or auto";
}

/// All options that decide the values of a packed cube for a given source. The dataset stores them,
/// so that `validate --source` and `repair` can compute the values again.
// Datasets record them in this order, the help shows them in the order of `display_order`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Values"))]
#[serde(default)]
pub struct ValueOptions {
    /// Type of the packed values
    ///
    /// int16, uint16 and uint8 keep the integers of the inputs bit for bit, with one scale factor,
    /// offset and fill value for all; what cannot be kept exactly is refused. auto takes the
    /// narrowest of them that holds the inputs, otherwise float16, and says why.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TYPE", value_parser = one_of(&PackedType::ALL), default_value_t = PackedType::F16, display_order = 21))]
    pub dtype: PackedType,
    /// Divide values by this factor before the cast. It is recorded as scale_factor, so that
    /// readers undo it
    ///
    /// auto takes a power of two for each cube shape, which is 1 unless values exceed 65504 or stay
    /// below 1/16. It reads every cube twice.
    #[cfg_attr(feature = "clap", arg(long, value_name = "none|auto|FACTOR", default_value_t = Scale::None, display_order = 20))]
    pub scale: Scale,
    /// Pack missing values (NaN, and the number that marks them), after normalising, as nan or as
    /// this VALUE, or stop with an error
    #[cfg_attr(feature = "clap", arg(long, value_name = "nan|VALUE|error", default_value_t = Fill::Nan, allow_hyphen_values = true, display_order = 17))]
    pub fill: Fill,
    /// Stored number that marks missing values, such as -9999 [default: what the file says]
    #[serde(deserialize_with = "nodata")]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "VALUE", value_parser = arguments::nodata, allow_hyphen_values = true, display_order = 18)
    )]
    pub nodata: Option<f64>,
    /// Pack numbers as they are stored: do not apply the scale factor and offset of the file
    #[cfg_attr(feature = "clap", arg(long, display_order = 19))]
    pub raw_values: bool,
    /// Round values to N mantissa bits; float16 has 10, float32 has 23
    ///
    /// The other bits become zero, and take almost no space once compressed. auto keeps as many
    /// bits as hold 99 % of the real information in a sample of the cubes. `hsipack tune` shows the
    /// gain and the cost.
    // Recipes omit this if all are kept, because recipes of older versions do not have it.
    #[serde(skip_serializing_if = "KeepBits::is_all")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "all|auto|N", default_value_t = KeepBits::All, display_order = 22))]
    pub keep_bits: KeepBits,
    /// Normalise each spectrum
    ///
    /// l1 divides by the sum of magnitudes, l2 by the Euclidean norm. snv gives mean 0 and standard
    /// deviation 1 (over n - 1). Missing and infinite values are not counted, and are missing
    /// afterwards. A spectrum of zeros becomes zeros; with snv, so does a spectrum of equal values.
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
    /// Give a file for all cubes; or a pattern with fields, as --mask, such as
    /// {dir}/white/{stem}.hdr; or `auto` for the reference beside each cube, WHITEREF_NAME (Specim)
    /// or whiteReference (Headwall). Packs (value - dark) / (white - dark), each file in its own
    /// scale, times the ratio of integration times if they differ. --dry-run lists the references
    /// of each cube.
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
    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b
    /// (row, column, band) once each, 1 for axes of length 1 to drop, as in 11yxb, and n for an
    /// axis of samples, each of which is a cube, as in nyxb.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ORDER", help_heading = "Inputs"))]
    pub axes: Option<String>,
    /// ENVI header of raw files that have none: a path with {dir}, {stem} or {path} of each file,
    /// such as '{dir}/camera.hdr'
    // Recipes omit this and the following options if they are not used, because those of older versions do not have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Inputs"))]
    pub header: Option<String>,
    /// Band centres: first:last (400:700), a list (400,410,420), a file, or an array in one
    /// ('{path}::VAR')
    ///
    /// Centres are in nm, or in µm if all are below 100; a unit may follow a number, as in
    /// 0.4um:0.7um. first:last is for bands at equal distances, both ends included. A file is a
    /// text of one centre for each band, a CSV with a column wavelength, an ENVI header, or holds
    /// an array; its path may contain {dir}, {stem} and {path} of each cube. Centres in the cube's
    /// own file are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "A:B|LIST|FILE", help_heading = "Inputs"))]
    pub band_centers: Option<String>,
    /// Cubes with a file for each band: a pattern of the files, such as '*_{band}.png' or
    /// 'TOA_{nm}nm.tif'
    ///
    /// {band} is the number of the band, {nm} or {um} its wavelength; bands are in this order.
    /// Every folder below the input that holds such files is a cube. If the stars match different
    /// texts in one folder, each of them is a cube. The pattern may contain folders, as in
    /// '{nm}/*.tif'.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN", help_heading = "Inputs"))]
    pub bands_from: Option<String>,
    /// Files of bands that `exclude` leaves out, if cubes have a file for each band: the values
    /// depend on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub bands_exclude: Vec<String>,
    /// Frames of a snapshot camera: rows x columns of the tile of filters, such as 4x4
    ///
    /// A whole tile is a pixel, and its bands are in row order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWSxCOLUMNS", help_heading = "Inputs"))]
    pub mosaic: Option<Mosaic>,
    /// Resample spectra to other bands: those of a CSV with the columns wavelength and fwhm, an
    /// ENVI header, a dataset or a cube
    ///
    /// Each new band is a mean of the physical values of the cube's bands, weighted by a Gaussian
    /// of its fwhm; without fwhm, it is interpolated linearly. Wavelengths are in nm, or in µm if
    /// all are below 100. Bands where the cube has none are NaN and marked as bad. --bands,
    /// --wavelengths and --drop-bad-bands then choose among the new bands.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", display_order = 15))]
    pub resample: Option<BandGrid>,
}

/// Options of values that recipes omit if they are not used.
pub(super) const LATER_VALUES: [&str; 5] =
    ["header", "band_centers", "bands_from", "mosaic", "resample"];

impl Default for ValueOptions {
    fn default() -> Self {
        Self {
            dtype: PackedType::F16,
            scale: Scale::None,
            fill: Fill::Nan,
            nodata: None,
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
            bands_exclude: Vec::new(),
            mosaic: None,
            resample: None,
        }
    }
}

/// Names of options in this struct, and those under which datasets record them.
const RECORDED: [(&str, &str); 2] = [("fill", "nodata"), ("nodata", "ignore_value")];

impl ValueOptions {
    /// Whether packed values, times their scale factor, are the physical values that the files of
    /// the cubes define.
    pub(crate) fn are_physical(&self) -> bool {
        !self.raw_values
            && self.white.is_none()
            && self.dark.is_none()
            && self.normalize == Normalize::None
    }

    /// The options as a dataset records them.
    pub(crate) fn record(&self) -> Value {
        let Value::Object(options) = serde_json::json!(self) else { unreachable!("a structure") };
        let recorded = options.into_iter().map(|(name, value)| {
            match RECORDED.iter().find(|(option, _)| *option == name) {
                Some((_, recorded)) => ((*recorded).to_owned(), value),
                None => (name, value),
            }
        });
        recorded.collect::<Map<_, _>>().into()
    }

    /// The options that a dataset records.
    ///
    /// # Errors
    /// If it is not such a record.
    pub(crate) fn from_record(record: Value) -> serde_json::Result<Self> {
        let record = Map::deserialize(record)?;
        let options = record.into_iter().map(|(name, value)| {
            match RECORDED.iter().find(|(_, recorded)| *recorded == name) {
                Some((option, _)) => ((*option).to_owned(), value),
                None => (name, value),
            }
        });
        serde_json::from_value(options.collect::<Map<_, _>>().into())
    }

    /// Checks that the options change no number of the inputs, so that integers can be packed as
    /// they are.
    ///
    /// # Errors
    /// If one of them does; the error names it.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        let changes = [
            (Opt::Scale, matches!(self.scale, Scale::Factor(_))),
            (Opt::Fill, matches!(self.fill, Fill::Value(_))),
            (Opt::KeepBits, self.keep_bits != KeepBits::All),
            (Opt::Normalize, self.normalize != Normalize::None),
            (Opt::Resample, self.resample.is_some()),
            (Opt::White, self.white.is_some()),
            (Opt::Dark, self.dark.is_some()),
        ];
        match changes.into_iter().find(|(_, is_given)| *is_given) {
            None => Ok(()),
            Some((option, _)) => Err(Error::conflict(format!(
                "{option} changes values, and integers are packed as they are"
            ))
            .with_remedy(remedy![
                "leave out ",
                option,
                ", or pass ",
                Opt::Dtype.to("float16")
            ])),
        }
    }

    /// Checks that nothing needs the bands of the sensor if spectra are resampled.
    ///
    /// # Errors
    /// If an option does; the error names it.
    pub(crate) fn check_resampled(&self) -> Result<()> {
        let needs = [
            (Opt::White, self.white.is_some()),
            (Opt::Dark, self.dark.is_some()),
            (Opt::RawValues, self.raw_values),
        ];
        let needed = needs.into_iter().find(|(_, is_given)| *is_given);
        let Some((option, _)) = needed.filter(|_| self.resample.is_some()) else { return Ok(()) };
        let why = match option == Opt::RawValues {
            true => "only physical values can be resampled",
            false => "references have the bands of the sensor",
        };
        Err(Error::conflict(format!("{} with {option}: {why}", Opt::Resample))
            .with_remedy(remedy!["leave out one of them"]))
    }

    /// Element type of the packed values.
    pub fn dtype(&self) -> DType {
        self.dtype.dtype()
    }

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

/// Reads the number that marks missing values. Words say how missing values are packed, which is
/// another option.
fn nodata<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<f64>, D::Error> {
    match Value::deserialize(from)? {
        Value::Null => Ok(None),
        Value::Number(number) => Ok(number.as_f64()),
        Value::String(word) if matches!(&*word, "nan" | "error") => {
            Err(de::Error::custom(format!(
                "{word:?} is not a stored number; {} decides how missing values are packed",
                Opt::Fill
            )))
        }
        other => Err(de::Error::custom(format!("{other} is not a number"))),
    }
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
        for fill in [Fill::Nan, Fill::Error, Fill::Value(-9999.0), Fill::Value(0.1)] {
            assert_eq!(parsed(&fill.to_string()), Some(fill));
        }
        for bits in [KeepBits::All, KeepBits::Auto, KeepBits::Bits(1), KeepBits::Bits(23)] {
            assert_eq!(parsed(&bits.to_string()), Some(bits));
        }
        assert_eq!(parsed("NaN"), Some(Fill::Nan));
        assert_eq!("auto".parse(), Ok(Reference::Auto));
        assert_eq!("white.dat".parse(), Ok(Reference::File("white.dat".to_owned())));
    }

    #[test]
    fn records_have_the_names_of_the_first_layout() {
        let options =
            ValueOptions { fill: Fill::Value(0.5), nodata: Some(-9999.0), ..Default::default() };
        let record = options.record();
        assert_eq!(record["nodata"], serde_json::json!({ "value": 0.5 }));
        assert_eq!(record["ignore_value"], serde_json::json!(-9999.0));
        let names: Vec<_> = record.as_object().unwrap().keys().take(4).collect();
        assert_eq!(names, ["dtype", "scale", "nodata", "ignore_value"]);
        assert_eq!(ValueOptions::from_record(record).unwrap(), options);
        // Options under their own names are no record.
        assert!(ValueOptions::from_record(serde_json::json!({ "ignore_value": "nan" })).is_err());
    }

    #[test]
    fn words_do_not_mark_missing_values() {
        let read = |nodata: Value| {
            serde_json::from_value::<ValueOptions>(serde_json::json!({ "nodata": nodata }))
        };
        assert_eq!(read(serde_json::json!(-1)).unwrap().nodata, Some(-1.0));
        assert_eq!(read(Value::Null).unwrap().nodata, None);
        let error = read("nan".into()).unwrap_err().to_string();
        assert!(error.contains("fill") && error.contains("nan"), "{error}");
        assert!(read(serde_json::json!([1])).is_err());
    }

    #[test]
    fn other_words_are_refused_with_those_that_there_are() {
        let refused = |error: Error, all: &[&str]| {
            let text = error.to_string();
            assert!(all.iter().all(|part| text.contains(part)), "{text}");
        };
        for bad in ["", "half", "1,5"] {
            refused(bad.parse::<Scale>().unwrap_err(), &["none", "auto", "number", bad]);
            refused(bad.parse::<Fill>().unwrap_err(), &["nan", "error", "number", bad]);
        }
        for bad in ["", "0", "24", "-1", "2.5", "few"] {
            refused(bad.parse::<KeepBits>().unwrap_err(), &["1 to 10", "auto", bad]);
        }
    }
}
