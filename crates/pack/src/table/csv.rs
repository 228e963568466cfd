//! Tables of text: cells between commas, semicolons or tabs.

use hsipack_format::{Error, Result, text};
use hsipack_source::SpectraTable;
use serde_json::Number;

use super::json::{Json, MAX_VALUES};
use super::rows::Rows;

/// Reads a table with a header. Of commas, semicolons and tabs, cells are between the one that the
/// header has most often, or that a line `sep=;` before it states.
///
/// Cells are converted as by [`Conversion`], and empty cells become null. In tables with
/// semicolons, numbers may have decimal commas.
///
/// # Errors
/// If it is not a table of text with a header, has a column twice, or has too many cells.
pub(crate) fn read(text: &str) -> Result<Rows> {
    let (mut rows, decimal_comma) = read_texts(text)?;
    convert(&mut rows, decimal_comma);
    Ok(rows)
}

/// As [`read`], but all cells are texts or null. Also returns whether numbers may have decimal
/// commas.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_texts(text: &str) -> Result<(Rows, bool)> {
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
    let (delimiter, text) = text::separator(text);
    let mut builder = csv::ReaderBuilder::new();
    let mut reader = builder.trim(csv::Trim::All).delimiter(delimiter).from_reader(text.as_bytes());
    let header: Vec<String> = reader.headers().map_err(fail)?.iter().map(str::to_owned).collect();
    let columns: Vec<(usize, &str)> = header.iter().map(String::as_str).enumerate().collect();
    let rows = rows_of(&mut reader, &columns).map_err(|error| match error {
        Failure::Csv(error) => fail(error),
        Failure::Table(error) => error,
    })?;
    Ok((rows, delimiter == b';'))
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
    let mut rows = rows_of(&mut reader, columns).map_err(|error| match error {
        Failure::Csv(error) => Error::malformed(format!("not a CSV: {error}")),
        Failure::Table(error) => error,
    })?;
    convert(&mut rows, delimiter == b';');
    Ok(rows)
}

enum Failure {
    Csv(csv::Error),
    Table(Error),
}

fn rows_of<R: std::io::Read>(
    reader: &mut csv::Reader<R>,
    columns: &[(usize, &str)],
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
    Ok(rows)
}

/// Converts the cells of each column.
fn convert(rows: &mut Rows, decimal_comma: bool) {
    let conversion = |column: &str| Conversion::of_column(column, decimal_comma);
    let mut columns: Vec<Conversion> = rows.columns().map(conversion).collect();
    for (column, cell) in rows.cells() {
        if let Json::Text(text) = cell {
            columns[*column as usize].add(text);
        }
    }
    for (column, cell) in rows.cells_mut() {
        if let Json::Text(text) = &*cell
            && let Some(value) = columns[*column as usize].of(text)
        {
            *cell = value;
        }
    }
}

/// Converts the texts of a column to booleans, whole numbers or numbers, if all of them can be
/// converted. 0 and 1 are numbers, and `NA` between numbers is null. Long whole numbers that would
/// lose digits are ids, and stay texts. Names, paths, groups and splits stay texts.
#[derive(Clone, Debug)]
pub(crate) struct Conversion {
    /// Kinds that all texts so far can be converted to, except `NA`.
    possible: [bool; KINDS.len()],
    /// Whether there are such texts.
    is_any: bool,
}

type Kind = fn(&str) -> Option<Json>;
const KINDS: [Kind; 4] = [boolean, whole, number, number_with_comma];

impl Conversion {
    /// That of a column without texts.
    pub fn of_column(column: &str, decimal_comma: bool) -> Self {
        let is_converted = !["name", "path", "group", "split"].contains(&column);
        let possible = [is_converted, is_converted, is_converted, is_converted && decimal_comma];
        Self { possible, is_any: false }
    }

    /// Notes a text of the column.
    pub fn add(&mut self, text: &str) {
        if SpectraTable::MISSING.contains(&text) {
            return;
        }
        self.is_any = true;
        for (is_possible, kind) in self.possible.iter_mut().zip(KINDS) {
            *is_possible = *is_possible && kind(text).is_some();
        }
    }

    /// The value of a text of the column; `None` if it stays a text.
    pub fn of(&self, text: &str) -> Option<Json> {
        let kind = self.possible.iter().position(|is_possible| *is_possible && self.is_any)?;
        match SpectraTable::MISSING.contains(&text) {
            true => Some(Json::Null),
            false => KINDS[kind](text),
        }
    }
}

/// The most digits of which every whole number is a double-precision number.
const MAX_DIGITS: usize = 15;

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

/// The number that a text is.
pub(crate) fn number_of(text: &str) -> Option<Json> {
    whole(text).or_else(|| number(text))
}

/// A number with a decimal comma. A column that also has points is none: they may be between
/// thousands.
fn number_with_comma(cell: &str) -> Option<Json> {
    number(&cell.replacen(',', ".", 1)).filter(|_| !cell.contains('.'))
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
