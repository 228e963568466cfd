//! GDAL's metadata of bands: the XML in TIFF tag 42112, and the XML in side files such as
//! `x.tif.aux.xml`.
//!
//! ```xml
//! <GDALMetadata>
//!   <Item name="wavelength" sample="0">540.84</Item>
//!   <Item name="SCALE" sample="0" role="scale">0.0001</Item>
//!   <Item name="CENTRAL_WAVELENGTH_UM" sample="0" domain="IMAGERY">0.5408</Item>
//!   <Item name="wavelength" domain="ENVI">{540.84, 580.76}</Item>
//! </GDALMetadata>
//!
//! <PAMDataset>
//!   <PAMRasterBand band="1">
//!     <NoDataValue>-9999</NoDataValue> <Scale>0.0001</Scale> <UnitType>K</UnitType>
//!     <Metadata><MDI key="wavelength">540.84</MDI></Metadata>
//!   </PAMRasterBand>
//! </PAMDataset>
//! ```
//!
//! `sample` counts bands from 0, and `band` from 1; items without them are about the whole file.

use hsipack_format::{Error, Geo, Opt, Result};
use roxmltree::Node;

use crate::container::plain;
use crate::meaning::value_unit::value_unit;
use crate::meaning::{missing, scaling};
use crate::place::georeference;
use crate::spectrum::spectrum_text::{self, Quantity, number_list};
use crate::spectrum::wavelengths::{Unit, fwhm_to_nm, known_unit, to_nm};
use crate::xml;
use crate::{CubeInfo, Scaling};

#[doc(hidden)]
pub use crate::spectrum::spectrum_text::wavelengths_in_names;

/// No file has lists of one property under more names. Each takes a pass over all items.
const MAX_NAMES: usize = 32;

/// The items of a GDAL metadata text.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct GdalMetadata {
    items: Vec<Item>,
    /// Where the pixels lie, if a side file says so.
    geo: Option<Geo>,
}

#[derive(Debug)]
struct Item {
    name: String,
    role: String,
    sample: Option<usize>,
    text: String,
}

/// Numbers of a property, one per band, and their unit if it is stated.
struct Numbers {
    values: Vec<f64>,
    unit: Option<String>,
}

impl GdalMetadata {
    /// Parses the text of tag 42112.
    ///
    /// # Errors
    /// If it is not well-formed XML.
    pub fn parse(text: &str) -> Result<Self> {
        let document = xml::parse(text.trim_matches(['\0', ' ', '\n'])).map_err(|why| {
            Error::malformed(format!("the GDAL metadata are not valid XML: {why}"))
        })?;
        let items = document
            .descendants()
            .filter(|node| node.has_tag_name("Item"))
            .map(|node| {
                let attribute = |name| node.attribute(name).unwrap_or_default().to_owned();
                Item {
                    name: attribute("name").to_lowercase(),
                    role: attribute("role").to_lowercase(),
                    sample: node.attribute("sample").and_then(|text| text.trim().parse().ok()),
                    text: node.text().unwrap_or_default().trim().to_owned(),
                }
            })
            .collect();
        Ok(Self { items, geo: None })
    }

    /// Parses the text of a side file.
    ///
    /// # Errors
    /// If it is not well-formed XML.
    pub fn parse_side_file(text: &str) -> Result<Self> {
        let document = xml::parse(text)
            .map_err(|why| Error::malformed(format!("it is not valid XML: {why}")))?;
        let root = document.root_element();
        let mut items = Vec::new();
        add_metadata(root, None, &mut items);
        for band in xml::all(root, "PAMRasterBand") {
            let number = band.attribute("band").and_then(|text| text.trim().parse::<usize>().ok());
            let Some(sample) = number.and_then(|number| number.checked_sub(1)) else { continue };
            for (element, role) in [
                ("Description", "description"),
                ("Scale", "scale"),
                ("Offset", "offset"),
                ("NoDataValue", "nodata"),
                ("UnitType", "unittype"),
                ("ColorInterp", "colorinterp"),
            ] {
                if let Some(text) = xml::text(band, element) {
                    items.push(Item {
                        name: role.to_owned(),
                        role: role.to_owned(),
                        sample: Some(sample),
                        text: text.to_owned(),
                    });
                }
            }
            add_metadata(band, Some(sample), &mut items);
        }
        Ok(Self { items, geo: geo(root) })
    }

    /// The texts that `matches` picks, one for each of `bands` bands; `None` if one is missing.
    fn per_band(&self, bands: usize, matches: impl Fn(&Item) -> bool) -> Option<Vec<&str>> {
        let mut texts = vec![None; bands];
        for item in self.items.iter().filter(|item| matches(item)) {
            if let Some(text) = item.sample.and_then(|sample| texts.get_mut(sample)) {
                *text = Some(item.text.as_str());
            }
        }
        texts.into_iter().collect()
    }

    /// Names of the bands.
    fn band_names(&self, bands: usize) -> Option<Vec<String>> {
        let described = self
            .per_band(bands, |item| item.role == "description")
            .or_else(|| self.per_band(bands, |item| item.name == "description"));
        if let Some(names) = described {
            return Some(names.into_iter().map(str::to_owned).collect());
        }
        let mut names = vec![None; bands];
        for item in self.items.iter().filter(|item| item.sample.is_none()) {
            let number =
                item.name.strip_prefix("band_").and_then(|text| text.parse::<usize>().ok());
            if let Some(name) = number.and_then(|n| names.get_mut(n.checked_sub(1)?)) {
                *name = Some(item.text.clone());
            }
        }
        names.into_iter().collect()
    }

    /// Writes what is known into `info`, whose shape says how many bands there are. What `info`
    /// already has is replaced only where these items say something else.
    pub fn describe(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        if let Some(names) = self.band_names(bands) {
            info.band_names = Some(names);
        }
        self.describe_wavelengths(info);
        self.describe_scaling(info);
        if let Some(numbers) = self.numbers(Quantity::GoodBands, bands, &mut info.notes) {
            info.good_bands = Some(numbers.values.iter().map(|flag| *flag != 0.0).collect());
        }
        if let Some(value) = self.ignore_value(bands, &mut info.notes) {
            info.ignore_value = value;
        }
        if let Some(unit) = self.value_unit(bands, info.wavelength.is_some()) {
            info.unit = Some(unit);
        }
        if let Some(geo) = &self.geo {
            info.geo = Some(geo.clone());
        }
        let is_alpha =
            |item: &&Item| item.role == "colorinterp" && item.text.eq_ignore_ascii_case("alpha");
        let alpha = self.items.iter().filter(is_alpha).filter_map(|item| item.sample);
        info.notes.extend(alpha.filter(|band| *band < bands).map(alpha_is_packed));
    }

    /// The meaning of the name of an item for `quantity`, if it has one.
    fn key(item: &Item, quantity: Quantity) -> Option<spectrum_text::Key> {
        let name = match item.name.strip_prefix("netcdf_dim_") {
            // GDAL gives each band its place on the dimensions that a NetCDF variable has besides the image's.
            Some(dimension @ ("band" | "bands")) if quantity == Quantity::Wavelength => {
                let value = number(&item.text).is_some_and(|value| value >= 200.0);
                value.then(|| dimension.replace("band", "wavelength"))?
            }
            Some(dimension) => dimension.to_owned(),
            None => item.name.clone(),
        };
        spectrum_text::key(&name).filter(|key| key.quantity == quantity)
    }

    /// The numbers of `quantity`, from the items of the bands or from a list for the file. Adds a
    /// note about a list that does not fit.
    fn numbers(
        &self,
        quantity: Quantity,
        bands: usize,
        notes: &mut Vec<String>,
    ) -> Option<Numbers> {
        let matching: Vec<(&Item, spectrum_text::Key)> =
            self.items.iter().filter_map(|item| Some((item, Self::key(item, quantity)?))).collect();
        let values = || matching.iter().filter(|(_, key)| !key.is_unit);
        // Each name stands for itself: `fwhm` and `fwhm_um` have different units.
        let mut names: Vec<&str> = values().map(|(item, _)| item.name.as_str()).collect();
        names.sort_by_key(|name| !["wavelength", "fwhm", "bbl"].contains(name));
        names.dedup();
        let stated = self.unit(quantity, &matching);
        let mut listed = std::collections::HashSet::new();
        for name in names.into_iter().filter(|name| listed.insert(*name)).take(MAX_NAMES) {
            let of_name = || values().filter(|(item, _)| item.name == name);
            let unit = of_name().find_map(|(_, key)| key.unit.clone()).or_else(|| stated.clone());
            if let Some(texts) = self.per_band(bands, |item| item.name == name) {
                let lists = texts.iter().map(|text| number_list(text).ok());
                let lists = lists.map(|list| list.filter(|list| list.values.len() == 1));
                if let Some(lists) = lists.collect::<Option<Vec<_>>>() {
                    let inline = lists.first().and_then(|list| list.unit.clone());
                    let alike = lists.iter().all(|list| list.unit == inline);
                    let values = lists.iter().map(|list| list.values[0]).collect();
                    return alike.then(|| Numbers { values, unit: inline.or(unit) });
                }
            }
            let Some((item, _)) = of_name().find(|(item, _)| item.sample.is_none()) else {
                continue;
            };
            match number_list(&item.text) {
                Ok(list) if list.values.len() == bands => {
                    return Some(Numbers { values: list.values, unit: list.unit.or(unit) });
                }
                Ok(list) if list.values.len() > 1 => {
                    notes.push(disagrees(quantity, list.values.len(), bands));
                }
                _ => {}
            }
        }
        None
    }

    /// The unit of `quantity` in an item of its own.
    fn unit(&self, quantity: Quantity, matching: &[(&Item, spectrum_text::Key)]) -> Option<String> {
        let of_key = matching.iter().filter(|(_, key)| key.is_unit).map(|(item, _)| item);
        let of_key = of_key.min_by_key(|item| item.sample);
        // `units` is the unit of the values, unless it is one of wavelengths.
        let named = self.items.iter().find(|item| {
            quantity == Quantity::Wavelength
                && ["unit", "units"].contains(&item.name.as_str())
                && matches!(known_unit(&item.text), Some(Unit::Length(_)))
        });
        of_key.copied().or(named).map(|item| item.text.clone())
    }

    fn describe_wavelengths(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let (mut stored, mut unit) = (None, None);
        if let Some(numbers) = self.numbers(Quantity::Wavelength, bands, &mut info.notes) {
            unit = numbers.unit.clone();
            if spectrum_text::counts(&numbers.values) {
                info.notes
                    .push("the wavelengths in its metadata number the bands; left out".to_owned());
            } else {
                match to_nm(&numbers.values, numbers.unit.as_deref()) {
                    Ok(nm) => {
                        info.wavelength = Some(nm);
                        stored = Some(numbers.values);
                    }
                    Err(why) => info.notes.push(why),
                }
            }
        }
        if info.wavelength.is_none()
            && let Some(nm) = info.band_names.as_deref().and_then(wavelengths_in_names)
        {
            info.wavelength = Some(nm);
            info.notes.push("the wavelengths are taken from the band names".to_owned());
        }
        let Some(fwhm) = self.numbers(Quantity::Fwhm, bands, &mut info.notes) else { return };
        let pair = stored.as_deref().zip(info.wavelength.as_deref());
        let fwhm_unit = fwhm.unit.or_else(|| unit.filter(|_| pair.is_none()));
        match fwhm_to_nm(&fwhm.values, fwhm_unit.as_deref(), pair) {
            Ok(nm) => info.fwhm = Some(nm),
            Err(why) => info.notes.push(why),
        }
    }

    /// The factor `what` of each band, if an item gives it. If there are several, the last one
    /// counts.
    fn factors(&self, what: &str, bands: usize) -> Vec<Option<f64>> {
        let is = |item: &&Item| item.role == what || item.role.is_empty() && item.name == what;
        let (mut of_file, mut of_bands) = ((0, None), vec![(0, None); bands]);
        for (order, item) in self.items.iter().filter(is).enumerate() {
            let slot = match item.sample {
                Some(sample) => of_bands.get_mut(sample),
                None => Some(&mut of_file),
            };
            if let (Some(slot), Some(value)) = (slot, number(&item.text)) {
                *slot = (order + 1, Some(value));
            }
        }
        of_bands
            .into_iter()
            .map(|entry| if entry.0 > of_file.0 { entry.1 } else { of_file.1 })
            .collect()
    }

    /// `value * SCALE + OFFSET`, band by band. As in GDAL, a band without them is used as stored.
    fn describe_scaling(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let (scales, offsets) = (self.factors("scale", bands), self.factors("offset", bands));
        let usable = |(scale, offset): (&Option<f64>, &Option<f64>)| {
            scale.is_none_or(|scale| scale.is_finite() && scale != 0.0)
                && offset.is_none_or(f64::is_finite)
        };
        if !scales.iter().zip(&offsets).all(usable) {
            info.notes.push(
                "SCALE or OFFSET of a band is not a usable number; the stored numbers are not scaled"
                    .to_owned(),
            );
            return;
        }
        if scales.iter().chain(&offsets).any(Option::is_some) {
            let scaling = |(band, (scale, offset)): (usize, (Option<f64>, Option<f64>))| {
                let before = info.scaling_of(band);
                let is_silent = scale.is_none() && offset.is_none();
                if is_silent {
                    before
                } else {
                    Scaling {
                        multiply: scale.unwrap_or(1.0),
                        divide: 1.0,
                        add: offset.unwrap_or(0.0),
                    }
                }
            };
            let all = scales.into_iter().zip(offsets).enumerate().map(scaling).collect();
            info.scale_bands(all);
        }
        if !info.is_scaled()
            && let Some(scaling) = self.stated_factor()
        {
            info.scaling = scaling;
        }
    }

    /// The scaling in an item under another name than GDAL's, such as `Reflectance_Scale_Factor`: a
    /// factor from 10 divides and a factor below 1 multiplies.
    fn stated_factor(&self) -> Option<Scaling> {
        let is_factor = |item: &&Item| {
            let name = plain(last_part(&item.name));
            item.role.is_empty() && name != "scale" && scaling::SCALES.contains(&&*name)
        };
        let factor = self.items.iter().filter(is_factor).find_map(|item| number(&item.text))?;
        match factor {
            _ if factor >= 10.0 && factor.is_finite() => {
                Some(Scaling { divide: factor, ..Scaling::NONE })
            }
            _ if factor > 0.0 && factor < 1.0 => {
                Some(Scaling { multiply: factor, ..Scaling::NONE })
            }
            _ => None,
        }
    }

    /// The number that marks missing data: of the bands if they agree, otherwise of the file. NaN
    /// needs no mark.
    fn ignore_value(&self, bands: usize, notes: &mut Vec<String>) -> Option<Option<f64>> {
        let of_bands: Vec<f64> = self
            .items
            .iter()
            .filter(|item| item.role == "nodata" && item.sample.is_some_and(|band| band < bands))
            .filter_map(|item| number(&item.text))
            .collect();
        if let Some((first, others)) = of_bands.split_first() {
            if others.iter().all(|value| value.total_cmp(first).is_eq()) {
                return Some((!first.is_nan()).then_some(*first));
            }
            notes.push("the bands have different ignore values, so none is used".to_owned());
        }
        let is = |item: &&Item| {
            item.role.is_empty() && missing::NAMES.contains(&&*plain(last_part(&item.name)))
        };
        let value = self.items.iter().filter(is).find_map(|item| number(&item.text));
        value.map(|value| (!value.is_nan()).then_some(value))
    }

    /// The unit of the values, if the bands that state one agree.
    fn value_unit(&self, bands: usize, has_wavelengths: bool) -> Option<String> {
        let is_of_values = |item: &&Item| match &*item.role {
            "" => ["unit", "units"].contains(&&*item.name),
            role => role == "unittype",
        };
        let stated = self.items.iter().filter(|item| item.sample.is_none_or(|band| band < bands));
        let mut units =
            stated.filter(is_of_values).filter_map(|item| value_unit(&item.text, has_wavelengths));
        let first = units.next()?;
        units.all(|unit| unit == first).then_some(first)
    }
}

/// Adds the items in the `Metadata` elements of a side file, which are about one band or the whole
/// file.
fn add_metadata(node: Node<'_, '_>, sample: Option<usize>, items: &mut Vec<Item>) {
    for entry in xml::all(node, "Metadata").flat_map(|metadata| xml::all(metadata, "MDI")) {
        items.push(Item {
            name: entry.attribute("key").unwrap_or_default().to_lowercase(),
            role: String::new(),
            sample,
            text: entry.text().unwrap_or_default().trim().to_owned(),
        });
    }
}

/// Where the pixels lie, according to a side file.
fn geo(root: Node<'_, '_>) -> Option<Geo> {
    let numbers = xml::text(root, "GeoTransform")?.split(',').map(number);
    let transform: Vec<f64> = numbers.collect::<Option<_>>()?;
    let geo = Geo::new(None, transform.try_into().ok()?)?;
    Some(match xml::text(root, "SRS").and_then(georeference::crs) {
        Some((crs, unit)) => Geo { crs: Some(crs), unit, ..geo },
        None => geo,
    })
}

fn disagrees(quantity: Quantity, length: usize, bands: usize) -> String {
    let what = match quantity {
        Quantity::Wavelength => "wavelength",
        Quantity::Fwhm => "fwhm",
        Quantity::GoodBands => "bad-band",
    };
    format!("the {what} list has {length} entries for {bands} bands; left out")
}

/// GDAL gives attributes of a NetCDF variable the name `variable#attribute`.
fn last_part(name: &str) -> &str {
    name.rsplit_once('#').map_or(name, |(_, name)| name)
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// The note about a band that is marked as alpha. It cannot be left out: GDAL marks the fourth band
/// of bytes so by default, which is near infrared in many images.
pub(super) fn alpha_is_packed(band: usize) -> String {
    format!(
        "band {band} (counted from 0) is marked as alpha, as GDAL marks the fourth band of any image of bytes; it is packed as a band. If it is none, leave it out with {}; its zeros do not count as missing",
        Opt::Bands
    )
}

/// The note about a mask of GDAL, which says where a raster has no data.
pub(crate) fn mask_is_not_read(mask: &str) -> String {
    format!(
        "{mask} says which pixels have no data, and is not read: the numbers there are packed as values; write them as nodata first (gdalwarp -dstnodata)"
    )
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};
    use proptest::prelude::*;

    use super::*;

    fn described(xml: &str, bands: usize) -> CubeInfo {
        let mut info = CubeInfo::new("TIFF", CubeShape::new(1, 1, bands), DType::U16, "a.tif");
        GdalMetadata::parse(xml).unwrap().describe(&mut info);
        info
    }

    fn items(items: &str) -> String {
        format!("<GDALMetadata>\n{items}\n</GDALMetadata>\n\0")
    }

    #[test]
    fn wavelengths_come_from_each_place_gdal_writes_them_to() {
        let per_band = items(
            r#"<Item name="wavelength" sample="1">0.6</Item><Item name="wavelength" sample="0">0.5</Item>
               <Item name="wavelength_units" sample="0">Micrometers</Item>
               <Item name="fwhm" sample="0">0.005</Item><Item name="fwhm" sample="1">0.006</Item>
               <Item name="bbl" sample="0">1</Item><Item name="bbl" sample="1">0</Item>"#,
        );
        let info = described(&per_band, 2);
        assert_eq!(info.wavelength.unwrap(), [500.0, 600.0]);
        assert_eq!(info.fwhm.unwrap(), [5.0, 6.0]);
        assert_eq!(info.good_bands.unwrap(), [true, false]);

        let list = items(
            r#"<Item name="wavelength" domain="ENVI">{ 500.0 , 600.0 }</Item>
               <Item name="fwhm" domain="ENVI">{5,6}</Item>"#,
        );
        let info = described(&list, 2);
        assert_eq!(info.wavelength.unwrap(), [500.0, 600.0]);
        assert_eq!(info.fwhm.unwrap(), [5.0, 6.0]);

        let imagery = items(
            r#"<Item name="CENTRAL_WAVELENGTH_UM" sample="0" domain="IMAGERY">0.5</Item>
               <Item name="CENTRAL_WAVELENGTH_UM" sample="1" domain="IMAGERY">0.6</Item>
               <Item name="FWHM_UM" sample="0" domain="IMAGERY">0.005</Item>
               <Item name="FWHM_UM" sample="1" domain="IMAGERY">0.006</Item>"#,
        );
        let info = described(&imagery, 2);
        assert_eq!(info.wavelength.unwrap(), [500.0, 600.0]);
        assert_eq!(info.fwhm.unwrap(), [5.0, 6.0]);
    }

    #[test]
    fn lists_that_do_not_fit_are_left_out_and_said() {
        let info = described(&items(r#"<Item name="wavelength" domain="ENVI">1,2</Item>"#), 3);
        assert_eq!(info.wavelength, None);
        assert_eq!(info.notes, ["the wavelength list has 2 entries for 3 bands; left out"]);
    }

    #[test]
    fn each_band_has_its_scale_and_offset() {
        let uniform = items(
            r#"<Item name="SCALE" sample="0" role="scale">0.0001</Item>
               <Item name="SCALE" sample="1" role="scale">0.0001</Item>
               <Item name="OFFSET" sample="0" role="offset">0</Item>"#,
        );
        let scaling = described(&uniform, 2).scaling;
        assert_eq!(scaling, Scaling { multiply: 0.0001, divide: 1.0, add: 0.0 });
        let info = described(&uniform, 3);
        assert_eq!((info.scaling_of(1).multiply, info.scaling_of(2)), (0.0001, Scaling::NONE));
        let info = described(&uniform.replace(">0.0001<", ">inf<"), 2);
        assert!(!info.is_scaled());
        assert!(info.notes[0].contains("not a usable number"), "{:?}", info.notes);
    }

    #[test]
    fn side_files_add_to_what_the_file_says() {
        let xml = r#"<PAMDataset>
              <SRS>EPSG:32632</SRS><GeoTransform> 600000, 10, 0, 5000000, 0, -10</GeoTransform>
              <Metadata domain="IMAGE_STRUCTURE"><MDI key="INTERLEAVE">BAND</MDI></Metadata>
              <PAMRasterBand band="1">
                <Description>450 nm</Description><NoDataValue le_hex_equiv="00">-9.999E3</NoDataValue>
                <Offset>-0.25</Offset><Scale>0.5</Scale><UnitType>K</UnitType>
                <Metadata><MDI key="wavelength">0.45</MDI><MDI key="wavelength_units">Micrometers</MDI></Metadata>
              </PAMRasterBand>
              <PAMRasterBand band="2">
                <Description>500 nm</Description><NoDataValue>-9999</NoDataValue>
                <Metadata><MDI key="wavelength">0.5</MDI><MDI key="STATISTICS_MEAN">3</MDI></Metadata>
              </PAMRasterBand>
            </PAMDataset>"#;
        let mut info = CubeInfo::new("TIFF", CubeShape::new(1, 1, 2), DType::U16, "a.tif");
        info.scaling = Scaling { divide: 100.0, ..Scaling::NONE };
        GdalMetadata::parse_side_file(xml).unwrap().describe(&mut info);
        assert_eq!(info.wavelength, Some(vec![450.0, 500.0]));
        assert_eq!(info.ignore_value, Some(-9999.0));
        assert_eq!(info.scaling_of(0), Scaling { multiply: 0.5, divide: 1.0, add: -0.25 });
        assert_eq!(info.scaling_of(1), Scaling { divide: 100.0, ..Scaling::NONE });
        assert_eq!(info.unit.as_deref(), Some("K"));
        let geo = info.geo.unwrap();
        assert_eq!((geo.crs.as_deref(), geo.transform[1]), (Some("EPSG:32632"), 10.0));
        assert!(GdalMetadata::parse_side_file("no XML").is_err());
    }

    #[test]
    fn wavelengths_are_known_by_many_names() {
        for (name, unit, factor) in [
            ("WAVELENGTH", "", 1.0),
            ("center_wavelength", "", 1.0),
            ("wavelength_nm", "", 1.0),
            ("wavelength_um", "", 1e-3),
            ("NETCDF_DIM_wavelength", "", 1.0),
            ("NETCDF_DIM_bands", "", 1.0),
            ("wavelength", r#"<Item name="units" sample="0">nm</Item>"#, 1.0),
            ("wavelength", r#"<Item name="wavelength#units">um</Item>"#, 1e-3),
        ] {
            let item = |band: usize, nm: f64| {
                format!(r#"<Item name="{name}" sample="{band}">{}</Item>"#, nm * factor)
            };
            let info = described(&items(&format!("{unit}{}{}", item(0, 500.0), item(1, 600.0))), 2);
            assert_eq!(info.wavelength, Some(vec![500.0, 600.0]), "{name} {unit}");
        }
        let counts = r#"<Item name="NETCDF_DIM_wavelength" sample="0">1</Item><Item name="NETCDF_DIM_wavelength" sample="1">2</Item>"#;
        assert_eq!(described(&items(counts), 2).wavelength, None);
        let list = r#"<Item name="Wavelengths">[500 nm; 600 nm]</Item>"#;
        assert_eq!(described(&items(list), 2).wavelength, Some(vec![500.0, 600.0]));
    }

    #[test]
    fn factors_under_other_names_divide_or_multiply() {
        for (name, value, multiply, divide) in [
            ("Reflectance_Scale_Factor", "10000", 1.0, 1e4),
            ("scale factor", "0.0001", 1e-4, 1.0),
            ("cube#scale_factor", "0.0001", 1e-4, 1.0),
            ("ScaleFactor", "2", 1.0, 1.0),
        ] {
            let info = described(&items(&format!(r#"<Item name="{name}">{value}</Item>"#)), 2);
            assert_eq!(info.scaling, Scaling { multiply, divide, add: 0.0 }, "{name}");
        }
    }

    #[test]
    fn units_of_values_are_those_on_which_bands_agree() {
        let unit = |role: &str, text: &str, band: usize| {
            format!(r#"<Item name="UNITTYPE" sample="{band}" role="{role}">{text}</Item>"#)
        };
        let found = |text: &str| described(&items(text), 2).unit;
        let both =
            |role: &str, texts: [&str; 2]| unit(role, texts[0], 0) + &unit(role, texts[1], 1);
        assert_eq!(found(&both("unittype", ["ppm m", "ppm m"])).as_deref(), Some("ppm m"));
        assert_eq!(found(&unit("unittype", "ppm m", 1)).as_deref(), Some("ppm m"));
        assert_eq!(found(&both("unittype", ["ppm m", "K"])), None);
        assert_eq!(found(&both("other", ["K", "K"])), None);
        assert_eq!(found(r#"<Item name="units">K</Item>"#).as_deref(), Some("K"));
        let nm = r#"<Item name="wavelength" domain="ENVI">500,600</Item><Item name="units" sample="0">nm</Item>"#;
        assert_eq!(found(nm), None);
    }

    #[test]
    fn of_several_factors_the_last_counts() {
        let scaling = |text: &str| described(&items(text), 2).scaling_of(0).multiply;
        let (file, first) =
            (r#"<Item name="SCALE">2</Item>"#, r#"<Item name="SCALE" sample="0">3</Item>"#);
        assert_eq!(scaling(&format!("{first}{file}")), 2.0);
        let second = r#"<Item name="SCALE" sample="1">3</Item>"#;
        assert_eq!(scaling(&format!("{file}{first}{second}")), 3.0);
        assert_eq!(scaling(&format!("{file}{first}")), 3.0);
    }

    #[test]
    fn texts_that_take_long_to_read_are_refused_and_others_do_not() {
        let many = items(&r#"<Item name="SCALE">2</Item>"#.repeat(100_000));
        assert_eq!(described(&many, 65_535).scaling.multiply, 2.0);
        let refused = |text: &str, why: &str| {
            let error = GdalMetadata::parse(&items(text)).unwrap_err();
            assert!(error.what().contains(why), "{error}");
        };
        refused(&" ".repeat(xml::LONGEST_TEXT), "16 MiB");
        let attributes: String = (0..100_000).map(|index| format!("a{index}='' ")).collect();
        refused(&format!("<a {attributes}/>"), "attributes");
        let nested: String = (0..50_000).map(|index| format!("<a xmlns:a{index}='b'>")).collect();
        refused(&nested, "namespaces");
    }

    #[test]
    fn invalid_xml_is_an_error() {
        assert!(GdalMetadata::parse("<GDALMetadata><Item>").is_err());
        assert!(GdalMetadata::parse("").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", bands in 0usize..5) {
            let shape = CubeShape::new(1, 1, bands);
            for metadata in [GdalMetadata::parse(&text), GdalMetadata::parse_side_file(&text)].into_iter().flatten() {
                metadata.describe(&mut CubeInfo::new("TIFF", shape, DType::U8, "a"));
            }
        }

        #[test]
        fn never_panics_on_odd_items(
            name in "(wavelength|fwhm|bbl|wavelength_units|scale_factor|netcdf_dim_bands|scale|offset|units|band_[0-9]{1,20}|data_ignore_value)",
            sample in "[0-9]{0,20}",
            text in "[-0-9.,{} eEnai]*",
            bands in 0usize..5,
        ) {
            let xml = items(&format!(r#"<Item name="{name}" sample="{sample}">{text}</Item>"#));
            described(&xml, bands);
        }
    }
}
