//! The values of windows beyond the edge of their cube.

use hsipack_format::Ratio;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The values of a window where it lies beyond the edge of its cube.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Pad {
    /// The cube mirrored, without repeating its outermost pixels, like NumPy's `reflect`.
    Reflect,
    /// The outermost pixels repeated, like NumPy's `edge`.
    Edge,
    /// This value in images, before normalisation and the like, 0 in masks and NaN in targets.
    /// Floats get it as it is stored, before a scale factor; integers that are read as physical
    /// values get a physical value.
    Value(f64),
}

impl Pad {
    pub(super) fn parts(self) -> [u64; 2] {
        match self {
            Self::Reflect => [0, 0],
            Self::Edge => [1, 0],
            Self::Value(value) => [2, value.to_bits()],
        }
    }

    /// The pixel of an axis of `length` that is used at `coordinate`; `None` if it is padded with a
    /// value. The axis is that of an array of this resolution: its ground is mirrored as that of
    /// the image is.
    pub(crate) fn pixel(self, coordinate: i64, length: usize, ratio: Ratio) -> Option<usize> {
        let length = length as i64;
        if (0..length).contains(&coordinate) {
            return Some(coordinate as usize);
        }
        let pixel = match self {
            Self::Value(_) => return None,
            Self::Edge => coordinate.clamp(0, length - 1),
            Self::Reflect if ratio.coarser() > 1 => {
                // The mirror is within the outermost pixel, most of which is beyond it: the pixel is repeated.
                let turned = coordinate.rem_euclid(2 * length);
                turned.min(2 * length - 1 - turned)
            }
            Self::Reflect => {
                // Pixels of the array within each pixel of the image are mirrored with it.
                let finer = i64::from(ratio.finer());
                let (pixel, within) = (coordinate.div_euclid(finer), coordinate.rem_euclid(finer));
                match mirrored(pixel, length / finer) {
                    (pixel, false) => pixel * finer + within,
                    (pixel, true) => (pixel + 1) * finer - 1 - within,
                }
            }
        };
        Some(pixel as usize)
    }
}

/// The pixel of an axis of `length` pixels that is at `position` if the axis is mirrored at its
/// outermost pixels, and whether its content is turned.
fn mirrored(position: i64, length: i64) -> (i64, bool) {
    if length == 1 {
        return (0, false);
    }
    let there_and_back = 2 * (length - 1);
    let position = position.rem_euclid(there_and_back);
    match position < length {
        true => (position, false),
        false => (there_and_back - position, true),
    }
}

impl std::fmt::Display for Pad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reflect => f.write_str("reflect"),
            Self::Edge => f.write_str("edge"),
            Self::Value(value) => write!(f, "{value}"),
        }
    }
}

/// As text (see [`Display`](std::fmt::Display)), because JSON has no NaN.
impl From<Pad> for String {
    fn from(pad: Pad) -> Self {
        pad.to_string()
    }
}

impl TryFrom<String> for Pad {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl std::str::FromStr for Pad {
    type Err = Error;

    /// `reflect`, `edge` or a number.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "reflect" => Ok(Self::Reflect),
            _ if text == "edge" => Ok(Self::Edge),
            Ok(value) => Ok(Self::Value(value)),
            Err(_) => Err(Error::conflict(format!("there is no padding {text:?}"))
                .with_remedy("give reflect, edge or a number")),
        }
    }
}
