//! The table of attributes of a shapefile (dBASE).

use std::io::{BufReader, Read};
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;

use super::classes::Value;

const HEADER_BYTES: usize = 32;
const FIELD_BYTES: usize = 32;
/// Ends the list of fields.
const END: u8 = 0x0D;
const DELETED: u8 = b'*';

/// An open table, whose rows are read in order.
pub(super) struct Table {
    file: BufReader<Window>,
    fields: Vec<Field>,
    rows: usize,
    next: usize,
    row: Vec<u8>,
}

struct Field {
    name: String,
    kind: u8,
    start: usize,
    len: usize,
}

fn malformed(what: impl Into<String>) -> Error {
    Error::malformed(what).with_remedy("copy the file again; it is cut short or damaged")
}

impl Table {
    /// Opens a table.
    ///
    /// # Errors
    /// If its header is malformed.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = BufReader::new(bounded_read::window(path)?);
        let short = |_| malformed("the table of attributes ends within its header");
        let mut header = [0; HEADER_BYTES];
        file.read_exact(&mut header).map_err(short)?;
        let pair = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let rows = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
        let (header_len, row_len) = (pair(8), pair(10));
        let mut fields = vec![0; header_len.saturating_sub(HEADER_BYTES)];
        file.read_exact(&mut fields).map_err(short)?;
        let mut start = 1;
        let mut listed = Vec::new();
        for field in fields.as_chunks::<FIELD_BYTES>().0 {
            if field[0] == END {
                break;
            }
            let name = field[..11].split(|byte| *byte == 0).next().unwrap_or_default();
            let (kind, len) = (field[11], usize::from(field[16]));
            listed.push(Field { name: text(name), kind, start, len });
            start += len;
        }
        if start > row_len || row_len == 0 {
            return Err(malformed(
                "the fields of the table of attributes do not fit into its rows",
            ));
        }
        Ok(Self { file, fields: listed, rows, next: 0, row: vec![0; row_len] })
    }

    /// Names of the attributes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|field| field.name.as_str())
    }

    /// The place of an attribute.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The value of an attribute in row `row`, which is the one after the last one; `None` if the
    /// row is deleted.
    ///
    /// # Errors
    /// If there is no such row, or the value is malformed.
    pub fn value(&mut self, row: usize, column: usize) -> Result<Option<Value>> {
        if row >= self.rows {
            return Err(malformed(format!(
                "the table of attributes has {} rows, but there are more shapes",
                self.rows
            )));
        }
        while self.next <= row {
            self.file
                .read_exact(&mut self.row)
                .map_err(|_| malformed(format!("the table of attributes ends within row {row}")))?;
            self.next += 1;
        }
        if self.row[0] == DELETED {
            return Ok(None);
        }
        let field = &self.fields[column];
        let bytes = &self.row[field.start..field.start + field.len];
        let whole =
            |bytes: &[u8]| Some(Value::Number(i32::from_le_bytes(bytes.try_into().ok()?).into()));
        let real = |bytes: &[u8]| Some(Value::Number(f64::from_le_bytes(bytes.try_into().ok()?)));
        let value = match field.kind {
            b'I' | b'+' => whole(bytes),
            b'O' | b'B' => real(bytes),
            b'N' | b'F' => match text(bytes).trim() {
                "" => Some(Value::Null),
                // A number that did not fit is filled with stars.
                stars if stars.starts_with('*') => Some(Value::Null),
                number => number.parse().ok().map(Value::Number),
            },
            b'L' => Some(match bytes.first() {
                Some(b'T' | b't' | b'Y' | b'y') => Value::Number(1.0),
                Some(b'F' | b'f' | b'N' | b'n') => Value::Number(0.0),
                _ => Value::Null,
            }),
            _ => Some(match text(bytes).trim() {
                "" => Value::Null,
                text => Value::Text(text.to_owned()),
            }),
        };
        let odd = || malformed(format!("row {row}: {} is not a number", field.name));
        value.ok_or_else(odd).map(Some)
    }
}

/// Text in UTF-8, otherwise in Latin-1, without what follows a zero.
fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}
