//! Files that say which colour is which class.
//!
//! | file | lines or members |
//! |---|---|
//! | CSV, TSV | a head with `r`, `g`, `b` or `color`, and `id` and `name`; without a head `id,r,g,b,name` or `name,r,g,b` |
//! | JSON | a list of objects with such members, or an object of names, ids or colours |
//! | ESRI `.clr` and alike | `id red green blue name`, or `red green blue name`, separated by spaces |
//! | QGIS | a color map export (`id,red,green,blue,alpha,name`), or the style of a paletted raster (`.qml`) |
//! | CVAT | `name:red,green,blue:parts:actions` |
//!
//! Classes without ids are numbered from 0 in the order of the file.

use std::collections::HashMap;
use std::path::Path;

use hsipack_format::{Color, Error, Result, colors, text};
use hsipack_store::bounded_read;
use serde_json::{Map, Value};

use super::ClassColor;
use super::classes::MAX_NAME;
use crate::xml;

/// The longest file of colours. 65536 classes with long names take a few megabytes.
const MAX_BYTES: u64 = 16 << 20;
const MAX_CLASSES: usize = 1 << 16;

const IDS: [&str; 12] = [
    "id", "value", "index", "class_id", "classid", "label_id", "labelid", "code", "dn", "gridcode",
    "class", "label",
];
const NAMES: [&str; 10] = [
    "name",
    "label",
    "class_name",
    "classname",
    "class",
    "title",
    "category",
    "description",
    "material",
    "text",
];
const COLORS: [&str; 5] = ["color", "colour", "rgb", "hex", "color_rgb"];
const PARTS: [[&str; 2]; 3] = [["r", "red"], ["g", "green"], ["b", "blue"]];
/// Members of JSON files that hold the list.
const LISTS: [&str; 7] = ["classes", "labels", "categories", "palette", "colors", "items", "names"];

/// Reads the classes and colours in `path`.
///
/// # Errors
/// If the file cannot be read, is none of these, or gives a colour to two classes.
pub fn read_colors(path: &Path) -> Result<Vec<ClassColor>> {
    let bytes = bounded_read::read(path, MAX_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let entries = match text.trim_start().chars().next() {
        Some('{' | '[') => of_json(text),
        Some('<') => of_style(text),
        _ => of_lines(text),
    };
    entries.and_then(numbered).map_err(|error| error.at(path))
}

/// A class as a file gives it.
#[derive(Debug, Default, PartialEq)]
struct Entry {
    /// Where it is, for errors: `line 3`.
    location: String,
    color: Color,
    id: Option<u16>,
    name: String,
}

/// The classes with ids.
fn numbered(entries: Vec<Entry>) -> Result<Vec<ClassColor>> {
    if entries.is_empty() {
        return Err(unreadable("it has no class"));
    }
    if entries.len() > MAX_CLASSES {
        return Err(unreadable(format!("it has more than {MAX_CLASSES} classes")));
    }
    let with_ids = entries.iter().filter(|entry| entry.id.is_some()).count();
    if let Some(entry) = entries.iter().find(|entry| with_ids > 0 && entry.id.is_none()) {
        return Err(unreadable(format!(
            "{}: there is no id, unlike in other places",
            entry.location
        )));
    }
    let mut by_color: HashMap<Color, (u16, String)> = HashMap::new();
    let mut classes = Vec::new();
    for (entry, position) in entries.into_iter().zip(0..=u16::MAX) {
        let id = entry.id.unwrap_or(position);
        if entry.name.len() > MAX_NAME {
            return Err(unreadable(format!("{}: the name is too long", entry.location)));
        }
        if let Some((other, first)) = by_color.get(&entry.color) {
            if *other == id {
                continue;
            }
            return Err(Error::conflict(format!(
                "{}: the color {} is of class {id} here, but of class {other} in {first}",
                entry.location,
                colors::hex(entry.color)
            ))
            .with_remedy("give every class its own color"));
        }
        by_color.insert(entry.color, (id, entry.location));
        let name = text::printable(entry.name.trim()).into_owned();
        classes.push(ClassColor { color: entry.color, id, name });
    }
    Ok(classes)
}

fn unreadable(what: impl Into<String>) -> Error {
    Error::malformed(format!("cannot read the colors of classes: {}", what.into())).with_remedy(
        "give a CSV file with the columns id, name, r, g, b, or JSON, ESRI .clr or a color map that QGIS exports",
    )
}

/// A colour in text: `#rrggbb`, or three numbers in any brackets, separated by commas or spaces.
pub(super) fn color(text: &str) -> Option<Color> {
    if let Some(color) = colors::parse_hex(text).filter(|_| !text.contains([',', ' '])) {
        return Some(color);
    }
    // #rrggbbaa without transparency.
    if let Some(hex) = text.trim().strip_prefix('#') {
        return colors::parse_hex(hex.get(..6)?).filter(|_| hex.len() == 8);
    }
    let inside = text.trim().trim_start_matches("rgb").trim_matches(['(', ')', '[', ']']);
    let parts = inside.split([',', ' ', ';']).map(str::trim).filter(|part| !part.is_empty());
    let parts: Option<Vec<u8>> = parts.map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

/// Whether a cell is a whole number.
fn is_whole(cell: &str) -> bool {
    cell.trim().parse::<i64>().is_ok()
}

fn id(cell: &str, location: &str) -> Result<u16> {
    cell.trim().parse().map_err(|_| {
        unreadable(format!("{location}: the id {cell:?} is not a whole number from 0 to 65535"))
    })
}

fn part(cell: &str, location: &str) -> Result<u8> {
    cell.trim().parse().map_err(|_| {
        unreadable(format!("{location}: {cell:?} is not a part of a color, from 0 to 255"))
    })
}

/// Numbers of a line that begin a class: an id, if there are four or five, and the colour. Alpha is
/// not used.
fn of_numbers(numbers: &[&str], name: &str, location: String) -> Result<Entry> {
    let (id_cell, parts) = match *numbers {
        [red, green, blue] => (None, [red, green, blue]),
        [id_cell, red, green, blue] | [id_cell, red, green, blue, _] => {
            (Some(id_cell), [red, green, blue])
        }
        _ => {
            return Err(unreadable(format!(
                "{location}: there are {} numbers instead of an id and three parts of a color",
                numbers.len()
            )));
        }
    };
    let id = id_cell.map(|cell| id(cell, &location)).transpose()?;
    let [red, green, blue] = parts.map(|cell| part(cell, &location));
    Ok(Entry { color: [red?, green?, blue?], id, name: name.to_owned(), location })
}

fn of_lines(text: &str) -> Result<Vec<Entry>> {
    let (_, text) = text::separator(text);
    let lines = || {
        let all = text.lines().map(str::trim_end).enumerate();
        let all = all.map(|(number, line)| (format!("line {}", number + 1), line));
        all.filter(|(_, line)| {
            let is_left_out = line.trim_start().starts_with(';') || is_comment(line);
            !line.trim().is_empty() && !is_left_out
        })
    };
    let Some((_, first)) = lines().next() else { return Err(unreadable("it is empty")) };
    if first.starts_with("INTERPOLATION:") {
        return lines().skip(1).map(|(location, line)| of_qgis(location, line)).collect();
    }
    let is_cvat = |line: &str| {
        let mut parts = line.split(':');
        let (name, color_of) = (parts.next(), parts.next());
        name.is_some_and(|name| !name.contains(','))
            && color_of.is_some_and(|text| color(text).is_some())
    };
    if is_cvat(first) {
        return lines().map(|(location, line)| of_cvat(location, line)).collect();
    }
    if !first.contains([',', ';', '\t']) || is_spaced(first) {
        return lines().map(|(location, line)| of_spaced(location, line)).collect();
    }
    of_cells(text, first)
}

/// Whether a line begins with `#`, but not with a colour such as `#ff0000`.
fn is_comment(line: &str) -> bool {
    let first = line.split([',', ';', '\t', ':']).next().unwrap_or_default().trim();
    first.strip_prefix('#').is_some_and(|digits| {
        ![3, 6, 8].contains(&digits.len()) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Whether a line begins with at least three numbers that are separated by spaces.
fn is_spaced(line: &str) -> bool {
    line.split_whitespace().take_while(|word| is_whole(word)).count() >= 3 && !line.contains(',')
}

fn of_qgis(location: String, line: &str) -> Result<Entry> {
    let cells: Vec<&str> = line.splitn(6, ',').collect();
    let (numbers, name) = cells.split_at(cells.len().min(5));
    of_numbers(numbers, name.first().copied().unwrap_or_default(), location)
}

fn of_cvat(location: String, line: &str) -> Result<Entry> {
    let (name, values) = line.split_once(':').unwrap_or((line, ""));
    let text = values.split(':').next().unwrap_or_default();
    let color =
        color(text).ok_or_else(|| unreadable(format!("{location}: {text:?} is not a color")))?;
    Ok(Entry { color, id: None, name: name.to_owned(), location })
}

fn of_spaced(location: String, line: &str) -> Result<Entry> {
    let mut remaining = line.trim_start();
    let mut numbers = Vec::new();
    while numbers.len() < 5 {
        let end = remaining.find(char::is_whitespace).unwrap_or(remaining.len());
        if !is_whole(&remaining[..end]) {
            break;
        }
        numbers.push(&remaining[..end]);
        remaining = remaining[end..].trim_start();
    }
    of_numbers(&numbers, remaining, location)
}

/// Cells between separators.
fn of_cells(text: &str, first: &str) -> Result<Vec<Entry>> {
    let (separator, _) = text::separator(first);
    // Rows of empty cells in their places, because errors count lines.
    let empty = char::from(separator).to_string();
    let is_row = |line: &str| !line.trim().is_empty() && !is_comment(line);
    let lines = text.lines().map(|line| if is_row(line) { line } else { &*empty });
    let text = lines.collect::<Vec<_>>().join("\n");
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(separator)
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cells: Vec<String> = record.iter().map(str::to_owned).collect();
        if cells.iter().any(|cell| !cell.is_empty()) {
            rows.push((format!("line {line}"), cells));
        }
        if rows.len() > MAX_CLASSES + 1 {
            return Err(unreadable(format!("it has more than {MAX_CLASSES} lines")));
        }
    }
    let Some((_, head)) = rows.first() else {
        return Err(unreadable("its cells are empty"));
    };
    let is_head = head.iter().filter(|cell| is_whole(cell)).count() < 3
        && !head.iter().any(|cell| color(cell).is_some());
    if !is_head {
        return rows.into_iter().map(|(location, cells)| of_headless(location, &cells)).collect();
    }
    let columns = Columns::of(head, &rows[1..])?;
    rows[1..].iter().map(|(location, cells)| columns.entry(location, cells)).collect()
}

/// A line without a head: `id,r,g,b,name`, `r,g,b,name` or `name,r,g,b`.
fn of_headless(location: String, cells: &[String]) -> Result<Entry> {
    let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
    let leading = cells.iter().take_while(|cell| is_whole(cell)).count();
    if leading >= 3 {
        let (numbers, names) = cells.split_at(leading);
        return of_numbers(numbers, names.first().copied().unwrap_or_default(), location);
    }
    match *cells {
        [name, red, green, blue] | [name, red, green, blue, _] if !is_whole(name) => {
            of_numbers(&[red, green, blue], name, location)
        }
        [name, text] if color(text).is_some() => {
            let id = is_whole(name).then(|| id(name, &location)).transpose()?;
            let name = if id.is_some() { String::new() } else { name.to_owned() };
            Ok(Entry { color: color(text).unwrap_or_default(), id, name, location })
        }
        _ => Err(unreadable(format!("{location}: there are no three parts of a color"))),
    }
}

/// Which columns of a table hold what.
struct Columns {
    id: Option<usize>,
    name: Option<usize>,
    parts: Option<[usize; 3]>,
    color: Option<usize>,
}

impl Columns {
    fn of(head: &[String], rows: &[(String, Vec<String>)]) -> Result<Self> {
        let column = |name: &str| head.iter().position(|heading| heading.to_lowercase() == name);
        let first = |names: &[&str]| names.iter().find_map(|name| column(name));
        // Columns such as `class` hold ids or names.
        let are_whole = |column: usize| {
            rows.iter().all(|(_, cells)| cells.get(column).is_some_and(|cell| is_whole(cell)))
        };
        let id = IDS.iter().find_map(|name| {
            column(name).filter(|index| !NAMES.contains(name) || are_whole(*index))
        });
        let mut names = NAMES.iter().filter_map(|name| column(name));
        let [red, green, blue] = PARTS.map(|names| first(&names));
        let columns = Self {
            id,
            name: names.find(|index| Some(*index) != id),
            parts: red.zip(green).zip(blue).map(|((red, green), blue)| [red, green, blue]),
            color: first(&COLORS),
        };
        match (columns.parts, columns.color) {
            (None, None) => Err(unreadable(format!(
                "it has the columns {}, but neither r, g, b nor color",
                head.join(", ")
            ))),
            _ => Ok(columns),
        }
    }

    fn entry(&self, location: &str, cells: &[String]) -> Result<Entry> {
        let cell = |at: usize| cells.get(at).map(String::as_str).unwrap_or_default();
        let color = match (self.parts, self.color) {
            (Some(parts), _) => {
                let [red, green, blue] = parts.map(|at| part(cell(at), location));
                [red?, green?, blue?]
            }
            (None, at) => {
                let text = at.map(cell).unwrap_or_default();
                color(text)
                    .ok_or_else(|| unreadable(format!("{location}: {text:?} is not a color")))?
            }
        };
        Ok(Entry {
            location: location.to_owned(),
            color,
            id: self.id.map(|index| id(cell(index), location)).transpose()?,
            name: self.name.map(|name| cell(name).to_owned()).unwrap_or_default(),
        })
    }
}

fn of_json(text: &str) -> Result<Vec<Entry>> {
    let value: Value = serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    match &value {
        Value::Array(list) => of_list(list),
        Value::Object(object) => {
            let list = LISTS.iter().find_map(|name| object.get(*name)?.as_array());
            match list {
                Some(list) => of_list(list),
                None => of_object(object),
            }
        }
        _ => Err(unreadable("it is neither a list nor an object")),
    }
}

fn of_list(list: &[Value]) -> Result<Vec<Entry>> {
    let entry = |(number, value): (usize, &Value)| {
        let location = format!("entry {number}");
        match value {
            Value::Object(object) => of_members(object, location),
            other => {
                let color = json_color(other).ok_or_else(|| no_color(&location))?;
                Ok(Entry { location, color, ..Entry::default() })
            }
        }
    };
    list.iter().enumerate().map(entry).collect()
}

fn no_color(location: &str) -> Error {
    unreadable(format!("{location} has no color of three numbers from 0 to 255"))
}

/// A colour as JSON writes it. A fourth number is its alpha.
fn json_color(value: &Value) -> Option<Color> {
    match value {
        Value::String(text) => color(text),
        Value::Array(parts) if parts.len() == 3 || parts.len() == 4 => {
            let part = |value: &Value| u8::try_from(value.as_u64()?).ok();
            let parts: Option<Vec<u8>> = parts[..3].iter().map(part).collect();
            parts?.try_into().ok()
        }
        _ => None,
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A class as an object.
fn of_members(object: &Map<String, Value>, location: String) -> Result<Entry> {
    let member = |names: &[&str]| {
        let entry = |name: &&str| object.iter().find(|(key, _)| key.to_lowercase() == **name);
        names.iter().find_map(|name| entry(name).map(|(_, value)| value))
    };
    let is_id = |value: &&Value| value.is_number() || value.as_str().is_some_and(is_whole);
    let id_value = IDS.iter().filter_map(|name| member(&[*name])).find(is_id);
    let name = NAMES
        .iter()
        .filter_map(|name| member(&[*name]))
        .find(|value| value.as_str().is_some_and(|name| !name.is_empty()));
    let parts = PARTS.map(|names| member(&names).cloned());
    let color = match (member(&COLORS), parts) {
        (Some(color), _) => json_color(color),
        (None, [Some(red), Some(green), Some(blue)]) => {
            json_color(&Value::Array(vec![red, green, blue]))
        }
        _ => None,
    };
    Ok(Entry {
        color: color.ok_or_else(|| no_color(&location))?,
        id: id_value.map(|value| id(&text_of(value), &location)).transpose()?,
        name: name.map(text_of).unwrap_or_default(),
        location,
    })
}

/// An object whose keys are ids, names or colours.
fn of_object(object: &Map<String, Value>) -> Result<Vec<Entry>> {
    let entry = |(key, value): (&String, &Value)| {
        let location = format!("member {key:?}");
        if let Some(color) = color(key).filter(|_| !is_whole(key)) {
            let entry = Entry { color, ..Entry::default() };
            return match value {
                Value::Number(number) => {
                    Ok(Entry { id: Some(id(&number.to_string(), &location)?), location, ..entry })
                }
                Value::String(name) if is_whole(name) => {
                    Ok(Entry { id: Some(id(name, &location)?), location, ..entry })
                }
                Value::String(name) => Ok(Entry { name: name.clone(), location, ..entry }),
                Value::Object(members) => {
                    let mut with_color = members.clone();
                    with_color.insert("color".to_owned(), colors::hex(color).into());
                    of_members(&with_color, location)
                }
                _ => Err(unreadable(format!("{location} is neither an id nor a name"))),
            };
        }
        let mut entry = match value {
            Value::Object(members) => of_members(members, location.clone())?,
            other => Entry {
                color: json_color(other).ok_or_else(|| no_color(&location))?,
                location: location.clone(),
                ..Entry::default()
            },
        };
        match is_whole(key) {
            true => entry.id = Some(entry.id.map_or_else(|| id(key, &location), Ok)?),
            false if entry.name.is_empty() => entry.name.clone_from(key),
            false => {}
        }
        Ok(entry)
    };
    object.iter().map(entry).collect()
}

/// The style of a paletted raster, as QGIS saves it.
fn of_style(text: &str) -> Result<Vec<Entry>> {
    // The declaration before it names a type of documents, which the parser refuses.
    let start = text.find("<qgis").unwrap_or(0);
    let document = xml::parse(&text[start..]).map_err(unreadable)?;
    let entries = document.descendants().filter(|node| node.has_tag_name("paletteEntry"));
    let entry = |(number, node): (usize, roxmltree::Node<'_, '_>)| {
        let location = format!("paletteEntry {number}");
        let text = node.attribute("color").unwrap_or_default();
        Ok(Entry {
            color: color(text).ok_or_else(|| no_color(&location))?,
            id: Some(id(node.attribute("value").unwrap_or_default(), &location)?),
            name: node.attribute("label").unwrap_or_default().to_owned(),
            location,
        })
    };
    entries.enumerate().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(text: &str) -> Result<Vec<(u16, String, Color)>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let classes = read_colors(file.path())?;
        Ok(classes.into_iter().map(|class| (class.id, class.name, class.color)).collect())
    }

    #[test]
    fn every_kind_of_file_gives_the_same_classes() {
        for text in [
            "id,name,r,g,b\n4,wet road,255,0,0\n9,roof,0,16,255\n",
            "\u{feff}Value;Label;Red;Green;Blue\r\n4;wet road;255;0;0\r\n9;roof;0;16;255\r\n",
            "name\tcolor\tid\nwet road\t#ff0000\t4\nroof\t#0010FF\t9\n",
            "color,id,name\n#ff0000,4,wet road\n# a comment, with a comma\n#0010ff,9,roof\n",
            "color;id;name\n 255,0,0;4;wet road\n#0010FFff ;9;roof\n#;9;tree\n",
            "class,label,rgb\n4,wet road,\"255,0,0\"\n9,roof,\"(0, 16, 255)\"\n",
            "4,255,0,0,wet road\n9,0,16,255,roof\n",
            "# a comment\n4 255 0 0 wet road\n\n9 0 16 255 roof\n",
            "4 255 0 0 255 wet road\n9 0 16 255 255 roof",
            "# QGIS Generated Color Map Export File\nINTERPOLATION:EXACT\n4,255,0,0,255,wet road\n9,0,16,255,255,roof\n",
            r##"<!DOCTYPE qgis><qgis><pipe><paletteEntry value="4" color="#ff0000" alpha="255" label="wet road"/>
               <paletteEntry color="#0010ff" value="9" label="roof"/></pipe></qgis>"##,
            r##"[{"id": 4, "name": "wet road", "color": [255, 0, 0]}, {"id": 9, "name": "roof", "color": "#0010ff"}]"##,
            r#"{"classes": [{"Value": "4", "title": "wet road", "r": 255, "g": 0, "b": 0},
                {"value": 9, "label": "roof", "colour": "rgb(0, 16, 255)"}]}"#,
            r#"{"4": {"name": "wet road", "color": [255, 0, 0, 255]}, "9": {"name": "roof", "color": [0, 16, 255]}}"#,
            r##"{"#ff0000": {"id": 4, "name": "wet road"}, "(0, 16, 255)": {"id": 9, "name": "roof"}}"##,
        ] {
            let road = (4, "wet road".to_owned(), [255, 0, 0]);
            assert_eq!(read(text).unwrap(), [road, (9, "roof".to_owned(), [0, 16, 255])], "{text}");
        }
    }

    #[test]
    fn classes_without_ids_are_numbered() {
        for text in [
            "name,r,g,b\nwet road,255,0,0\nroof,0,16,255\n",
            "wet road,255,0,0\nroof,0,16,255\n",
            "255 0 0\twet road\n0 16 255\troof\n",
            "# label:color_rgb:parts:actions\nwet road:255,0,0::\nroof:0,16,255::\n",
            r##"{"wet road": [255, 0, 0], "roof": "#0010ff"}"##,
            r##"{"#ff0000": "wet road", "#0010ff": "roof"}"##,
            r##"[{"name": "wet road", "color": "#ff0000ff"}, {"name": "roof", "color": "#0010ff"}]"##,
        ] {
            let road = (0, "wet road".to_owned(), [255, 0, 0]);
            assert_eq!(read(text).unwrap(), [road, (1, "roof".to_owned(), [0, 16, 255])], "{text}");
        }
        assert_eq!(read("[[1, 2, 3], [4, 5, 6]]").unwrap()[1], (1, String::new(), [4, 5, 6]));
    }

    #[test]
    fn several_colours_may_have_one_id() {
        assert_eq!(read("id,r,g,b\n1,0,0,0\n1,0,0,1\n1,0,0,0").unwrap().len(), 2);
    }

    #[test]
    fn other_files_are_refused_with_the_place() {
        for (text, what) in [
            ("", "it is empty"),
            ("# nothing", "it is empty"),
            (",", "its cells are empty"),
            ("[]", "it has no class"),
            ("{", "EOF"),
            ("3", "line 1: there are 1 numbers"),
            ("road", "line 1: there are 0 numbers"),
            ("id,name\n1,a\n", "neither r, g, b nor color"),
            ("id,r,g,b\n1,0,0,256\n", "line 2: \"256\" is not a part of a color"),
            ("id,r,g,b\n1,0,0\n", "line 2: \"\" is not a part"),
            ("id,r,g,b\n-1,0,0,0\n", "line 2: the id \"-1\""),
            ("id,r,g,b\n65536,0,0,0\n", "65536"),
            (
                "id,r,g,b\n1,0,0,0\n2,0,0,0\n",
                "line 3: the color #000000 is of class 2 here, but of class 1 in line 2",
            ),
            ("id,color\n1,red\n", "line 2: \"red\" is not a color"),
            ("color,id\n# a\n\n#f00,1\n", "line 4: \"#f00\" is not a color"),
            ("1 2 3 4 5 6 7 8\n1 2", "line 2: there are 2 numbers"),
            ("INTERPOLATION:EXACT\n1,2,3\n1,2\n", "line 3: there are 2 numbers"),
            ("a:1,2,3::\nb:1,2::\n", "line 2: \"1,2\" is not a color"),
            ("<qgis>", "cannot read"),
            ("<qgis/>", "it has no class"),
            (
                "<qgis><paletteEntry value=\"x\" color=\"#000000\"/></qgis>",
                "paletteEntry 0: the id \"x\"",
            ),
            ("[{\"id\": 1}]", "entry 0 has no color"),
            ("[{\"id\": 1, \"color\": [1, 2, 300]}]", "entry 0 has no color"),
            (
                "[{\"id\": 1, \"color\": [1, 2, 3]}, {\"name\": \"a\", \"color\": [1, 2, 4]}]",
                "entry 1: there is no id",
            ),
            ("{\"a\": 3}", "member \"a\" has no color"),
            ("{\"#000000\": [1]}", "neither an id nor a name"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.what().contains(what), "{text:?}: {error}");
            assert!(error.path().is_some() && error.remedy().is_some(), "{error}");
        }
        let many: String = (0..70_000).map(|id| format!("{id},0,0,0\n")).collect();
        assert!(read(&many).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
    }
}
