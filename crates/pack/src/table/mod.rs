//! The user's tables: columns for samples by name (`--table`), and CSV lists of inputs.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use hsipack_format::samples::RESERVED_KEYS;
use hsipack_format::{Error, Opt, Remedy, Result, remedy};
use hsipack_store::remote::is_url;
use hsipack_store::small;
use serde_json::{Map, Value};

use crate::input::Input;
use crate::pattern;

/// A table is held in memory. Tables of millions of samples are smaller than this.
const LARGEST: u64 = 256 << 20;

/// The rows of a CSV, keyed by one of its columns.
#[derive(Debug, Default)]
pub struct Table {
    rows: HashMap<String, Map<String, Value>>,
    columns: Vec<String>,
}

impl Table {
    /// Reads a CSV whose column `key` identifies the samples. If every cell of a column is a whole number, or a number, the column becomes
    /// numbers. `True` and `False` become booleans, and empty cells null.
    ///
    /// # Errors
    /// If the file is not a CSV with a header, lacks the column, or names a sample twice.
    pub fn read(path: &Path, key: &str) -> Result<Self> {
        let advice = remedy![
            format!("add a column `{key}`, or name another one that identifies the samples with "),
            Opt::TableKey
        ];
        let rows = read_rows(path, key, advice)?;
        let mut table = Self::default();
        for (mut cells, row) in rows.into_iter().zip(2..) {
            let Some(name) = cells.get(key).and_then(pattern::text_of) else {
                return Err(Error::malformed(format!(
                    "row {row} of the table has no {key}; the header is row 1"
                ))
                .at(path)
                .with_remedy(format!("give the {key} of the sample, or leave out the row")));
            };
            if key == "name" {
                cells.remove("name");
            }
            if table.columns.is_empty() {
                table.columns = cells.keys().cloned().collect();
            }
            check_columns(&cells).map_err(|error| error.at(path))?;
            if table.rows.insert(name.clone(), cells).is_some() {
                return Err(Error::conflict(format!("the table names {name} twice"))
                    .at(path)
                    .with_remedy("keep one of these rows"));
            }
        }
        Ok(table)
    }

    /// Names of its columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }

    /// Removes the row of sample `name` and returns it.
    pub fn take(&mut self, name: &str) -> Option<Map<String, Value>> {
        self.rows.remove(name)
    }

    /// Names of the rows that were not taken, sorted.
    pub fn remaining(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}

/// Reads a list of inputs: a CSV with a `path` column. Relative paths are relative to the CSV's folder. The other
/// columns become columns of the samples; `name` becomes the name of the sample.
///
/// # Errors
/// If the file is not a CSV with a header, or lacks the column.
pub fn read_list(path: &Path) -> Result<Vec<Input>> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let advice = remedy!["add a column `path`; to add columns to cubes, use ", Opt::Table];
    let rows = read_rows(path, "path", advice)?.into_iter().zip(2..);
    let inputs = rows.map(|(mut cells, row)| {
        let Some(Value::String(file)) = cells.remove("path") else {
            return Err(Error::malformed(format!(
                "row {row} of the list has no path; the header is row 1"
            ))
            .at(path)
            .with_remedy("give the path of the cube, or leave out the row"));
        };
        let place = if is_url(Path::new(&file)) { file.into() } else { folder.join(file) };
        let mut input = Input::parse(&place.to_string_lossy());
        let name = cells.get("name").cloned();
        cells.remove("name");
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

/// Refuses columns that have the name of a field that hsipack writes to samples.jsonl.
pub fn check_columns(row: &Map<String, Value>) -> Result<()> {
    match row.keys().find(|column| RESERVED_KEYS.contains(&column.as_str())) {
        Some(column) => Err(Error::conflict(format!(
            "the column {column:?} has a name that hsipack uses itself"
        ))
        .with_remedy("rename it")),
        None => Ok(()),
    }
}

/// The rows of a CSV that must have the column `needed`; otherwise `advice` is given.
fn read_rows(path: &Path, needed: &str, advice: Remedy) -> Result<Vec<Map<String, Value>>> {
    let fail = |error: csv::Error| {
        let line = |position: Option<csv::Position>| {
            position.map_or_else(String::new, |position| format!("line {}: ", position.line()))
        };
        let what = match error.into_kind() {
            csv::ErrorKind::Io(error) => return Error::io(path, "cannot read", error),
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => format!(
                "{}the header has {expected_len} columns, but this row has {len}; a comma inside a cell needs quotes around the cell",
                line(pos)
            ),
            csv::ErrorKind::Utf8 { pos, .. } => format!("{}the text is not UTF-8", line(pos)),
            other => format!("{other:?}"),
        };
        Error::malformed(format!("not a CSV: {what}"))
            .at(path)
            .with_remedy("save it as comma-separated UTF-8 with a header line")
    };
    let (file, size) = small::open(path)?;
    if size > LARGEST {
        return Err(Error::unsupported(format!("the table is larger than {} MiB", LARGEST >> 20))
            .at(path)
            .with_remedy("keep only the columns and rows that are needed"));
    }
    // The file may grow while it is read.
    let text = file.take(LARGEST);
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text);
    // Spreadsheet programs write a byte order mark before the first column's name.
    let header: Vec<String> = reader
        .headers()
        .map_err(fail)?
        .iter()
        .map(|column| column.trim_start_matches('\u{feff}').to_owned())
        .collect();
    let named = header.iter().filter(|column| *column == needed).count();
    if named != 1 {
        let columns: Vec<String> = header.iter().map(|column| format!("{column:?}")).collect();
        let found = columns.join(", ");
        let (what, advice) = match header.as_slice() {
            _ if named > 1 => {
                (format!("{named} columns are called `{needed}`"), remedy!["keep one of them"])
            }
            [only] if only.contains([';', '\t']) => (
                format!(
                    "the header has one column, {found}, so its cells are not separated by commas"
                ),
                remedy!["save it as comma-separated UTF-8 with a header line"],
            ),
            _ => (format!("it has no column `{needed}`, only {found}"), advice),
        };
        return Err(Error::malformed(what).at(path).with_remedy(advice));
    }
    let records = reader.records().collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let types: Vec<fn(&str) -> Value> = (0..header.len())
        .map(|column| {
            column_type(&header[column], records.iter().filter_map(|record| record.get(column)))
        })
        .collect();
    let rows = records.iter().map(|record| {
        let cells = header.iter().zip(record).zip(&types);
        // Samples have their own fields for these columns, so empty cells are skipped.
        let kept = cells.filter(|((column, cell), _)| !cell.is_empty() || !is_own(column));
        let value = |convert: fn(&str) -> Value, cell: &str| match cell {
            "" => Value::Null,
            cell => convert(cell),
        };
        kept.map(|((column, cell), convert)| (column.clone(), value(*convert, cell))).collect()
    });
    Ok(rows.collect())
}

/// Whether every sample has a field for this column.
fn is_own(column: &str) -> bool {
    ["name", "path", "group", "split", "label"].contains(&column)
}

/// The function that converts a column's cells: to whole numbers, numbers or booleans (`True`, `false`) if all cells
/// can be converted. Names, paths, groups and splits always stay text. 0 and 1 are numbers.
fn column_type<'a>(column: &str, cells: impl Iterator<Item = &'a str>) -> fn(&str) -> Value {
    let cells: Vec<&str> = cells.filter(|cell| !cell.is_empty()).collect();
    let text = |cell: &str| Value::from(cell);
    if ["name", "path", "group", "split"].contains(&column) {
        return text;
    }
    // `007` is a name, not a number.
    let plain = |cell: &&str| !(cell.len() > 1 && cell.starts_with('0') && !cell.starts_with("0."));
    if !cells.is_empty() && cells.iter().all(|cell| boolean(cell).is_some()) {
        return |cell| boolean(cell).map_or(Value::Null, Value::from);
    }
    if cells.iter().all(|cell| plain(cell) && cell.parse::<i64>().is_ok()) {
        |cell| cell.parse::<i64>().map_or(Value::Null, Value::from)
    } else if cells.iter().all(|cell| plain(cell) && cell.parse::<f64>().is_ok_and(f64::is_finite))
    {
        |cell| cell.parse::<f64>().map_or(Value::Null, Value::from)
    } else {
        text
    }
}

fn boolean(cell: &str) -> Option<bool> {
    match cell {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
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
        let row = Value::Object(table.take("a").unwrap());
        assert_eq!(row, serde_json::json!({"label": 3, "age": 1.5, "group": "7", "code": "007"}));
        assert_eq!(table.remaining(), ["b,c"]);
        let row = Value::Object(table.take("b,c").unwrap());
        assert_eq!(row, serde_json::json!({"label": 4, "age": 2.0, "group": "8", "code": null}));
    }

    #[test]
    fn truth_is_boolean_and_zero_and_one_are_numbers() {
        let text = "name,a,b,c,d,e\nx,True,true,0,True,\ny,False,,1,maybe,\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let row = |table: &mut Table, name| Value::Object(table.take(name).unwrap());
        let x = serde_json::json!({"a": true, "b": true, "c": 0, "d": "True", "e": null});
        assert_eq!(row(&mut table, "x"), x);
        let y = serde_json::json!({"a": false, "b": null, "c": 1, "d": "maybe", "e": null});
        assert_eq!(row(&mut table, "y"), y);
    }

    #[test]
    fn what_every_sample_has_is_left_out_where_it_is_missing() {
        let text = "name,label,group,split,age\na,,,,\nb,1,g,train,3\n";
        let mut table = Table::read(write(text).path(), "name").unwrap();
        let row = Value::Object(table.take("a").unwrap());
        assert_eq!(row, serde_json::json!({"age": null}));
    }

    #[test]
    fn a_table_needs_names_once_and_no_reserved_columns() {
        for (text, problem) in
            [("label\n1\n", "`name`"), ("name\na\na\n", "twice"), ("name,stack\na,b\n", "stack")]
        {
            let error = Table::read(write(text).path(), "name").unwrap_err();
            assert!(error.to_string().contains(problem), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_table_is_told_in_words() {
        for (text, told) in [
            ("name,x\na\n", "line 2: the header has 2 columns, but this row has 1"),
            (
                "name;x\na;1\n",
                "the header has one column, \"name;x\", so its cells are not separated by commas",
            ),
            ("Name,x\na,1\n", "it has no column `name`, only \"Name\", \"x\""),
            ("name,x,name\na,1,b\n", "2 columns are called `name`"),
            ("name,x\n,1\n", "row 2 of the table has no name"),
        ] {
            let error = Table::read(write(text).path(), "name").unwrap_err().to_string();
            assert!(error.contains(told) && !error.contains('{'), "{error}");
        }
        let latin = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(latin.path(), b"name,x\na,m\xfcll\n").unwrap();
        let error = Table::read(latin.path(), "name").unwrap_err().to_string();
        assert!(error.contains("line 2: the text is not UTF-8"), "{error}");
    }
}
