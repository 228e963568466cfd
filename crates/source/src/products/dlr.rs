//! The XML metadata of EnMAP and DESIS products from DLR: the list of bands, and where the metadata
//! lie.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use roxmltree::Node;

use super::delivery::Found;
use crate::text::decode;
use crate::{CubeInfo, Scaling, xml};

/// No sensor has more bands. In a list, each takes some hundred bytes.
const MAX_BANDS: usize = 4096;

/// The names that a product uses in its list of bands.
pub(super) struct Names {
    /// The element of a band.
    pub band: &'static str,
    /// Its number from 1: an attribute, or an element in it.
    pub number: &'static str,
    /// The element of the centre in nm.
    pub wavelength: &'static str,
    /// The element of the full width at half maximum in nm.
    pub fwhm: &'static str,
    /// The element of the gain.
    pub gain: &'static str,
    /// The element of the offset.
    pub offset: &'static str,
}

/// Entry of the list about a band.
#[derive(Clone, Copy, Debug, PartialEq)]
#[doc(hidden)]
pub struct Band {
    /// Centre in nm.
    pub wavelength: f64,
    /// Full width at half maximum in nm.
    pub fwhm: f64,
    /// Stored number × gain + offset is the physical value.
    pub gain: f64,
    /// See `gain`.
    pub offset: f64,
}

/// The bands in the element `list`, in the order of their numbers, or as listed if they have none.
///
/// # Errors
/// A message, if a number is missing or occurs twice, or if a band lacks a value.
pub(super) fn bands(list: Node<'_, '_>, names: &Names) -> Result<Vec<Band>, String> {
    let elements: Vec<_> = xml::all(list, names.band).take(MAX_BANDS + 1).collect();
    if elements.is_empty() || elements.len() > MAX_BANDS {
        return Err(format!("the list of bands has none, or more than {MAX_BANDS}"));
    }
    let mut bands = vec![None; elements.len()];
    for (order, node) in elements.into_iter().enumerate() {
        let number = node.attribute(names.number).or_else(|| xml::text(node, names.number));
        let index = match number {
            Some(text) => text.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
            None => Some(order),
        };
        let Some(slot) = index.and_then(|index| bands.get_mut(index)) else {
            return Err("the numbers of its bands are not 1, 2, 3, …".to_owned());
        };
        if slot.is_some() {
            return Err(format!("it lists band {} twice", index.unwrap_or(0) + 1));
        }
        *slot = Some(band(node, names)?);
    }
    // There are as many bands as places, and each place is taken once.
    Ok(bands.into_iter().flatten().collect())
}

fn band(node: Node<'_, '_>, names: &Names) -> Result<Band, String> {
    let number = |name: &str| xml::number(node, name);
    let band = Band {
        wavelength: number(names.wavelength).unwrap_or(f64::NAN),
        fwhm: number(names.fwhm).unwrap_or(f64::NAN),
        gain: number(names.gain).unwrap_or(f64::NAN),
        offset: number(names.offset).unwrap_or(f64::NAN),
    };
    let sound = band.wavelength > 0.0 && band.fwhm > 0.0 && band.gain != 0.0 && !band.gain.is_nan();
    if sound && !band.offset.is_nan() {
        return Ok(band);
    }
    Err(format!(
        "a band lacks {}, {}, {} or {}, or one of these is not a usable number",
        names.wavelength, names.fwhm, names.gain, names.offset
    ))
}

/// Writes bands into `info`, which has the same number of bands.
pub(super) fn describe(bands: &[Band], info: &mut CubeInfo) {
    let list = |value: fn(&Band) -> f64| Some(bands.iter().map(value).collect());
    info.wavelength = list(|band| band.wavelength);
    info.fwhm = list(|band| band.fwhm);
    let scaling = |band: &Band| Scaling { multiply: band.gain, divide: 1.0, add: band.offset };
    info.scale_bands(bands.iter().map(scaling).collect());
}

/// The text of the metadata at `path`.
///
/// # Errors
/// If it cannot be read, or is too large for such a file.
pub(super) fn read(path: &Path) -> Result<String> {
    Ok(decode(&bounded_read::read(path, xml::LONGEST_TEXT as u64)?))
}

/// The processing level in the name of a delivery, such as `L2A`.
pub(super) fn level<'n>(base: &'n str, levels: &[&'n str]) -> Option<&'n str> {
    let small = base.to_ascii_uppercase();
    levels.iter().copied().find(|level| small.contains(&format!("{level}-")))
}

/// An error about a delivery whose metadata and image contradict each other.
pub(super) fn disagree(file: &Found, metadata: &Path, what: &str) -> Error {
    Error::conflict(format!(
        "{what}, as {} says; they belong to different products",
        metadata.display()
    ))
    .at(&file.path)
    .with_remedy(
        "put the metadata of this image beside it; a part of an image needs metadata for that part",
    )
}

/// Refuses metadata for another number of bands. The message states both numbers.
pub(super) fn check_bands(
    file: &Found,
    metadata: &Path,
    stated: usize,
    found: usize,
) -> Result<()> {
    match stated == found {
        true => Ok(()),
        false => {
            Err(disagree(file, metadata, &format!("the image has {found} bands, not {stated}")))
        }
    }
}

/// An error about metadata that cannot be used.
pub(super) fn unusable(metadata: &Path, why: String) -> Error {
    Error::malformed(why).at(metadata).with_remedy("copy the metadata of the product again")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names {
        band: "band",
        number: "no",
        wavelength: "nm",
        fwhm: "fwhm",
        gain: "gain",
        offset: "offset",
    };

    fn read(text: &str) -> Result<Vec<Band>, String> {
        let document = xml::parse(text).unwrap();
        bands(document.root_element(), &NAMES)
    }

    fn band(number: &str, nm: &str) -> String {
        format!(
            "<band no='{number}'><nm>{nm}</nm><fwhm>5</fwhm><gain>2</gain><offset>1</offset></band>"
        )
    }

    #[test]
    fn bands_come_in_the_order_of_their_numbers() {
        let inside =
            "<band><no>3</no><nm>3</nm><fwhm>5</fwhm><gain>2</gain><offset>1</offset></band>";
        let found = read(&format!("<a>{}{inside}{}</a>", band("2", "2"), band("1", "1"))).unwrap();
        let nm: Vec<f64> = found.iter().map(|band| band.wavelength).collect();
        assert_eq!(nm, [1.0, 2.0, 3.0]);
    }

    #[test]
    fn lists_that_do_not_say_all_are_refused() {
        for (list, what) in [
            (String::new(), "none"),
            (band("2", "1"), "1, 2, 3"),
            (band("0", "1"), "1, 2, 3"),
            (band("x", "1"), "1, 2, 3"),
            (band("1", "1") + &band("1", "2"), "twice"),
            (band("1", "x"), "lacks nm"),
            (band("1", "-1"), "lacks nm"),
            (band("1", "inf"), "lacks nm"),
            ("<band no='1'><nm>1</nm></band>".to_owned(), "lacks nm, fwhm, gain"),
        ] {
            let error = read(&format!("<a>{list}</a>")).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn the_level_stands_in_the_name() {
        let levels = ["L1B", "L1C", "L2A"];
        assert_eq!(level("ENMAP01-____L2A-DT01", &levels), Some("L2A"));
        assert_eq!(level("DESIS-HSI-L1C-DT01", &levels), Some("L1C"));
        assert_eq!(level("DESIS-HSI", &levels), None);
    }
}
