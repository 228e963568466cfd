//! What GDAL's XML metadata (TIFF tag 42112) says about bands.
//!
//! ```xml
//! <GDALMetadata>
//!   <Item name="wavelength" sample="0">540.84</Item>
//!   <Item name="SCALE" sample="0" role="scale">0.0001</Item>
//!   <Item name="CENTRAL_WAVELENGTH_UM" sample="0" domain="IMAGERY">0.5408</Item>
//!   <Item name="wavelength" domain="ENVI">{540.84, 580.76}</Item>
//! </GDALMetadata>
//! ```
//!
//! `sample` counts bands from 0; items without it are about the whole file.

use std::sync::LazyLock;

use hsipack_format::{Error, Result};
use regex::Regex;

use crate::wavelengths::{fwhm_to_nm, to_nm};
use crate::xml;
use crate::{CubeInfo, Scaling};

/// The items of a GDAL metadata text.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct GdalMetadata {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    name: String,
    role: String,
    sample: Option<usize>,
    text: String,
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
        Ok(Self { items })
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

    /// The numbers of `name`: one item per band, or one list for the file. `Err` holds the length
    /// of a list that does not fit.
    fn numbers(&self, name: &str, bands: usize) -> Option<Result<Vec<f64>, usize>> {
        if let Some(texts) = self.per_band(bands, |item| item.name == name)
            && let Some(numbers) = texts.iter().map(|text| number(text)).collect()
        {
            return Some(Ok(numbers));
        }
        let names = [name.to_owned(), format!("{name}s")];
        let item =
            self.items.iter().find(|item| item.sample.is_none() && names.contains(&item.name))?;
        let numbers: Vec<f64> = item
            .text
            .trim_matches(['{', '}', '[', ']', ' ', '\n'])
            .split([',', ' ', ';', '\n', '\t'])
            .filter(|text| !text.is_empty())
            .map(number)
            .collect::<Option<_>>()?;
        Some(if numbers.len() == bands { Ok(numbers) } else { Err(numbers.len()) })
    }

    /// A text about the file or, if there is none, about its first band.
    fn text(&self, name: &str) -> Option<&str> {
        let named = |item: &&Item| item.name == name;
        let about_file = self.items.iter().filter(named).find(|item| item.sample.is_none());
        about_file.or_else(|| self.items.iter().find(named)).map(|item| item.text.as_str())
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

    /// Writes what is known into `info`, whose shape says how many bands there are.
    pub fn describe(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        info.band_names = self.band_names(bands);
        self.describe_wavelengths(info);
        self.describe_scaling(info);
        info.good_bands = match self.numbers("bbl", bands) {
            Some(Ok(flags)) => Some(flags.iter().map(|flag| *flag != 0.0).collect()),
            Some(Err(length)) => {
                info.notes.push(disagrees("bad-band", length, bands));
                None
            }
            None => None,
        };
        info.ignore_value = self.text("data_ignore_value").and_then(number);
    }

    fn describe_wavelengths(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let unit = self.text("wavelength_units").or_else(|| self.text("wavelength_unit"));
        let mut stored = None;
        match self.numbers("wavelength", bands) {
            Some(Ok(values)) => match to_nm(&values, unit) {
                Ok(nm) => {
                    info.wavelength = Some(nm);
                    stored = Some(values);
                }
                Err(why) => info.notes.push(why),
            },
            Some(Err(length)) => info.notes.push(disagrees("wavelength", length, bands)),
            None => {}
        }
        if info.wavelength.is_none()
            && let Some(Ok(values)) = self.numbers("central_wavelength_um", bands)
        {
            info.wavelength = to_nm(&values, Some("um")).ok();
        }
        if info.wavelength.is_none()
            && let Some(nm) = info.band_names.as_deref().and_then(wavelengths_in_names)
        {
            info.wavelength = Some(nm);
            info.notes.push("the wavelengths are taken from the band names".to_owned());
        }
        let pair = stored.as_deref().zip(info.wavelength.as_deref());
        let fwhm = match self.numbers("fwhm", bands) {
            Some(Ok(values)) => Some(fwhm_to_nm(&values, unit, pair)),
            Some(Err(length)) => Some(Err(disagrees("fwhm", length, bands))),
            None => match self.numbers("fwhm_um", bands) {
                Some(Ok(values)) => Some(fwhm_to_nm(&values, Some("um"), None)),
                _ => None,
            },
        };
        match fwhm {
            Some(Ok(nm)) => info.fwhm = Some(nm),
            Some(Err(why)) => info.notes.push(why),
            None => {}
        }
    }

    /// The factor `what` of each band, or `usual` if there is none. If there are several, the last
    /// one counts.
    fn factors(&self, what: &str, bands: usize, usual: f64) -> Vec<f64> {
        let is = |item: &&Item| item.role == what || item.role.is_empty() && item.name == what;
        let (mut of_file, mut of_bands) = ((0, usual), vec![(0, usual); bands]);
        for (place, item) in self.items.iter().filter(is).enumerate() {
            let slot = match item.sample {
                Some(sample) => of_bands.get_mut(sample),
                None => Some(&mut of_file),
            };
            if let (Some(slot), Some(value)) = (slot, number(&item.text)) {
                *slot = (place + 1, value);
            }
        }
        of_bands.into_iter().map(|own| if own.0 > of_file.0 { own.1 } else { of_file.1 }).collect()
    }

    /// `value * SCALE + OFFSET`, band by band. As in GDAL, a band without them is used as stored.
    fn describe_scaling(&self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let (scales, offsets) =
            (self.factors("scale", bands, 1.0), self.factors("offset", bands, 0.0));
        let usable = |(multiply, add): (&f64, &f64)| {
            multiply.is_finite() && *multiply != 0.0 && add.is_finite()
        };
        if !scales.iter().zip(&offsets).all(usable) {
            info.notes.push(
                "SCALE or OFFSET of a band is not a usable number; the stored numbers are not scaled"
                    .to_owned(),
            );
            return;
        }
        let scaling = |(multiply, add)| Scaling { multiply, divide: 1.0, add };
        info.scale_bands(scales.into_iter().zip(offsets).map(scaling).collect());
        if !info.is_scaled()
            && let Some(divide) = self.text("reflectance_scale_factor").and_then(number)
            && divide.is_finite()
            && divide > 0.0
        {
            info.scaling.divide = divide;
        }
    }
}

fn disagrees(what: &str, length: usize, bands: usize) -> String {
    format!("the {what} list has {length} entries for {bands} bands; left out")
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// Wavelengths in nm, if every name ends with a number and these can only be wavelengths. They must
/// rise or fall strictly, and either all have a unit, or all have a fraction and lie in the range
/// that sensors see.
#[doc(hidden)]
pub fn wavelengths_in_names(names: &[String]) -> Option<Vec<f64>> {
    /// A number at the end of a name, and its unit.
    static LAST_NUMBER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)([0-9]+(?:\.[0-9]+)?)\s*(nm|nanometers?|um|µm|μm|microns?|micrometers?)?\s*[)\]]?\s*$")
            .expect("a regular expression")
    });
    let mut values = Vec::with_capacity(names.len());
    let mut units = Vec::with_capacity(names.len());
    let mut fractions = true;
    for name in names {
        let found = LAST_NUMBER.captures(name)?;
        fractions &= found[1].contains('.');
        values.push(number(&found[1])?);
        units.push(found.get(2).map(|unit| unit.as_str().to_lowercase()));
    }
    let rising = values.windows(2).all(|pair| pair[0] < pair[1]);
    let falling = values.windows(2).all(|pair| pair[0] > pair[1]);
    let one_unit = units.windows(2).all(|pair| pair[0] == pair[1]);
    if values.len() < 2 || !(rising || falling) || !one_unit {
        return None;
    }
    let unit = units[0].as_deref();
    let within = |low: f64, high: f64| values.iter().all(|value| (low..=high).contains(value));
    let sensible = unit.is_some() || fractions && (within(200.0, 20_000.0) || within(0.2, 20.0));
    sensible.then(|| to_nm(&values, unit).ok())?
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
    fn only_names_that_can_only_be_wavelengths_give_wavelengths() {
        let found = |names: &[&str]| {
            wavelengths_in_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(found(&["b (540.84)", "c (580.76)"]).unwrap(), [540.84, 580.76]);
        assert_eq!(found(&["450 nm", "500 nm"]).unwrap(), [450.0, 500.0]);
        assert_eq!(found(&["0.45 um", "0.50 um"]).unwrap(), [450.0, 500.0]);
        assert_eq!(found(&["Band 1", "Band 2"]), None);
        assert_eq!(found(&["Band 400", "Band 401"]), None);
        assert_eq!(found(&["x 540.8", "y 530.1", "z 560.0"]), None);
        assert_eq!(found(&["450 nm", "no number"]), None);
        assert_eq!(found(&["pca 1.5"]), None);
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
    fn what_is_no_xml_is_an_error() {
        assert!(GdalMetadata::parse("<GDALMetadata><Item>").is_err());
        assert!(GdalMetadata::parse("").is_err());
    }

    proptest! {
        #[test]
        fn never_panics(text in ".*", bands in 0usize..5) {
            if let Ok(metadata) = GdalMetadata::parse(&text) {
                let shape = CubeShape::new(1, 1, bands);
                metadata.describe(&mut CubeInfo::new("TIFF", shape, DType::U8, "a"));
            }
        }

        #[test]
        fn never_panics_on_odd_items(
            name in "(wavelength|fwhm|bbl|scale|offset|band_[0-9]{1,20}|data_ignore_value)",
            sample in "[0-9]{0,20}",
            text in "[-0-9.,{} eEnai]*",
            bands in 0usize..5,
        ) {
            let xml = items(&format!(r#"<Item name="{name}" sample="{sample}">{text}</Item>"#));
            described(&xml, bands);
        }
    }
}
