//! The table as Parquet: columns that describe the row, then lists with one value for each band:
//! `wavelength` (nm), `spectrum`, `std` and `missing`.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};
use serde_json::json;

use super::columns::Values;
use super::table::{Row, Table};
use crate::staged::Staged;

/// Rows in a row group, the unit that readers load at once.
const GROUP: usize = 8192;

/// Writes the file.
pub(super) fn write(table: &Table, path: &Path) -> Result<()> {
    let mut file = Staged::create(path)?;
    encode(table, file.writer()).map_err(|error| {
        Error::io(path, "cannot write", std::io::Error::other(error.to_string())).caused_by(error)
    })?;
    file.commit()
}

fn encode(table: &Table, out: &mut (impl Write + Send)) -> Result<(), ParquetError> {
    let about = json!({ "statistic": table.statistic.name(), "mask": table.mask });
    let properties = WriterProperties::builder()
        .set_created_by(format!("hsipack {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(vec![KeyValue::new("hsipack".into(), about.to_string())]))
        .build();
    let mut writer = SerializedFileWriter::new(out, schema(table)?, Arc::new(properties))?;
    for start in (0..table.rows.len()).step_by(GROUP) {
        let rows = start..table.rows.len().min(start + GROUP);
        let mut group = writer.next_row_group()?;
        for column in &table.columns {
            match &column.values {
                Values::Whole(values) => {
                    flat::<Int64Type, _>(&mut group, &values[rows.clone()], |value| *value)?;
                }
                Values::Number(values) => {
                    flat::<DoubleType, _>(&mut group, &values[rows.clone()], |value| *value)?;
                }
                Values::Flag(values) => {
                    flat::<BoolType, _>(&mut group, &values[rows.clone()], |value| *value)?;
                }
                Values::Text(values) => {
                    let bytes = |text: &String| ByteArray::from(text.as_str());
                    flat::<ByteArrayType, _>(&mut group, &values[rows.clone()], bytes)?;
                }
            }
        }
        let rows = &table.rows[rows];
        lists::<DoubleType>(&mut group, rows, |row| table.wavelengths[row.stack].clone())?;
        lists::<DoubleType>(&mut group, rows, |row| Some(row.spectrum.clone()))?;
        lists::<DoubleType>(&mut group, rows, |row| Some(row.std.clone()))?;
        lists::<Int64Type>(&mut group, rows, |row| {
            Some(row.missing.iter().map(|count| *count as i64).collect())
        })?;
        group.close()?;
    }
    writer.close().map(drop)
}

/// Flat columns may contain nulls. A list is null if the wavelengths are not known, and contains no
/// nulls.
fn schema(table: &Table) -> Result<TypePtr, ParquetError> {
    let flat = |name: &str, physical: Physical, logical: Option<LogicalType>| {
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()
            .map(Arc::new)
    };
    let list = |name: &str, physical: Physical| {
        let element = Type::primitive_type_builder("element", physical)
            .with_repetition(Repetition::REQUIRED)
            .build()?;
        let repeated = Type::group_type_builder("list")
            .with_repetition(Repetition::REPEATED)
            .with_fields(vec![Arc::new(element)])
            .build()?;
        Type::group_type_builder(name)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(Some(LogicalType::List))
            .with_fields(vec![Arc::new(repeated)])
            .build()
            .map(Arc::new)
    };
    let mut fields = Vec::new();
    for column in &table.columns {
        let (physical, logical) = match &column.values {
            Values::Whole(_) => (Physical::INT64, None),
            Values::Number(_) => (Physical::DOUBLE, None),
            Values::Flag(_) => (Physical::BOOLEAN, None),
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        fields.push(flat(&column.name, physical, logical)?);
    }
    for name in ["wavelength", "spectrum", "std"] {
        fields.push(list(name, Physical::DOUBLE)?);
    }
    fields.push(list("missing", Physical::INT64)?);
    Type::group_type_builder("spectra").with_fields(fields).build().map(Arc::new)
}

/// Writes the next column, whose values may be missing.
fn flat<T: DataType, V>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[Option<V>],
    value: impl Fn(&V) -> T::T,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|option| option.is_some().into()).collect();
    let present: Vec<T::T> = values.iter().flatten().map(value).collect();
    put::<T>(group, &present, &levels, None)
}

/// Writes the next column, whose lists may be missing.
fn lists<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    rows: &[Row],
    list: impl Fn(&Row) -> Option<Vec<T::T>>,
) -> Result<(), ParquetError> {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        // The definition level is 0 for a missing list, 1 for an empty list, and 2 for a value in a list.
        match list(row) {
            Some(list) if !list.is_empty() => {
                defined.extend(list.iter().map(|_| 2));
                repeated.extend((0..list.len()).map(|index| i16::from(index > 0)));
                values.extend(list);
            }
            other => {
                defined.push(i16::from(other.is_some()));
                repeated.push(0);
            }
        }
    }
    put::<T>(group, &values, &defined, Some(&repeated))
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: &[T::T],
    defined: &[i16],
    repeated: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(values, Some(defined), repeated)?;
    column.close()
}
