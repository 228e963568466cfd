//! Regions of interest of ENVI: lists of pixels in text (ENVI Classic), and geometries in XML (ENVI
//! 5).

use std::path::Path;

use hsipack_format::{Color, CubeShape, DType, Error, Geo, Result};
use hsipack_store::bounded_read;
use roxmltree::Node;

use super::burned::Burned;
use super::classes::{self, Value};
use super::coco::other_size;
use super::crs::Conversion;
use super::features::{Budget, in_pixels, not_in_the_cube, not_placed};
use super::shapes::{Kind, Labelled, Shape};
use super::{LabelOptions, color_table};
use crate::place::georeference;
use crate::text::decode;
use crate::{CubeInfo, Source, xml};

/// How the text of ENVI Classic begins.
const TITLE: &str = "; ENVI Output of ROIs";
/// The element of all regions.
const ROOT: &str = "RegionsOfInterest";
/// The longest text. A million pixels with positions on a map take some 60 MB.
const MAX_TEXT_BYTES: u64 = 256 << 20;
/// The coordinate system of geometries in pixels.
const PIXELS: &str = "none";

/// Whether a file that starts with `head` holds regions of interest.
pub(super) fn recognises(head: &[u8]) -> bool {
    let text = head.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(head).trim_ascii_start();
    let is_xml = || text.windows(ROOT.len()).any(|window| window == ROOT.as_bytes());
    text.starts_with(TITLE.as_bytes()) || text.starts_with(b"<") && is_xml()
}

/// A region.
#[derive(Debug, Default)]
pub(super) struct Region {
    name: String,
    color: Option<Color>,
    /// Its shapes, and the coordinate system of each; `None` if they are in pixels.
    shapes: Vec<(Shape, Option<String>)>,
}

/// Regions of a file.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Rows and columns of the image, if the file says them.
    size: Option<[usize; 2]>,
    regions: Vec<Region>,
}

/// Opens the regions in `path` as a mask.
///
/// # Errors
/// If the file is malformed, or does not fit the cube.
pub(super) fn open(path: &Path, options: &LabelOptions<'_>) -> Result<Box<dyn Source>> {
    if let Some(attribute) = options.variable.as_deref().filter(|name| *name != "name") {
        return Err(Error::unsupported(format!("regions have no class {attribute:?}"))
            .with_remedy("regions are classes by their names; leave out what follows '::'"));
    }
    let text = decode(&bounded_read::read(path, MAX_TEXT_BYTES)?);
    let Regions { size, regions } = parse(&text)?;
    let [rows, columns] = options.image;
    if let Some(size) = size.filter(|size| *size != options.image) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        return Err(other_size(&name, size, options.image));
    }
    let names: Vec<Value> = regions.iter().map(|region| Value::Text(region.name.clone())).collect();
    let named = classes::by_name(&names, "name")?;
    let mut info = CubeInfo::new("ENVI ROI", CubeShape::new(rows, columns, 1), DType::U16, path);
    info.has_named_classes = true;
    info.class_colors = vec![None; named.names.as_ref().map_or(0, Vec::len)];
    info.class_names = named.names;
    info.geo = options.geo.cloned();
    let mut shapes = Vec::new();
    for (region, id) in regions.into_iter().zip(named.ids) {
        let Some(id) = id else {
            return Err(Error::malformed("a region has no name").with_remedy("name it in ENVI"));
        };
        if let Some(color) = region.color {
            info.class_colors[usize::from(id)].get_or_insert(color);
        }
        let within_region = |error: Error| error.within(format!("region {:?}", region.name));
        for (shape, system) in region.shapes {
            let shape = placed(shape, system.as_deref(), options.geo).map_err(within_region)?;
            shapes.extend(Labelled::new(shape, id, rows));
        }
    }
    Ok(Box::new(Burned { info, shapes, all_touched: options.all_touched }))
}

/// A shape in pixels.
fn placed(mut shape: Shape, system: Option<&str>, geo: Option<&Geo>) -> Result<Shape> {
    let Some(system) = system else {
        shape.clockwise();
        return Ok(shape);
    };
    let geo = geo.ok_or_else(not_placed)?;
    let crs = georeference::crs(system).map_or_else(|| system.to_owned(), |(crs, _)| crs);
    let conversion = Conversion::between(Some(&crs), geo.crs.as_deref())?;
    in_pixels(shape, geo, conversion.as_ref()).ok_or_else(not_in_the_cube)
}

/// Reads regions.
///
/// # Errors
/// If the text is malformed.
pub(super) fn parse(text: &str) -> Result<Regions> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    match text.starts_with('<') {
        true => of_xml(text),
        false => of_text(text),
    }
}

fn malformed(what: impl Into<String>) -> Error {
    Error::malformed(what).with_remedy("export the regions of interest again")
}

/// A region of the text, of which some pixels are still to come.
struct Listed {
    region: Region,
    points: Vec<[f64; 2]>,
    /// The number of its pixels, once it is known.
    count: Option<usize>,
}

/// Reads lists of pixels, which ENVI counts from 1.
fn of_text(text: &str) -> Result<Regions> {
    let (mut size, mut listed, mut places) = (None::<[usize; 2]>, Vec::<Listed>::new(), None);
    let (mut current, mut announced) = (0, None);
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: String| malformed(format!("line {number}: {what}"));
        let line = line.trim();
        let Some(comment) = line.strip_prefix(';') else {
            if line.is_empty() {
                continue;
            }
            while listed
                .get(current)
                .is_some_and(|region| Some(region.points.len()) == region.count)
            {
                current += 1;
            }
            let region = listed
                .get_mut(current)
                .ok_or_else(|| wrong("there are more pixels than the regions have".to_owned()))?;
            let places = places.ok_or_else(|| {
                wrong("the pixels have no columns X and Y".to_owned()).with_remedy(
                    "export the regions again, with the positions of pixels (ID, X, Y)",
                )
            })?;
            let point = pixel(line, places).map_err(wrong)?;
            if let Some([rows, columns]) = size
                && (point[0] >= columns as f64 || point[1] >= rows as f64)
            {
                return Err(wrong(format!(
                    "the pixel is outside of the image of {columns} x {rows}"
                )));
            }
            region.points.push(point);
            continue;
        };
        let comment = comment.trim();
        let after = |key: &str| {
            let (start, value) = (comment.get(..key.len())?, comment.get(key.len()..)?);
            start.eq_ignore_ascii_case(key).then(|| value.trim())
        };
        if let Some(name) = after("ROI name:") {
            let region = Region { name: name.to_owned(), ..Region::default() };
            listed.push(Listed { region, points: Vec::new(), count: None });
        } else if let Some(color) = after("ROI rgb value:") {
            let last = listed.last_mut().ok_or_else(|| wrong("a color without a region".into()))?;
            last.region.color = color_table::color(color.trim_matches(['{', '}']));
        } else if let Some(count) = after("ROI npts:") {
            let last = listed.last_mut().ok_or_else(|| wrong("a count without a region".into()))?;
            let number = count.parse::<usize>();
            last.count =
                Some(number.map_err(|_| wrong(format!("{count:?} is not a number of pixels")))?);
        } else if let Some(count) = after("Number of ROIs:") {
            announced = count.parse::<usize>().ok();
        } else if let Some(sides) = after("File Dimension:") {
            let sides: Vec<usize> =
                sides.split(['x', 'X']).filter_map(|side| side.trim().parse().ok()).collect();
            let [columns, rows] = sides[..] else {
                return Err(wrong("the size of the image is not COLUMNS x ROWS".to_owned()));
            };
            size = Some([rows, columns]);
        } else if comment.starts_with("ID") || comment.split_whitespace().any(|word| word == "X") {
            let column_of = |name: &str| comment.split_whitespace().position(|word| word == name);
            places = column_of("X").zip(column_of("Y"));
        }
    }
    if let Some(count) = announced.filter(|count| *count != listed.len()) {
        return Err(malformed(format!(
            "the file should have {count} regions, but lists {}",
            listed.len()
        )));
    }
    let mut regions = Regions { size, regions: Vec::new() };
    let mut budget = Budget::default();
    for (number, Listed { mut region, points, count }) in listed.into_iter().enumerate() {
        let count = count.ok_or_else(|| {
            malformed(format!("the number of pixels of the region {:?} is missing", region.name))
        })?;
        if points.len() != count {
            return Err(malformed(format!(
                "the region {:?} has {count} pixels, but the file lists {}",
                region.name,
                points.len()
            )));
        }
        let shape = Shape::new(Kind::Point, [points]);
        budget.take(std::slice::from_ref(&shape), number)?;
        region.shapes.push((shape, None));
        regions.regions.push(region);
    }
    Ok(regions)
}

/// The position of a pixel, counted from 0, in a line with its column and row at some places.
fn pixel(line: &str, places: (usize, usize)) -> std::result::Result<[f64; 2], String> {
    let number = |position: usize| {
        let word = line.split_whitespace().nth(position).unwrap_or_default();
        match word.parse::<f64>() {
            Ok(number) if number >= 1.0 && number.is_finite() => Ok(number - 1.0),
            _ => Err(format!("{word:?} is not the number of a column or row, counted from 1")),
        }
    };
    Ok([number(places.0)?, number(places.1)?])
}

/// Reads geometries.
fn of_xml(text: &str) -> Result<Regions> {
    let document = xml::parse(text)
        .map_err(|what| malformed(format!("cannot read the regions of interest: {what}")))?;
    let root = document.root_element();
    if root.tag_name().name() != ROOT {
        return Err(malformed(format!("the XML is a {}, not {ROOT}", root.tag_name().name())));
    }
    let (mut regions, mut budget) = (Regions::default(), Budget::default());
    for (number, node) in xml::all(root, "Region").enumerate() {
        let name = node.attribute("name").unwrap_or_default().trim();
        let region = region_of(node, name)
            .map_err(|error| error.within(format!("region {number} ({name:?})")))?;
        for (shape, _) in &region.shapes {
            budget.take(std::slice::from_ref(shape), number)?;
        }
        regions.regions.push(region);
    }
    Ok(regions)
}

fn region_of(node: Node<'_, '_>, name: &str) -> Result<Region> {
    let color = node.attribute("color").and_then(color_table::color);
    let mut region = Region { name: name.to_owned(), color, shapes: Vec::new() };
    for part in node.children().filter(Node::is_element) {
        if part.tag_name().name() != "GeometryDef" {
            return Err(Error::unsupported(format!(
                "it is defined by a {}, not by a geometry",
                part.tag_name().name()
            ))
            .with_remedy("convert it to pixels in ENVI and export these as text, or make a classification image of the regions"));
        }
        let system = xml::text(part, "CoordSysStr").unwrap_or(PIXELS);
        let system = (!system.eq_ignore_ascii_case(PIXELS)).then(|| system.to_owned());
        for geometry in part.descendants().filter(Node::is_element) {
            let shape = match geometry.tag_name().name() {
                "Polygon" => Shape::new(Kind::Polygon, rings(geometry)?),
                "LineString" => Shape::new(Kind::Line, [coordinates(geometry)?]),
                "Point" => Shape::new(Kind::Point, [coordinates(geometry)?]),
                _ => continue,
            };
            region.shapes.push((shape, system.clone()));
        }
    }
    Ok(region)
}

/// The rings of a polygon.
fn rings(polygon: Node<'_, '_>) -> Result<Vec<Vec<[f64; 2]>>> {
    let rings = polygon.descendants().filter(|node| node.tag_name().name() == "LinearRing");
    let mut all = Vec::new();
    for ring in rings {
        let mut points = coordinates(ring)?;
        if points.first() != points.last() {
            points.extend(points.first().copied());
        }
        all.push(points);
    }
    Ok(all)
}

/// The positions in an element.
fn coordinates(node: Node<'_, '_>) -> Result<Vec<[f64; 2]>> {
    let text = xml::text(node, "Coordinates").unwrap_or_default();
    let words = text.split([' ', ',', '\t', '\n', '\r']).filter(|word| !word.is_empty());
    let numbers = words.map(|word| {
        word.parse::<f64>().map_err(|_| malformed(format!("{word:?} is not a coordinate")))
    });
    let numbers: Vec<f64> = numbers.collect::<Result<_>>()?;
    match numbers.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.to_vec()),
        _ => Err(malformed(format!("there are {} coordinates, not pairs", numbers.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "; ENVI Output of ROIs (4.8) [Wed Jul 13 10:09:44 2011]
; Number of ROIs: 2
; File Dimension: 5 x 4
;
; ROI name: Region #1
; ROI rgb value: {255, 0, 7}
; ROI npts: 2
; ROI name: water
; ROI rgb value: {0, 255, 0}
; ROI npts: 1
;   ID     X     Y       Map X       Map Y
     1     1     4   500000.00  5300000.00
     2     5     1   500000.00  5300000.00

     1     2     2   500000.00  5300000.00
";

    #[test]
    fn pixels_are_counted_from_1() {
        let regions = parse(TEXT).unwrap();
        assert_eq!(regions.size, Some([4, 5]));
        let [first, second] = &regions.regions[..] else { panic!("two") };
        assert_eq!((&*first.name, first.color), ("Region #1", Some([255, 0, 7])));
        assert_eq!(first.shapes[0].0.points, [[0.0, 3.0], [4.0, 0.0]]);
        assert_eq!(second.shapes[0].0.points, [[1.0, 1.0]]);
        for (from, to, expected) in [
            ("     5     1 ", "     0     1 ", "line 13: \"0\" is not the number"),
            ("     5     1 ", "     6     1 ", "line 13: the pixel is outside"),
            ("npts: 2", "npts: 3", "has 1 pixels, but the file lists 0"),
            ("npts: 2", "npts: 1", "line 15: there are more pixels"),
            ("npts: 2", "npts: x", "line 7: \"x\" is not a number"),
            ("5 x 4", "5", "line 3: the size"),
            (
                "ID     X     Y       Map X       Map Y",
                "Addr",
                "line 12: the pixels have no columns",
            ),
        ] {
            let error = parse(&TEXT.replace(from, to)).unwrap_err();
            assert!(error.what().contains(expected) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn geometries_have_rings() {
        let text = r#"<?xml version="1.0"?><RegionsOfInterest version="1.1"><Region name="a" color="0,1,255">
            <GeometryDef><CoordSysStr>none</CoordSysStr>
            <Polygon><Exterior><LinearRing><Coordinates>0 0 3 0 3 3 0 0</Coordinates></LinearRing></Exterior>
            <Interior><LinearRing><Coordinates>1 1 2 1 2 2</Coordinates></LinearRing></Interior></Polygon>
            <Point><Coordinates>4 4</Coordinates></Point></GeometryDef></Region></RegionsOfInterest>"#;
        let regions = parse(text).unwrap();
        let region = &regions.regions[0];
        assert_eq!((&*region.name, region.color), ("a", Some([0, 1, 255])));
        assert_eq!((region.shapes[0].0.ends.as_slice(), region.shapes.len()), (&[4, 8][..], 2));
        for (from, to, expected) in [
            ("4 4", "4 4 5", "region 0 (\"a\"): there are 3 coordinates"),
            ("4 4", "4 x", "\"x\" is not a coordinate"),
            ("4 4", "NaN 1", "is not a finite number"),
            ("</Region>", "<ThresholdDef/></Region>", "defined by a ThresholdDef"),
            ("</Region>", "", "cannot read the regions of interest"),
        ] {
            let error = parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(expected) && error.remedy().is_some(), "{error}");
        }
    }
}
