//! Tables of an SQLite database, read from first to last, within limits.
//!
//! This is what GeoPackages need: <https://www.sqlite.org/fileformat.html>, tables with row ids,
//! text in UTF-8. Pages are read when they are needed. Every page, length and count of a file is
//! checked, because files may be crafted.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;

pub(super) const SIGNATURE: &[u8] = b"SQLite format 3\0";
/// The longest row.
const MAX_ROW_BYTES: u64 = 1 << 28;
/// The most levels of a tree of pages.
const MAX_DEPTH: usize = 40;
const INTERIOR: u8 = 5;
const LEAF: u8 = 13;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn whole(&self) -> Option<i64> {
        match self {
            Self::Whole(number) => Some(*number),
            _ => None,
        }
    }
}

/// An open database.
pub(super) struct Database {
    file: Window,
    page_size: usize,
    /// Bytes of a page that hold data.
    usable: usize,
    pages: u32,
}

/// A table: its name, columns and first page.
#[derive(Debug)]
pub(super) struct TableOfFile {
    pub name: String,
    pub columns: Vec<Column>,
    root: u32,
}

/// A column.
#[derive(Debug, PartialEq)]
pub(super) struct Column {
    pub name: String,
    /// Whether it is the row id under another name.
    is_row_id: bool,
}

fn damaged(what: impl Into<String>) -> Error {
    Error::malformed(format!("the database is damaged: {}", what.into()))
        .with_remedy("copy the file again, or export it again")
}

fn short() -> Error {
    damaged("a page is cut short")
}

impl Database {
    /// Opens a database.
    ///
    /// # Errors
    /// If it is malformed, has text in another encoding, or changes that are not yet in the file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = bounded_read::window(path)?;
        let mut header = [0; 100];
        file.read_exact_at(&mut header, 0).map_err(|_| short())?;
        let log = {
            let mut name = path.as_os_str().to_owned();
            name.push("-wal");
            std::path::PathBuf::from(name)
        };
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            return Err(Error::unsupported(
                "another program has changes that are not yet in the file",
            )
            .with_remedy("close the program that edits the file"));
        }
        let page_size = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65536,
            size if size >= 512 && size.is_power_of_two() => usize::from(size),
            size => return Err(damaged(format!("its pages have {size} bytes"))),
        };
        let usable = page_size - usize::from(header[20]);
        if usable < 480 {
            return Err(damaged("its pages have no room"));
        }
        // 0 before the first table is made.
        if header[59] > 1 {
            return Err(Error::unsupported("the text of the database is not UTF-8")
                .with_remedy("export it again with ogr2ogr"));
        }
        let pages = u32::try_from(file.len() / page_size as u64).unwrap_or(u32::MAX);
        Ok(Self { file, page_size, usable, pages })
    }

    fn page(&self, number: u32) -> Result<Vec<u8>> {
        if number == 0 || number > self.pages {
            return Err(damaged(format!("there is no page {number}")));
        }
        let mut page = vec![0; self.page_size];
        let at = u64::from(number - 1) * self.page_size as u64;
        self.file.read_exact_at(&mut page, at).map_err(|_| short())?;
        Ok(page)
    }

    /// The table with this name; letters may be small or capital.
    ///
    /// # Errors
    /// If there is none, or the list of tables is malformed.
    pub fn table(&self, name: &str) -> Result<TableOfFile> {
        let mut found = None;
        self.each_row_of(1, &mut |_, row| {
            let [kind, table_name, _, root, sql] = &row[..] else { return Ok(()) };
            if kind.text() == Some("table")
                && table_name.text().is_some_and(|table_name| table_name.eq_ignore_ascii_case(name))
            {
                let columns = columns_of(sql.text().unwrap_or_default())
                    .ok_or_else(|| damaged(format!("the columns of table {name} are not known")))?;
                let root = root.whole().and_then(|root| u32::try_from(root).ok());
                let root = root.ok_or_else(|| damaged(format!("table {name} has no page")))?;
                found = Some(TableOfFile { name: name.to_owned(), columns, root });
            }
            Ok(())
        })?;
        found.ok_or_else(|| damaged(format!("there is no table {name}")))
    }

    /// Calls `each` with every row of a table, in order of the row ids.
    ///
    /// # Errors
    /// If the table is malformed, and those of `each`.
    pub fn each_row(
        &self,
        table: &TableOfFile,
        each: &mut dyn FnMut(&[Cell]) -> Result<()>,
    ) -> Result<()> {
        self.each_row_of(table.root, &mut |id, mut row| {
            row.resize(table.columns.len(), Cell::Null);
            for (cell, column) in row.iter_mut().zip(&table.columns) {
                if column.is_row_id && *cell == Cell::Null {
                    *cell = Cell::Whole(id);
                }
            }
            each(&row)
        })
    }

    fn each_row_of(
        &self,
        root: u32,
        each: &mut dyn FnMut(i64, Vec<Cell>) -> Result<()>,
    ) -> Result<()> {
        // Pages that are still to be read, the next one last, with their depths.
        let mut waiting = vec![(root, 0)];
        let mut read = 0u32;
        while let Some((number, depth)) = waiting.pop() {
            read += 1;
            if depth > MAX_DEPTH || read > self.pages {
                return Err(damaged("its pages refer to each other"));
            }
            let page = self.page(number)?;
            // The first page begins with the header of the file.
            let start = if number == 1 { 100 } else { 0 };
            let pair = |at: usize| {
                page.get(at..at + 2).map(|pair| usize::from(u16::from_be_bytes([pair[0], pair[1]])))
            };
            let cells = pair(start + 3).ok_or_else(short)?;
            let cell = |index: usize, header: usize| {
                pair(start + header + 2 * index).filter(|at| *at < self.usable).ok_or_else(short)
            };
            match page[start] {
                INTERIOR => {
                    let child = |at: usize| {
                        let bytes = page.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
                        bytes.map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(short)
                    };
                    waiting.push((child(start + 8)?, depth + 1));
                    for index in (0..cells).rev() {
                        waiting.push((child(cell(index, 12)?)?, depth + 1));
                    }
                    if waiting.len() > self.pages as usize + MAX_DEPTH {
                        return Err(damaged("its pages refer to each other"));
                    }
                }
                LEAF => {
                    for index in 0..cells {
                        let (id, payload) = self.payload(&page, cell(index, 8)?)?;
                        each(id, record(&payload)?)?;
                    }
                }
                other => return Err(damaged(format!("page {number} is of the kind {other}"))),
            }
        }
        Ok(())
    }

    /// The row id and the bytes of the row at `at` of a page, with what overflows onto other pages.
    fn payload(&self, page: &[u8], at: usize) -> Result<(i64, Vec<u8>)> {
        let mut bytes = page.get(at..self.usable).ok_or_else(short)?;
        let len = varint(&mut bytes)? as u64;
        let id = varint(&mut bytes)?;
        if len > MAX_ROW_BYTES || len > self.file.len() {
            return Err(damaged(format!("a row of {len} bytes")));
        }
        let (len, most) = (len as usize, self.usable - 35);
        if len <= most {
            return Ok((id, bytes.get(..len).ok_or_else(short)?.to_vec()));
        }
        let least = (self.usable - 12) * 32 / 255 - 23;
        let local = least + (len - least) % (self.usable - 4);
        let local = if local <= most { local } else { least };
        let mut payload = bytes.get(..local).ok_or_else(short)?.to_vec();
        let next = |bytes: &[u8]| bytes.first_chunk::<4>().map(|next| u32::from_be_bytes(*next));
        let mut overflow = next(&bytes[local..]).ok_or_else(short)?;
        while payload.len() < len {
            // Each page adds bytes, so that a chain that returns to itself ends, too.
            let page = self.page(overflow)?;
            let part = (len - payload.len()).min(self.usable - 4);
            payload.extend_from_slice(&page[4..4 + part]);
            overflow = next(&page).ok_or_else(short)?;
        }
        Ok((id, payload))
    }
}

/// Takes a number of one to nine bytes.
fn varint(bytes: &mut &[u8]) -> Result<i64> {
    let mut value = 0u64;
    for index in 0..9 {
        let (first, tail) = bytes.split_first().ok_or_else(short)?;
        *bytes = tail;
        if index == 8 {
            return Ok((value << 8 | u64::from(*first)) as i64);
        }
        value = value << 7 | u64::from(first & 0x7F);
        if first & 0x80 == 0 {
            break;
        }
    }
    Ok(value as i64)
}

/// The values of a row.
fn record(payload: &[u8]) -> Result<Vec<Cell>> {
    let mut header = payload;
    let header_len = usize::try_from(varint(&mut header)?).map_err(|_| short())?;
    let used = payload.len() - header.len();
    if header_len < used || header_len > payload.len() {
        return Err(damaged("the header of a row is longer than the row"));
    }
    let mut kinds = &payload[used..header_len];
    let mut values = &payload[header_len..];
    let mut row = Vec::new();
    while !kinds.is_empty() {
        let kind = varint(&mut kinds)?;
        let len = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind as usize,
            5 => 6,
            6 | 7 => 8,
            kind if kind >= 12 => usize::try_from((kind - 12) / 2).map_err(|_| short())?,
            _ => return Err(damaged(format!("a value of the kind {kind}"))),
        };
        let (value, tail) = values.split_at_checked(len).ok_or_else(short)?;
        values = tail;
        row.push(match kind {
            0 => Cell::Null,
            8 | 9 => Cell::Whole(kind - 8),
            1..=6 => {
                let sign = if value[0] & 0x80 == 0 { 0 } else { -1i64 };
                Cell::Whole(value.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
            }
            7 => Cell::Real(f64::from_be_bytes(value.try_into().map_err(|_| short())?)),
            kind if kind % 2 == 0 => Cell::Bytes(value.to_vec()),
            _ => Cell::Text(String::from_utf8_lossy(value).into_owned()),
        });
    }
    Ok(row)
}

/// The columns that a statement `CREATE TABLE name (…)` declares; `None` if it declares something
/// else.
fn columns_of(sql: &str) -> Option<Vec<Column>> {
    let (head, tail) = sql.split_once('(')?;
    let is_table =
        head.trim_start().get(..12).is_some_and(|start| start.eq_ignore_ascii_case("CREATE TABLE"));
    let (inside, after) = tail.rsplit_once(')')?;
    if !is_table || after.to_ascii_uppercase().contains("ROWID") {
        return None;
    }
    const CONSTRAINTS: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];
    let mut columns = Vec::new();
    for part in parts(inside) {
        let (name, kind, is_quoted) = name_of(part)?;
        if !is_quoted && CONSTRAINTS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
            break;
        }
        let kind = kind.to_ascii_uppercase();
        let words: Vec<&str> = kind.split_whitespace().collect();
        let is_row_id = words.first() == Some(&"INTEGER") && kind.contains("PRIMARY KEY");
        columns.push(Column { name, is_row_id });
    }
    Some(columns)
}

/// The parts of a list, separated by commas that are in neither quotes nor parentheses.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0i32, None);
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '`') => quote = Some(letter),
            (None, '[') => quote = Some(']'),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The name at the start of the declaration of a column, what follows it, and whether it is in
/// quotes.
fn name_of(part: &str) -> Option<(String, &str, bool)> {
    let part = part.trim();
    let close = match part.chars().next()? {
        open @ ('"' | '`' | '\'') => open,
        '[' => ']',
        _ => {
            let end = part.find(char::is_whitespace).unwrap_or(part.len());
            return Some((part[..end].to_owned(), &part[end..], false));
        }
    };
    let (mut name, mut letters) = (String::new(), part.char_indices().skip(1).peekable());
    while let Some((at, letter)) = letters.next() {
        if letter != close {
            name.push(letter);
        } else if close != ']' && letters.peek().is_some_and(|(_, next)| *next == close) {
            // A quote in a name is written twice.
            name.push(letter);
            letters.next();
        } else {
            return Some((name, &part[at + letter.len_utf8()..], true));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_in_statements() {
        let of = |sql: &str| -> Option<Vec<(String, bool)>> {
            let columns = columns_of(sql)?;
            Some(columns.into_iter().map(|column| (column.name, column.is_row_id)).collect())
        };
        let column = |name: &str, is_row_id| (name.to_owned(), is_row_id);
        let sql = "CREATE TABLE \"a b\" ( \"fid\" INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, \"geom\" MULTIPOLYGON, \
                   `my,name` TEXT(20), [x (y)] REAL DEFAULT (1,2), plain int, \"a\"\"b\" TEXT, CONSTRAINT c UNIQUE (plain))";
        assert_eq!(
            of(sql).unwrap(),
            [
                column("fid", true),
                column("geom", false),
                column("my,name", false),
                column("x (y)", false),
                column("plain", false),
                column("a\"b", false),
            ]
        );
        for other in [
            "",
            "CREATE VIEW a AS SELECT (1)",
            "CREATE TABLE a (b) WITHOUT ROWID",
            "CREATE TABLE a (\"b)",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn damaged_rows_are_refused() {
        assert_eq!(
            record(&[4, 1, 15, 0, 0xFE, b'x']).unwrap(),
            [Cell::Whole(-2), Cell::Text("x".to_owned()), Cell::Null]
        );
        for bytes in [&[][..], &[9, 1], &[2, 6], &[2, 10], &[3, 0xFF], &[0], &[2, 0x7F]] {
            assert!(record(bytes).is_err(), "{bytes:?}");
        }
    }
}
