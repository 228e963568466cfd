//! Wyvern's Dragonettes, L1B and L2A.
//!
//! | file | part |
//! |---|---|
//! | `wyvern_dragonette-00N_….tiff`, `…_l2a.tiff` | the cube |
//! | `wyvern_dragonette-00N_….json` | STAC item: level, centre and width of each band in µm |
//! | `wyvern_dragonette-00N_…_data_mask.tiff` | quality layer |
//!
//! L1B is radiance as stored. L2A is reflectance × 10000, although no tag says so, and 0 means
//! missing.

use hsipack_format::Result;
use hsipack_store::bounded_read;
use serde::Deserialize;

use super::delivery::{FileName, Found, Part};
use super::dlr::{disagree, unusable};
use super::layers::Test;
use super::{Layer, Product};
use crate::{CubeInfo, Scaling};

const TIFF: [&str; 2] = [".tiff", ".tif"];

static FILES: [FileName; 3] = [
    FileName {
        start: "wyvern_dragonette-###_",
        end: "_data_mask*",
        endings: &TIFF,
        part: Part::Layer,
    },
    FileName { start: "wyvern_dragonette-###_", end: "", endings: &TIFF, part: Part::Image("") },
    FileName {
        start: "wyvern_dragonette-###_",
        end: "",
        endings: &[".json"],
        part: Part::Metadata,
    },
];

/// STAC items take some 10 KB.
const LARGEST_ITEM: u64 = 4 << 20;
const L2A_SCALE: f64 = 1e-4;

/// See the [module](self).
pub(super) struct Wyvern;

impl Product for Wyvern {
    fn sensor(&self) -> &'static str {
        "Wyvern Dragonette"
    }

    fn files(&self) -> &'static [FileName] {
        &FILES
    }

    fn describe(&self, file: &Found, info: &mut CubeInfo) -> Result<()> {
        let mut is_l2 = file.base.to_ascii_lowercase().contains("_l2a");
        if let Some(path) = file.metadata() {
            let item = Item::parse(&bounded_read::read(&path, LARGEST_ITEM)?)
                .map_err(|why| unusable(&path, why))?;
            if let Some(level) = item.level() {
                if is_l2 && level != "L2A" {
                    return Err(disagree(
                        file,
                        &path,
                        &format!("the image is of L2A, not {level}"),
                    ));
                }
                is_l2 = level == "L2A";
            }
            let bands = info.shape.bands;
            match item.bands() {
                [] => {}
                stated if stated.len() != bands => {
                    let what = format!("the image has {bands} bands, not {}", stated.len());
                    return Err(disagree(file, &path, &what));
                }
                stated => describe_bands(stated, info),
            }
            info.files.push(path);
        }
        let level = if is_l2 { "L2A" } else { "L1B" };
        info.format = format!("Wyvern {level} ({})", info.format);
        info.unit = Some(if is_l2 { "1 (surface reflectance)" } else { "W/(m2 sr um)" }.to_owned());
        if is_l2 {
            if !info.is_scaled() {
                info.scaling = Scaling { multiply: L2A_SCALE, ..Scaling::NONE };
            }
            info.ignore_value = info.ignore_value.or(Some(0.0));
        }
        Ok(())
    }

    fn quality_files(&self, file: &Found) -> Vec<Layer> {
        let Some(path) = file.companion("_data_mask", &TIFF) else { return Vec::new() };
        let layer = |name, test| Layer::in_file(name, path.clone(), test);
        vec![
            layer("clear", Test::Is(0, 1.0)),
            layer("cloud", Test::Is(1, 1.0)),
            layer("nodata", Test::AnyOf(&[255.0])),
        ]
    }
}

/// Fills in what the tags of the image do not say about bands.
fn describe_bands(stated: &[Band], info: &mut CubeInfo) {
    let in_nm = |value: fn(&Band) -> Option<f64>| -> Option<Vec<f64>> {
        let sound = |um: &f64| um.is_finite() && *um > 0.0;
        stated.iter().map(|band| Some(value(band).filter(sound)? * 1e3)).collect()
    };
    info.wavelength = info.wavelength.take().or_else(|| in_nm(|band| band.center_wavelength));
    info.fwhm = info.fwhm.take().or_else(|| in_nm(|band| band.full_width_half_max));
}

/// Entries of a STAC item.
#[derive(Debug, Deserialize)]
#[doc(hidden)]
pub struct Item {
    #[serde(default)]
    properties: Properties,
    #[serde(default)]
    assets: std::collections::BTreeMap<String, Asset>,
}

#[derive(Debug, Default, Deserialize)]
struct Properties {
    #[serde(rename = "processing:level")]
    level: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Asset {
    #[serde(rename = "eo:bands", default)]
    bands: Vec<Band>,
}

/// A band, in µm.
#[derive(Debug, Deserialize)]
#[doc(hidden)]
pub struct Band {
    center_wavelength: Option<f64>,
    full_width_half_max: Option<f64>,
}

impl Item {
    /// Parses the text of a STAC item.
    ///
    /// # Errors
    /// A message, if it is something else.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|error| format!("not the metadata of Wyvern: {error}"))
    }

    /// `L1B` or `L2A`.
    fn level(&self) -> Option<&str> {
        let level = self.properties.level.as_deref()?;
        ["L1B", "L2A"].into_iter().find(|name| level.eq_ignore_ascii_case(name))
    }

    /// The bands of the asset with the most bands: thumbnails and masks have fewer.
    pub fn bands(&self) -> &[Band] {
        self.assets
            .values()
            .map(|asset| &asset.bands[..])
            .max_by_key(|bands| bands.len())
            .unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};

    use super::*;

    #[test]
    fn bands_of_an_item_are_in_micrometres() {
        let text = br#"{"properties": {"processing:level": "L2A"}, "assets": {"mask": {}, "image": {"eo:bands":
            [{"name": "a", "center_wavelength": 0.5, "full_width_half_max": 0.02}, {"center_wavelength": 0.6}]}}}"#;
        let item = Item::parse(text).unwrap();
        assert_eq!((item.level(), item.bands().len()), (Some("L2A"), 2));
        let mut info = CubeInfo::new("TIFF", CubeShape::new(1, 1, 2), DType::U16, "a");
        describe_bands(item.bands(), &mut info);
        assert_eq!((info.wavelength, info.fwhm), (Some(vec![500.0, 600.0]), None));
        assert!(Item::parse(b"7").is_err());
        assert!(Item::parse(b"{}").unwrap().bands().is_empty());
    }
}
