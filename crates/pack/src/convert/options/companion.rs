//! Options that say where the targets and further images of cubes are.

use hsipack_format::Opt;
use hsipack_format::metadata::Role;
use serde::{Deserialize, Serialize, Serializer};

use crate::convert::assignment::Assignment;

/// The role of a target in errors.
const THE_TARGET: &str = "the target";
/// The role of a further image in errors.
const THE_IMAGE: &str = "the further image";

/// A companion that options ask for: the path of its file for each cube.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompanionOption {
    /// Its role.
    pub role: Role,
    /// Name of the array.
    pub name: String,
    /// Path with fields.
    pub pattern: String,
    /// How files of another resolution become arrays on the grid of the cube. If `None`, targets of
    /// another resolution are refused, and images keep theirs.
    pub fit: Option<FitMethod>,
}

impl CompanionOption {
    /// All companions: the targets, then the further images, each in the order of their names.
    pub fn all(targets: &[Assignment], images: &[Assignment], fit: Option<FitMethod>) -> Vec<Self> {
        let of = |role, assignments: &[Assignment]| {
            let mut companions: Vec<Self> = assignments
                .iter()
                .map(|Assignment { name, value }| Self {
                    role,
                    name: name.clone(),
                    pattern: value.clone(),
                    fit,
                })
                .collect();
            companions.sort_by(|a, b| a.name.cmp(&b.name));
            companions
        };
        [of(Role::Target, targets), of(Role::Image, images)].concat()
    }

    /// The option that asks for it.
    pub(in crate::convert) fn option(&self) -> Opt {
        match self.role {
            Role::Target => Opt::Target,
            Role::Image => Opt::Image,
        }
    }

    /// Its name in errors.
    pub(in crate::convert) fn words(&self) -> &'static str {
        match self.role {
            Role::Target => THE_TARGET,
            Role::Image => THE_IMAGE,
        }
    }
}

/// How a companion of another resolution gets a value for each pixel of its cube. Both repeat the
/// values of coarser ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitMethod {
    /// The value at the centre of the cube's pixel.
    Nearest,
    /// The mean of the values in the cube's pixel, without missing ones.
    Mean,
}

hsipack_format::option_names!(FitMethod, "fit", {
    Nearest => "nearest",
    Mean => "mean",
});

impl Serialize for FitMethod {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
