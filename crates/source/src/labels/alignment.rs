//! Whether two images of a place lie on each other.

use hsipack_format::Geo;

use super::crs::{self, Conversion};
use super::resample::{apply, inverse};

/// Positions may differ by so many pixels, those of the coarser image: programs disagree about
/// whether coordinates are those of a pixel's centre or corner.
const TOLERANCE: f64 = 0.75;
/// A difference of more pixels of the cube than this is noted.
const NOTED_OFFSET: f64 = 0.25;

/// How an image lies on a cube, by the coordinates of both.
#[derive(Clone, Debug, PartialEq)]
pub enum Alignment {
    /// Elsewhere on Earth.
    Elsewhere,
    /// On the cube: the greatest difference of positions, in pixels of the cube.
    OnCube(f64),
    /// Not known: their reference systems cannot be compared.
    Unknown {
        /// The reference system of the cube, if it is known.
        cube: Option<String>,
        /// The reference system of the image, if it is known.
        image: Option<String>,
    },
}

impl Alignment {
    /// How an image with rows and columns of `size` lies on a cube with `cube_size`, of the same or
    /// another resolution.
    pub fn of(cube: &Geo, cube_size: [usize; 2], image: &Geo, size: [usize; 2]) -> Self {
        let systems = [cube, image].map(|geo| geo.crs.as_deref());
        let unknown = || {
            let [cube, image] = systems.map(|system| system.map(crs::short));
            Self::Unknown { cube, image }
        };
        if systems == [None, None] {
            return unknown();
        }
        let Ok(conversion) = Conversion::between(systems[0], systems[1]) else { return unknown() };
        // An image without a system most likely has that of the cube, if the positions are the same.
        let elsewhere = || match systems {
            [Some(_), Some(_)] => Self::Elsewhere,
            _ => unknown(),
        };
        let to_pixels = inverse(image.transform);
        let [rows, columns] = cube_size.map(|length| length as f64);
        let ratio = [size[1] as f64 / columns, size[0] as f64 / rows];
        let mut greatest = 0f64;
        for [column, row] in [[0.0, 0.0], [columns, 0.0], [0.0, rows], [columns, rows]] {
            let position = cube.at(column, row);
            let position = match &conversion {
                Some(conversion) => conversion.point(position),
                None => Some(position),
            };
            let Some(position) = position else { return elsewhere() };
            let pixels = apply(to_pixels, position).into_iter().zip([column, row]).zip(ratio);
            for ((pixel, expected), ratio) in pixels {
                let offset = (pixel - expected * ratio).abs();
                if offset > TOLERANCE * ratio.max(1.0) {
                    return elsewhere();
                }
                greatest = greatest.max(offset / ratio);
            }
        }
        Self::OnCube(greatest)
    }

    /// A note for the user about `what`, which lies so on its cube, if there is something to check.
    pub fn note(&self, what: &str) -> Option<String> {
        match self {
            Self::OnCube(offset) if *offset > NOTED_OFFSET => Some(format!(
                "{what} is off by {offset:.2} pixels of the cube, by the coordinates in both files; it is used as if it were not"
            )),
            // Without any reference system, positions are often just numbers of pixels.
            Self::Elsewhere | Self::OnCube(_) | Self::Unknown { cube: None, image: None } => None,
            Self::Unknown { cube, image } => {
                let words = |system: &Option<String>| {
                    system.clone().unwrap_or_else(|| "unknown".to_owned())
                };
                Some(format!(
                    "whether {what} lies elsewhere on Earth is not checked: its reference system is {}, that of the cube is {}, and hsipack cannot compare them",
                    words(image),
                    words(cube)
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geo(crs: &str, transform: [f64; 6]) -> Geo {
        Geo::new(Some(crs.to_owned()), transform).unwrap()
    }

    #[test]
    fn images_lie_on_each_other_up_to_the_convention_of_pixels() {
        let north_up = [500_000.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0];
        let cube = geo("EPSG:32632", north_up);
        let at = |transform: [f64; 6], size| {
            let image = geo("EPSG:32632", transform);
            Alignment::of(&cube, [20, 10], &image, size) == Alignment::Elsewhere
        };
        assert!(!at(north_up, [20, 10]));
        assert!(!at([500_015.0, 30.0, 0.0, 5_399_985.0, 0.0, -30.0], [20, 10]), "centres");
        assert!(at([500_030.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0], [20, 10]), "a pixel away");
        assert!(at([500_000.0, 30.0, 0.0, 5_399_400.0, 0.0, 30.0], [20, 10]), "south up");
        // Other resolutions of the same place.
        assert!(!at([500_000.0, 10.0, 0.0, 5_400_000.0, 0.0, -10.0], [60, 30]));
        assert!(!at([500_000.0, 60.0, 0.0, 5_400_000.0, 0.0, -60.0], [10, 5]));
        assert!(at([500_000.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0], [10, 5]), "a part of it");
    }

    #[test]
    fn offsets_are_noted_in_pixels_of_the_cube() {
        let cube = geo("EPSG:32632", [500_000.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0]);
        let note = |transform: [f64; 6], size| {
            let image = geo("EPSG:32632", transform);
            Alignment::of(&cube, [20, 10], &image, size).note("its mask")
        };
        assert_eq!(note([500_006.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0], [20, 10]), None);
        let half = note([500_015.0, 30.0, 0.0, 5_399_985.0, 0.0, -30.0], [20, 10]).unwrap();
        assert!(half.starts_with("its mask is off by 0.50 pixels of the cube"), "{half}");
        let coarse = note([500_030.0, 60.0, 0.0, 5_400_000.0, 0.0, -60.0], [10, 5]).unwrap();
        assert!(coarse.contains("off by 1.00 pixels"), "{coarse}");
    }

    #[test]
    fn reference_systems_are_converted_or_not_compared() {
        let transform = [500_000.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0];
        let far = [0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let of = |cube: &Geo, image: &Geo| Alignment::of(cube, [20, 10], image, [20, 10]);
        let cube = geo("EPSG:32632", transform);
        assert_eq!(of(&cube, &geo("EPSG:32633", transform)), Alignment::Elsewhere, "another zone");
        let nobody = "PROJCS[\"of nobody\"]";
        let note = of(&cube, &geo(nobody, far)).note("its mask").unwrap();
        assert!(note.contains("system is of nobody, that of the cube is EPSG:32632"), "{note}");
        let nowhere = Geo::new(None, far).unwrap();
        assert!(of(&cube, &nowhere).note("its mask").unwrap().contains("system is unknown"));
        let beside = Geo::new(None, transform).unwrap();
        assert_eq!(of(&cube, &beside), Alignment::OnCube(0.0));
        assert_eq!(of(&nowhere, &nowhere).note("its mask"), None);
        // Positions in the same system need no conversion.
        let unlisted = geo(nobody, transform);
        assert_eq!(of(&unlisted, &unlisted), Alignment::OnCube(0.0));
        assert_eq!(of(&unlisted, &geo(nobody, far)), Alignment::Elsewhere);
    }
}
