//! Wavelengths and widths that a TIFF file states without GDAL's metadata.
//!
//! | place | as |
//! |---|---|
//! | ImageDescription of the file, ImageJ's info | JSON (tifffile's metadata), lines such as `wavelength = {450.2, 500.1}`, XML with one element or attribute for each band |
//! | OME-XML | `EmissionWavelength` and `Name` of the channels |
//! | ImageDescription and PageName of each page, ImageJ's labels | JSON, lines, or a name such as `450.2 nm` |
//! | private tags 65000 and 65001 | floating-point wavelengths on the first page, or one on each page; on each page, the name of a band, such as that of a class |
//! | XMP | `CentralWavelength` and `WavelengthFWHM`, as drone cameras write it |

use std::collections::HashSet;

use roxmltree::{Document, Node};
use serde_json::Value;

use super::directory::{
    DESCRIPTION, Directories, IMAGEJ_SIZES, IMAGEJ_TEXTS, PAGE_NAME, PRIVATE, XMP,
};
use super::pages::Image;
use crate::CubeInfo;
use crate::spectrum::spectrum_text::{
    NumberList, Quantity, counts, key, number_list, wavelengths_in_names,
};
use crate::spectrum::wavelengths::{Unit, fwhm_to_nm, known_unit, to_nm};
use crate::xml;

/// Texts of pages are short. Thousands of pages may refer to the same long one.
const LONGEST_PAGE_TEXT: u64 = 16 << 10;
/// No name is longer.
const LONGEST_NAME: u64 = 200;
/// No text has more lists of different names.
const MAX_LISTS: usize = 64;
/// JSON and XML texts are not searched deeper than this.
const DEEPEST: usize = 4;

/// Bands in texts: lists of values in some unit.
#[derive(Debug, Default)]
struct Found {
    wavelength: Vec<NumberList>,
    fwhm: Vec<NumberList>,
    wavelength_unit: Option<String>,
    fwhm_unit: Option<String>,
}

impl Found {
    fn add(&mut self, name: &str, text: &str) {
        let Some(key) = key(name) else { return };
        if key.is_unit {
            let unit = text.trim_matches(|letter: char| "{}[]\"' ".contains(letter)).to_owned();
            match key.quantity {
                Quantity::Wavelength => self.wavelength_unit.get_or_insert(unit),
                Quantity::Fwhm => self.fwhm_unit.get_or_insert(unit),
                Quantity::GoodBands => return,
            };
            return;
        }
        let Ok(mut list) = number_list(text) else { return };
        list.unit = list.unit.or(key.unit);
        match key.quantity {
            _ if list.values.is_empty() => {}
            Quantity::Wavelength => self.wavelength.push(list),
            Quantity::Fwhm => self.fwhm.push(list),
            Quantity::GoodBands => {}
        }
    }

    /// Reads a text: JSON, XML, or lines of keys and values.
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        let text = text.trim();
        if text.starts_with('{') {
            if let Ok(json) = serde_json::from_str::<Value>(text) {
                found.add_json(&json, DEEPEST);
            }
        } else if text.starts_with('<') {
            if let Ok(document) = xml::parse(text) {
                found.add_xml(&document);
            }
        } else {
            for line in text.lines() {
                if let Some((name, value)) = line.split_once(['=', ':']) {
                    found.add(name, value);
                }
            }
        }
        found
    }

    fn add_json(&mut self, json: &Value, depth: usize) {
        let Value::Object(entries) = json else { return };
        for (name, value) in entries {
            match value {
                Value::Object(_) if depth > 0 => self.add_json(value, depth - 1),
                Value::Array(items) => {
                    let items = items.iter().map(|item| match item {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    });
                    self.add(name, &items.collect::<Vec<_>>().join(" "));
                }
                Value::String(text) => self.add(name, text),
                Value::Number(number) => self.add(name, &number.to_string()),
                _ => {}
            }
        }
    }

    /// Elements and attributes with the same name make one list.
    fn add_xml(&mut self, document: &Document<'_>) {
        let mut lists: Vec<(String, String)> = Vec::new();
        let mut append = |name: &str, text: &str| {
            if key(name).is_none() || text.trim().is_empty() {
                return;
            }
            match lists.iter().position(|(list_name, _)| list_name == name) {
                Some(at) => {
                    let list = &mut lists[at].1;
                    list.push(' ');
                    list.push_str(text);
                }
                None if lists.len() < MAX_LISTS => lists.push((name.to_owned(), text.to_owned())),
                None => {}
            }
        };
        for node in document.descendants().filter(Node::is_element) {
            for attribute in node.attributes() {
                append(attribute.name(), attribute.value());
            }
            if key(node.tag_name().name()).is_some() {
                let mut text = String::new();
                add_texts(node, DEEPEST, &mut text);
                append(node.tag_name().name(), &text);
            }
        }
        for (name, list) in lists {
            self.add(&name, &list);
        }
    }

    /// Joins what the pages say, if each says one number.
    fn of_pages(pages: &[Self]) -> Self {
        let joined = |of: fn(&Self) -> &Vec<NumberList>| {
            let single = |page: &Self| match &of(page)[..] {
                [list, ..] if list.values.len() == 1 => Some((list.values[0], list.unit.clone())),
                _ => None,
            };
            let all: Option<Vec<_>> = pages.iter().map(single).collect();
            let all = all.filter(|all| all.windows(2).all(|pair| pair[0].1 == pair[1].1))?;
            let unit = all.first()?.1.clone();
            Some(NumberList { values: all.into_iter().map(|(value, _)| value).collect(), unit })
        };
        Self {
            wavelength: joined(|page| &page.wavelength).into_iter().collect(),
            fwhm: joined(|page| &page.fwhm).into_iter().collect(),
            wavelength_unit: pages.iter().find_map(|page| page.wavelength_unit.clone()),
            fwhm_unit: pages.iter().find_map(|page| page.fwhm_unit.clone()),
        }
    }

    /// Writes what fits into `info`, unless it is known there.
    fn describe(self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let mut stored = None;
        let fits = |list: &&NumberList| list.values.len() == bands;
        if info.wavelength.is_none()
            && let Some(list) = self.wavelength.iter().find(fits)
            && !counts(&list.values)
        {
            let unit = list.unit.clone().or(self.wavelength_unit);
            match to_nm(&list.values, unit.as_deref()) {
                Ok(nm) => {
                    stored = Some(list.values.clone());
                    info.wavelength = Some(nm);
                }
                Err(why) => info.notes.push(why),
            }
        }
        if info.fwhm.is_none()
            && let Some(list) = self.fwhm.iter().find(fits)
        {
            let unit = list.unit.clone().or(self.fwhm_unit);
            let pair = stored.as_deref().zip(info.wavelength.as_deref());
            match fwhm_to_nm(&list.values, unit.as_deref(), pair) {
                Ok(nm) => info.fwhm = Some(nm),
                Err(why) => info.notes.push(why),
            }
        }
    }
}

/// Adds the texts in `node` and in elements in it to `all`, with spaces between them.
fn add_texts(node: Node<'_, '_>, depth: usize, all: &mut String) {
    for child in node.children() {
        if child.is_text() {
            all.push(' ');
            all.push_str(child.text().unwrap_or_default());
        } else if depth > 0 {
            add_texts(child, depth - 1, all);
        }
    }
}

/// Adds to `info` the wavelengths and widths in the texts of a file whose cube is in `images`.
pub(super) fn describe(
    directories: &Directories<'_>,
    images: &[Image],
    description: &str,
    info: &mut CubeInfo,
) {
    let first = &images[0].page;
    if description.contains("<OME") {
        describe_ome(description, info);
    } else {
        Found::of(description).describe(info);
    }
    let (labels, comment) = imagej_texts(directories, first).unwrap_or_default();
    if let Some(comment) = comment {
        Found::of(&comment).describe(info);
    }
    if info.wavelength.is_none() && labels.len() == info.shape.bands {
        info.wavelength = wavelengths_in_names(&labels);
    }
    if info.wavelength.is_none() && images.len() > 1 && images.len() == info.shape.bands {
        for tag in [DESCRIPTION, PAGE_NAME, XMP] {
            let text = |image: &Image| directories.short_text(&image.page, tag, LONGEST_PAGE_TEXT);
            let Some(texts) = images.iter().map(text).collect::<Option<Vec<_>>>() else { continue };
            let pages: Vec<Found> = texts.iter().map(|text| Found::of(text)).collect();
            Found::of_pages(&pages).describe(info);
            if info.wavelength.is_none() {
                info.wavelength = wavelengths_in_names(&texts);
            }
        }
    }
    if let Some(text) = directories.text(first, XMP) {
        Found::of(&text).describe(info);
    }
    if info.band_names.is_none() && images.len() > 1 && images.len() == info.shape.bands {
        info.band_names = PRIVATE.into_iter().find_map(|tag| names(directories, images, tag));
    }
    if info.wavelength.is_none() {
        let bands = info.shape.bands;
        let list = |tag| {
            let number = |image: &Image| directories.reals(&image.page, tag, 1)?.first().copied();
            match images.len() == bands && bands > 1 {
                true => images.iter().map(number).collect::<Option<Vec<f64>>>(),
                false => None,
            }
            .or_else(|| directories.reals(first, tag, bands as u64))
        };
        let lists = PRIVATE.into_iter().filter_map(list).filter(|list| list.len() == bands);
        info.wavelength = lists.filter(|list| !counts(list)).find_map(|list| plausible(&list));
    }
}

/// Numbers of which nothing says what they are, as wavelengths in nm, if they can be: they rise or
/// fall, from ultraviolet to infrared light.
fn plausible(values: &[f64]) -> Option<Vec<f64>> {
    let nm = to_nm(values, None).ok()?;
    let is_sorted = nm.is_sorted_by(|a, b| a < b) || nm.is_sorted_by(|a, b| a > b);
    (nm.len() > 1 && is_sorted && nm.iter().all(|nm| (100.0..30_000.0).contains(nm))).then_some(nm)
}

/// The text of a tag in each page, if these can be names: short, in one line, and all different.
fn names(directories: &Directories<'_>, images: &[Image], tag: u16) -> Option<Vec<String>> {
    let text = |image: &Image| directories.short_text(&image.page, tag, LONGEST_NAME);
    let names = images.iter().map(text).collect::<Option<Vec<_>>>()?;
    let is_name = |name: &String| {
        let name = name.trim();
        !name.is_empty() && !name.starts_with(['{', '<']) && !name.contains(['\n', '\r'])
    };
    let different: HashSet<&String> = names.iter().collect();
    (different.len() == names.len() && names.iter().all(is_name)).then_some(names)
}

/// The channels of OME-XML.
fn describe_ome(description: &str, info: &mut CubeInfo) {
    let Ok(document) = xml::parse(description) else { return };
    let mut nodes = document.descendants();
    let Some(pixels) = nodes.find(|node| node.tag_name().name() == "Pixels") else { return };
    let channels: Vec<_> = xml::all(pixels, "Channel").collect();
    if channels.len() != info.shape.bands || info.wavelength.is_some() {
        return;
    }
    let nm = |channel: &Node<'_, '_>, what: &str| -> Option<f64> {
        let value: f64 = channel.attribute(what)?.trim().parse().ok()?;
        let unit = channel.attribute(format!("{what}Unit").as_str()).unwrap_or("nm");
        let Some(Unit::Length(factor)) = known_unit(unit) else { return None };
        let nm = value * factor;
        (nm.is_finite() && nm > 0.0).then_some(nm)
    };
    let all = |what| channels.iter().map(|channel| nm(channel, what)).collect::<Option<Vec<_>>>();
    let name = |channel: &Node<'_, '_>| channel.attribute("Name").map(str::to_owned);
    let names = channels.iter().map(name).collect::<Option<Vec<_>>>();
    info.wavelength = all("EmissionWavelength")
        .or_else(|| wavelengths_in_names(&names?))
        .or_else(|| all("ExcitationWavelength"))
        .filter(|nm| !counts(nm));
}

/// The labels of the slices and the info in ImageJ's own tags.
///
/// The first of the sizes is that of a header: `IJIJ`, then pairs of a type and a count. The others
/// are those of the texts, in UTF-16.
fn imagej_texts(
    directories: &Directories<'_>,
    page: &super::directory::Page,
) -> Option<(Vec<String>, Option<String>)> {
    const MAX_SIZES: u64 = 1 << 16;
    let sizes = directories.long_numbers(page, IMAGEJ_SIZES, MAX_SIZES)?;
    let bytes = directories.raw(page, IMAGEJ_TEXTS)?;
    let (header, sizes) = sizes.split_first()?;
    let (header, mut remaining) = bytes.split_at_checked(usize::try_from(*header).ok()?)?;
    // Numbers and texts have the byte order of the file.
    let is_big = header.starts_with(b"IJIJ");
    let word = |bytes: &[u8]| {
        let word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    let (mut labels, mut comment, mut sizes) = (Vec::new(), None, sizes.iter());
    for entry in header.get(4..)?.chunks_exact(8) {
        let (kind, count) = (word(entry), word(&entry[4..]));
        for _ in 0..count {
            let Some(size) = sizes.next() else { return Some((labels, comment)) };
            let text;
            (text, remaining) = remaining.split_at_checked(usize::try_from(*size).ok()?)?;
            let unit = |pair: &[u8]| match is_big {
                true => u16::from_be_bytes([pair[0], pair[1]]),
                false => u16::from_le_bytes([pair[0], pair[1]]),
            };
            let units: Vec<u16> = text.chunks_exact(2).map(unit).collect();
            match &kind.to_be_bytes() {
                b"labl" => labels.push(String::from_utf16_lossy(&units)),
                b"info" => comment = Some(String::from_utf16_lossy(&units)),
                _ => {}
            }
        }
    }
    Some((labels, comment))
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};
    use proptest::prelude::*;

    use super::*;

    fn described(text: &str) -> CubeInfo {
        let mut info = CubeInfo::new("TIFF", CubeShape::new(1, 1, 2), DType::U8, "a");
        if text.contains("<OME") {
            describe_ome(text, &mut info);
        } else {
            Found::of(text).describe(&mut info);
        }
        info
    }

    #[test]
    fn descriptions_state_wavelengths_as_json_lines_and_xml() {
        for text in [
            r#"{"shape": [2, 1, 1], "axes": "CYX", "wavelength": [450.0, 500.0], "wavelength_units": "nm", "fwhm": [5, 6]}"#,
            r#"{"camera": {"Wavelengths": "450 nm, 500 nm", "FWHM": "5;6"}}"#,
            "ImageJ=1.53\nimages=2\nwavelength_nm=450,500\nfwhm_nm=5,6\n",
            "scan of a field\nWavelength: 0.45 0.5\nWavelength units: um\nFWHM (nm): 5 6\n",
            "<scan><band wavelength='450' fwhm='5'/><band wavelength='500' fwhm='6'/></scan>",
            "<scan><WavelengthUnits>nm</WavelengthUnits><Wavelength>450</Wavelength><Wavelength>500</Wavelength><Fwhm>5 6</Fwhm></scan>",
            "<x:a xmlns:x='u' xmlns:r='v'><x:CentralWavelength><r:li>450</r:li><r:li>500</r:li></x:CentralWavelength>\
             <x:WavelengthFWHM><r:li>5</r:li><r:li>6</r:li></x:WavelengthFWHM></x:a>",
        ] {
            let info = described(text);
            assert_eq!(info.wavelength, Some(vec![450.0, 500.0]), "{text}");
            assert_eq!(info.fwhm, Some(vec![5.0, 6.0]), "{text}");
        }
        for text in [
            "",
            "{",
            "<a",
            "wavelength = 1, 2",
            "wavelength = 450",
            "wavelength = 450, 500, 550",
            "waves: high, low",
        ] {
            assert_eq!(described(text).wavelength, None, "{text}");
        }
    }

    #[test]
    fn numbers_are_wavelengths_only_if_they_can_be() {
        assert_eq!(plausible(&[450.0, 500.0]), Some(vec![450.0, 500.0]));
        assert_eq!(plausible(&[2.5, 0.5]), Some(vec![2500.0, 500.0]));
        for other in [&[450.0][..], &[450.0, 450.0], &[0.0, 500.0], &[500.0, f64::NAN], &[5e4, 6e4]]
        {
            assert_eq!(plausible(other), None, "{other:?}");
        }
    }

    #[test]
    fn channels_have_names_or_emission_wavelengths() {
        let ome = |channels: &str| {
            format!("<OME xmlns='u'><Image><Pixels>{channels}</Pixels></Image></OME>")
        };
        for channels in [
            "<Channel Name='450 nm'/><Channel Name='500 nm'/>",
            "<Channel EmissionWavelength='450'/><Channel EmissionWavelength='500'/>",
            "<Channel Name='C1' EmissionWavelength='0.45' EmissionWavelengthUnit='µm'/>\
             <Channel Name='C2' EmissionWavelength='0.5' EmissionWavelengthUnit='µm'/>",
        ] {
            assert_eq!(
                described(&ome(channels)).wavelength,
                Some(vec![450.0, 500.0]),
                "{channels}"
            );
        }
        for channels in [
            "<Channel/><Channel/>",
            "<Channel Name='450 nm'/>",
            "<Channel Name='450 nm'/><Channel/>",
        ] {
            assert_eq!(described(&ome(channels)).wavelength, None, "{channels}");
        }
    }

    #[test]
    fn pages_say_one_number_each() {
        let page = |nm: &str| Found::of(&format!("{{\"wavelength\": {nm}, \"unit\": \"ms\"}}"));
        let mut info = described("");
        Found::of_pages(&[page("450"), page("500")]).describe(&mut info);
        assert_eq!(info.wavelength, Some(vec![450.0, 500.0]));
        assert!(Found::of_pages(&[page("450"), page("[1, 2]")]).wavelength.is_empty());
    }

    proptest! {
        #[test]
        fn arbitrary_texts_never_panic(text in "(\\{|<|)?.*") {
            described(&text);
        }
    }
}
