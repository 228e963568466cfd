//! Tables of text: cells between commas, semicolons or tabs.

use hsipack_format::{Error, Result, text};
use serde_json::Number;

use super::json::{Json, MAX_VALUES};
use super::rows::Rows;

/// Reads a table with a header. Of commas, semicolons and tabs, cells are between the one that the
/// header has most often, or that a line `sep=;` before it states.
///
/// If every cell of a column is a whole number, or a number, the column becomes numbers, unless
/// digits of long whole numbers would be lost, which are ids. In tables
/// with semicolons, numbers may have decimal commas. `True` and `False` become booleans, and empty
/// cells null.
///
/// # Errors
/// If it is not a table of text with a header, has a column twice, or has too many cells.
pub(crate) fn read(text: &str) -> Result<Rows> {
    let fail = |error: csv::Error| {
        let line = |position: Option<csv::Position>| {
            position.map_or_else(String::new, |position| format!("line {}: ", position.line()))
        };
        let what = match error.into_kind() {
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => format!(
                "{}the header has {expected_len} columns, but this row has {len}; a comma inside a cell needs quotes around the cell",
                line(pos)
            ),
            other => format!("{other:?}"),
        };
        Error::malformed(format!("not a CSV: {what}"))
            .with_remedy("save it as comma-separated UTF-8 with a header line")
    };
    let (delimiter, text) = text::cells(text);
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.trim(csv::Trim::All).delimiter(delimiter).from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().map_err(fail)?.iter().map(str::to_owned).collect();
    let columns: Vec<(usize, &str)> = header.iter().map(String::as_str).enumerate().collect();
    rows_of(&mut reader, &columns, delimiter).map_err(|error| match error {
        Failure::Csv(error) => fail(error),
        Failure::Table(error) => error,
    })
}

/// The rows of some columns of a table, by number and name, converted as by [`read`].
///
/// # Errors
/// If it is not a table of text in UTF-8, has one of these columns twice, or has too many cells in
/// them.
pub(crate) fn read_columns(
    text: impl std::io::Read,
    columns: &[(usize, &str)],
    delimiter: u8,
) -> Result<Rows> {
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.trim(csv::Trim::All).delimiter(delimiter).from_reader(text);
    rows_of(&mut reader, columns, delimiter).map_err(|error| match error {
        Failure::Csv(error) => Error::malformed(format!("not a CSV: {error}")),
        Failure::Table(error) => error,
    })
}

enum Failure {
    Csv(csv::Error),
    Table(Error),
}

fn rows_of<R: std::io::Read>(
    reader: &mut csv::Reader<R>,
    columns: &[(usize, &str)],
    delimiter: u8,
) -> std::result::Result<Rows, Failure> {
    let mut rows = Rows::new("row", 2);
    let ids = columns.iter().map(|(_, column)| rows.column(column));
    let ids: Vec<u32> = ids.collect::<Result<_>>().map_err(Failure::Table)?;
    let mut record = csv::StringRecord::new();
    let mut values = 0;
    while reader.read_record(&mut record).map_err(Failure::Csv)? {
        values += columns.len();
        if values > MAX_VALUES {
            let error = Error::unsupported(format!("the table has more than {MAX_VALUES} cells"))
                .with_remedy("keep only the columns and rows that are needed");
            return Err(Failure::Table(error));
        }
        let cell = |column: usize| record.get(column).unwrap_or_default();
        let cells = ids.iter().zip(columns).map(|(id, (column, _))| match cell(*column) {
            "" => (*id, Json::Null),
            cell => (*id, Json::Text(cell.into())),
        });
        rows.push(cells.collect()).map_err(Failure::Table)?;
    }
    convert(&mut rows, delimiter == b';');
    Ok(rows)
}

/// Converts the cells of each column to booleans, whole numbers or numbers, if all of them can be
/// converted. 0 and 1 are numbers.
fn convert(rows: &mut Rows, decimal_comma: bool) {
    let any_number = if decimal_comma { number_with_comma } else { number };
    let kinds = [boolean, whole, any_number];
    // The kinds that all cells of a column can be converted to.
    let mut possible: Vec<[bool; 3]> = rows.columns().map(is_converted).map(|is| [is; 3]).collect();
    for (column, cell) in rows.cells() {
        let Json::Text(text) = cell else { continue };
        for (is_possible, to) in possible[*column as usize].iter_mut().zip(kinds) {
            *is_possible = *is_possible && to(text).is_some();
        }
    }
    for (column, cell) in rows.cells_mut() {
        let kind = possible[*column as usize].iter().position(|is_possible| *is_possible);
        if let (Json::Text(text), Some(kind)) = (&*cell, kind) {
            *cell = kinds[kind](text).unwrap_or(Json::Null);
        }
    }
}

/// The most digits of which every whole number is a double-precision number.
const MAX_DIGITS: usize = 15;

/// Whether numbers in a column become numbers.
fn is_converted(column: &str) -> bool {
    !["name", "path", "group", "split"].contains(&column)
}

fn boolean(cell: &str) -> Option<Json> {
    match cell {
        "true" | "True" | "TRUE" => Some(Json::Bool(true)),
        "false" | "False" | "FALSE" => Some(Json::Bool(false)),
        _ => None,
    }
}

/// Whether a cell may be a number: `007` is a name.
fn is_plain(cell: &str) -> bool {
    !(cell.len() > 1 && cell.starts_with('0') && !cell.starts_with("0."))
}

fn whole(cell: &str) -> Option<Json> {
    let value: i64 = cell.parse().ok().filter(|_| is_plain(cell))?;
    Some(Json::Number(value.into()))
}

fn number_with_comma(cell: &str) -> Option<Json> {
    number(&cell.replacen(',', ".", 1))
}

fn number(cell: &str) -> Option<Json> {
    let value: f64 = cell.parse().ok().filter(|_| is_plain(cell))?;
    // Other long ids would become the same number.
    let digits = cell.trim_start_matches(['+', '-']);
    let is_long = digits.len() > MAX_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_long && format!("{:.0}", value.abs()) != digits {
        return None;
    }
    Number::from_f64(value).map(Json::Number)
}
