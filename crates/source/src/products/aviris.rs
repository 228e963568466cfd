//! AVIRIS classic, AVIRIS-NG and AVIRIS-3, of JPL.
//!
//! | file | part |
//! |---|---|
//! | `fYYMMDDtNNpNNrNNrdn…` and its `.hdr` | AVIRIS classic radiance, an ENVI pair |
//! | `fYYMMDDtNNpNNrNNrdn….gain` | of classic: the divisor of each band |
//! | `fYYMMDDtNNpNNrNNrdn….spc` | of classic: centre and width of each band, if the header has none |
//! | `angYYYYMMDDtHHMMSS…` and its `.hdr` | AVIRIS-NG, an ENVI pair |
//! | `AV3YYYYMMDDtHHMMSS…` and its `.hdr` | AVIRIS-3, an ENVI pair |
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `reflectance/reflectance`, `radiance/radiance` | AVIRIS-3 and -5 as NetCDF-4 | (band, row, column) |
//!
//! Radiance is in µW/(cm² nm sr). Classic radiance is stored as whole numbers, which are divided by
//! the numbers in its `.gain` file; −50 is missing, although no metadata say so. All other numbers
//! are as stored.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::Product;
use super::delivery::{FileName, Found, Part, is_there};
use super::dlr::{disagree, unusable};
use super::layout::{Facts, Layout, ProductCube, flags, of_table};
use crate::container::hdf5::Tree;
use crate::container::parent;
use crate::meaning::spectrum::{from_array, good_bands_beside};
use crate::raster::tiff::gdal_metadata::wavelengths_in_names;
use crate::text::decode;
use crate::{AxisOrder, CubeInfo, Scaling};

/// Where the names of flight lines begin, those of cubes in the first one only with `rdn`.
const LINES: [(&str, &str, &str); 3] = [
    ("f######t##p##r##", "f######t##p##r##rdn", "classic"),
    ("ang########t######", "ang########t######", "NG"),
    ("av3########t######", "av3########t######", "3"),
];

/// Rasters beside the cube, which are none in folders, then the cubes.
static FILES: [FileName; LINES.len() * (COMPANIONS.len() + 1)] = files();

const fn files() -> [FileName; LINES.len() * (COMPANIONS.len() + 1)] {
    const CUBES: usize = LINES.len() * COMPANIONS.len();
    const BLANK: FileName = FileName { start: "", end: "", endings: &[], part: Part::Layer };
    let mut files = [BLANK; LINES.len() * (COMPANIONS.len() + 1)];
    let mut at = 0;
    while at < files.len() {
        let (line, cubes, instrument) = LINES[at % LINES.len()];
        let (start, end, part) = match at < CUBES {
            true => (line, COMPANIONS[at / LINES.len()], Part::Layer),
            false => (cubes, "", Part::Plain(instrument)),
        };
        files[at] = FileName { start, end, endings: &[], part };
        at += 1;
    }
    files
}

static LAYOUTS: [Layout; 2] = [
    Layout {
        path: "/reflectance/reflectance",
        name: "AVIRIS reflectance",
        order: AxisOrder::BSQ,
        main: true,
    },
    Layout {
        path: "/radiance/radiance",
        name: "AVIRIS radiance",
        order: AxisOrder::BSQ,
        main: true,
    },
];

const RADIANCE: &str = "uW/(cm2 nm sr)";
const CLASSIC_IGNORE: f64 = -50.0;
/// Ends of the names of rasters beside the cube: angles, places, lookup tables.
const COMPANIONS: [&str; 6] = ["_obs*", "_igm*", "_glt*", "_loc*", "_eph*", "_lonlat*"];
/// These files have one line per band.
const LARGEST_LIST: u64 = 1 << 20;

/// See the [module](self).
pub(super) struct Aviris;

impl Product for Aviris {
    fn sensor(&self) -> &'static str {
        "AVIRIS"
    }

    fn files(&self) -> &'static [FileName] {
        &FILES
    }

    fn describe(&self, file: &Found, info: &mut CubeInfo) -> Result<()> {
        let Part::Plain(instrument) = file.part else { return Ok(()) };
        let name = file.base.to_ascii_lowercase();
        let is = |kinds: &[&str]| kinds.iter().any(|kind| name.contains(kind));
        if !is(&["rdn", "rfl"]) {
            return Ok(());
        }
        info.format = match instrument {
            "classic" => format!("AVIRIS classic ({})", info.format),
            other => format!("AVIRIS-{other} ({})", info.format),
        };
        if name.contains("rdn") {
            info.unit = Some(RADIANCE.to_owned());
        }
        if instrument == "classic" {
            return describe_classic(file, info);
        }
        if info.wavelength.is_none()
            && let Some(names) = &info.band_names
        {
            info.wavelength = wavelengths_in_names(names);
        }
        Ok(())
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let has_wavelengths = |cube: &ProductCube| {
            let list = tree.list(&format!("{}/wavelength", parent(&cube.path)));
            let bands = tree.entry(&cube.path).and_then(|entry| entry.shape.first().copied());
            list.map(|list| list.len()) == bands
        };
        let mut cubes = of_table(self, &LAYOUTS, tree);
        cubes.retain(has_wavelengths);
        cubes
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, bands: usize) -> Facts {
        let group = parent(&cube.path);
        Facts {
            wavelengths: from_array(tree, &format!("{group}/wavelength")),
            fwhm: tree.list(&format!("{group}/fwhm")),
            good_bands: good_bands_beside(tree, &cube.path, bands).map(flags),
            unit: (cube.dataset() == "radiance").then_some(RADIANCE),
            ..Facts::default()
        }
    }
}

fn describe_classic(file: &Found, info: &mut CubeInfo) -> Result<()> {
    info.ignore_value = info.ignore_value.or(Some(CLASSIC_IGNORE));
    let bands = info.shape.bands;
    if !info.dtype.is_float() {
        let gain = flight_line(&file.path, "gain").ok_or_else(|| no_gain(file))?;
        let divisors = read_list(&gain, parse_gain)?;
        if divisors.len() != bands {
            let what = format!("the image has {bands} bands, not {}", divisors.len());
            return Err(disagree(file, &gain, &what));
        }
        let scaling = |divide: &f64| Scaling { divide: *divide, ..Scaling::NONE };
        info.scale_bands(divisors.iter().map(scaling).collect());
        info.files.push(gain);
    }
    if info.wavelength.is_none()
        && let Some(path) = flight_line(&file.path, "spc")
    {
        let list = read_list(&path, parse_centres)?;
        if list.len() == bands {
            (info.wavelength, info.fwhm) = {
                let (nm, fwhm) = list.into_iter().unzip();
                (Some(nm), Some(fwhm))
            };
            info.files.push(path);
        } else {
            info.notes.push(format!(
                "{} has {} bands, but the image has {bands}, so it is left out",
                path.display(),
                list.len()
            ));
        }
    }
    Ok(())
}

fn no_gain(file: &Found) -> Error {
    Error::malformed("the .gain file of this AVIRIS radiance image is missing; it contains the divisor of each band")
        .at(&file.path)
        .with_remedy("put it beside the image, under the name of the flight line, such as f080702t01p00r09rdn_c.gain")
}

/// The file of the flight line with this ending. The image's name starts with the name of the
/// flight line.
fn flight_line(image: &Path, ending: &str) -> Option<PathBuf> {
    let name = image.file_name()?.to_str()?;
    let ends = name.match_indices(['_', '.']).map(|(at, _)| at).chain([name.len()]);
    let mut ends: Vec<usize> = ends.collect();
    ends.reverse();
    let names =
        ends.into_iter().map(|end| image.with_file_name(format!("{}.{ending}", &name[..end])));
    names.into_iter().find(|path| is_there(path))
}

fn read_list<T>(path: &Path, parse: fn(&str) -> Result<Vec<T>, String>) -> Result<Vec<T>> {
    let text = decode(&bounded_read::read(path, LARGEST_LIST)?);
    parse(&text).map_err(|why| unusable(path, why))
}

/// The numbers of each line that is not blank.
fn lines(text: &str) -> impl Iterator<Item = Result<Vec<f64>, String>> {
    let number = |word: &str| {
        let number: Option<f64> = word.parse().ok();
        number
            .filter(|number| number.is_finite())
            .ok_or_else(|| "one of its lines is not a list of numbers".to_owned())
    };
    let all = text.lines().map(str::trim).filter(|line| !line.is_empty());
    all.map(move |line| line.split_whitespace().map(number).collect())
}

/// The divisors in a `.gain` file: the first column.
///
/// # Errors
/// A message, if a line has no number, or one that cannot be a divisor.
#[doc(hidden)]
pub fn parse_gain(text: &str) -> Result<Vec<f64>, String> {
    let first = |line: Result<Vec<f64>, String>| match line?.first() {
        Some(gain) if *gain > 0.0 => Ok(*gain),
        _ => Err("one of its gains is not above 0".to_owned()),
    };
    lines(text).map(first).collect()
}

/// Centres and widths in nm in a `.spc` file: the first two columns.
///
/// # Errors
/// A message, if a line does not have both.
#[doc(hidden)]
pub fn parse_centres(text: &str) -> Result<Vec<(f64, f64)>, String> {
    let two = |line: Result<Vec<f64>, String>| match line?[..] {
        [centre, fwhm, ..] if centre > 0.0 && fwhm > 0.0 => Ok((centre, fwhm)),
        _ => Err("one of its lines has no centre and width".to_owned()),
    };
    lines(text).map(two).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_columns() {
        assert_eq!(parse_gain("  300.0   1\n\n 600 2\n"), Ok(vec![300.0, 600.0]));
        for bad in ["0 1", "x", "300\n-1", "inf"] {
            assert!(parse_gain(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_centres("365.9 9.8 0.1 0.2 1\n"), Ok(vec![(365.9, 9.8)]));
        assert!(parse_centres("365.9").is_err());
    }

    #[test]
    fn the_flight_line_s_files_have_the_start_of_the_image_s_name() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("f080702t01p00r09rdn_c_sc01_ort_img");
        assert_eq!(flight_line(&image, "gain"), None);
        let gain = folder.path().join("f080702t01p00r09rdn_c.gain");
        std::fs::write(&gain, "1").unwrap();
        assert_eq!(flight_line(&image, "gain"), Some(gain));
    }
}
