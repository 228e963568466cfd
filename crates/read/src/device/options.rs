//! What is asked of a device loader.

use std::fmt;
use std::str::FromStr;

use hsipack_augment::{Device, ElementType};

use crate::{Error, Result};

/// What is asked of a device loader: where batches are to be, and in what form.
///
/// Images are made in this order: physical values, normalised, NaN replaced, cast. All but the cast is computed in
/// float32; with the default options nothing is computed at all.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Where batches are to be: the CPU or a CUDA device.
    pub device: Device,
    /// Element type of images: `F16`, `BF16`, `F32` or `F64`.
    pub image: ElementType,
    /// Element type of masks of class ids: any that holds them. `None` is the least one that torch computes with:
    /// `U8` for uint8, `I32` for uint16, `I64` for uint32.
    pub masks: Option<ElementType>,
    /// Unpack masks of boolean layers into (B, layers, H, W) of `Bool`; else they come as the bits that are stored,
    /// (B, H, W), with the types of class ids.
    pub layers: bool,
    /// Multiply by the dataset's `scale_factor` and add its `add_offset`. Physical values may be beyond what
    /// float16 holds: ask for `F32` then.
    pub physical: bool,
    /// Replace NaN by this value; after normalising, in units of what comes of that, so that it is in no sum.
    pub nan: Option<f64>,
    /// How to normalise.
    pub normalization: Normalization,
    /// On the CPU: copy batches that the ring cannot spare because others are kept, so that any number may be kept.
    /// Without, every batch lies over the ring, and while all its slots are kept the next batch is an error.
    pub copy: bool,
    /// On the CPU, for measuring: pretend that it is a device over a bus of so many bytes a second. Batches are copied
    /// ahead by a thread of its own, as to a GPU.
    pub emulated_bus: Option<f64>,
    /// For measuring what copying alone allows: decode one batch, and copy it again and again, without end. Not on the
    /// CPU, where nothing is copied.
    pub repeat: bool,
}

/// How images are normalised. Spectra follow the rule of [`hsipack_format::spectrum`], computed in float32.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Normalization {
    /// Not at all.
    #[default]
    None,
    /// Every band less its mean, divided by its standard deviation, as recorded when the stack was packed: of its
    /// samples of the split `train` (or `training`), where it has one, else of all. Bands without spread are not
    /// divided; bands without statistics stay as they are.
    Standardize,
    /// The same with these figures, in the units that [`physical`](DeviceOptions::physical) says: one a band that is
    /// read. A band whose figure is NaN stays as it is.
    StandardizeBy {
        /// What is subtracted.
        mean: Vec<f64>,
        /// What is divided by.
        std: Vec<f64>,
    },
    /// Every spectrum divided by the sum of its absolute values.
    L1,
    /// Every spectrum divided by the root of the sum of its squares.
    L2,
    /// Every spectrum less its mean, divided by its (unbiased) standard deviation.
    Snv,
}

impl DeviceOptions {
    /// Batches on `device` as they are stored, images float16, boolean layers unpacked.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            image: ElementType::F16,
            masks: None,
            layers: true,
            physical: false,
            nan: None,
            normalization: Normalization::None,
            copy: true,
            emulated_bus: None,
            repeat: false,
        }
    }
}

impl Normalization {
    /// The ways that have a name; [`StandardizeBy`](Self::StandardizeBy) has figures instead.
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
            Error::conflict(format!("there is no normalize {name:?}"))
                .with_remedy(format!("give one of {}, or (mean, std)", names.join(", ")))
        })
    }
}
