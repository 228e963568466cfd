//! The options of a device loader.

use std::fmt;
use std::str::FromStr;

use hsipack_augment::{Device, ElementType};
use hsipack_format::names::by_name;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The options of a device loader: where batches are to be, and in what form.
///
/// Images are computed in this order: physical values, normalisation, replacement of NaN, cast. Everything except the
/// cast is computed in float32. With the default options, nothing is computed at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceOptions {
    /// Where batches are to be: the CPU or a CUDA device. Serialised, it is the number of the CUDA device, or nothing.
    #[serde(with = "device_number")]
    pub device: Device,
    /// Element type of images: `F16`, `BF16`, `F32` or `F64`.
    #[serde(rename = "dtype", with = "by_name")]
    pub image: ElementType,
    /// Element type of masks of class ids: any type that can hold them. `None` is the smallest type that torch
    /// computes with: `U8` for uint8, `I32` for uint16, `I64` for uint32.
    #[serde(rename = "mask_dtype", with = "optional_name")]
    pub masks: Option<ElementType>,
    /// Unpack masks of boolean layers into (B, layers, H, W) of `Bool`. Otherwise they come as the stored bits,
    /// (B, H, W), with the types of class ids.
    pub layers: bool,
    /// Multiply by the dataset's `scale_factor` and add its `add_offset`. Physical values may be out of the range of
    /// float16: then ask for `F32`.
    pub physical: bool,
    /// Replace NaN by this value. This happens after normalising, in units of the normalised values, so the value is
    /// in no sum.
    pub nan: Option<f64>,
    /// Add a mask [`VALID`](super::VALID) that says which pixels have values: (B, H, W) of `Bool`, true where the image as it is
    /// stored is finite in every band that is not bad. Augmentations move it like other masks; places outside an image are
    /// false.
    pub valid: bool,
    /// How to normalise.
    #[serde(rename = "normalize")]
    pub normalization: Normalization,
    /// On the CPU: copy batches that the ring cannot spare because others are kept, so that any number may be kept.
    /// Without this, every batch lies over the ring, and while all its slots are kept, asking for the next batch is an
    /// error.
    pub copy: bool,
    /// On the CPU, for measuring: emulate a device over a bus of this many bytes per second. A separate thread copies
    /// batches ahead, as to a GPU.
    pub emulated_bus: Option<f64>,
    /// For measuring the speed of copying and converting alone: decode one batch, and deliver it again and again, without
    /// end. On a device, it is copied each time; on the CPU, converted and normalised.
    pub repeat: bool,
}

/// How images are normalised. Spectra follow the rule of [`hsipack_format::spectrum`], computed in float32.
///
/// Serialised, it is nothing, a name, or the pair (mean, std).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "NameOrNumbers", try_from = "NameOrNumbers")]
pub enum Normalization {
    /// Not at all.
    #[default]
    None,
    /// Every band minus its mean, divided by its standard deviation, as recorded when the stack was packed. These are
    /// the statistics of the stack's samples in the split `train` (or `training`) if it has one, otherwise of all its
    /// samples. Bands without spread are not divided. Bands without statistics stay as they are.
    Standardize,
    /// The same with these numbers, in the units that [`physical`](DeviceOptions::physical) says, one for each band
    /// that is read. A band whose number is NaN stays as it is.
    StandardizeBy {
        /// The value to subtract.
        mean: Vec<f64>,
        /// The value to divide by.
        std: Vec<f64>,
    },
    /// Every spectrum divided by the sum of its absolute values.
    L1,
    /// Every spectrum divided by the root of the sum of its squares.
    L2,
    /// Every spectrum minus its mean, divided by its (unbiased) standard deviation.
    Snv,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self::new(Device::Cpu)
    }
}

impl DeviceOptions {
    /// Batches on `device` as they are stored, with images as float16 and boolean layers unpacked.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            image: ElementType::F16,
            masks: None,
            layers: true,
            physical: false,
            nan: None,
            valid: false,
            normalization: Normalization::None,
            copy: true,
            emulated_bus: None,
            repeat: false,
        }
    }
}

impl Normalization {
    /// The variants that have a name. [`StandardizeBy`](Self::StandardizeBy) has numbers instead.
    pub const ALL: [Self; 5] = [Self::None, Self::Standardize, Self::L1, Self::L2, Self::Snv];
}

impl fmt::Display for Normalization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Standardize => "standardize",
            Self::StandardizeBy { .. } => "standardize by (mean, std)",
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::Snv => "snv",
        })
    }
}

impl FromStr for Normalization {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.to_string() == name).ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            Error::conflict(format!("normalize cannot be {name:?}"))
                .with_remedy(format!("give one of {}, or (mean, std)", names.join(", ")))
        })
    }
}

/// A [`Normalization`] in serialised data.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NameOrNumbers {
    None(()),
    Name(String),
    MeanAndStd(Vec<f64>, Vec<f64>),
}

impl From<Normalization> for NameOrNumbers {
    fn from(normalization: Normalization) -> Self {
        match normalization {
            Normalization::None => Self::None(()),
            Normalization::StandardizeBy { mean, std } => Self::MeanAndStd(mean, std),
            named => Self::Name(named.to_string()),
        }
    }
}

impl TryFrom<NameOrNumbers> for Normalization {
    type Error = Error;

    fn try_from(serialised: NameOrNumbers) -> Result<Self> {
        match serialised {
            NameOrNumbers::None(()) => Ok(Self::None),
            NameOrNumbers::Name(name) => name.parse(),
            NameOrNumbers::MeanAndStd(mean, std) => Ok(Self::StandardizeBy { mean, std }),
        }
    }
}

/// The number of a CUDA device; nothing stands for the CPU.
mod device_number {
    use super::Device;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(device: &Device, to: S) -> Result<S::Ok, S::Error> {
        let number = match device {
            Device::Cpu => None,
            Device::Cuda(number) => Some(number),
        };
        number.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Device, D::Error> {
        Ok(Option::deserialize(from)?.map_or(Device::Cpu, Device::Cuda))
    }
}

/// The name of an element type, if there is one.
mod optional_name {
    use super::ElementType;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(of: &Option<ElementType>, to: S) -> Result<S::Ok, S::Error> {
        of.map(ElementType::name).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ElementType>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}
