//! DESIS L1B, L1C and L2A, as DLR delivers them.
//!
//! | file | part |
//! |---|---|
//! | `DESIS-HSI-…-SPECTRAL_IMAGE.tif` | the cube |
//! | `DESIS-HSI-…-METADATA.xml` | gain and offset, centre and width of each band |
//! | `DESIS-HSI-…-SPECTRAL_IMAGE.hdr` | the same as an ENVI header; read if there is no XML |
//! | `DESIS-HSI-…-QL_….tif` | quality layers |
//! | `SPECTRAL_IMAGE.tif`, `METADATA.xml`, `QL_….tif` | the same, renamed; also after another text and a hyphen |
//!
//! Physical values are stored numbers × `gainOfBand` + `offsetOfBand`; missing values are −32768.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::delivery::{FileName, Found, Part};
use super::layers::Test;
use super::{Layer, Product, dlr};
use crate::flat::envi::{Fields, tokens};
use crate::text::decode;
use crate::{CubeInfo, Scaling, xml};

const TIFF: [&str; 3] = [".tif", ".tiff", ".geotiff"];

static FILES: [FileName; 7] = [
    FileName { start: "DESIS-", end: "-SPECTRAL_IMAGE", endings: &TIFF, part: Part::Image("") },
    FileName { start: "DESIS-", end: "-METADATA", endings: &[".xml"], part: Part::Metadata },
    FileName { start: "DESIS-", end: "-SPECTRAL_IMAGE", endings: &[".hdr"], part: Part::Metadata },
    FileName { start: "DESIS-", end: "-QL_*", endings: &TIFF, part: Part::Layer },
    FileName { start: "", end: "-SPECTRAL_IMAGE", endings: &TIFF, part: Part::Image("") },
    FileName { start: "", end: "-METADATA", endings: &[".xml"], part: Part::Metadata },
    FileName { start: "", end: "-QL_*", endings: &TIFF, part: Part::Layer },
];

const LEVELS: [&str; 3] = ["L1B", "L1C", "L2A"];
const IGNORE: f64 = -32768.0;
/// The gain in the metadata of every L2A product.
const L2A_GAIN: f64 = 1e-4;
const LARGEST_HEADER: u64 = 4 << 20;

const BAND: dlr::Names = dlr::Names {
    band: "band",
    number: "bandNumber",
    wavelength: "wavelengthCenterOfBand",
    fwhm: "wavelengthWidthOfBand",
    gain: "gainOfBand",
    offset: "offsetOfBand",
};

/// See the [module](self).
pub(super) struct Desis;

impl Product for Desis {
    fn sensor(&self) -> &'static str {
        "DESIS"
    }

    fn files(&self) -> &'static [FileName] {
        &FILES
    }

    fn owns(&self, path: &Path) -> bool {
        dlr::read(path).is_ok_and(|text| Metadata::parse(&text).is_ok())
    }

    fn describe(&self, file: &Found, info: &mut CubeInfo) -> Result<()> {
        let level = dlr::level(&file.base, &LEVELS).map(str::to_owned);
        let level = level.or_else(|| stated_level(file));
        let level = level.as_deref();
        info.format = format!("DESIS {} ({})", level.unwrap_or("product"), info.format);
        info.ignore_value = Some(IGNORE);
        let is_l2 = level == Some("L2A");
        let unit = if is_l2 { "1 (surface reflectance)" } else { "mW/(cm2 sr um)" };
        info.unit = Some(unit.to_owned());
        if level == Some("L1B") && info.geo.take().is_some() {
            info.notes.push("the transform in an L1B image is approximate; not kept".to_owned());
        }
        let Some(path) = file.metadata() else { return without_metadata(file, is_l2, info) };
        let is_xml = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("xml"));
        let bands = if is_xml { from_xml(file, &path, level, info)? } else { from_header(&path)? };
        dlr::check_bands(file, &path, bands.len(), info.shape.bands)?;
        dlr::describe(&bands, info);
        info.files.push(path);
        Ok(())
    }

    fn quality_files(&self, file: &Found) -> Vec<Layer> {
        let by_band = file.companion("-QL_QUALITY", &TIFF);
        let mut layers = Vec::new();
        // Set if any band is defective.
        layers.extend(by_band.map(|path| Layer::in_file("defective", path, Test::Any)));
        if let Some(path) = file.companion("-QL_QUALITY-2", &TIFF) {
            let flags = FLAGS.iter().enumerate();
            layers.extend(
                flags.map(|(band, name)| Layer::in_file(name, path.clone(), Test::IsSet(band))),
            );
        }
        layers
    }
}

/// The first bands of `QL_QUALITY-2`. The bands after them are aerosol and water vapour.
const FLAGS: [&str; 8] =
    ["shadow", "land", "snow", "haze_land", "haze_water", "cloud_land", "cloud_water", "water"];

fn without_metadata(file: &Found, is_l2: bool, info: &mut CubeInfo) -> Result<()> {
    if !is_l2 {
        return Err(Error::malformed(
            "the METADATA.xml of this DESIS product is missing: it contains the gain and offset of each band",
        )
        .at(&file.path)
        .with_remedy(format!(
            "put {}-METADATA.xml or -SPECTRAL_IMAGE.hdr beside it; under another name the image is read as a plain TIFF",
            file.base
        )));
    }
    info.notes.push(
        "METADATA.xml is missing: wavelengths are unknown, and values are scaled by 0.0001, as in L2A products"
            .to_owned(),
    );
    info.scaling = Scaling { multiply: L2A_GAIN, ..Scaling::NONE };
    info.band_scaling = None;
    Ok(())
}

fn from_xml(
    file: &Found,
    path: &Path,
    level: Option<&str>,
    info: &mut CubeInfo,
) -> Result<Vec<dlr::Band>> {
    let text = dlr::read(path)?;
    let metadata = Metadata::parse(&text).map_err(|why| dlr::unusable(path, why))?;
    match (level, &metadata.level) {
        (Some(level), Some(other)) if level != other => {
            return Err(dlr::disagree(
                file,
                path,
                &format!("the image is of {level}, not {other}"),
            ));
        }
        _ => {}
    }
    if let Some(background) = metadata.background {
        info.ignore_value = Some(background);
    }
    Ok(metadata.bands)
}

/// The processing level in the metadata of a renamed delivery.
fn stated_level(file: &Found) -> Option<String> {
    let path = file
        .metadata()
        .filter(|path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("xml")))?;
    Metadata::parse(&dlr::read(&path).ok()?).ok()?.level
}

/// Entries of a METADATA.xml.
#[derive(Debug, PartialEq)]
#[doc(hidden)]
pub struct Metadata {
    level: Option<String>,
    background: Option<f64>,
    /// All bands.
    pub bands: Vec<dlr::Band>,
}

impl Metadata {
    /// Parses the text of a METADATA.xml.
    ///
    /// # Errors
    /// A message, if it is something else, or lacks what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = xml::parse(text).map_err(|why| format!("not usable XML: {why}"))?;
        let root = document.root_element();
        let specific = xml::at(root, "specific")
            .ok_or("not the metadata of DESIS: it has no element 'specific'")?;
        // interiorOrientation also contains bands.
        let list = xml::at(specific, "bandCharacterisation").ok_or("it has no list of bands")?;
        let bands = dlr::bands(list, &BAND)?;
        let level = xml::text(specific, "productType").filter(|level| LEVELS.contains(level));
        Ok(Self {
            level: level.map(str::to_owned),
            background: xml::number(specific, "backgroundValue"),
            bands,
        })
    }
}

/// The bands in the ENVI header that comes with the image.
fn from_header(path: &Path) -> Result<Vec<dlr::Band>> {
    let text = decode(&bounded_read::read(path, LARGEST_HEADER)?);
    parse_header(&text).map_err(|why| dlr::unusable(path, why))
}

/// The bands in the text of an ENVI header.
///
/// # Errors
/// A message, if it is not an ENVI header, lacks a list, or has a number that cannot be used.
#[doc(hidden)]
pub fn parse_header(text: &str) -> Result<Vec<dlr::Band>, String> {
    let fields = Fields::parse(text).map_err(|error| error.what().to_owned())?;
    let list = |key: &str| -> Result<Vec<f64>, String> {
        let numbers = fields.get(key).map(|text| {
            tokens(text).map(|token| token.parse().ok().filter(|n: &f64| n.is_finite())).collect()
        });
        numbers
            .flatten()
            .ok_or_else(|| format!("`{key}` is missing or holds values that are not numbers"))
    };
    let [wavelength, fwhm, gain, offset] =
        ["wavelength", "fwhm", "data gain values", "data offset values"].map(list);
    let (wavelength, fwhm, gain, offset) = (wavelength?, fwhm?, gain?, offset?);
    let bands = wavelength.len();
    if [&fwhm, &gain, &offset].iter().any(|list| list.len() != bands) {
        return Err(
            "wavelength, fwhm, data gain values and data offset values differ in length".to_owned()
        );
    }
    let band = |at: usize| dlr::Band {
        wavelength: wavelength[at],
        fwhm: fwhm[at],
        gain: gain[at],
        offset: offset[at],
    };
    let bands: Vec<dlr::Band> = (0..bands).map(band).collect();
    let sound = |band: &dlr::Band| band.wavelength > 0.0 && band.fwhm > 0.0 && band.gain != 0.0;
    if !bands.iter().all(sound) {
        return Err("a wavelength, width or gain is not above 0".to_owned());
    }
    Ok(bands)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: &str = "<band><bandNumber>1</bandNumber><wavelengthCenterOfBand>401.9</wavelengthCenterOfBand>\
        <wavelengthWidthOfBand>3.3</wavelengthWidthOfBand><gainOfBand>1e-4</gainOfBand><offsetOfBand>-0.5</offsetOfBand></band>";

    #[test]
    fn bands_under_other_elements_are_not_taken() {
        let text = format!(
            "<hsi_doc><specific><productType>L1B</productType><numberOfBands>1</numberOfBands>\
             <bandCharacterisation>{BAND}</bandCharacterisation></specific>\
             <product><interiorOrientation><band><bandNumber>1</bandNumber></band></interiorOrientation></product></hsi_doc>"
        );
        let metadata = Metadata::parse(&text).unwrap();
        assert_eq!(
            metadata.bands,
            [dlr::Band { wavelength: 401.9, fwhm: 3.3, gain: 1e-4, offset: -0.5 }]
        );
        assert_eq!(metadata.level.as_deref(), Some("L1B"));
        assert!(Metadata::parse(&text.replace("bandCharacterisation", "x")).is_err());
    }

    #[test]
    fn a_header_serves_without_xml() {
        let header = |gain: &str| {
            let text = format!(
                "ENVI\nwavelength = {{401.9 ,404.4}}\nfwhm = {{3.3, 3.4}}\ndata gain values = {{{gain}}}\n\
                 data offset values = {{-0.5, 0}}\n"
            );
            parse_header(&text)
        };
        assert_eq!(header("1e-4 ,2e-4").unwrap()[1].gain, 2e-4);
        assert!(header("1e-4").unwrap_err().contains("differ in length"));
        assert!(header("1e-4, x").unwrap_err().contains("not numbers"));
        assert!(header("1e-4, 0").unwrap_err().contains("above 0"));
    }
}
