//! The description of a cube in a header of ENVI or ESRI.

use std::path::Path;

use hsipack_format::{Color, CubeShape, DType, Geo};

use crate::flat::FlatSource;
use crate::{AxisOrder, CubeInfo, Exposure, Scaling};

/// How the bands of a cube lie in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// Band-sequential.
    Bsq,
    /// Band-interleaved by line.
    Bil,
    /// Band-interleaved by pixel.
    Bip,
}

impl Interleave {
    /// Every interleave.
    pub const ALL: [Interleave; 3] = [Interleave::Bsq, Interleave::Bil, Interleave::Bip];

    /// Its name in a header, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Interleave::Bsq => "bsq",
            Interleave::Bil => "bil",
            Interleave::Bip => "bip",
        }
    }

    /// The order of the axes.
    pub const fn order(self) -> AxisOrder {
        match self {
            Interleave::Bsq => AxisOrder::BSQ,
            Interleave::Bil => AxisOrder::BIL,
            Interleave::Bip => AxisOrder::BIP,
        }
    }
}

/// Description of an image in a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// Whose header it is, `ENVI` or `ESRI`.
    pub format: &'static str,
    /// lines × samples × bands.
    pub shape: CubeShape,
    /// `data type`.
    pub dtype: DType,
    /// `interleave`.
    pub interleave: Interleave,
    /// `byte order = 1`.
    pub big_endian: bool,
    /// `header offset`: bytes before the first value.
    pub offset: u64,
    /// `file compression = 1`: the data file is gzip.
    pub compressed: bool,
    /// `file type = ENVI Classification`.
    pub classification: bool,
    /// `file type = TIFF`: the data file is a TIFF file.
    pub of_tiff: bool,
    /// Entries of an ESRI header about bytes between rows or bands.
    pub padding: Option<String>,
    /// `wavelength` in nm.
    pub wavelength: Option<Vec<f64>>,
    /// `fwhm` in nm.
    pub fwhm: Option<Vec<f64>>,
    /// `bbl`: `true` where the list has 1.
    pub good_bands: Option<Vec<bool>>,
    /// `band names`.
    pub band_names: Option<Vec<String>>,
    /// `class names`.
    pub class_names: Option<Vec<String>>,
    /// `class lookup`.
    pub class_colors: Vec<Option<Color>>,
    /// `data ignore value`, rounded to the element type, because -1.23e34, for example, is not a
    /// float32.
    pub ignore_value: Option<f64>,
    /// `data gain values` and `data offset values`, otherwise `reflectance scale factor`: one entry
    /// for all bands, or one for each band.
    pub scaling: Vec<Scaling>,
    /// `tint`, `integration time`, `exposure time` or `exposure`.
    pub exposure: Option<Exposure>,
    /// `data units`, `units`, or the end of the second title in `z plot titles`.
    pub unit: Option<String>,
    /// `map info` and `coordinate system string`.
    pub geo: Option<Geo>,
    /// Notes about what was dropped or guessed.
    pub notes: Vec<String>,
}

impl Header {
    /// Bytes that header offset and values take together. Reading the header made sure that this
    /// does not overflow.
    pub fn file_len(&self) -> u64 {
        self.offset + FlatSource::data_len(self.shape, self.dtype).unwrap_or(0)
    }

    /// The description of the cube in `data`.
    pub(super) fn into_info(self, format: String, data: &Path) -> CubeInfo {
        let mut info = CubeInfo {
            wavelength: self.wavelength,
            fwhm: self.fwhm,
            good_bands: self.good_bands,
            band_names: self.band_names,
            ignore_value: self.ignore_value,
            exposure: self.exposure,
            unit: self.unit,
            class_names: self.class_names,
            class_colors: self.class_colors,
            geo: self.geo,
            notes: self.notes,
            ..CubeInfo::new(format, self.shape, self.dtype, data)
        };
        if self.scaling.len() == self.shape.bands {
            info.scale_bands(self.scaling);
        } else if let Some(scaling) = self.scaling.first() {
            info.scaling = *scaling;
        }
        info
    }

    /// How [`file_len`](Self::file_len) is computed, for messages.
    pub fn describe_len(&self) -> String {
        let CubeShape { rows, columns, bands } = self.shape;
        format!(
            "header offset {} + {rows} lines x {columns} samples x {bands} bands x {} bytes ({})",
            self.offset,
            self.dtype.size(),
            self.dtype
        )
    }
}
