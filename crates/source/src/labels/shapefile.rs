//! ESRI shapefiles: shapes in `.shp`, attributes in `.dbf` and the reference system in `.prj`
//! beside it.

use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;

use super::classes::Value;
use super::dbase::Table;
use super::features::{Budget, Feature, Features, remember};
use super::shapes::{Kind, Shape};
use crate::place::georeference;

/// The file code at the beginning, in the byte order of this part of the header.
const CODE: [u8; 4] = [0, 0, 0x27, 0x0A];
const HEADER_BYTES: u64 = 100;
const RECORD_HEADER_BYTES: u64 = 8;
/// The longest text of a reference system.
const MAX_PRJ: u64 = 64 << 10;

/// Whether a file that starts with `head` is a shapefile.
pub(super) fn recognises(head: &[u8]) -> bool {
    head.starts_with(&CODE) && head.get(28..32) == Some(&1000i32.to_le_bytes())
}

/// The file beside a shapefile with another ending, in small or capital letters.
fn beside(path: &Path, ending: &str) -> Option<PathBuf> {
    let capital = ending.to_uppercase();
    let paths = [ending, &capital].map(|ending| path.with_extension(ending));
    paths.into_iter().find(|path| path.is_file())
}

/// Reads the shapes in `path`, with the values of an attribute.
///
/// # Errors
/// If a file is malformed, or the attributes are missing.
pub(super) fn read(path: &Path, attribute: Option<&str>) -> Result<Features> {
    let (mut files, mut attributes) = (vec![path.to_owned()], Vec::new());
    let mut table = None;
    if let Some(attribute) = attribute {
        let file = beside(path, "dbf").ok_or_else(|| {
            Error::unsupported("the shapefile has no attributes: there is no .dbf file beside it")
                .with_remedy("copy all files of the shapefile")
        })?;
        let opened = Table::open(&file).map_err(|error| error.at(&file))?;
        opened.names().for_each(|name| remember(&mut attributes, name));
        if let Some(column) = opened.column(attribute) {
            attributes.insert(0, attribute.to_owned());
            table = Some((opened, column, file.clone()));
        }
        files.push(file);
    }
    let crs = match beside(path, "prj") {
        None => None,
        Some(file) => {
            let text = bounded_read::read(&file, MAX_PRJ)?;
            let text = String::from_utf8_lossy(&text).into_owned();
            let crs = georeference::crs(&text).map(|(crs, _)| crs);
            files.push(file);
            Some(crs.unwrap_or_else(|| "that of its .prj file".to_owned()))
        }
    };
    let mut records = Records::open(path)?;
    let (mut features, mut budget) = (Vec::new(), Budget::default());
    while let Some(shapes) = records.next()? {
        budget.take(&shapes, features.len())?;
        let value = match &mut table {
            None => Value::Null,
            Some((table, column, file)) => {
                let row = table.value(features.len(), *column).map_err(|error| error.at(&*file))?;
                // Deleted features keep their place in both files.
                row.unwrap_or(Value::Null)
            }
        };
        features.push(Feature { shapes, value });
    }
    Ok(Features { format: "shapefile", crs, features, attributes, files })
}

/// The records of the file of shapes.
struct Records {
    file: BufReader<hsipack_store::window::Window>,
    /// Bytes of the file behind the last record.
    remaining: u64,
    number: usize,
}

impl Records {
    fn open(path: &Path) -> Result<Self> {
        let window = bounded_read::window(path)?;
        let len = window.len();
        let mut file = BufReader::new(window);
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact(&mut header).map_err(|_| cut("its header"))?;
        Ok(Self { file, remaining: len - HEADER_BYTES, number: 0 })
    }

    /// The shapes of the next record, which has none if it is empty.
    fn next(&mut self) -> Result<Option<Vec<Shape>>> {
        if self.remaining == 0 {
            return Ok(None);
        }
        let name = format!("record {}", self.number);
        let mut header = [0; RECORD_HEADER_BYTES as usize];
        self.file.read_exact(&mut header).map_err(|_| cut(&name))?;
        self.remaining = self.remaining.saturating_sub(RECORD_HEADER_BYTES);
        let [_, _, _, _, a, b, c, d] = header;
        let len = 2 * u64::from(u32::from_be_bytes([a, b, c, d]));
        if len > self.remaining {
            return Err(cut(&name));
        }
        self.remaining -= len;
        let mut content = vec![0; len as usize];
        self.file.read_exact(&mut content).map_err(|_| cut(&name))?;
        self.number += 1;
        shapes_of(&content, &name).map(Some)
    }
}

fn cut(part: &str) -> Error {
    Error::malformed(format!("the shapefile ends within {part}"))
        .with_remedy("copy the file again; it is cut short or damaged")
}

fn whole(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn position(bytes: &[u8], at: usize) -> Option<[f64; 2]> {
    let number = |at: usize| Some(f64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    Some([number(at)?, number(at + 8)?])
}

/// Points from byte `at` on.
fn positions(bytes: &[u8], at: usize, count: usize) -> Option<Vec<[f64; 2]>> {
    let (points, _) = bytes.get(at..at.checked_add(count.checked_mul(16)?)?)?.as_chunks::<16>();
    points.iter().map(|point| position(point, 0)).collect()
}

fn shapes_of(bytes: &[u8], name: &str) -> Result<Vec<Shape>> {
    let short = || cut(name);
    // Kinds differ by 10 for shapes with heights and by 20 for those with measures.
    let kind = match whole(bytes, 0).ok_or_else(short)? {
        0 => return Ok(Vec::new()),
        kind @ (1 | 3 | 5 | 8 | 11 | 13 | 15 | 18 | 21 | 23 | 25 | 28) => kind % 10,
        other => {
            return Err(Error::unsupported(format!("{name} has shapes of the type {other}"))
                .with_remedy("convert them to polygons, lines or points"));
        }
    };
    let count = |at: usize| {
        let count = whole(bytes, at).and_then(|count| usize::try_from(count).ok());
        count.filter(|count| *count <= bytes.len()).ok_or_else(short)
    };
    if kind == 1 {
        let point = position(bytes, 4).ok_or_else(short)?;
        return Ok(vec![Shape::new(Kind::Point, [vec![point]])]);
    }
    if kind == 8 {
        let points = positions(bytes, 40, count(36)?).ok_or_else(short)?;
        return Ok(vec![Shape::new(Kind::Point, [points])]);
    }
    let (parts, points) = (count(36)?, count(40)?);
    let starts: Option<Vec<usize>> = (0..parts)
        .map(|part| whole(bytes, 44 + 4 * part).and_then(|start| usize::try_from(start).ok()))
        .collect();
    let starts = starts.ok_or_else(short)?;
    let points = positions(bytes, 44 + 4 * parts, points).ok_or_else(short)?;
    let is_sorted = starts.is_sorted() && starts.first().is_none_or(|first| *first == 0);
    if !is_sorted || starts.last().is_some_and(|last| *last > points.len()) {
        return Err(Error::malformed(format!("the parts of {name} are out of order"))
            .with_remedy("export the shapefile again"));
    }
    if parts == 0 {
        return Ok(Vec::new());
    }
    let ends = starts[1..].iter().copied().chain([points.len()]).collect();
    let kind = if kind == 3 { Kind::Line } else { Kind::Polygon };
    Ok(vec![Shape { kind, points, ends }])
}
