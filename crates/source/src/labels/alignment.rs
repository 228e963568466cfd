//! Whether two images of a place lie on each other.

use hsipack_format::Geo;

use super::crs::Conversion;
use super::resample::{apply, inverse};

/// Positions may differ by so many pixels, those of the coarser image: programs disagree about
/// whether coordinates are those of a pixel's centre or corner.
const TOLERANCE: f64 = 0.75;

/// Whether an image with rows and columns of `size` lies elsewhere on Earth than one with
/// `cube_size`, of the same or another resolution. `false` if one of them has no known reference
/// system.
pub fn lies_elsewhere(cube: &Geo, cube_size: [usize; 2], image: &Geo, size: [usize; 2]) -> bool {
    if cube.crs.is_none() || image.crs.is_none() {
        return false;
    }
    let Ok(conversion) = Conversion::between(cube.crs.as_deref(), image.crs.as_deref()) else {
        return false;
    };
    let to_pixels = inverse(image.transform);
    let [rows, columns] = cube_size.map(|length| length as f64);
    let ratio = [size[1] as f64 / columns, size[0] as f64 / rows];
    [[0.0, 0.0], [columns, 0.0], [0.0, rows], [columns, rows]].into_iter().any(|[column, row]| {
        let position = cube.at(column, row);
        let position = match &conversion {
            Some(conversion) => conversion.point(position),
            None => Some(position),
        };
        let Some(position) = position else { return true };
        let differences = apply(to_pixels, position).into_iter().zip([column, row]).zip(ratio);
        differences.into_iter().any(|((pixel, expected), ratio)| {
            (pixel - expected * ratio).abs() > TOLERANCE * ratio.max(1.0)
        })
    })
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
            lies_elsewhere(&cube, [20, 10], &geo("EPSG:32632", transform), size)
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
    fn reference_systems_are_converted_or_not_compared() {
        let transform = [500_000.0, 30.0, 0.0, 5_400_000.0, 0.0, -30.0];
        let cube = geo("EPSG:32632", transform);
        let elsewhere = |image: &Geo| lies_elsewhere(&cube, [20, 10], image, [20, 10]);
        assert!(elsewhere(&geo("EPSG:32633", transform)), "another zone");
        assert!(!elsewhere(&geo("PROJCS[\"of nobody\"]", [0.0, 1.0, 0.0, 0.0, 0.0, 1.0])));
        assert!(!elsewhere(&Geo::new(None, [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]).unwrap()));
    }
}
