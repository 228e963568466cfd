//! labelme's JSON: shapes in pixels of one picture, each with the name of a class.

use std::fmt;
use std::io::{BufRead, BufReader, Cursor};
use std::ops::Range;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use hsipack_format::{CubeShape, DType, Error, Opt, Result, remedy};
use hsipack_store::bounded_read;
use png::{BitDepth, ColorType, Transformations};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::burned::Burned;
use super::classes::{self, Value};
use super::coco::other_size;
use super::features::Budget;
use super::shapes::{Kind, Labelled, Shape};
use super::{LabelOptions, json};
use crate::{CubeInfo, Source};

/// The shapes of a picture.
#[derive(Debug, Default)]
pub(super) struct Picture {
    /// Its rows and columns, as far as the file says them.
    size: [Option<f64>; 2],
    /// The shapes, and the names of their classes.
    shapes: Vec<(Shape, String)>,
}

/// A shape as in the file.
#[derive(Deserialize)]
struct Drawn {
    label: String,
    points: json::Numbers<[f64; 2]>,
    #[serde(default = "polygon")]
    shape_type: String,
    /// The pixels of a shape of the type `mask`: a PNG, as base64.
    #[serde(default)]
    mask: Option<String>,
}

/// Old versions draw polygons only, and do not say so.
fn polygon() -> String {
    "polygon".to_owned()
}

/// Opens the shapes in `path` as a mask.
///
/// # Errors
/// If the file is malformed, or is of a picture of another size.
pub(super) fn open(path: &Path, options: &LabelOptions<'_>) -> Result<Box<dyn Source>> {
    if let Some(attribute) = options.variable.as_deref().filter(|name| *name != "label") {
        return Err(Error::unsupported(format!("shapes have no class {attribute:?}"))
            .with_remedy(remedy!["write ::label behind the file, or nothing, in ", Opt::Mask]));
    }
    let picture = parse(BufReader::new(bounded_read::window(path)?))?;
    let [rows, columns] = options.image;
    if picture
        .size
        .iter()
        .zip([rows, columns])
        .any(|(stated, of_cube)| stated.is_some_and(|stated| stated != of_cube as f64))
    {
        let stated = picture.size.map(|side| side.unwrap_or_default() as usize);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Err(other_size(&name, stated, options.image));
    }
    let names: Vec<Value> =
        picture.shapes.iter().map(|(_, label)| Value::Text(label.clone())).collect();
    let named = classes::by_name(&names, "label")?;
    let mut info = CubeInfo::new("labelme", CubeShape::new(rows, columns, 1), DType::U16, path);
    info.has_named_classes = true;
    info.class_names = named.names;
    let both = picture.shapes.into_iter().zip(named.ids);
    let shapes = both.filter_map(|((shape, _), id)| Labelled::new(shape, id?, rows)).collect();
    Ok(Box::new(Burned { info, shapes, all_touched: options.all_touched }))
}

/// Reads the shapes of a picture.
///
/// # Errors
/// If the text is malformed.
pub(super) fn parse(mut from: impl BufRead) -> Result<Picture> {
    json::skip_mark(&mut from)?;
    let (mut picture, mut drawn) = (Picture::default(), Vec::new());
    let mut deserializer = serde_json::Deserializer::from_reader(from);
    let document = Document { picture: &mut picture, drawn: &mut drawn };
    document.deserialize(&mut deserializer).and_then(|()| deserializer.end()).map_err(|error| {
        Error::malformed(format!("cannot read the shapes: {error}"))
            .with_remedy("save the labels again in labelme")
    })?;
    let mut budget = Budget::default();
    for (number, Drawn { label, points, shape_type, mask }) in drawn.into_iter().enumerate() {
        let shape = match &*shape_type {
            "mask" => masked(&points.0, mask.as_deref()),
            kind => shape_of(kind, points.0),
        };
        let shape = shape.map_err(|what| {
            Error::malformed(format!("shape {number} ({label:?}): {what}"))
                .with_remedy("correct the shape in labelme")
        })?;
        budget.take(std::slice::from_ref(&shape), number)?;
        picture.shapes.push((shape, label));
    }
    Ok(picture)
}

/// A shape of labelme.
fn shape_of(kind: &str, mut points: Vec<[f64; 2]>) -> std::result::Result<Shape, String> {
    let count = points.len();
    let needs = |is_right: bool, number: &str| match is_right {
        true => Ok(()),
        false => Err(format!("a {kind} has {count} points instead of {number}")),
    };
    match kind {
        "polygon" => needs(count >= 3, "3 or more")?,
        "rectangle" => needs(count == 2 || count == 4, "2")?,
        "circle" | "line" => needs(count == 2, "2")?,
        "linestrip" => needs(count >= 2, "2 or more")?,
        "point" => needs(count == 1, "1")?,
        "points" => {}
        other => return Err(format!("shapes of the type {other:?} are not supported")),
    }
    match (kind, &points[..]) {
        ("rectangle", [[x, y], [far_x, far_y]]) => {
            points = vec![[*x, *y], [*far_x, *y], [*far_x, *far_y], [*x, *far_y]];
        }
        ("circle", [[x, y], [far_x, far_y]]) => {
            let radius = (far_x - x).hypot(far_y - y);
            let corners = vec![[x - radius, y - radius], [x + radius, y + radius]];
            return Ok(Shape::new(Kind::Disc, [corners]));
        }
        _ => {}
    }
    Ok(match kind {
        "polygon" | "rectangle" => {
            points.extend(points.first().copied());
            let mut shape = Shape::new(Kind::Polygon, [points]);
            shape.clockwise();
            shape
        }
        "point" | "points" => Shape::new(Kind::Point, [points]),
        _ => Shape::new(Kind::Line, [points]),
    })
}

/// A shape of pixels, between two points: each run of pixels is a line through their centres, which
/// covers just these.
fn masked(points: &[[f64; 2]], png: Option<&str>) -> std::result::Result<Shape, String> {
    let &[[left, top], [right, bottom]] = points else {
        return Err(format!("a mask has {} points instead of 2", points.len()));
    };
    let png = png.ok_or("a mask has no pixels")?;
    let png = BASE64_STANDARD.decode(png).map_err(|error| format!("its mask: {error}"))?;
    // labelme drops fractions.
    let [left, top, right, bottom] = [left, top, right, bottom].map(f64::trunc);
    let mut shape = Shape::new(Kind::Line, []);
    each_run(&png, [right - left + 1.0, bottom - top + 1.0], |row, columns| {
        let y = top + row as f64 + 0.5;
        let ends = [columns.start as f64 + 0.25, columns.end as f64 - 0.25];
        shape.points.extend(ends.map(|x| [left + x, y]));
        shape.ends.push(shape.points.len());
        shape.points.len() <= MAX_POINTS
    })?;
    Ok(shape)
}

/// Passes the runs of pixels that are not 0 in a PNG of this size (columns, rows) to `take`, which
/// says whether it takes more.
fn each_run(
    png: &[u8],
    size: [f64; 2],
    mut take: impl FnMut(usize, Range<usize>) -> bool,
) -> std::result::Result<(), String> {
    let fail =
        |error: png::DecodingError| format!("its mask is not a PNG that can be read: {error}");
    let mut decoder = png::Decoder::new(Cursor::new(png));
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(fail)?;
    let about = reader.info();
    let (columns, rows, interlaced) = (about.width, about.height, about.interlaced);
    if [columns, rows].map(f64::from) != size {
        let [wide, high] = size;
        return Err(format!(
            "its mask has {columns}x{rows} pixels, but {wide}x{high} are between its points"
        ));
    }
    let (color, depth) = reader.output_color_type();
    if color != ColorType::Grayscale || interlaced {
        return Err("its mask is not a gray PNG without interlacing and transparency".to_owned());
    }
    let width = if depth == BitDepth::Sixteen { 2 } else { 1 };
    for row in 0..rows as usize {
        let Some(pixels) = reader.next_row().map_err(fail)? else { break };
        let mut start = None;
        let set = pixels.data().chunks_exact(width).map(|pixel| pixel.iter().any(|byte| *byte > 0));
        for (column, is_set) in set.chain([false]).enumerate() {
            match (start, is_set) {
                (None, true) => start = Some(column),
                (Some(first), false) => {
                    start = None;
                    if !take(row, first..column) {
                        return Err("its mask is too detailed".to_owned());
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The whole file. The picture itself, which it may contain, is skipped.
struct Document<'a> {
    picture: &'a mut Picture,
    drawn: &'a mut Vec<Drawn>,
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with shapes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { picture, drawn } = self;
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "shapes" => {
                    let mut points = 0;
                    map.next_value_seed(json::Each::new("shape", |shape: Drawn| {
                        let mask = shape.mask.as_ref().map_or(0, String::len);
                        points += shape.points.0.len() + 8 + mask / size_of::<[f64; 2]>();
                        if points > MAX_POINTS {
                            return Err(format!("there are more than {MAX_POINTS} points"));
                        }
                        drawn.push(shape);
                        Ok(())
                    }))?;
                }
                "imageHeight" => picture.size[0] = map.next_value()?,
                "imageWidth" => picture.size[1] = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The most points of all shapes together, with some for each shape.
const MAX_POINTS: usize = 1 << 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_points_of_their_type() {
        let text = r#"{"version": "5.4.1", "imageData": "xx", "imageHeight": 4, "imageWidth": null, "shapes": [
            {"label": "a", "points": [[0, 0], [2, 0], [2, 2]], "group_id": null},
            {"label": "b", "points": [[3, 1], [1, 2]], "shape_type": "rectangle", "flags": {}},
            {"label": "c", "points": [[1, 1], [1, 3]], "shape_type": "circle"}]}"#;
        let picture = parse(text.as_bytes()).unwrap();
        assert_eq!(picture.size, [Some(4.0), None]);
        let kinds: Vec<Kind> = picture.shapes.iter().map(|(shape, _)| shape.kind).collect();
        assert_eq!(kinds, [Kind::Polygon, Kind::Polygon, Kind::Disc]);
        assert_eq!(picture.shapes[2].0.points, [[-1.0, -1.0], [3.0, 3.0]]);
        for (wrong, expected) in [
            (
                r#"{"shapes": [{"label": "a", "points": [[0, 0]]}]}"#,
                "shape 0 (\"a\"): a polygon has 1",
            ),
            (r#"{"shapes": [{"label": "a", "points": [[0]]}]}"#, "shape 0: invalid length 1"),
            (r#"{"shapes": [{"points": []}]}"#, "shape 0: missing field `label`"),
            (r#"{"shapes": {}}"#, "expected a list with an object for each shape"),
            (
                r#"{"shapes": [{"label": "a", "points": [], "shape_type": "mask"}]}"#,
                "a mask has 0 points",
            ),
            (
                r#"{"shapes": [{"label": "a", "points": [[0, 0], [1, 1]], "shape_type": "mask"}]}"#,
                "no pixels",
            ),
            (
                r#"{"shapes": [{"label": "a", "points": [[0, 0], [1, 1]], "shape_type": "mask", "mask": "iVBO"}]}"#,
                "not a PNG",
            ),
            (
                r#"{"shapes": [{"label": "a", "points": [], "shape_type": "ellipse"}]}"#,
                "type \"ellipse\"",
            ),
            (
                r#"{"shapes": [{"label": "a", "points": [[1e400, 0]], "shape_type": "point"}]}"#,
                "number out of range",
            ),
            (r#"{"shapes": ["#, "EOF"),
        ] {
            let error = parse(wrong.as_bytes()).unwrap_err();
            assert!(error.what().contains(expected) && error.remedy().is_some(), "{error}");
        }
    }
}
