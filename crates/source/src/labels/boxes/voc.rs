//! Boxes of Pascal VOC. Pixels are counted from 1, and the box contains the last ones: `xmin` 1 and
//! `xmax` 1 are the first column.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::super::coco::other_size;
use super::{Boxes, CubeOfBoxes, Label, wrong};
use crate::text::decode;
use crate::xml;

/// Reads the boxes of a picture.
///
/// # Errors
/// As [`super::read`].
pub(super) fn read(path: &Path, cube: CubeOfBoxes<'_>) -> Result<Boxes> {
    let text = decode(&bounded_read::read(path, xml::LONGEST_TEXT as u64)?);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    of_text(&text, &name, cube.size)
}

fn of_text(text: &str, name: &str, size: [usize; 2]) -> Result<Boxes> {
    let malformed = |what: String| {
        Error::malformed(what)
            .with_remedy("give Pascal VOC: an annotation with objects that have a bndbox")
    };
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let document =
        xml::parse(text).map_err(|what| malformed(format!("cannot read the boxes: {what}")))?;
    let root = document.root_element();
    if root.tag_name().name() != "annotation" {
        return Err(malformed(format!(
            "the XML is a {}, not an annotation",
            root.tag_name().name()
        )));
    }
    let sides = ["size/height", "size/width"].map(|side| xml::number(root, side).unwrap_or(0.0));
    // Programs that do not know the size write 0.
    if sides.iter().zip(size).any(|(stated, actual)| *stated != 0.0 && *stated != actual as f64) {
        return Err(other_size(name, sides.map(|side| side as usize), size));
    }
    let mut boxes = Boxes::default();
    for (number, object) in xml::all(root, "object").enumerate() {
        let location = format!("object {number}");
        let name = xml::text(object, "name").ok_or_else(|| wrong(&location, "it has no name"))?;
        let mut corners = [0.0; 4];
        for (corner, key) in corners.iter_mut().zip(["xmin", "ymin", "xmax", "ymax"]) {
            *corner = xml::text(object, &format!("bndbox/{key}"))
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| wrong(&location, format!("its bndbox has no number {key}")))?;
        }
        let [left, top, right, bottom] = corners;
        let label = Label::Name(hsipack_format::text::printable(name).into_owned());
        boxes
            .add([left - 1.0, top - 1.0, right, bottom], label, size)
            .map_err(|what| wrong(location, what))?;
    }
    Ok(boxes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<annotation><filename>a.jpg</filename><size><width>20</width><height>10</height></size>
        <object><name>leaf</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>20</xmax>
        <ymax>10</ymax></bndbox></object></annotation>";

    #[test]
    fn pixels_are_counted_from_1() {
        let boxes = of_text(TEXT, "a.xml", [10, 20]).unwrap();
        assert_eq!(boxes.boxes, [[0.0, 0.0, 20.0, 10.0]]);
        assert_eq!(boxes.labels, [Label::Name("leaf".to_owned())]);
        for (from, to, expected) in [
            ("<width>20", "<width>21", "10x21"),
            ("<xmax>20", "<xmax>x", "object 0: its bndbox has no number xmax"),
            ("<xmin>1", "<xmin>NaN", "object 0: a corner of the box is not"),
            ("<xmin>1", "<xmin>21", "object 0: the box has no area"),
            ("<name>leaf</name>", "", "object 0: it has no name"),
            ("</object>", "", "cannot read the boxes"),
        ] {
            let error = of_text(&TEXT.replace(from, to), "a.xml", [10, 20]).unwrap_err();
            assert!(error.what().contains(expected) && error.remedy().is_some(), "{error}");
        }
        assert!(of_text("<html/>", "a.xml", [10, 20]).is_err());
    }
}
