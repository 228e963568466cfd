//! EnMAP L1B, L1C and L2A, as DLR delivers them.
//!
//! | file | part |
//! |---|---|
//! | `ENMAP…-SPECTRAL_IMAGE.TIF`, also `_COG`; `.GEOTIFF`, `.BSQ`, `.BIL`, `.BIP` | the cube of L1C and L2A |
//! | `ENMAP…-SPECTRAL_IMAGE_VNIR.TIF`, `…_SWIR.TIF` | the two cubes of L1B, each in its detector's own grid |
//! | `ENMAP…-METADATA.XML` | gain and offset, centre, width and detector of each band; bands without data |
//! | `ENMAP…-QL_….TIF` | quality layers |
//! | `SPECTRAL_IMAGE.TIF`, `METADATA.XML`, `QL_….TIF` | the same, renamed; also after another text and a hyphen |
//!
//! Physical values are stored numbers × `GainOfBand` + `OffsetOfBand`. Missing values are 0
//! (`backgroundValue`) in L1 and −32768 in L2A, whatever its XML says. Bands of L1C and L2A are in
//! order of wavelength, so the bands of both detectors alternate between 900 and 1000 nm. Their
//! names say which detector they belong to.

use std::collections::BTreeSet;
use std::path::Path;

use hsipack_format::{Error, Result};
use roxmltree::Node;

use super::delivery::{FileName, Found, Part};
use super::layers::Test;
use super::{Layer, Product, dlr};
use crate::{CubeInfo, Scaling, xml};

/// Endings of all formats in which the product can be ordered.
const RASTERS: [&str; 7] = [".tif", ".tiff", ".geotiff", ".bsq", ".bil", ".bip", ".jp2"];
/// ENVI headers lie beside `.BSQ`, `.BIL` and `.BIP`.
const HEADER: [&str; 1] = [".hdr"];

static FILES: [FileName; 20] = [
    image("ENMAP", "-SPECTRAL_IMAGE", ""),
    image("ENMAP", "-SPECTRAL_IMAGE_COG", ""),
    image("ENMAP", "-SPECTRAL_IMAGE_VNIR", "VNIR"),
    image("ENMAP", "-SPECTRAL_IMAGE_VNIR_COG", "VNIR"),
    image("ENMAP", "-SPECTRAL_IMAGE_SWIR", "SWIR"),
    image("ENMAP", "-SPECTRAL_IMAGE_SWIR_COG", "SWIR"),
    header("ENMAP", "-SPECTRAL_IMAGE", ""),
    header("ENMAP", "-SPECTRAL_IMAGE_VNIR", "VNIR"),
    header("ENMAP", "-SPECTRAL_IMAGE_SWIR", "SWIR"),
    FileName { start: "ENMAP", end: "-METADATA", endings: &[".xml"], part: Part::Metadata },
    FileName { start: "ENMAP", end: "-QL_*", endings: &RASTERS, part: Part::Layer },
    FileName { start: "ENMAP", end: "-QL_*", endings: &HEADER, part: Part::Layer },
    image("", "-SPECTRAL_IMAGE", ""),
    image("", "-SPECTRAL_IMAGE_VNIR", "VNIR"),
    image("", "-SPECTRAL_IMAGE_SWIR", "SWIR"),
    header("", "-SPECTRAL_IMAGE", ""),
    header("", "-SPECTRAL_IMAGE_VNIR", "VNIR"),
    header("", "-SPECTRAL_IMAGE_SWIR", "SWIR"),
    FileName { start: "", end: "-METADATA", endings: &[".xml"], part: Part::Metadata },
    FileName { start: "", end: "-QL_*", endings: &RASTERS, part: Part::Layer },
];

const fn header(start: &'static str, end: &'static str, name: &'static str) -> FileName {
    FileName { start, end, endings: &HEADER, part: Part::Plain(name) }
}

const fn image(start: &'static str, end: &'static str, name: &'static str) -> FileName {
    FileName { start, end, endings: &RASTERS, part: Part::Image(name) }
}

const LEVELS: [&str; 3] = ["L1B", "L1C", "L2A"];
/// The mean that `bandStatistics` give for a band without data. Its standard deviation is 0.
const NO_DATA_MEAN: f64 = -1_000_000.0;
/// SNAP and EnMAP-Box use this value in L2A, although the XML says 0.
const L2A_IGNORE: f64 = -32768.0;
/// The gain in the XML of every L2A product.
const L2A_GAIN: f64 = 1e-4;

const BAND: dlr::Names = dlr::Names {
    band: "bandID",
    number: "number",
    wavelength: "wavelengthCenterOfBand",
    fwhm: "FWHMOfBand",
    gain: "GainOfBand",
    offset: "OffsetOfBand",
};

/// See the [module](self).
pub(super) struct Enmap;

impl Product for Enmap {
    fn sensor(&self) -> &'static str {
        "EnMAP"
    }

    fn files(&self) -> &'static [FileName] {
        &FILES
    }

    fn owns(&self, path: &Path) -> bool {
        dlr::read(path).is_ok_and(|text| Metadata::parse(&text).is_ok())
    }

    fn describe(&self, file: &Found, info: &mut CubeInfo) -> Result<()> {
        let level = dlr::level(&file.base, &LEVELS);
        let Some(path) = file.metadata() else {
            without_metadata(file, level, info)?;
            info.format = format!("EnMAP {} ({})", level.unwrap_or("product"), info.format);
            return Ok(());
        };
        let text = dlr::read(&path)?;
        let metadata = Metadata::parse(&text).map_err(|why| dlr::unusable(&path, why))?;
        let named = level.unwrap_or(if file.base.to_ascii_uppercase().starts_with("ENMAP") {
            "product"
        } else {
            &metadata.level
        });
        info.format = format!("EnMAP {named} ({})", info.format);
        check(file, &path, level, &metadata, info)?;
        let image = metadata.image(file.part);
        dlr::describe(&metadata.bands[image.bands.clone()], info);
        describe_bands(&metadata, image, info);
        let is_l2 = metadata.level == "L2A";
        info.ignore_value = Some(if is_l2 { L2A_IGNORE } else { metadata.background });
        info.unit = Some(unit(is_l2).to_owned());
        if metadata.level == "L1B" && info.geo.take().is_some() {
            info.notes.push("the transform in an L1B image is approximate; not kept".to_owned());
        }
        info.files.push(path);
        Ok(())
    }

    fn quality_files(&self, file: &Found) -> Vec<Layer> {
        let of_detector = match file.part {
            Part::Image("VNIR") | Part::Plain("VNIR") => Some("-QL_PIXELMASK_VNIR"),
            Part::Image("SWIR") | Part::Plain("SWIR") => Some("-QL_PIXELMASK_SWIR"),
            _ => None,
        };
        let layer = |(name, end, test): &(&str, &'static str, Test)| {
            Some(Layer::in_file(name, file.companion(end, &RASTERS)?, *test))
        };
        match of_detector {
            // The other layers of L1B are in one detector's grid, and nothing says in which.
            Some(end) => layer(&("defective", end, Test::AnyOf(&[1.0]))).into_iter().collect(),
            None => QUALITY.iter().filter_map(layer).collect(),
        }
    }
}

/// Names of layers, names of files, and the tests. Cirrus is 1 thin, 2 medium, 3 thick.
const QUALITY: [(&str, &str, Test); 9] = [
    ("land", "-QL_QUALITY_CLASSES", Test::Is(0, 1.0)),
    ("water", "-QL_QUALITY_CLASSES", Test::Is(0, 2.0)),
    ("background", "-QL_QUALITY_CLASSES", Test::Is(0, 3.0)),
    ("cloud", "-QL_QUALITY_CLOUD", Test::Is(0, 1.0)),
    ("cloud_shadow", "-QL_QUALITY_CLOUDSHADOW", Test::Is(0, 1.0)),
    ("haze", "-QL_QUALITY_HAZE", Test::Is(0, 1.0)),
    ("cirrus", "-QL_QUALITY_CIRRUS", Test::IsSet(0)),
    ("snow", "-QL_QUALITY_SNOW", Test::Is(0, 1.0)),
    // Set if any band is defective.
    ("defective", "-QL_PIXELMASK", Test::AnyOf(&[1.0])),
];

fn unit(is_l2: bool) -> &'static str {
    if is_l2 { "1 (surface reflectance)" } else { "W/(m2 sr nm)" }
}

/// Patches in published data sets come without XML. All L2A patches have the same scaling. In L1,
/// the scaling is unknown.
fn without_metadata(file: &Found, level: Option<&str>, info: &mut CubeInfo) -> Result<()> {
    if level != Some("L2A") {
        return Err(Error::malformed("the METADATA.XML of this EnMAP product is missing: it contains the gain and offset of each band")
            .at(&file.path)
            .with_remedy(format!(
                "put {}-METADATA.XML beside it; under another name the image is read as a plain {}",
                file.base, info.format
            )));
    }
    info.notes.push(
        "METADATA.XML is missing: wavelengths are unknown, values are scaled by 0.0001, and -32768 is missing data, as in L2A products".to_owned(),
    );
    info.scaling = Scaling { multiply: L2A_GAIN, ..Scaling::NONE };
    info.band_scaling = None;
    info.ignore_value = Some(L2A_IGNORE);
    info.unit = Some(unit(true).to_owned());
    Ok(())
}

/// Compares the XML with the image beside it.
fn check(
    file: &Found,
    path: &Path,
    level: Option<&str>,
    metadata: &Metadata,
    info: &CubeInfo,
) -> Result<()> {
    if let Some(level) = level.filter(|level| *level != metadata.level) {
        let what = format!("the image is of {level}, not {}", metadata.level);
        return Err(dlr::disagree(file, path, &what));
    }
    if metadata.level == "L1B" && matches!(file.part, Part::Image("") | Part::Plain("")) {
        return Err(dlr::disagree(file, path, "an L1B image is of VNIR or of SWIR"));
    }
    let image = metadata.image(file.part);
    dlr::check_bands(file, path, image.bands.len(), info.shape.bands)?;
    let [rows, columns] = [info.shape.rows, info.shape.columns];
    match image.size {
        Some(size) if size != [rows, columns] => {
            let what =
                format!("the image has {rows} x {columns} pixels, not {} x {}", size[0], size[1]);
            Err(dlr::disagree(file, path, &what))
        }
        _ => Ok(()),
    }
}

/// Fills in which bands have no data, and which detector each band belongs to.
fn describe_bands(metadata: &Metadata, image: &Image, info: &mut CubeInfo) {
    let range = image.bands.clone();
    let is_empty = |band: &usize| metadata.empty.contains(&(range.start + band));
    info.empty_bands = (0..range.len()).filter(is_empty).collect();
    info.good_bands = Some((0..range.len()).map(|band| !is_empty(&band)).collect());
    let detector = |band: usize| if metadata.vnir.contains(&band) { "VNIR" } else { "SWIR" };
    let name = |band: usize| format!("{} {} nm", detector(band), metadata.bands[band].wavelength);
    info.band_names = Some(range.clone().map(name).collect());
    let of_vnir: Vec<usize> = range.clone().filter(|band| metadata.vnir.contains(band)).collect();
    let first_swir = range.clone().find(|band| !metadata.vnir.contains(band));
    if let (Some(first), Some(last)) = (first_swir, of_vnir.last())
        && first < *last
    {
        info.notes.push(format!(
            "bands {first} to {last} are of both detectors in turn, in order of wavelength; the names of bands say VNIR or SWIR"
        ));
    }
}

/// One image of a product, as the XML describes it.
#[derive(Debug, PartialEq)]
struct Image {
    /// Its bands among all bands, from 0.
    bands: std::ops::Range<usize>,
    /// Rows and columns, if they are given.
    size: Option<[usize; 2]>,
}

/// Entries of a METADATA.XML.
#[derive(Debug, PartialEq)]
#[doc(hidden)]
pub struct Metadata {
    level: String,
    /// All bands of the product; in L1B those of VNIR first.
    pub bands: Vec<dlr::Band>,
    /// Bands of VNIR, from 0; the others are of SWIR.
    vnir: BTreeSet<usize>,
    /// Bands without data, from 0.
    empty: BTreeSet<usize>,
    background: f64,
    whole: Image,
    by_detector: [Image; 2],
}

impl Metadata {
    /// Parses the text of a METADATA.XML.
    ///
    /// # Errors
    /// A message, if it is something else, or lacks what is needed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = xml::parse(text).map_err(|why| format!("not usable XML: {why}"))?;
        let root = document.root_element();
        let specific = xml::at(root, "specific")
            .ok_or("not the metadata of EnMAP: it has no element 'specific'")?;
        let level = level(root).ok_or("it does not say the processing level (L1B, L1C or L2A)")?;
        let list = xml::at(specific, "bandCharacterisation").ok_or("it has no list of bands")?;
        let bands = dlr::bands(list, &BAND)?;
        let count = |name: &str| Some(xml::number(specific, name)? as usize);
        let vnir_count = match count("numberOfVNIRBands") {
            Some(count) if count <= bands.len() => count,
            _ => return Err("numberOfVNIRBands is missing or above the number of bands".to_owned()),
        };
        let image = |name: &str, bands| {
            let dimension = xml::at(root, &format!("product/image/{name}/dimension"));
            let side = |name| Some(xml::number(dimension?, name)? as usize);
            Image { bands, size: side("rows").zip(side("columns")).map(|(r, c)| [r, c]) }
        };
        let vnir = match level {
            "L1B" => (0..vnir_count).collect(),
            _ => channels(specific, "vnirProductQuality/expectedChannelsList", bands.len())
                .unwrap_or_else(|| (0..vnir_count).collect()),
        };
        Ok(Self {
            level: level.to_owned(),
            vnir,
            empty: empty_bands(root),
            background: xml::number(specific, "backgroundValue").unwrap_or(0.0),
            whole: image("merge", 0..bands.len()),
            by_detector: [image("vnir", 0..vnir_count), image("swir", vnir_count..bands.len())],
            bands,
        })
    }

    /// Checks what must hold for all metadata: for fuzzing.
    pub fn check(&self) {
        let bands = self.bands.len();
        assert!(self.vnir.iter().all(|band| *band < bands));
        for part in ["", "VNIR", "SWIR"] {
            assert!(self.image(Part::Image(part)).bands.end <= bands);
        }
    }

    fn image(&self, part: Part) -> &Image {
        match part {
            Part::Image("VNIR") | Part::Plain("VNIR") => &self.by_detector[0],
            Part::Image("SWIR") | Part::Plain("SWIR") => &self.by_detector[1],
            _ => &self.whole,
        }
    }
}

/// The processing level, from whichever of three places has it.
fn level(root: Node<'_, '_>) -> Option<&'static str> {
    let places = ["base/level", "metadata/schema/processingLevel", "base/format"];
    let texts = places.iter().filter_map(|path| xml::text(root, path));
    texts.into_iter().find_map(|text| LEVELS.into_iter().find(|level| text.ends_with(level)))
}

/// The bands, from 0, in a list of band numbers from 1; `None` if an entry is not such a number.
fn channels(specific: Node<'_, '_>, path: &str, bands: usize) -> Option<BTreeSet<usize>> {
    let numbers = xml::text(specific, path)?.split(',');
    let band = |text: &str| {
        let number: usize = text.trim().parse().ok()?;
        (1..=bands).contains(&number).then(|| number - 1)
    };
    numbers.map(band).collect()
}

/// Bands whose statistics say that they have no data.
fn empty_bands(root: Node<'_, '_>) -> BTreeSet<usize> {
    let Some(list) = xml::at(root, "product/bandStatistics") else { return BTreeSet::new() };
    let is_empty = |band: &Node<'_, '_>| {
        xml::number(*band, "mean") == Some(NO_DATA_MEAN)
            && xml::number(*band, "stdDeviation").unwrap_or(0.0) == 0.0
    };
    let bands = xml::all(list, "bandID").filter(is_empty);
    let number = |node: Node<'_, '_>| node.attribute("number")?.trim().parse::<usize>().ok();
    bands.filter_map(number).filter_map(|number| number.checked_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(level: &str, quality: &str, statistics: &str) -> String {
        let band = |number: usize| {
            format!(
                "<bandID number='{number}'><wavelengthCenterOfBand>{number}00</wavelengthCenterOfBand><FWHMOfBand>5</FWHMOfBand>\
                 <GainOfBand>1e-4</GainOfBand><OffsetOfBand>0</OffsetOfBand></bandID>"
            )
        };
        let bands: String = (1..=3).map(band).collect();
        format!(
            "<level_X><base><level>{level}</level></base><specific>{quality}<numberOfVNIRBands>2</numberOfVNIRBands>\
             <bandCharacterisation>{bands}</bandCharacterisation></specific>\
             <product><image><merge><dimension><columns>4</columns><rows>5</rows></dimension></merge></image>\
             <bandStatistics>{statistics}</bandStatistics></product></level_X>"
        )
    }

    #[test]
    fn detectors_and_bands_without_data_come_from_lists_of_numbers() {
        let quality = "<vnirProductQuality><expectedChannelsList>1,3</expectedChannelsList></vnirProductQuality>";
        let statistics = "<bandID number='2'><mean>-1000000</mean><stdDeviation>0</stdDeviation></bandID>\
                          <bandID number='3'><mean>0.5</mean></bandID>";
        let metadata = Metadata::parse(&xml("L2A", quality, statistics)).unwrap();
        assert_eq!(metadata.vnir, BTreeSet::from([0, 2]));
        assert_eq!(metadata.empty, BTreeSet::from([1]));
        assert_eq!(metadata.image(Part::Image("")), &Image { bands: 0..3, size: Some([5, 4]) });
    }

    #[test]
    fn the_bands_of_vnir_come_first_in_l1b() {
        let metadata = Metadata::parse(&xml("L1B", "", "")).unwrap();
        assert_eq!(metadata.image(Part::Image("VNIR")).bands, 0..2);
        assert_eq!(metadata.image(Part::Image("SWIR")).bands, 2..3);
        assert_eq!(metadata.background, 0.0);
    }

    #[test]
    fn metadata_that_lack_something_are_refused_in_words() {
        for (text, what) in [
            ("<a>", "XML"),
            ("<a/>", "specific"),
            ("<a><specific/></a>", "level"),
            (
                &xml("L1C", "", "").replace("<numberOfVNIRBands>2", "<numberOfVNIRBands>9"),
                "numberOfVNIRBands",
            ),
            (&xml("L1C", "", "").replace("number='2'", "number='4'"), "1, 2, 3"),
        ] {
            let error = Metadata::parse(text).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
