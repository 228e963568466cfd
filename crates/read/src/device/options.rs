//! The options of a device loader.

use std::fmt;
use std::str::FromStr;

use hsipack_augment::{Device, ElementType};
use hsipack_format::names::by_name;
use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

use super::page_cache::PageCacheBounds;
#[cfg(feature = "clap")]
use crate::arguments;
use crate::dataset::{Dataset, FloatType, Integers, is_in_float16};
use crate::{Error, Result};

/// The options of a device loader: where batches are to be, and in what form.
///
/// An option is a field; see [`LoaderOptions`](crate::LoaderOptions). `hsipack read` has those that
/// have a flag.
///
/// Images are computed in this order: physical values, normalisation, replacement of NaN, cast.
/// Everything except the cast is computed in float32. With the default options, nothing is computed
/// at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct DeviceOptions {
    /// Device that batches go to: cuda (the first one), cuda:1, …, or cpu for none
    // Serialised, it is the number of the CUDA device, or nothing.
    #[serde(with = "device_number")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DEVICE", value_parser = arguments::device, default_value = "cpu", help_heading = "Device"))]
    pub device: Device,
    /// Element type of images: `F16`, `BF16`, `F32` or `F64`; or that of stored integers, which
    /// then come as they are.
    #[serde(rename = "dtype", with = "by_name")]
    #[cfg_attr(feature = "clap", arg(skip = ElementType::F16))]
    pub image: ElementType,
    /// Element type of masks of class ids: any type that can hold them. `None` is the smallest type
    /// that torch computes with: `U8` for uint8, `I32` for uint16, `I64` for uint32.
    #[serde(rename = "mask_dtype", with = "optional_name")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub masks: Option<ElementType>,
    /// Unpack masks of boolean layers into (B, layers, H, W) of `Bool`. Otherwise they come as the
    /// stored bits, (B, H, W), with the types of class ids.
    #[cfg_attr(feature = "clap", arg(skip = true))]
    pub layers: bool,
    /// Multiply by the dataset's `scale_factor` and add its `add_offset`. Physical values may be
    /// out of the range of float16: then ask for `F32`. Images that are stored as integers are
    /// physical values unless [`LoaderOptions::integers`](crate::LoaderOptions::integers) says
    /// otherwise.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub physical: bool,
    /// Replace NaN by this value. This happens after normalising, in units of the normalised
    /// values, so the value is in no sum.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub nan: Option<f64>,
    /// Add a mask [`VALID`](super::VALID) that says which pixels have values: (B, H, W) of `Bool`,
    /// true where the image as it is stored is finite in every band that is not bad. Augmentations
    /// move it like other masks; places outside an image are false.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub valid: bool,
    /// How to normalise.
    #[serde(rename = "normalize")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub normalization: Normalization,
    /// On the CPU: copy batches that the ring cannot spare because others are kept, so that any
    /// number may be kept. Without this, every batch lies over the ring, and while all its slots
    /// are kept, asking for the next batch is an error.
    #[cfg_attr(feature = "clap", arg(skip = true))]
    pub copy: bool,
    /// On the CPU, for measuring: emulate a device over a bus of this many bytes per second. A
    /// separate thread copies batches ahead, as to a GPU.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub emulated_bus: Option<f64>,
    /// Keep samples in the memory of the GPU, so that they are not copied there again: decoded, or
    /// compressed
    ///
    /// If not all samples fit, a fixed part of them is kept. auto keeps them decoded if all fit,
    /// otherwise compressed if all fit, otherwise a part; nothing if the CPU decodes (--decode),
    /// until this was measured on a GPU. Loaders of a process share what they keep of a dataset.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = arguments::one_of(&DeviceCache::ALL), default_value_t = DeviceCache::Auto, help_heading = "Device"))]
    pub device_cache: DeviceCache,
    /// Memory of the GPU for these samples [default: a quarter of what is free when reading begins]
    // 0 stands for the default.
    #[serde(rename = "device_cache_size")]
    #[cfg_attr(feature = "clap", arg(long = "device-cache-size", value_name = "BYTES", value_parser = arguments::bytes, default_value_t = 0, hide_default_value = true, help_heading = "Device"))]
    pub device_cache_bytes: u64,
    /// How much of the files is registered with the GPU if it decodes, so that it reads chunks in
    /// the system's page cache.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub page_cache: PageCacheBounds,
    /// For measuring the speed of copying and converting alone: decode one batch, and deliver it
    /// again and again, without end. On a device, it is copied each time; on the CPU, converted and
    /// normalised.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub repeat: bool,
}

/// How images are normalised. Spectra follow the rule of [`hsipack_format::spectrum`], computed in
/// float32.
///
/// Serialised, it is nothing, a name, or the pair (mean, std).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "NameOrNumbers", try_from = "NameOrNumbers")]
pub enum Normalization {
    /// Not at all.
    #[default]
    None,
    /// Every band minus its mean, divided by its standard deviation, as recorded when the stack was
    /// packed. These are the statistics of the samples in the split `train` (or `training`) if
    /// there are any, otherwise of all samples, of all stacks with the same bands. Bands without
    /// spread are not divided. Bands without statistics stay as they are.
    Standardize,
    /// The same with these numbers, in the units that [`physical`](DeviceOptions::physical) says,
    /// one for each band that is read. A band whose number is NaN stays as it is.
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
            device_cache: DeviceCache::default(),
            device_cache_bytes: 0,
            page_cache: PageCacheBounds::default(),
            repeat: false,
        }
    }

    /// The form in which the ring has images that are stored as integers: `form`, in a type for
    /// these options.
    pub fn integers(&self, form: Integers) -> Integers {
        let float = match self.image {
            // What is computed is rounded once, afterwards.
            ElementType::F16 if self.normalization == Normalization::None => FloatType::F16,
            image if image.is_float() => FloatType::F32,
            _ => return Integers::Stored,
        };
        match form {
            Integers::Physical(_) => Integers::Physical(float),
            Integers::Numbers(_) | Integers::Stored => Integers::Numbers(float),
        }
    }

    /// The same options with images as float32 instead of float16, if float16 does not hold those
    /// of a dataset whose integers are read in this form.
    #[must_use]
    pub fn widened(self, dataset: &Dataset, integers: Integers) -> Self {
        let form = self.integers(integers);
        let dataset = dataset.clone().with_integers(form);
        let fits = |stack: usize| match dataset.converts(stack) {
            true => matches!(form, Integers::Physical(_)) && dataset.fits_float16(stack),
            false if self.physical => {
                is_in_float16(dataset.greatest(stack, None, dataset.scaling(stack)))
            }
            false => dataset.fits_float16(stack),
        };
        let is_wide = self.image == ElementType::F16 && !(0..dataset.stacks().len()).all(fits);
        Self { image: if is_wide { ElementType::F32 } else { self.image }, ..self }
    }

    /// Whether samples are kept in the memory of the device, if `decodes` says that it decodes.
    pub(super) fn keeps_samples(&self, decodes: bool) -> bool {
        match self.device_cache {
            DeviceCache::Auto => decodes,
            DeviceCache::Decoded | DeviceCache::Compressed => true,
            DeviceCache::None => false,
        }
    }

    /// The reason why no samples are kept there.
    pub(super) fn no_cache(&self, decodes: bool) -> &'static str {
        match self.device_cache {
            DeviceCache::Auto if !decodes => {
                "the CPU decodes; give decode or device_cache to keep samples"
            }
            DeviceCache::None => "requested",
            _ => "one batch is repeated",
        }
    }

    /// Checks that samples can be kept on this device, if `decode` says that it decodes.
    pub(super) fn check_cache(&self, decodes: bool) -> Result<()> {
        let kind = self.device_cache;
        if kind == DeviceCache::Compressed && !decodes {
            return Err(Error::conflict(
                "the device cannot keep samples compressed, because it does not decode them",
            )
            .with_remedy(remedy![
                "use ",
                Opt::Decode.to("device"),
                ", or another ",
                Opt::DeviceCache
            ]));
        }
        if kind == DeviceCache::None && self.device_cache_bytes > 0 {
            return Err(Error::conflict("a size is given for a device cache that keeps nothing")
                .with_remedy(remedy!["leave out ", Opt::DeviceCacheSize]));
        }
        Ok(())
    }

    /// Checks that there is a device to keep samples on.
    pub(super) fn check_device(&self) -> Result<()> {
        let keeps = matches!(self.device_cache, DeviceCache::Compressed | DeviceCache::Decoded);
        if self.device == Device::Cpu && keeps {
            return Err(Error::conflict("no device keeps samples, because batches are on the CPU")
                .with_remedy(remedy![
                    "use ",
                    Opt::Device.to("cuda"),
                    ", or leave out ",
                    Opt::DeviceCache
                ]));
        }
        Ok(())
    }
}

/// Samples to keep in the memory of a GPU. If not all of them fit, a fixed part is kept. Loaders of
/// a process share what they keep of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceCache {
    /// If the GPU decodes chunks ([`DecodePlace::Device`](crate::DecodePlace::Device)): decoded if
    /// all samples fit, otherwise compressed if they fit, otherwise a part of them. Nothing if the
    /// CPU decodes, until this was measured on a GPU.
    #[default]
    Auto,
    /// Decoded samples.
    Decoded,
    /// Samples as they are stored. Each batch is decoded from them.
    Compressed,
    /// Nothing.
    None,
}

hsipack_format::option_names!(DeviceCache, "device_cache", {
    Auto => "auto",
    Decoded => "decoded",
    Compressed => "compressed",
    None => "none",
});

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
        Self::ALL.into_iter().find(|norm| norm.to_string() == name).ok_or_else(|| {
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
