//! The user's tables: columns for samples by name (`--table`), lists of names (`--split`), and CSV
//! lists of inputs.
//!
//! | file | part |
//! |---|---|
//! | `rows.rs` | rows with columns, whatever the format; joining two tables |
//! | `csv.rs`, `json.rs`, `parquet.rs` | the formats |
//! | `records.rs` | the rows in JSON |
//! | `lists.rs` | names of samples for each split |
//! | `tables.rs` | several tables of the same samples |
//! | `options.rs` | options of all commands that take tables and lists |
//!
//! Tables are held in memory. Files may have up to 256 MiB, and tables up to 16 million cells, so
//! that a damaged or hostile file cannot exhaust it. Nothing recurses deeper than 128 levels.

mod csv;
pub(crate) mod json;
mod lists;
mod options;
#[cfg(feature = "parquet")]
mod parquet;
mod records;
mod rows;
mod tables;
#[cfg(not(feature = "parquet"))]
pub(crate) mod without_parquet;

use std::collections::HashMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use hsipack_format::samples::RESERVED_KEYS;
use hsipack_format::{Error, Opt, Result, remedy, text};
use hsipack_source::SpectraTable;
use hsipack_store::bounded_read;
use hsipack_store::remote::is_url;
use serde_json::{Map, Value};

pub use self::lists::{NameList, SplitList, read as read_lists};
pub use self::options::TableOptions;
pub use self::tables::{Member, Tables};

pub(crate) use self::csv::{Conversion, number_of};
pub(crate) use self::json::Json;
pub(crate) use self::rows::Rows;
#[cfg(not(feature = "parquet"))]
use self::without_parquet as parquet;
use crate::convert::Assignment;
use crate::input::Input;

/// A table is held in memory. Tables of millions of samples are smaller than this.
const LARGEST: u64 = 256 << 20;
/// The bytes at the start of every Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// The rows of a table, of which one column identifies samples.
#[derive(Debug)]
pub struct Table {
    rows: Rows,
    key: String,
    by_text: HashMap<String, usize>,
    is_used: Vec<bool>,
}

impl Table {
    /// Reads the table `FILE` or `FILE::KEY`: CSV, TSV, JSON, JSON lines or Parquet. KEY names a
    /// part of a JSON file. The column `key` identifies samples.
    ///
    /// # Errors
    /// If the file is not a table, the column does not exist, or two rows have the same text in it.
    pub fn read(table: &Path, key: &str) -> Result<Self> {
        let file = File::open(table)?;
        Self::new(file.rows(key)?, key).map_err(|error| error.at(&file.path))
    }

    /// The table in a text of JSON, as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_json(text: &[u8], key: &str) -> Result<Self> {
        Self::new(records::rows(&json::parse(text)?, key)?, key)
    }

    fn new(rows: Rows, key: &str) -> Result<Self> {
        if rows.id(key).is_none() {
            return Err(no_key(&rows, key));
        }
        let by_text = rows.by_text(key)?;
        Ok(Self { key: key.to_owned(), by_text, is_used: vec![false; rows.len()], rows })
    }

    /// The column that identifies samples.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Names of its columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.rows.columns()
    }

    /// The row of a sample, without the column `name`; `None` if there is no such row. Several
    /// samples may have the same row.
    pub fn row(&mut self, key: &str) -> Option<Map<String, Value>> {
        let row = *self.by_text.get(key)?;
        self.is_used[row] = true;
        let mut cells = self.rows.map(row);
        if self.key == "name" {
            // The last column takes its place, as always: the order of columns is part of a dataset.
            cells.swap_remove("name");
        }
        Some(cells)
    }

    /// Like [`row`](Self::row), with null for every empty cell.
    pub fn row_with_nulls(&mut self, key: &str) -> Option<Map<String, Value>> {
        let row = *self.by_text.get(key)?;
        self.is_used[row] = true;
        let mut cells = self.rows.map_with_nulls(row);
        if self.key == "name" {
            cells.shift_remove("name");
        }
        Some(cells)
    }

    /// Whether a row was used.
    pub fn is_used(&self) -> bool {
        self.is_used.contains(&true)
    }

    /// Keys of the rows that were not used, sorted.
    pub fn remaining(&self) -> Vec<&str> {
        let unused = self.by_text.iter().filter(|(_, row)| !self.is_used[**row]);
        let mut names: Vec<&str> = unused.map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// The error for a table without the column that identifies samples.
fn no_key(rows: &Rows, key: &str) -> Error {
    rows.no_column(key).with_remedy(remedy![
        format!("add a column `{key}`, or name the one that identifies the samples with "),
        Opt::TableKey
    ])
}

/// The rows of another table that a join adds.
struct Joined {
    rows: Rows,
    /// The table, for columns that both have.
    title: String,
    /// The column whose values are looked up.
    column: String,
}

/// A file of a table.
struct File {
    path: PathBuf,
    /// The key of the part that is the table.
    part: Option<String>,
    content: Content,
}

enum Content {
    Json(Json),
    Parquet(Vec<u8>),
    Text(String),
}

impl File {
    fn open(table: &Path) -> Result<Self> {
        let Input { file: path, variable: part, .. } = Input::parse(&table.to_string_lossy());
        let bytes = bytes(&path)?;
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let first = bytes.trim_ascii_start().first();
        let content = match ending.as_str() {
            "jsonl" | "ndjson" => Content::Json(at(&path, json::parse_lines(&bytes))?),
            _ if bytes.starts_with(PARQUET) => Content::Parquet(bytes),
            "json" => Content::Json(at(&path, json::parse(&bytes))?),
            "csv" | "tsv" | "txt" | "tab" => Content::Text(at(&path, text::decode(bytes))?),
            _ if first.is_some_and(|first| b"[{".contains(first)) => {
                Content::Json(at(&path, json::parse(&bytes))?)
            }
            _ => Content::Text(at(&path, text::decode(bytes))?),
        };
        if let (Some(part), false) = (&part, matches!(content, Content::Json(_))) {
            return Err(Error::conflict(format!("only JSON files have parts, such as '{part}'"))
                .at(path)
                .with_remedy(format!("leave '::{part}' out")));
        }
        Ok(Self { path, part, content })
    }

    /// The rows of the table. Samples are identified by `identifier`.
    fn rows(&self, identifier: &str) -> Result<Rows> {
        match &self.content {
            Content::Json(json) => {
                let part = match &self.part {
                    None => records::only_records(json).unwrap_or(json),
                    Some(part) => json.at(part).ok_or_else(|| {
                        Error::not_found(format!(
                            "there is no key '{part}'; it has {}",
                            json.keys()
                        ))
                        .at(&self.path)
                        .with_remedy("give one of them after '::'")
                    })?,
                };
                let several = records::record_keys(json);
                if self.part.is_none() && several.len() > 1 {
                    let choices =
                        several.iter().map(|key| format!("{}::{key}", self.path.display()));
                    return Err(Error::ambiguous("the file holds several tables")
                        .with_choices(choices.take(20).collect())
                        .at(&self.path)
                        .with_remedy("name one of them"));
                }
                at(&self.path, records::rows(part, identifier))
            }
            Content::Parquet(bytes) => at(&self.path, parquet::read(bytes.clone())),
            Content::Text(text) => at(&self.path, csv::read(text)),
        }
    }

    /// The rows of the other table of a join, `OTHER.COLUMN=COLUMN`: OTHER is a key of the same
    /// JSON file, or another file; `None` if there is no such table.
    fn joined(&self, join: &Assignment, identifier: &str) -> Result<Option<Joined>> {
        let name = &join.name;
        let dots: Vec<usize> = name.match_indices('.').map(|(dot, _)| dot).collect();
        for dot in dots.iter().rev() {
            let (other, column) = (&name[..*dot], name[dot + 1..].to_owned());
            let part = match &self.content {
                Content::Json(json) => json.at(other).filter(|part| !part.is_single()),
                _ => None,
            };
            if let Some(part) = part {
                let rows = at(&self.path, records::rows(part, identifier))?;
                return Ok(Some(Joined { rows, title: other.to_owned(), column }));
            }
            let in_same_folder = self.path.with_file_name(other);
            let paths = [Path::new(other), &in_same_folder];
            let is_file = |path: &&&Path| Input::parse(&path.to_string_lossy()).file.is_file();
            if let Some(path) = paths.iter().find(is_file) {
                let file = File::open(path)?;
                let title = file.path.file_stem().unwrap_or_default().to_string_lossy();
                let rows = file.rows(identifier)?;
                return Ok(Some(Joined { rows, title: title.into_owned(), column }));
            }
        }
        Ok(None)
    }

    /// Adds the rows of another table to those of this file. Samples are identified by
    /// `identifier`. Returns a note if a row has none.
    fn join(
        &self,
        rows: &mut Rows,
        join: &Assignment,
        other: &Joined,
        identifier: &str,
    ) -> Result<Option<String>> {
        let columns = [other.column.as_str(), join.value.as_str()];
        let added = rows.join(&other.rows, &other.title, columns, identifier == "name");
        let missing = at(&self.path, added).map_err(|error| error.within(join))?;
        Ok(missing.map(|(count, text)| {
            let (rows, have) = if count == 1 { ("row", "has") } else { ("rows", "have") };
            format!(
                "{}: {count} {rows} {have} no row of {} to join, such as that with {} {text}",
                self.path.display(),
                other.title,
                join.value
            )
        }))
    }
}

fn at<T>(path: &Path, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.at(path))
}

/// The bytes of a table's file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>> {
    if !is_url(path) && bounded_read::open(path)?.1 > LARGEST {
        return Err(Error::unsupported(format!("the table is larger than {} MiB", LARGEST >> 20))
            .at(path)
            .with_remedy("keep only the columns and rows that are needed"));
    }
    bounded_read::read(path, LARGEST)
}

/// Reads a JSON file of any structure.
///
/// # Errors
/// If it cannot be read, is no JSON, or is too large.
pub(crate) fn read_json(path: &Path) -> Result<Json> {
    json::parse(&bytes(path)?).map_err(|error| error.at(path))
}

/// Reads a table of text.
///
/// # Errors
/// If it cannot be read, is no table, or is too large.
pub(crate) fn read_cells(path: &Path) -> Result<Rows> {
    at(path, text::decode(bytes(path)?).and_then(|text| csv::read(&text)))
}

/// As [`read_cells`], but all cells are texts or null. Also returns whether numbers may have
/// decimal commas.
///
/// # Errors
/// As [`read_cells`].
pub(crate) fn read_texts(path: &Path) -> Result<(Rows, bool)> {
    at(path, text::decode(bytes(path)?).and_then(|text| csv::read_texts(&text)))
}

/// Reads a list of inputs: a CSV with a `path` column. Relative paths are relative to the CSV's
/// folder. The other columns become columns of the samples; `name` becomes the name of the sample.
///
/// # Errors
/// If the file is not a CSV with a header, or lacks the column.
pub fn read_list(path: &Path) -> Result<Vec<Input>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let rows = read_cells(path)?;
    if rows.id("path").is_none() {
        let advice = remedy!["add a column `path`; to add columns to cubes, use ", Opt::Table];
        return Err(rows.no_column("path").at(path).with_remedy(advice));
    }
    let inputs = (0..rows.len()).map(|row| {
        let mut cells = rows.map(row);
        let Some(Value::String(file)) = cells.swap_remove("path") else {
            return Err(Error::malformed(format!(
                "{} of the list has no path; the header is row 1",
                rows.place(row)
            ))
            .at(path)
            .with_remedy("give the path of the cube, or leave out the row"));
        };
        let cube_path = if is_url(Path::new(&file)) { file.into() } else { folder.join(file) };
        let mut input = Input::parse(&cube_path.to_string_lossy());
        let name = cells.swap_remove("name");
        check_columns(&cells).map_err(|error| error.at(path))?;
        cells.extend(name.map(|name| ("name".to_owned(), name)));
        input.columns = cells;
        Ok(input)
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    if inputs.is_empty() {
        return Err(Error::conflict("the list has no rows")
            .at(path)
            .with_remedy("add one row for each cube"));
    }
    Ok(inputs)
}

/// The spectra of a table, which become cubes of one pixel. The columns that are not bands become
/// columns of the samples; `name` becomes the name of the sample.
///
/// # Errors
/// If the table cannot be read, or is empty.
pub(crate) fn spectra(table: &SpectraTable, path: &Path) -> Result<Vec<Input>> {
    let names = table.names().iter().map(String::as_str).enumerate();
    let columns: Vec<(usize, &str)> =
        names.filter(|(column, name)| !table.is_band(*column) && !name.is_empty()).collect();
    let text = BufReader::new(bounded_read::window(path)?);
    let rows = at(path, csv::read_columns(text, &columns, table.delimiter()))?;
    if rows.len() == 0 {
        return Err(Error::conflict("the table has no spectra")
            .at(path)
            .with_remedy("add one row for each spectrum"));
    }
    let input = |row: usize| {
        let mut columns = rows.map(row);
        let name = columns.shift_remove("name").map(|name| ("name".to_owned(), name));
        columns.extend(name);
        Input { variable: Some(format!("[{row}]")), columns, ..Input::of(path) }
    };
    Ok((0..rows.len()).map(input).collect())
}

/// Refuses columns that have the name of a field that hsipack writes to samples.jsonl.
pub fn check_columns(row: &Map<String, Value>) -> Result<()> {
    match row.keys().find(|column| is_reserved(column)) {
        Some(column) => Err(Error::conflict(format!(
            "the column {column:?} has a name that hsipack uses itself"
        ))
        .with_remedy("rename it")),
        None => Ok(()),
    }
}

/// Whether hsipack itself writes a field of this name to samples.jsonl.
pub(crate) fn is_reserved(column: &str) -> bool {
    RESERVED_KEYS.contains(&column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn columns_keep_their_type() {
        let file = write("\u{feff}name,label,age,group,code\na, 3 ,1.5,7,007\n\"b,c\",4,2,8,\n");
        let mut table = Table::read(file.path(), "name").unwrap();
        let row = Value::Object(table.row("a").unwrap());
        assert_eq!(row, serde_json::json!({"label": 3, "age": 1.5, "group": "7", "code": "007"}));
        assert_eq!(table.remaining(), ["b,c"]);
        let row = Value::Object(table.row("b,c").unwrap());
        assert_eq!(row, serde_json::json!({"label": 4, "age": 2.0, "group": "8", "code": null}));
    }

    #[test]
    fn missing_numbers_are_null() {
        let text = "name,a,b\nx,1.5,NA\ny,NA,ripe\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let y = Value::Object(table.row("y").unwrap());
        assert_eq!(y, serde_json::json!({"a": null, "b": "ripe"}));
        let x = Value::Object(table.row("x").unwrap());
        assert_eq!(x, serde_json::json!({"a": 1.5, "b": "NA"}));
    }

    #[test]
    fn a_column_has_decimal_commas_or_points() {
        let text = "name;a;b;c\nx;1,5;1,5;1.5\ny;3;1.234;2\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let x = Value::Object(table.row("x").unwrap());
        assert_eq!(x, serde_json::json!({"a": 1.5, "b": "1,5", "c": 1.5}));
        let y = Value::Object(table.row("y").unwrap());
        assert_eq!(y, serde_json::json!({"a": 3.0, "b": "1.234", "c": 2.0}));
    }

    #[test]
    fn truth_is_boolean_and_zero_and_one_are_numbers() {
        let text = "name,a,b,c,d,e\nx,True,true,0,True,\ny,False,,1,maybe,\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let row = |table: &mut Table, name| Value::Object(table.row(name).unwrap());
        let x = serde_json::json!({"a": true, "b": true, "c": 0, "d": "True", "e": null});
        assert_eq!(row(&mut table, "x"), x);
        let y = serde_json::json!({"a": false, "b": null, "c": 1, "d": "maybe", "e": null});
        assert_eq!(row(&mut table, "y"), y);
    }

    #[test]
    fn columns_are_left_out_of_samples_without_a_value() {
        let text = "name,label,group,split,age\na,,,,\nb,1,g,train,3\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let row = Value::Object(table.row("a").unwrap());
        assert_eq!(row, serde_json::json!({"age": null}));
    }

    #[test]
    fn a_table_needs_names_once() {
        for (text, problem) in [("label\n1\n", "`name`"), ("name\na\na\n", "twice")] {
            let error = Table::read(write(text).path(), "name").unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    /// The rows of a table in a file with this ending.
    fn rows(ending: &str, text: &str, part: &str, joins: &[&str]) -> Result<Vec<Value>> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(format!("table.{ending}"));
        std::fs::write(&file, text).unwrap();
        std::fs::write(folder.path().join("more.csv"), "id,age\n1,30\n2,40\n").unwrap();
        let table_join = joins.iter().map(|join| join.parse().unwrap()).collect();
        let options = TableOptions { table_join, ..TableOptions::default() };
        let path = PathBuf::from(format!("{}{part}", file.display()));
        let mut tables = Tables::read(&[path], &options)?;
        let table = &mut tables.get_mut(0).table;
        Ok(["a", "b"].iter().flat_map(|name| table.row(name)).map(Value::Object).collect())
    }

    #[test]
    fn every_format_gives_the_same_rows() {
        let wanted = [
            serde_json::json!({"label": 1.5, "of.day": "d1"}),
            serde_json::json!({"label": 2.0, "of.day": null}),
        ];
        let object = r#"[{"name": "a", "label": 1.5, "of": {"day": "d1"}}, {"name": "b", "label": 2.0, "of": {"day": null}}]"#;
        let lines = object[1..object.len() - 1].replace("}, {\"name", "}\n{\"name");
        for (ending, text) in [
            ("csv", "name,label,of.day\na,1.5,d1\nb,2.0,\n"),
            ("csv", "name;label;of.day\na;1,5;d1\nb;2,0;\n"),
            ("tsv", "name\tlabel\tof.day\na\t1.5\td1\nb\t2.0\t\n"),
            ("json", object),
            ("jsonl", &lines),
            ("data", object),
        ] {
            assert_eq!(rows(ending, text, "", &[]).unwrap(), wanted, "{ending} {text}");
        }
    }

    #[test]
    fn parts_of_json_are_tables_and_are_joined() {
        let text = r#"{"info": {}, "records": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
            "notes": {"by": [{"of": 2, "ripe": true}]}}"#;
        let joins = ["notes.by.of=id", "more.csv.id=id"];
        let wanted = [
            serde_json::json!({"id": 1, "more.id": 1, "age": 30}),
            serde_json::json!({"id": 2, "of": 2, "ripe": true, "more.id": 2, "age": 40}),
        ];
        assert_eq!(rows("json", text, "::records", &joins).unwrap(), wanted);
        // It is the only list of objects.
        assert_eq!(rows("json", text, "", &joins).unwrap(), wanted);
        for (part, joins, problem) in [
            (
                "::nothing",
                &[][..],
                "there is no key 'nothing'; it has the keys info, records, notes",
            ),
            ("::records", &["notes.nothing.of=id"], "it has no column `nothing.of`"),
            ("::records", &["other.of=id"], "there is no table before the last dot"),
            ("::records", &["notes.by.of=no"], "it has no column `no`"),
        ] {
            let error = rows("json", text, part, joins).unwrap_err().to_string();
            assert!(error.contains(problem), "{error}");
        }
        let two = r#"{"a": [{"name": "x"}], "b": [{"name": "y"}]}"#;
        let error = rows("json", two, "", &[]).unwrap_err().to_string();
        assert!(error.contains("table.json::a"), "{error}");
        let error = rows("csv", "name\na\n", "::part", &[]).unwrap_err().to_string();
        assert!(error.contains("only JSON files have parts"), "{error}");
    }

    #[test]
    fn malformed_tables_are_refused_with_their_file() {
        let deep = "[".repeat(1_000_000);
        let long = format!("name,x\n{}", "a,b\n".repeat(3));
        for (ending, text) in [
            ("json", deep.as_str()),
            ("json", "{\"name\": [1, 2"),
            ("json", "[[]]"),
            ("jsonl", "{\"name\": \"a\"}\n{\"name\""),
            ("jsonl", "3"),
            ("parquet", "PAR1"),
            ("parquet", "PAR1\0\0\0\0\u{7f}\u{7f}\u{7f}\u{7f}PAR1"),
            ("csv", &long),
            ("csv", ""),
        ] {
            let error = rows(ending, text, "", &[]).unwrap_err();
            assert!(error.path().is_some() && error.remedy().is_some(), "{ending}: {error}");
            assert_ne!(error.kind(), hsipack_format::ErrorKind::Bug, "{error}");
        }
    }

    #[test]
    fn errors_of_tables_are_in_words() {
        for (text, expected) in [
            ("name,x\na\n", "line 2: the header has 2 columns, but this row has 1"),
            ("Name,x\na,1\n", "it has no column `name`, only \"Name\", \"x\""),
            ("name,x,name\na,1,b\n", "2 columns are called `name`"),
            ("name,x, x \na,1,2\n", "2 columns are called `x`"),
            ("name;x;x\na;1;1\n", "2 columns are called `x`"),
            ("name,x\n,1\n", "row 2 of the table has no name"),
        ] {
            let error = Table::read(write(text).path(), "name").unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('{'), "{error}");
        }
        let latin = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(latin.path(), b"name,x\na,m\xfcll\n").unwrap();
        let error = Table::read(latin.path(), "name").unwrap_err().to_string();
        assert!(error.contains("line 2: the text is not UTF-8"), "{error}");
    }
}
