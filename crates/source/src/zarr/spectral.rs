//! What a dataset says about a cube's bands and numbers, in arrays beside it and in attributes.

use std::path::Path;

use serde_json::{Map, Value};
use zarrs::array::ArraySubset;

use super::axes::axis_named;
use super::choose::Found;
use super::chunks::{open_zarrs, retrieve};
use super::metadata::Node;
use crate::variables::to_f64;
use crate::wavelengths::{fwhm_to_nm, to_nm};
use crate::{Axis, CubeInfo, Scaling};

/// No list of wavelengths is longer.
const MAX_BANDS: usize = 1 << 20;

/// The wavelengths that belong to an array, as stored, and what else is known about its bands.
pub(super) struct Spectrum {
    pub wavelength: Vec<f64>,
    nm: Vec<f64>,
    fwhm: Option<Result<Vec<f64>, String>>,
    good: Option<Vec<f64>>,
}

impl Spectrum {
    /// Looks for wavelengths beside the array, and in the attributes of the array and its group.
    pub fn find(found: &Found, lengths: &[usize; 3], notes: &mut Vec<String>) -> Option<Self> {
        let lists = Lists::of(found);
        let band_dimension = found
            .array()?
            .dimensions
            .iter()
            .flatten()
            .find(|name| axis_named(name) == Some(Axis::Band));
        let names = ["wavelength", "wavelengths", "wl", "lambda"].into_iter().map(str::to_owned);
        let mut refused = Vec::new();
        for name in names.chain(band_dimension.cloned()) {
            let Some((wavelength, unit)) = lists.numbers(&name) else { continue };
            // Numbers of bands, from 0 or 1, are not wavelengths.
            let counted = wavelength.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
            if unit.is_none() && counted && wavelength.first().is_none_or(|first| *first < 2.0) {
                continue;
            }
            if !lengths.contains(&wavelength.len()) {
                refused.push(format!(
                    "the {name} list has {} entries for an array of {lengths:?}; left out",
                    wavelength.len()
                ));
                continue;
            }
            match to_nm(&wavelength, unit.as_deref()) {
                Ok(nm) => {
                    let fwhm = lists.numbers("fwhm").map(|(fwhm, fwhm_unit)| {
                        let unit = fwhm_unit.or_else(|| unit.clone());
                        fwhm_to_nm(&fwhm, unit.as_deref(), Some((&wavelength, &nm)))
                    });
                    let good =
                        ["bbl", "good_wavelengths"].iter().find_map(|name| lists.numbers(name));
                    return Some(Self { wavelength, nm, fwhm, good: good.map(|(good, _)| good) });
                }
                Err(why) => refused.push(why),
            }
        }
        notes.append(&mut refused);
        None
    }

    pub fn describe(self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let disagrees = |what: &str, length: usize| {
            format!("the {what} list has {length} entries for {bands} bands; left out")
        };
        if self.nm.len() != bands {
            info.notes.push(disagrees("wavelength", self.nm.len()));
            return;
        }
        info.wavelength = Some(self.nm);
        match self.fwhm {
            Some(Ok(fwhm)) if fwhm.len() == bands => info.fwhm = Some(fwhm),
            Some(Ok(fwhm)) => info.notes.push(disagrees("fwhm", fwhm.len())),
            Some(Err(why)) => info.notes.push(why),
            None => {}
        }
        match self.good {
            Some(good) if good.len() == bands => {
                info.good_bands = Some(good.iter().map(|flag| *flag != 0.0).collect());
            }
            Some(good) => info.notes.push(disagrees("bad-band", good.len())),
            None => {}
        }
    }
}

/// Lists of numbers that belong to an array: 1-D arrays beside it, attributes of it and its group.
struct Lists<'a> {
    folder: Option<&'a Path>,
    attributes: [&'a Map<String, Value>; 2],
    group: Map<String, Value>,
}

impl<'a> Lists<'a> {
    fn of(found: &'a Found) -> Self {
        let folder = found.folder.parent();
        let group = folder.and_then(|folder| Node::read(folder).ok()?);
        let group = group.map(|node| node.attributes).unwrap_or_default();
        Self { folder, attributes: [&found.node.attributes; 2], group }
    }

    /// The numbers called `name` and their unit, if it is given.
    fn numbers(&self, name: &str) -> Option<(Vec<f64>, Option<String>)> {
        let attributes = [self.attributes[0], &self.group];
        let unit = || {
            let keys = [
                format!("{name}_units"),
                format!("{name}_unit"),
                "wavelength_units".to_owned(),
                "wavelength_unit".to_owned(),
            ];
            keys.iter()
                .find_map(|key| attributes.iter().find_map(|map| map.get(key)?.as_str()))
                .map(str::to_owned)
        };
        for map in attributes {
            let list = map.get(name).and_then(Value::as_array);
            if let Some(list) = list.and_then(|list| list.iter().map(Value::as_f64).collect()) {
                return Some((list, unit()));
            }
        }
        let (numbers, own_unit) = beside(&self.folder?.join(name))?;
        Some((numbers, own_unit.or_else(unit)))
    }
}

/// The values and the unit of a 1-D array of numbers.
pub(super) fn beside(folder: &Path) -> Option<(Vec<f64>, Option<String>)> {
    let node = Node::read(folder).ok()??;
    let metadata = node.array?;
    let dtype = metadata.dtype?;
    if metadata.shape.len() != 1 || metadata.shape[0] > MAX_BANDS {
        return None;
    }
    let array = open_zarrs(folder, &metadata.stored).ok()?;
    let all = ArraySubset::new_with_shape(vec![metadata.shape[0] as u64]);
    let bytes = retrieve(&array, &all).ok()?;
    let unit = node.attributes.get("units").and_then(Value::as_str).map(str::to_owned);
    Some((to_f64(&bytes, dtype, cfg!(target_endian = "big")), unit))
}

/// CF attributes: `_FillValue`, `scale_factor`, `add_offset`.
pub(super) fn describe_values(attributes: &Map<String, Value>, info: &mut CubeInfo) {
    let number = |key: &str| attributes.get(key).and_then(Value::as_f64);
    info.ignore_value = ["_FillValue", "missing_value"]
        .iter()
        .find_map(|key| attributes.get(*key))
        .and_then(fill_value)
        .filter(|value| !value.is_nan());
    let multiply = number("scale_factor").unwrap_or(1.0);
    let add = number("add_offset").unwrap_or(0.0);
    if multiply.is_finite() && multiply != 0.0 && add.is_finite() {
        info.scaling = Scaling { multiply, divide: 1.0, add };
    } else {
        info.notes.push(format!("scale_factor is {multiply}; the stored numbers are kept"));
    }
}

/// A fill value attribute: a number, or xarray's base64 of a little-endian double.
fn fill_value(json: &Value) -> Option<f64> {
    match json {
        Value::Array(list) => fill_value(list.first()?),
        Value::String(text) => text.parse().ok().or_else(|| {
            let bytes: [u8; 8] = base64(text)?.try_into().ok()?;
            Some(f64::from_le_bytes(bytes))
        }),
        other => other.as_f64(),
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        bits = (bits << 6 | value as u32) & 0xFF_FFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_values_are_numbers_or_base64_of_a_double() {
        assert_eq!(fill_value(&serde_json::json!(-9999)), Some(-9999.0));
        assert_eq!(fill_value(&serde_json::json!([-1.5])), Some(-1.5));
        // base64.standard_b64encode(struct.pack("<d", -9999.0))
        assert_eq!(fill_value(&serde_json::json!("AAAAAICHw8A=")), Some(-9999.0));
        assert!(fill_value(&serde_json::json!("AAAAAAAA+H8=")).unwrap().is_nan());
        assert!(fill_value(&serde_json::json!("NaN")).unwrap().is_nan());
        assert_eq!(fill_value(&serde_json::json!("?")), None);
    }
}
