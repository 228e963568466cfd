//! What is asked of a device loader.

use serde::Serialize;
use tch::{Device, Kind};

/// What is asked of a device loader: where batches are to be, and in what form.
///
/// Images are made in this order: physical values, NaN replaced, normalised, cast. All but the cast is computed in
/// float32; with the default options nothing is computed at all.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Where batches are to be: the CPU or a CUDA device.
    pub device: Device,
    /// Element type of images: `Half`, `BFloat16`, `Float` or `Double`.
    pub image: Kind,
    /// Element type of masks of class ids: `Uint8`, `Int8`, `Int16`, `Int`, `Int64`, `Half`, `BFloat16`, `Float` or
    /// `Double`. `None` is the least that libtorch has for what is stored: `Uint8` for uint8, `Int` for uint16.
    pub masks: Option<Kind>,
    /// Unpack masks of boolean layers into (B, layers, H, W) of `Bool`; else they come as the bits that are stored,
    /// (B, H, W), with the types of class ids.
    pub layers: bool,
    /// Multiply by the dataset's `scale_factor` and add its `add_offset`. Physical values may be beyond what
    /// float16 holds: ask for `Float` then.
    pub physical: bool,
    /// Replace NaN by this value, in the units that `physical` says; before normalising, since a NaN spoils its
    /// spectrum there.
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

/// How images are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalization {
    /// Not at all.
    #[default]
    None,
    /// Every band less its mean, divided by its standard deviation, as recorded for the stack when it was packed.
    /// Bands without spread are not divided.
    Standardize,
    /// Every spectrum divided by the sum of its absolute values; one of zeros stays.
    L1,
    /// Every spectrum divided by the root of the sum of its squares; one of zeros stays.
    L2,
    /// Every spectrum less its mean, divided by its (unbiased) standard deviation; constant ones become zeros.
    Snv,
}

impl DeviceOptions {
    /// Batches on `device` as they are stored, images float16, boolean layers unpacked.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            image: Kind::Half,
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
