//! `--column`: columns whose values are in files, one value or small array for each cube.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{DType, Error, ErrorKind, Opt, Result, remedy};
use hsipack_source::{OpenOptions, RowBuffer, SmallArray, small_array};
use serde_json::{Map, Number, Value};

use super::assignment::Assignment;
use super::named_files;
use super::options::Unlisted;
use crate::input::Input;
use crate::table::{Conversion, Json, Rows, read_json, read_texts};

/// The most numbers of a value.
const MAX_NUMBERS: usize = 4096;
/// The longest text of a value, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// One file may have the values of all cubes, so the last few that were read are kept.
const MAX_RECENT_FILES: usize = 4;

/// Columns that files give.
pub(in crate::convert) struct FileColumns<'a> {
    columns: &'a [Assignment],
    recent: VecDeque<(PathBuf, Option<String>, Arc<Content>)>,
    /// The conversion of the texts of each column, once all of them are known.
    conversions: HashMap<String, Conversion>,
}

/// The content of a file.
enum Content {
    Json(Json),
    /// A table of texts, and whether its numbers may have decimal commas.
    Table(Rows, bool),
    Text(String),
    /// A list or a single value, and its number of entries.
    List(SmallArray),
    /// An array with two axes longer than 1, which is read for each cube.
    Plane(DType),
}

impl<'a> FileColumns<'a> {
    pub fn new(columns: &'a [Assignment]) -> Self {
        Self { columns, recent: VecDeque::new(), conversions: HashMap::new() }
    }

    /// Names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// The columns of the cube in `input`, of which [`convert`](Self::convert) converts the texts.
    /// `None` if a file is missing, and such cubes are left out.
    ///
    /// # Errors
    /// If a file cannot be read, or holds no small value; if it is missing and `missing` says that
    /// this is an error.
    pub fn read(&mut self, input: &Input, missing: Unlisted) -> Result<Option<Map<String, Value>>> {
        let mut columns = Map::new();
        for Assignment { name, value: pattern } in self.columns {
            let role = format!("the file of the column {name:?}");
            let found = named_files::find(pattern, input, &role)?;
            let value = match found {
                Some(file) => {
                    let value = self.value(name, &file, input);
                    value.map_err(|error| error.within(format_args!("column {name:?}")))?
                }
                None => None,
            };
            let value = match (value, missing) {
                (Some(value), _) => value,
                (None, Unlisted::Keep) => Value::Null,
                (None, Unlisted::Skip) => return Ok(None),
                (None, Unlisted::Error) => return Err(absent(name, pattern, input)),
            };
            columns.insert(name.clone(), value);
        }
        Ok(Some(columns))
    }

    /// Converts those texts in the columns of all cubes which come from files of text.
    pub fn convert(&self, inputs: &mut [Input]) {
        for input in inputs {
            for (column, conversion) in &self.conversions {
                for text in input.columns.get_mut(column).into_iter().flat_map(entries_mut) {
                    let value = text.as_str().and_then(|text| conversion.of(text));
                    *text = value.map_or_else(|| text.take(), |value| Value::from(&value));
                }
            }
        }
    }

    /// The value of the column `name` in a file; `None` if a JSON file lacks the key.
    fn value(&mut self, name: &str, file: &Input, input: &Input) -> Result<Option<Value>> {
        let content = self.content(file)?;
        let fail = |what: String, remedy: &'static str| {
            Err(Error::conflict(what).at(&file.file).with_remedy(remedy))
        };
        let key = file.variable.as_deref();
        let value = match (&*content, key) {
            (Content::Json(json), Some(key)) => match json.at(key) {
                Some(value) => Value::from(value),
                None => return Ok(None),
            },
            (Content::Json(json), None) => Value::from(json),
            (Content::Table(rows, _), Some(column)) => column_of(rows, column, &file.file)?,
            (Content::Table(..), None) => {
                return fail("it has several columns".to_owned(), "name one as FILE::COLUMN");
            }
            (Content::Text(_), Some(key)) => {
                return fail(
                    format!("a text has no part {key:?}"),
                    "leave out '::' and what follows",
                );
            }
            (Content::Text(text), None) => of_text(text),
            (Content::List(list), _) => of_list(list, input)?,
            (Content::Plane(dtype), _) => plane(file, *dtype, input)?,
        };
        check_size(&value).map_err(|error| error.at(&file.file))?;
        self.note_texts(name, &content, &value);
        Ok(Some(value))
    }

    /// Notes the texts of a value, which decide what those of the column become.
    fn note_texts(&mut self, name: &str, content: &Content, value: &Value) {
        let decimal_comma = match content {
            Content::Table(_, decimal_comma) => *decimal_comma,
            Content::Text(_) => false,
            Content::Json(_) | Content::List(_) | Content::Plane(_) => return,
        };
        let conversion = self.conversions.entry(name.to_owned());
        let conversion = conversion.or_insert_with(|| Conversion::of_column(name, decimal_comma));
        let entries = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        entries.iter().filter_map(Value::as_str).for_each(|text| conversion.add(text));
    }

    /// The content of a file, which is read once if several cubes need it.
    fn content(&mut self, file: &Input) -> Result<Arc<Content>> {
        let is_text =
            ["json", "csv", "tsv", "txt"].iter().any(|ending| has_ending(&file.file, ending));
        let name = file.variable.clone().filter(|_| !is_text);
        let is_same = |(path, variable, _): &&(PathBuf, Option<String>, _)| {
            *path == file.file && *variable == name
        };
        if let Some((.., content)) = self.recent.iter().find(is_same) {
            return Ok(content.clone());
        }
        let content = Arc::new(read(file)?);
        self.recent.truncate(MAX_RECENT_FILES - 1);
        self.recent.push_front((file.file.clone(), name, content.clone()));
        Ok(content)
    }
}

/// The entries of a list, or the single value.
fn entries_mut(value: &mut Value) -> &mut [Value] {
    match value {
        Value::Array(entries) => entries,
        single => std::slice::from_mut(single),
    }
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|other| other.eq_ignore_ascii_case(ending))
}

fn read(file: &Input) -> Result<Content> {
    let path = &file.file;
    if has_ending(path, "json") {
        return read_json(path).map(Content::Json);
    }
    if has_ending(path, "csv") || has_ending(path, "tsv") {
        return read_texts(path).map(|(rows, decimal_comma)| Content::Table(rows, decimal_comma));
    }
    if has_ending(path, "txt") {
        return text(path).map(Content::Text);
    }
    match small_array(path, file.variable.as_deref())? {
        Some((_, Some(list))) => Ok(Content::List(list)),
        Some((array, None)) => {
            let long = array.lengths.iter().filter(|length| **length != 1).count();
            match array.dtype.filter(|_| long == 2) {
                Some(dtype) => Ok(Content::Plane(dtype)),
                None => {
                    Err(too_large(&format!("an array with the lengths {:?}", array.lengths))
                        .at(path))
                }
            }
        }
        None => text(path).map(Content::Text),
    }
}

/// A short text.
fn text(path: &Path) -> Result<String> {
    let bytes = hsipack_store::bounded_read::read(path, MAX_TEXT_BYTES as u64)?;
    String::from_utf8(bytes).map_err(|_| {
        Error::malformed("neither a text in UTF-8 nor a file of a known format")
            .at(path)
            .with_remedy("give a .npy, .npz, MATLAB, HDF5, Zarr, JSON, CSV or text file")
    })
}

/// A text without spaces around it, and a list if it has several lines.
fn of_text(text: &str) -> Value {
    let lines: Vec<&str> = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    match &lines[..] {
        [] => Value::Null,
        [line] => (*line).into(),
        lines => lines.iter().map(|line| Value::from(*line)).collect(),
    }
}

/// The cells of a column: the cell of the only row, or a list.
fn column_of(rows: &Rows, column: &str, path: &Path) -> Result<Value> {
    let id = rows
        .id(column)
        .ok_or_else(|| rows.no_column(column).at(path).with_remedy("name a column after '::'"))?;
    let cell = |row: usize| rows.get(row, id).map_or(Value::Null, Value::from);
    Ok(match rows.len() {
        1 => cell(0),
        _ => (0..rows.len()).map(cell).collect(),
    })
}

/// The entry of a sample, if the array has one for each.
fn of_list(list: &SmallArray, input: &Input) -> Result<Value> {
    let values: Vec<Value> = match list {
        SmallArray::Numbers(numbers, dtype) => {
            let entry = entry_of(numbers.len(), input)?;
            let numbers = entry.map_or(&numbers[..], |entry| &numbers[entry..=entry]);
            if numbers.len() > MAX_NUMBERS {
                return Err(too_large(&format!("{} numbers", numbers.len())));
            }
            numbers.iter().map(|value| number(*value, *dtype)).collect()
        }
        SmallArray::Integers(whole) => {
            let entry = entry_of(whole.len(), input)?;
            let whole = entry.map_or(&whole[..], |entry| &whole[entry..=entry]);
            if whole.len() > MAX_NUMBERS {
                return Err(too_large(&format!("{} numbers", whole.len())));
            }
            whole.iter().map(|value| integer(*value)).collect()
        }
        SmallArray::Texts(texts) => {
            let entry = entry_of(texts.len(), input)?;
            let texts = entry.map_or(&texts[..], |entry| &texts[entry..=entry]);
            texts.iter().map(|text| text.as_str().into()).collect()
        }
    };
    Ok(match <[Value; 1]>::try_from(values) {
        Ok([value]) => value,
        Err(values) => values.into(),
    })
}

/// The index of the entry for a sample in an array of `count` entries; `None` if it does not have
/// one for each sample.
fn entry_of(count: usize, input: &Input) -> Result<Option<usize>> {
    let samples = input.number_of_samples()?;
    Ok(input.sample().filter(|index| samples == Some(count) && *index < count))
}

/// An array with two axes, or the row of it that belongs to a sample.
fn plane(file: &Input, dtype: DType, input: &Input) -> Result<Value> {
    let options =
        OpenOptions { variable: file.variable.clone(), mask: true, ..OpenOptions::default() };
    let source = hsipack_source::open(&file.file, &options)?;
    let shape = source.info().shape;
    let entry = entry_of(shape.rows, input)?;
    let rows = entry.map_or(0..shape.rows, |entry| entry..entry + 1);
    let count = rows.len() * shape.columns * shape.bands;
    if count > MAX_NUMBERS {
        return Err(too_large(&format!("{count} numbers")).at(&file.file));
    }
    let mut buffer = RowBuffer::new();
    source.read_rows(rows.clone(), &mut buffer)?;
    let numbers: Vec<Value> = match buffer.dtype() {
        DType::I64 => buffer.as_slice::<i64>().iter().map(|value| integer(*value)).collect(),
        DType::U64 => buffer.as_slice::<u64>().iter().map(|value| integer(*value)).collect(),
        _ => (0..count).map(|at| number(buffer.number(at), dtype)).collect(),
    };
    let lines: Vec<Value> =
        numbers.chunks(shape.columns * shape.bands).map(|line| line.to_vec().into()).collect();
    Ok(match (entry, lines.into_iter().next()) {
        (Some(_), Some(line)) => line,
        _ => numbers
            .chunks(shape.columns * shape.bands)
            .map(|line| Value::from(line.to_vec()))
            .collect(),
    })
}

/// A number of a type as JSON has it; NaN and infinities are null.
fn number(value: f64, dtype: DType) -> Value {
    match dtype {
        DType::Bool => Value::Bool(value != 0.0),
        DType::F16 | DType::F32 => {
            // 0.3 is stored as 0.30000001192092896.
            let shortest = (value as f32).to_string().parse().unwrap_or(value);
            Number::from_f64(shortest).map_or(Value::Null, Value::Number)
        }
        DType::F64 => Number::from_f64(value).map_or(Value::Null, Value::Number),
        _ => Value::from(value as i64),
    }
}

/// An integer of up to 64 bits.
fn integer(value: impl Into<i128>) -> Value {
    Number::from_i128(value.into()).map_or(Value::Null, Value::Number)
}

/// Refuses values that are too large for a column.
fn check_size(value: &Value) -> Result<()> {
    fn count(value: &Value) -> (usize, usize) {
        match value {
            Value::String(text) => (1, text.len()),
            Value::Array(values) => {
                values.iter().map(count).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
            }
            Value::Object(entries) => {
                let sizes = entries.iter().map(|(key, value)| {
                    let (values, bytes) = count(value);
                    (values, bytes + key.len())
                });
                sizes.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
            }
            _ => (1, 0),
        }
    }
    let (values, bytes) = count(value);
    match () {
        () if values > MAX_NUMBERS => Err(too_large(&format!("{values} values"))),
        () if bytes > MAX_TEXT_BYTES => Err(too_large(&format!("{bytes} bytes of text"))),
        () => Ok(()),
    }
}

fn too_large(what: &str) -> Error {
    Error::unsupported(format!("{what} are too large for a column"))
        .with_remedy(format!("a column has up to {MAX_NUMBERS} numbers for each cube"))
}

/// The error for a cube whose file is missing, or lacks the key.
fn absent(name: &str, pattern: &str, input: &Input) -> Error {
    let why = match named_files::find(pattern, input, "the file") {
        Ok(Some(file)) => match &file.variable {
            Some(key) => format!("{} has no {key:?}", file.file.display()),
            None => format!("{} is empty", file.file.display()),
        },
        _ => named_files::absence(pattern, input),
    };
    Error::new(ErrorKind::Io, format!("its column {name:?} is missing: {why}"))
        .at(&input.file)
        .with_remedy(remedy![
            "check ",
            Opt::Column,
            ", or pass ",
            Opt::Unlisted.to("keep"),
            " or ",
            Opt::Unlisted.to("skip")
        ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_have_no_spaces_around_them() {
        for (text, value) in [
            ("12\n", json!("12")),
            ("\u{feff} 1.5e3 ", json!("1.5e3")),
            ("1\n2.5\n\nx", json!(["1", "2.5", "x"])),
            ("", json!(null)),
        ] {
            assert_eq!(of_text(text), value, "{text:?}");
        }
    }

    /// The column `name` of cubes with these files of text.
    fn columns(name: &str, texts: &[&str]) -> Value {
        let folder = tempfile::tempdir().unwrap();
        let inputs = texts.iter().enumerate().map(|(number, text)| {
            std::fs::write(folder.path().join(format!("{number}.txt")), text).unwrap();
            Input::parse(&folder.path().join(format!("{number}.npy")).to_string_lossy())
        });
        let mut inputs: Vec<Input> = inputs.collect();
        let columns = [format!("{name}={{dir}}/{{stem}}.txt").parse().unwrap()];
        let mut files = FileColumns::new(&columns);
        for input in &mut inputs {
            input.columns = files.read(input, Unlisted::Error).unwrap().unwrap();
        }
        files.convert(&mut inputs);
        inputs.iter().map(|input| input.columns[name].clone()).collect()
    }

    #[test]
    fn a_column_of_texts_has_one_type() {
        for (texts, values) in [
            (&["12", "-3"][..], json!([12, -3])),
            (&["1.5e3", "2\n3"], json!([1500.0, [2.0, 3.0]])),
            (&["ripe", "1"], json!(["ripe", "1"])),
            (&["12E4", "12F4"], json!(["12E4", "12F4"])),
            (&["007", "07", "7"], json!(["007", "07", "7"])),
            (&["12,5", "13.5"], json!(["12,5", "13.5"])),
            (&["1e999", "nan"], json!(["1e999", "nan"])),
            (&["12345678901234567890", "1"], json!(["12345678901234567890", "1"])),
        ] {
            assert_eq!(columns("x", texts), values);
        }
        assert_eq!(columns("group", &["7", "8"]), json!(["7", "8"]));
    }

    #[test]
    fn numbers_keep_their_type() {
        assert_eq!(number(0.3f32.into(), DType::F32), json!(0.3));
        assert_eq!(number(7.0, DType::U16), json!(7));
        assert_eq!(number(7.0, DType::F64), json!(7.0));
        assert_eq!(number(1.0, DType::Bool), json!(true));
        assert_eq!(number(f64::NAN, DType::F64), json!(null));
    }

    #[test]
    fn large_values_are_refused() {
        assert!(check_size(&json!([1, [2, "x"]])).is_ok());
        assert!(check_size(&json!(vec![0; MAX_NUMBERS + 1])).is_err());
        assert!(check_size(&json!("x".repeat(MAX_TEXT_BYTES + 1))).is_err());
        assert!(check_size(&json!({"x": vec![vec![0; 100]; 100]})).is_err());
    }
}
