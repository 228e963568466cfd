//! Meaning of a file's pages by its ImageDescription, as ImageJ, tifffile and OME write
//! it.

use hsipack_format::{Error, Result};

use crate::axes::axis_order::{Axis, AxisOrder};
use crate::xml;

/// Meaning of pages by ImageDescription.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Hints {
    /// Images that follow the first one without directories of their own.
    pub headless_images: Option<usize>,
    /// The axes of the array in the file, and their lengths, if the description names them.
    pub array: Option<(AxisOrder, [usize; 3])>,
}

impl Hints {
    /// Reads the description of a file with `pages` pages of the same kind, as ImageJ, tifffile and
    /// OME write it.
    ///
    /// # Errors
    /// If it says that the pages have more than one axis.
    pub fn read(description: &str, pages: usize) -> Result<Self> {
        let mut array = None;
        let axes = if description.starts_with("ImageJ=") {
            imagej_axes(description)
        } else if description.trim_start().starts_with('{') {
            array = named_axes(description);
            shaped_axes(description)
        } else if description.contains("<OME") {
            ome_axes(description)
        } else {
            None
        };
        let Some(axes) = axes else { return Ok(Self { array, ..Self::default() }) };
        let long: Vec<_> = axes.iter().copied().filter(|length| *length > 1).collect();
        let images = long.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        if long.len() > 1 && (images == Some(pages) || pages == 1) {
            let axes: Vec<_> = axes.iter().map(usize::to_string).collect();
            return Err(Error::unsupported(format!(
                "the pages have several axes ({}): more than one cube",
                axes.join("x")
            ))
            .with_remedy("write one file for each cube"));
        }
        let headless_images = images.filter(|images| pages == 1 && *images > 1);
        Ok(Self { headless_images, array })
    }
}

/// Lengths of ImageJ's channel, slice and frame axes.
fn imagej_axes(description: &str) -> Option<Vec<usize>> {
    let value = |key: &str| {
        description.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<usize>().ok())
    };
    let axes: Vec<_> = ["channels=", "slices=", "frames="].into_iter().filter_map(value).collect();
    let product = axes.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
    let images = value("images=").unwrap_or(1);
    Some(if product == Some(images) { axes } else { vec![images] })
}

/// Lengths of the axes before row and column in tifffile's `{"shape": [...]}`; `None` for shapes
/// that may be those of colour or contiguous images, because the description does not tell them
/// apart.
fn shaped_axes(description: &str) -> Option<Vec<usize>> {
    let json: serde_json::Value = serde_json::from_str(description).ok()?;
    let shape: Vec<usize> = json["shape"]
        .as_array()?
        .iter()
        .map(|length| usize::try_from(length.as_u64()?).ok())
        .collect::<Option<_>>()?;
    // Images without directories follow only if this key is set.
    let truncated = json["truncated"].as_bool() == Some(true);
    (truncated || shape.len() > 3).then(|| shape[..shape.len().saturating_sub(2)].to_vec())
}

/// The axes in tifffile's `{"shape": [5, 4, 6], "axes": "YXC"}`, without those of length 1; `None`
/// unless these are rows, columns and one other axis.
fn named_axes(description: &str) -> Option<(AxisOrder, [usize; 3])> {
    let json: serde_json::Value = serde_json::from_str(description).ok()?;
    let (shape, axes) = (json["shape"].as_array()?, json["axes"].as_str()?);
    if shape.len() != axes.chars().count() {
        return None;
    }
    let mut long = Vec::new();
    for (length, letter) in shape.iter().zip(axes.chars()) {
        let length = usize::try_from(length.as_u64()?).ok()?;
        let axis = match letter.to_ascii_uppercase() {
            'Y' => Axis::Row,
            'X' => Axis::Column,
            _ => Axis::Band,
        };
        if length != 1 {
            long.push((axis, length));
        }
    }
    let long: [(Axis, usize); 3] = long.try_into().ok()?;
    let order = long.map(|(axis, _)| axis);
    let has_all = [Axis::Row, Axis::Column, Axis::Band].iter().all(|axis| order.contains(axis));
    has_all.then(|| (AxisOrder(order), long.map(|(_, length)| length)))
}

/// Lengths of OME's Z, C and T axes.
fn ome_axes(description: &str) -> Option<Vec<usize>> {
    let document = xml::parse(description).ok()?;
    let pixels = document.descendants().find(|node| node.tag_name().name() == "Pixels")?;
    ["SizeZ", "SizeC", "SizeT"].iter().map(|name| pixels.attribute(*name)?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_tell_headless_stacks_and_several_axes() {
        let images =
            |text: &str, pages| Hints::read(text, pages).map(|hints| hints.headless_images);
        assert_eq!(images("", 1).unwrap(), None);
        assert_eq!(images("ImageJ=1.5\nimages=100\nslices=100\n", 1).unwrap(), Some(100));
        assert_eq!(images("ImageJ=1.5\nimages=100\nslices=100\n", 100).unwrap(), None);
        assert!(images("ImageJ=1.5\nimages=12\nslices=4\nframes=3\n", 12).is_err());
        assert_eq!(images(r#"{"shape": [5, 4, 3]}"#, 5).unwrap(), None);
        assert_eq!(images(r#"{"shape": [5, 4, 3], "truncated": true}"#, 1).unwrap(), Some(5));
        assert!(images(r#"{"shape": [2, 5, 4, 3]}"#, 10).is_err());
        let array = |text: &str| Hints::read(text, 5).unwrap().array;
        let rows = r#"{"shape": [5, 4, 6], "axes": "YXC"}"#;
        assert_eq!(array(rows), Some((AxisOrder::BIP, [5, 4, 6])));
        let single = r#"{"shape": [1, 5, 4, 6], "axes": "TYCX"}"#;
        assert_eq!(array(single), Some((AxisOrder::BIL, [5, 4, 6])));
        for axes in ["QQQ", "YX", "YYX"] {
            assert_eq!(array(&rows.replace("YXC", axes)), None);
        }
        let ome = |z: u32, c: u32| {
            format!(
                r#"<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">
                <Image><Pixels SizeX="3" SizeY="4" SizeZ="{z}" SizeC="{c}" SizeT="1"/></Image></OME>"#
            )
        };
        assert_eq!(images(&ome(1, 6), 6).unwrap(), None);
        assert!(images(&ome(2, 3), 6).is_err());
        let huge = "ImageJ=1\nimages=18446744073709551615\nslices=18446744073709551615\nframes=9";
        assert!(images(huge, 1).is_ok());
    }
}
