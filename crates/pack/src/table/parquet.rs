//! Tables in Parquet files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use hsipack_format::{Error, Result};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::{Field, Row};
use parquet::schema::types::ColumnDescPtr;
use serde_json::Number;

use super::json::{Json, MAX_VALUES};
use super::rows::{Cell, Rows};
use crate::utc;

/// The most bytes that the values of one column in one row group may have, uncompressed.
const MAX_COLUMN_BYTES: i64 = 512 << 20;

/// Reads a table. Members of structures become columns with a dot between their names.
///
/// # Errors
/// If it is not a Parquet file, is damaged, has a column twice, or has too many values.
pub(crate) fn read(bytes: Vec<u8>) -> Result<Rows> {
    // The library checks most of what a damaged file may claim. What it does not check ends in a panic.
    let read = || rows(bytes);
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged("it contradicts itself")))
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::malformed(format!("not a table that can be read as Parquet: {why}"))
        .with_remedy("write it again, or as CSV")
}

fn rows(bytes: Vec<u8>) -> Result<Rows> {
    let len = bytes.len() as i64;
    let reader = SerializedFileReader::new(Bytes::from(bytes)).map_err(damaged)?;
    let metadata = reader.metadata();
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let claimed = metadata.file_metadata().num_rows();
    if usize::try_from(claimed).map_or(true, |rows| rows.saturating_mul(columns) > MAX_VALUES) {
        return Err(Error::unsupported(format!(
            "the table has {claimed} rows and {columns} columns, more than {MAX_VALUES} values"
        ))
        .with_remedy("keep only the columns and rows that are needed"));
    }
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        if !(0..=MAX_COLUMN_BYTES).contains(&column.uncompressed_size())
            || !(0..=len).contains(&column.compressed_size())
        {
            return Err(damaged(format!("column {} has an impossible size", column.column_path())));
        }
    }
    let times = metadata.file_metadata().schema_descr().columns().iter().filter_map(TimeColumn::of);
    let times: Vec<TimeColumn> = times.collect();
    let mut rows = Rows::new("row", 1);
    let mut values = 0;
    for row in reader.get_row_iter(None).map_err(damaged)? {
        let row = row.map_err(damaged)?;
        let mut cells = Vec::new();
        flatten(&row, "", &times, &mut rows, &mut cells)?;
        values += cells.iter().map(|(_, value)| count(value)).sum::<usize>();
        if values > MAX_VALUES {
            return Err(Error::unsupported(format!("the table has more than {MAX_VALUES} values"))
                .with_remedy("keep only the columns and rows that are needed"));
        }
        rows.push(cells)?;
    }
    Ok(rows)
}

/// A column of times.
struct TimeColumn {
    path: String,
    form: TimeForm,
}

/// The form of times.
#[derive(Clone, Copy, Default)]
struct TimeForm {
    /// Whether they are nanoseconds, which the library gives as plain integers.
    is_nanos: bool,
    /// Whether they are in no particular zone.
    is_local: bool,
}

impl TimeColumn {
    /// `None` if the column has no times.
    fn of(column: &ColumnDescPtr) -> Option<Self> {
        let Some(LogicalType::Timestamp(time)) = column.logical_type_ref() else { return None };
        let form = TimeForm {
            is_nanos: matches!(time.unit, TimeUnit::NANOS),
            is_local: !time.is_adjusted_to_u_t_c,
        };
        Some(Self { path: column.path().string(), form })
    }

    /// Whether it belongs to a field. A list has its name, and then the names of parts.
    fn is_of(&self, field: &str) -> bool {
        let parts = self.path.strip_prefix(field);
        parts.is_some_and(|parts| parts.is_empty() || parts.starts_with('.'))
    }
}

/// Adds the values of a row to `cells`.
fn flatten(
    row: &Row,
    prefix: &str,
    times: &[TimeColumn],
    rows: &mut Rows,
    cells: &mut Vec<Cell>,
) -> Result<()> {
    for (name, field) in row.get_column_iter() {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match field {
            Field::Group(group) => flatten(group, &name, times, rows, cells)?,
            // The index that pandas writes says nothing about samples.
            _ if name == "__index_level_0__" => {}
            field => {
                let time = times.iter().find(|time| time.is_of(&name));
                let form = time.map(|time| time.form).unwrap_or_default();
                cells.push((rows.column(&name)?, json(field, form)));
            }
        }
    }
    Ok(())
}

/// Number of single values in a value.
fn count(value: &Json) -> usize {
    match value {
        Json::List(list) => 1 + list.iter().map(count).sum::<usize>(),
        _ => 1,
    }
}

/// A value of a table, whose times have this form.
fn json(field: &Field, form: TimeForm) -> Json {
    let whole = |value: i64| Json::Number(value.into());
    let time = |count: i64, per_second: i64| {
        let (seconds, fraction) = (count.div_euclid(per_second), count.rem_euclid(per_second));
        let text = utc::time(seconds, (fraction * (1_000_000_000 / per_second)) as u32);
        Json::Text(if form.is_local { text.trim_end_matches('Z') } else { &text }.into())
    };
    let real = |value: f64| Number::from_f64(value).map_or(Json::Null, Json::Number);
    match field {
        Field::Null => Json::Null,
        Field::Bool(value) => Json::Bool(*value),
        Field::Byte(value) => whole((*value).into()),
        Field::Short(value) => whole((*value).into()),
        Field::Int(value) => whole((*value).into()),
        Field::Long(value) if form.is_nanos => time(*value, 1_000_000_000),
        Field::TimestampMicros(value) => time(*value, 1_000_000),
        Field::TimestampMillis(value) => time(*value, 1000),
        Field::Date(days) => Json::Text(utc::date((*days).into()).into()),
        Field::Long(value) => whole(*value),
        Field::UByte(value) => whole((*value).into()),
        Field::UShort(value) => whole((*value).into()),
        Field::UInt(value) => whole((*value).into()),
        Field::ULong(value) => Json::Number((*value).into()),
        Field::Float16(value) => real(value.to_f64()),
        Field::Float(value) => real((*value).into()),
        Field::Double(value) => real(*value),
        Field::Str(text) => Json::Text(text.as_str().into()),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => Json::Text(text.into()),
            Err(_) => Json::Null,
        },
        Field::ListInternal(list) => {
            let elements = list.elements().iter().map(|element| json(element, form));
            elements.collect::<Vec<_>>().into()
        }
        // Times of day and decimal numbers, as the library writes them.
        other => Json::Text(other.to_string().into()),
    }
}

impl From<Vec<Json>> for Json {
    fn from(list: Vec<Json>) -> Self {
        Self::List(list.into())
    }
}
