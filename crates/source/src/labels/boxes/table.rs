//! Boxes in a CSV or TSV: a row for each, of one cube or of several.
//!
//! | columns | names |
//! |---|---|
//! | corners | `xmin`, `ymin`, `xmax`, `ymax`, or `x`, `y`, `width`, `height`, and similar ones; a table with both must agree |
//! | class | `class`, `label`, `category` and similar ones; without it, all boxes are of class 1 |
//! | picture | `file`, `filename`, `image`, `path` and similar ones; without it, all rows are of one cube |
//! | its size | `image_width`, `image_height`, or `width`, `height` beside corners, if they are not those of the boxes |
//!
//! Corners are in pixels.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use csv::StringRecord;
use hsipack_format::{Error, Result, text};
use hsipack_store::bounded_read;

use super::super::coco::other_size;
use super::super::cube_names::Entries;
use super::{Boxes, CubeOfBoxes, Label, Pictures, wrong};

/// Tables of some million boxes are smaller.
const MAX_BYTES: u64 = 256 << 20;
const MAX_ROWS: usize = 1 << 22;

const CORNERS: [&[&str]; 4] = [
    &["xmin", "x_min", "left", "x1", "bbox_x_min"],
    &["ymin", "y_min", "top", "y1", "bbox_y_min"],
    &["xmax", "x_max", "right", "x2", "bbox_x_max"],
    &["ymax", "y_max", "bottom", "y2", "bbox_y_max"],
];
const SIDES: [&[&str]; 4] = [
    &["x", "bbox_x", "left", "xmin", "x_min"],
    &["y", "bbox_y", "top", "ymin", "y_min"],
    &["w", "width", "bbox_width", "bbox_w"],
    &["h", "height", "bbox_height", "bbox_h"],
];
/// Rows and columns of the picture.
const PICTURE: [&[&str]; 2] =
    [&["image_height", "img_height", "height"], &["image_width", "img_width", "width"]];
const CLASSES: &[&str] = &[
    "class",
    "label",
    "category",
    "class_name",
    "category_name",
    "label_name",
    "classname",
    "categoryname",
    "labelname",
    "class_id",
    "category_id",
    "label_id",
];
const PICTURES: &[&str] = &[
    "file",
    "filename",
    "file_name",
    "image",
    "image_name",
    "image_path",
    "image_file",
    "image_filename",
    "imagename",
    "imagepath",
    "path",
    "file_path",
    "filepath",
    "img",
    "img_name",
    "img_path",
    "img_id",
    "picture",
    "image_id",
    "imageid",
    "name",
    "sample",
];
/// How far the corners of a box may differ between the two forms, in pixels. Tables round them.
const ROUNDING: f64 = 0.1;

/// A table that was read.
#[derive(Debug, Default)]
struct Table {
    /// The names of its columns.
    columns: Vec<String>,
    /// The pictures, unless the table is of one.
    entries: Option<Entries>,
    rows: Vec<Row>,
    /// The rows of each picture.
    of_pictures: Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Row {
    line: u64,
    /// `None` if the row only says that there is a picture.
    corners: Option<[f64; 4]>,
    label: Label,
    /// Rows and columns of the picture, if the table says them.
    picture: Option<[usize; 2]>,
}

/// Reads the boxes of a cube.
///
/// # Errors
/// As [`super::read`]. A cube that the table does not have has no boxes.
pub(super) fn read(path: &Path, class: Option<&str>, cube: CubeOfBoxes<'_>) -> Result<Boxes> {
    let table = kept(path, class)?;
    let mut boxes = Boxes::default();
    let rows: Box<dyn Iterator<Item = &Row>> = match &table.entries {
        None => Box::new(table.rows.iter()),
        Some(entries) => match entries.find(cube.names)? {
            None => Box::new(std::iter::empty()),
            Some(picture) => {
                Box::new(table.of_pictures[picture].iter().map(|row| &table.rows[*row as usize]))
            }
        },
    };
    for row in rows {
        if let Some(picture) = row.picture.filter(|picture| *picture != cube.size) {
            return Err(other_size(&cube.names.name, picture, cube.size)
                .within(format!("line {}", row.line)));
        }
        let Some(corners) = row.corners else { continue };
        boxes
            .add(corners, row.label.clone(), cube.size)
            .map_err(|what| wrong(format_args!("line {}", row.line), what))?;
    }
    Ok(boxes)
}

/// The pictures of a table.
///
/// # Errors
/// If the table cannot be read.
pub(super) fn pictures(path: &Path) -> Result<Pictures> {
    // Which column says the class does not change the pictures.
    let table = table(path, Some(""))?;
    Ok(match table.entries {
        Some(entries) => Pictures::Named(entries.names().to_vec()),
        None => Pictures::NotNamed { columns: table.columns },
    })
}

/// A table, and what its file was when it was read.
struct Kept {
    path: PathBuf,
    class: Option<String>,
    file: (u64, Option<SystemTime>),
    table: Arc<Table>,
}

/// The table that was read last. It is asked for once for each cube.
static LAST: Mutex<Option<Kept>> = Mutex::new(None);

/// Forgets the table that was read last.
pub(super) fn forget() {
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn kept(path: &Path, class: Option<&str>) -> Result<Arc<Table>> {
    let about = path.metadata().map_err(|error| Error::io(path, "cannot read", error))?;
    let file = (about.len(), about.modified().ok());
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = &*last
        && kept.path == path
        && kept.class.as_deref() == class
        && kept.file == file
    {
        return Ok(kept.table.clone());
    }
    *last = None;
    let table = Arc::new(table(path, class)?);
    let (path, class) = (path.to_owned(), class.map(str::to_owned));
    *last = Some(Kept { path, class, file, table: table.clone() });
    Ok(table)
}

/// Reads a table. `class` is the column of the classes; empty if they do not matter.
fn table(path: &Path, class: Option<&str>) -> Result<Table> {
    let bytes = bounded_read::read(path, MAX_BYTES)?;
    of_text(&text::decode(bytes)?, class)
}

/// The places of the columns.
struct Columns {
    /// Left, top, right and bottom. If there are none, there are sides.
    corners: Option<[usize; 4]>,
    /// Left, top, width and height.
    sides: Option<[usize; 4]>,
    /// Rows and columns of the picture, or the height and width of the box once more.
    size: Option<[usize; 2]>,
    class: Option<usize>,
    picture: Option<usize>,
}

impl Columns {
    fn of(head: &StringRecord, class: Option<&str>) -> Result<Self> {
        let usual = |name: &str| name.trim().to_lowercase().replace([' ', '-'], "_");
        let names: Vec<String> = head.iter().map(usual).collect();
        let column_of = |wanted: &[&str]| {
            wanted.iter().find_map(|wanted| names.iter().position(|name| name == wanted))
        };
        let all = |columns: [&[&str]; 4]| {
            let places = columns.map(column_of);
            Some([places[0]?, places[1]?, places[2]?, places[3]?])
        };
        let corners = all(CORNERS);
        // Width and height may be those of the picture, unless the table also has its own left and top for them.
        let is_of_box = |sides: &[usize; 4]| {
            corners.is_none_or(|corners| corners[..2].iter().all(|column| !sides.contains(column)))
        };
        let sides = all(SIDES).filter(is_of_box);
        if corners.is_none() && sides.is_none() {
            return Err(Error::malformed(format!(
                "the table has no columns of boxes; its columns: {}",
                head.iter().take(20).collect::<Vec<_>>().join(", ")
            ))
            .with_remedy("name four columns xmin, ymin, xmax, ymax, or x, y, width, height"));
        }
        let size = match PICTURE.map(column_of) {
            [Some(rows), Some(columns)] => Some([rows, columns]),
            _ => None,
        };
        let is_of_sides = |size: &[usize; 2]| {
            sides.is_some_and(|sides| size.iter().any(|column| sides.contains(column)))
        };
        let size = size.filter(|size| !is_of_sides(size));
        let class = match class {
            None => column_of(CLASSES),
            Some("") => None,
            Some(class) => Some(column_called(class, head)?),
        };
        let picture = column_of(PICTURES).filter(|column| Some(*column) != class);
        let used = [corners, sides].into_iter().flatten().flatten();
        let used = used.chain(size.into_iter().flatten()).chain(class).chain(picture);
        used.map(|column| &names[column]).try_for_each(|name| refuse_repeated(name, &names))?;
        Ok(Self { corners, sides, size, class, picture })
    }
}

/// The column of the classes that the user names.
fn column_called(class: &str, head: &StringRecord) -> Result<usize> {
    head.iter().position(|name| name.trim() == class).ok_or_else(|| {
        Error::not_found(format!("the table has no column {class:?}")).with_remedy(format!(
            "its columns: {}",
            head.iter().take(20).collect::<Vec<_>>().join(", ")
        ))
    })
}

/// Refuses several columns with the name of one that is read.
fn refuse_repeated(name: &str, names: &[String]) -> Result<()> {
    match names.iter().filter(|other| *other == name).count() {
        ..=1 => Ok(()),
        count => Err(Error::malformed(format!("{count} columns are called `{name}`"))
            .with_remedy("keep one of them, or rename one")),
    }
}

fn of_text(text: &str, class: Option<&str>) -> Result<Table> {
    let (separator, text) = text::separator(text);
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let unreadable = |error: csv::Error| {
        Error::malformed(format!("cannot read the table: {error}"))
            .with_remedy("save it as CSV again")
    };
    let head = reader.headers().map_err(unreadable)?;
    let columns = Columns::of(head, class)?;
    let mut table = Table { columns: head.iter().map(str::to_owned).collect(), ..Table::default() };
    let (mut names, mut places) = (Vec::new(), std::collections::HashMap::new());
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(0, |position| {
            // After a line that ends in \r\n, the position is that of \n.
            let is_end = text.as_bytes().get(position.byte() as usize) == Some(&b'\n');
            position.line() + u64::from(is_end)
        });
        if table.rows.len() == MAX_ROWS {
            return Err(wrong(
                format_args!("line {line}"),
                format!("there are more than {MAX_ROWS} boxes"),
            ));
        }
        let row = row_of(&record, &columns, line)?;
        if let Some(column) = columns.picture {
            let name = record.get(column).unwrap_or_default();
            if name.is_empty() {
                return Err(wrong(format_args!("line {line}"), "it names no picture"));
            }
            let picture = *places.entry(name.to_owned()).or_insert_with(|| {
                names.push(name.to_owned());
                table.of_pictures.push(Vec::new());
                names.len() - 1
            });
            table.of_pictures[picture].push(table.rows.len() as u32);
        }
        table.rows.push(row);
    }
    table.entries = columns.picture.map(|_| Entries::new(names));
    // Such numbers as sizes of boxes are not those of their picture.
    if table.rows.iter().all(is_sized_like_its_box) {
        table.rows.iter_mut().for_each(|row| row.picture = None);
    }
    refuse_fractions(&table.rows)?;
    // Names that are all whole numbers are ids.
    let id = |row: &Row| match &row.label {
        Label::Name(name) => name.parse().ok(),
        Label::Id(id) => Some(*id),
    };
    let ids: Option<Vec<i64>> =
        table.rows.iter().filter(|row| row.corners.is_some()).map(id).collect();
    if let Some(ids) = ids {
        let boxes = table.rows.iter_mut().filter(|row| row.corners.is_some());
        boxes.zip(ids).for_each(|(row, id)| row.label = Label::Id(id));
    }
    Ok(table)
}

/// Whether the size of the picture of a row is that of its box, whose last pixel may be counted or
/// not.
fn is_sized_like_its_box(row: &Row) -> bool {
    let (Some(picture), Some([left, top, right, bottom])) = (row.picture, row.corners) else {
        return true;
    };
    let sides = picture.into_iter().zip([bottom - top, right - left]);
    sides.into_iter().all(|(picture, side)| (picture as f64 - side).abs() <= 1.0 + ROUNDING)
}

/// Refuses boxes that are in fractions of their picture.
fn refuse_fractions(rows: &[Row]) -> Result<()> {
    let all = || rows.iter().filter_map(|row| row.corners).flatten();
    match all().all(|corner| (0.0..=1.0).contains(&corner))
        && all().any(|corner| corner.fract() != 0.0)
    {
        false => Ok(()),
        true => Err(Error::malformed("the boxes are in fractions of the picture, not in pixels")
            .with_remedy("multiply x by the columns of the cube, and y by its rows")),
    }
}

fn row_of(record: &StringRecord, columns: &Columns, line: u64) -> Result<Row> {
    let label = match columns.class.map(|column| record.get(column).unwrap_or_default()) {
        None => Label::Id(1),
        Some(name) => Label::Name(text::printable(name).into_owned()),
    };
    let in_columns = |columns: Option<[usize; 4]>| match columns {
        Some(columns) => numbers(record, columns, line),
        None => Ok(None),
    };
    let corners = in_columns(columns.corners)?;
    let of_sides = in_columns(columns.sides)?
        .map(|[left, top, width, height]| [left, top, left + width, top + height]);
    if let (Some(corners), Some(of_sides)) = (corners, of_sides)
        && corners.iter().zip(of_sides).any(|(a, b)| (a - b).abs() > ROUNDING)
    {
        let what = format!(
            "by its corners the box is {corners:?}, but by its width and height {of_sides:?}"
        );
        return Err(wrong(format_args!("line {line}"), what));
    }
    let corners = corners.or(of_sides);
    if corners.is_some() && label == Label::Name(String::new()) {
        return Err(wrong(format_args!("line {line}"), "the box has no class"));
    }
    // Programs that do not know the size write 0.
    let side = |column: usize| {
        record.get(column)?.parse::<f64>().ok().filter(|side| *side >= 1.0 && side.fract() == 0.0)
    };
    let picture = columns
        .size
        .and_then(|[rows, columns]| Some([side(rows)? as usize, side(columns)? as usize]));
    Ok(Row { line, corners, label, picture })
}

/// The numbers in four columns; `None` if all are empty, as pictures without boxes may have them.
fn numbers(record: &StringRecord, columns: [usize; 4], line: u64) -> Result<Option<[f64; 4]>> {
    let cells = columns.map(|column| record.get(column).unwrap_or_default());
    if cells.iter().all(|cell| cell.is_empty()) {
        return Ok(None);
    }
    let mut numbers = [0.0; 4];
    for (number, cell) in numbers.iter_mut().zip(cells) {
        *number = cell
            .parse()
            .map_err(|_| wrong(format_args!("line {line}"), format!("{cell:?} is not a number")))?;
    }
    Ok(Some(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(text: &str) -> Vec<(Option<[f64; 4]>, Label)> {
        let table = of_text(text, None).unwrap();
        table.rows.into_iter().map(|row| (row.corners, row.label)).collect()
    }

    #[test]
    fn columns_have_usual_names() {
        let name = |name: &str| Label::Name(name.to_owned());
        let expected = [(Some([1.0, 2.0, 3.5, 4.0]), name("leaf"))];
        assert_eq!(boxes("xmin,ymin,xmax,ymax,class\n1,2,3.5,4,leaf\n"), expected);
        assert_eq!(boxes("Label;X;Y;W;H\nleaf;1;2;2.5;2\n"), expected);
        assert_eq!(boxes("left\ttop\twidth\theight\tcategory\n1\t2\t2.5\t2\tleaf"), expected);
        let sized =
            "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,640,480,leaf,1,2,3.5,4\n";
        assert_eq!(boxes(sized), expected);
        assert_eq!(boxes("x,y,width,height,class\n1,2,2.5,2,leaf\n"), expected);
        assert_eq!(boxes("xmin,ymin,width,height,class\n1,2,2.5,2,leaf\n"), expected);
        let both = "x,y,width,height,xmin,ymin,xmax,ymax,class\n1,2,2.5,2,1.04,2,3.5,4,leaf\n";
        assert_eq!(boxes(&both.replace("1.04", "1")), expected);
        assert_eq!(boxes(both)[0].0, Some([1.04, 2.0, 3.5, 4.0]));
        assert_eq!(boxes(&both.replace("1,2,2.5,2,1.04", ",,,,1")), expected);
        assert_eq!(boxes(&both.replace("1.04,2,3.5,4", ",,,")), expected);
        assert_eq!(boxes("x,y,w,h\n0,0,1,1\n"), [(Some([0.0, 0.0, 1.0, 1.0]), Label::Id(1))]);
        let ids = boxes("x1,y1,x2,y2,class_id\n0,0,1,1,3\n0,0,1,1,12\n");
        assert_eq!([&ids[0].1, &ids[1].1], [&Label::Id(3), &Label::Id(12)]);
        let mixed = boxes("x1,y1,x2,y2,label\n0,0,1,1,3\n0,0,1,1,b\n");
        assert_eq!([&mixed[0].1, &mixed[1].1], [&name("3"), &name("b")]);
    }

    #[test]
    fn rows_belong_to_pictures() {
        let table =
            of_text("image,x,y,w,h,label\na.png,1,1,2,2,u\nb.png,,,,,\na.png,0,0,1,1,v\n", None);
        let table = table.unwrap();
        assert_eq!(table.entries.unwrap().names(), ["a.png", "b.png"]);
        assert_eq!(table.of_pictures, [vec![0, 2], vec![1]]);
        assert_eq!(table.rows[1].corners, None);
        for column in ["ImageID", "image_id", "Image Name", "filename", "file-name", "filepath"] {
            let text = format!("{column},LabelName,XMin,YMin,XMax,YMax\na,leaf,1,2,3,4\n");
            let table = of_text(&text, None).unwrap();
            assert_eq!(table.entries.unwrap().names(), ["a"], "{column}");
            assert_eq!(table.rows[0].label, Label::Name("leaf".to_owned()));
        }
    }

    #[test]
    fn width_and_height_are_those_of_the_picture_or_of_boxes() {
        let sizes = |text: &str| {
            let rows = of_text(text, None).unwrap().rows;
            rows.into_iter().map(|row| row.picture).collect::<Vec<_>>()
        };
        let of_picture = "filename,width,height,class,xmin,ymin,xmax,ymax\n\
            a,640,480,u,1,2,3,4\na,640,480,u,0,0,640,480\nb,0,0,u,1,2,3,4\nc,30,20,,,,,\n";
        assert_eq!(sizes(of_picture), [Some([480, 640]), Some([480, 640]), None, Some([20, 30])]);
        let of_boxes = "xmin,ymin,xmax,ymax,width,height\n1,2,3,5,2,3\n1,2,9,5,9,4\n";
        assert_eq!(sizes(of_boxes), [None, None]);
        assert_eq!(sizes("x,y,width,height\n1,2,3,4\n"), [None]);
        let both = "x,y,width,height,image_width,image_height\n1,2,3,4,60,40\n";
        assert_eq!(sizes(both), [Some([40, 60])]);
        assert_eq!(sizes("x,y,w,h,width,height\n1,2,3,4,60,40\n"), [Some([40, 60])]);
    }

    #[test]
    fn malformed_tables_are_refused_with_the_line() {
        for (text, expected) in [
            ("", "no columns of boxes"),
            ("a,b\n1,2\n", "its columns: a, b"),
            ("x,y,x,w,h\n1,2,3,4,5\n", "2 columns are called `x`"),
            ("file,x,y,w,h,File\na,1,2,3,4,b\n", "2 columns are called `file`"),
            ("x,y,w,h,label,label\n1,2,3,4,a,b\n", "2 columns are called `label`"),
            ("x,y,w,h\n1,2,3,z\n", "line 2: \"z\" is not a number"),
            ("xmin,ymin,xmax,ymax\n0,0,1,1\n0.1,0,0.5,1\n", "in fractions of the picture"),
            ("x,y,w,h\n1,2,3\n", "cannot read the table"),
            ("x,y,w,h,label\n1,2,3,4,\n", "line 2: the box has no class"),
            ("file,x,y,w,h\n,1,2,3,4\n", "line 2: it names no picture"),
            ("x,y,w,h\r\n1,2,3,4\r\n1,2,3,a\r\n", "line 3: \"a\""),
            (
                "x,y,width,height,xmin,ymin,xmax,ymax\n5,5,4,4,3,3,7,7\n",
                "line 2: by its corners the box is [3.0, 3.0, 7.0, 7.0], but by its width and height [5.0, 5.0, 9.0, 9.0]",
            ),
        ] {
            let error = of_text(text, None).unwrap_err();
            assert!(error.what().contains(expected) && error.remedy().is_some(), "{error}");
        }
        let twice = "x,y,w,h,kind,kind,note,note\n";
        assert!(of_text(twice, Some("kind")).unwrap_err().what().contains("called `kind`"));
        // Columns that nobody needs may be there twice.
        of_text(twice, None).unwrap();
        assert!(of_text("x,y,w,h\n", Some("kind")).unwrap_err().what().contains("\"kind\""));
    }
}
