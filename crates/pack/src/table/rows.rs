//! Rows of a table, whatever its file's format.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use serde_json::{Map, Value};

use super::json::Json;

/// A cell: the number of its column, and its value.
pub(crate) type Cell = (u32, Json);

/// The longest name of a column, and the most bytes that all names of a table may have. Names of
/// nested keys are longer than what the file has of them.
const LONGEST_NAME: usize = 1 << 10;
const ALL_NAMES: usize = 64 << 20;

/// Rows with cells in some of the columns.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, u32>,
    /// For each column, the number of rows when a row last had it.
    last: Vec<usize>,
    /// Number of bytes of the names of all columns.
    name_bytes: usize,
    rows: Vec<Box<[Cell]>>,
    /// The word for a row in messages, and the number of the first one.
    unit: (&'static str, usize),
}

impl Rows {
    /// No rows. `word` is what messages call a row, and `first` is the number of the first one.
    pub fn new(word: &'static str, first: usize) -> Self {
        Self {
            columns: Vec::new(),
            ids: HashMap::new(),
            last: Vec::new(),
            name_bytes: 0,
            rows: Vec::new(),
            unit: (word, first),
        }
    }

    /// The number of the column `name`, which is added if it does not exist.
    ///
    /// # Errors
    /// If the name is too long, or the table has too many columns.
    pub fn column(&mut self, name: &str) -> Result<u32> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        self.name_bytes += name.len();
        if name.len() > LONGEST_NAME || self.name_bytes > ALL_NAMES {
            return Err(Error::unsupported(match name.len() > LONGEST_NAME {
                true => format!("column {} has a name of {} bytes", short(name), name.len()),
                false => format!("the table has more than {} columns", self.columns.len()),
            })
            .with_remedy("keep only the columns that are needed, and shorten their names"));
        }
        let (name, id): (Arc<str>, u32) = (name.into(), self.columns.len() as u32);
        self.columns.push(name.clone());
        self.ids.insert(name, id);
        self.last.push(0);
        Ok(id)
    }

    /// Renames a column. There must be no other one with the new name.
    pub fn rename(&mut self, from: &str, to: &str) {
        if let Some(id) = self.ids.remove(from) {
            let to: Arc<str> = to.into();
            self.columns[id as usize] = to.clone();
            self.ids.insert(to, id);
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    /// If it has a column twice. Spreadsheet programs write empty columns without a name; these may
    /// be several.
    pub fn push(&mut self, cells: Vec<Cell>) -> Result<()> {
        self.rows.push(cells.into());
        let (number, row) = (self.rows.len(), &self.rows[self.rows.len() - 1]);
        for (column, value) in row {
            let name = &self.columns[*column as usize];
            let is_blank = name.is_empty() && *value == Json::Null;
            if !is_blank && std::mem::replace(&mut self.last[*column as usize], number) == number {
                let count = row.iter().filter(|(other, _)| other == column).count();
                let what = format!("{count} columns are called `{name}`");
                return Err(Error::malformed(what).with_remedy(ONE_NAME));
            }
        }
        Ok(())
    }

    /// The number of the column `name`.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// Names of the columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|name| &**name)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// A row for messages, such as `row 3`.
    pub fn place(&self, row: usize) -> String {
        format!("{} {}", self.unit.0, self.unit.1 + row)
    }

    /// The cell of a row in a column.
    pub fn get(&self, row: usize, column: u32) -> Option<&Json> {
        self.rows[row].iter().find(|(id, _)| *id == column).map(|(_, value)| value)
    }

    /// All cells, row by row.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|row| row.iter())
    }

    /// All cells, which may be changed, row by row.
    pub fn cells_mut(&mut self) -> impl Iterator<Item = &mut Cell> {
        self.rows.iter_mut().flat_map(|row| row.iter_mut())
    }

    /// A row as columns of a sample. Empty cells are null, except in columns for which every sample
    /// has a field.
    pub fn map(&self, row: usize) -> Map<String, Value> {
        let mut cells = self.map_with_nulls(row);
        cells.retain(|name, value| !value.is_null() || !is_own(name));
        cells
    }

    /// A row as columns of a sample. Empty cells are null.
    pub fn map_with_nulls(&self, row: usize) -> Map<String, Value> {
        let cells = self.rows[row].iter().map(|(id, value)| (&self.columns[*id as usize], value));
        cells.map(|(name, value)| (name.to_string(), value.into())).collect()
    }

    /// The error for a column that does not exist.
    pub fn no_column(&self, name: &str) -> Error {
        const LISTED: usize = 20;
        let mut all: Vec<String> = self.columns().take(LISTED).map(short).collect();
        if self.columns.len() > LISTED {
            all.push("…".to_owned());
        }
        let found = match all.is_empty() {
            true => "no columns".to_owned(),
            false => format!("only {}", all.join(", ")),
        };
        Error::malformed(format!("it has no column `{name}`, {found}"))
    }

    /// The row that has each text in the column `name`.
    ///
    /// # Errors
    /// If there is no such column, a row has no text in it, or two have the same.
    pub fn by_text(&self, name: &str) -> Result<HashMap<String, usize>> {
        let column = self.id(name).ok_or_else(|| self.no_column(name))?;
        let mut rows = HashMap::with_capacity(self.len());
        for row in 0..self.len() {
            let text = self.get(row, column).and_then(Json::text).filter(|text| !text.is_empty());
            let Some(text) = text else {
                let hint = if self.unit.1 == 2 { "; the header is row 1" } else { "" };
                return Err(Error::malformed(format!(
                    "{} of the table has no {name}{hint}",
                    self.place(row)
                ))
                .with_remedy(format!("give the {name} of the sample, or leave out the row")));
            };
            match rows.entry(text.into_owned()) {
                Entry::Vacant(entry) => entry.insert(row),
                Entry::Occupied(entry) => {
                    let (text, first) = (entry.key(), *entry.get());
                    return Err(Error::conflict(format!(
                        "the table names {text} twice: {} and {}",
                        self.place(first),
                        self.place(row)
                    ))
                    .with_remedy("keep one of these rows"));
                }
            };
        }
        Ok(rows)
    }

    /// Adds the cells of the row of `other`, named `title`, whose column `theirs` has the same text
    /// as the column `ours` of a row. If both tables have a column, that of `other` is named
    /// `TITLE.COLUMN`; so is a column `name`, unless `needs_name`. Returns the number of rows that
    /// have a text, but no row of `other`, and the first such text.
    ///
    /// # Errors
    /// If a column does not exist, a new name exists already, two rows of `other` have the same
    /// text, or no row has a row of `other`.
    pub fn join(
        &mut self,
        other: &Rows,
        title: &str,
        [theirs, ours]: [&str; 2],
        needs_name: bool,
    ) -> Result<Option<(usize, String)>> {
        let without =
            |rows: &Rows, name| rows.no_column(name).with_remedy("give a column of the table");
        let column = self.id(ours).ok_or_else(|| without(self, ours))?;
        other.id(theirs).ok_or_else(|| without(other, theirs).within(title))?;
        let by_text = other.by_text(theirs).map_err(|error| error.within(title))?;
        let names: Vec<String> = other.columns().map(str::to_owned).collect();
        // A column `name` would be taken for the names of samples, unless it identifies them.
        let is_name = |name: &str| name == "name" && !needs_name;
        let taken: Vec<bool> =
            names.iter().map(|name| self.id(name).is_some() || is_name(name)).collect();
        let ids = names.iter().zip(taken).map(|(name, taken)| {
            let name = if taken { format!("{title}.{name}") } else { name.clone() };
            match self.id(&name) {
                Some(_) => {
                    let what = format!("2 columns would be called `{name}`");
                    Err(Error::conflict(what).with_remedy(ONE_NAME))
                }
                None => self.column(&name),
            }
        });
        let ids: Vec<u32> = ids.collect::<Result<_>>()?;
        let mut missing: Option<(usize, String)> = None;
        let mut joined = 0;
        for row in 0..self.len() {
            let Some(text) = self.get(row, column).and_then(Json::text) else { continue };
            let Some(found) = by_text.get(&*text) else {
                missing.get_or_insert_with(|| (0, text.into_owned())).0 += 1;
                continue;
            };
            joined += 1;
            let new = other.rows[*found].iter();
            let new = new.map(|(id, value)| (ids[*id as usize], value.clone()));
            let mut cells = std::mem::take(&mut self.rows[row]).into_vec();
            cells.extend(new);
            self.rows[row] = cells.into();
        }
        match &missing {
            Some((_, text)) if joined == 0 => Err(Error::conflict(format!(
                "no row of {title} belongs to a row of the table: {theirs} is such as {:?}, {ours} such as {text:?}",
                by_text.keys().min().map_or("", String::as_str)
            ))
            .with_remedy("give columns that have the same values")),
            _ => Ok(missing),
        }
    }
}

const ONE_NAME: &str = "keep one of them, or rename one";

/// A name for messages, without the end of a long one.
fn short(name: &str) -> String {
    const CHARACTERS: usize = 60;
    match name.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{:?}…", &name[..end]),
        None => format!("{name:?}"),
    }
}

/// Whether every sample has a field for this column.
pub(crate) fn is_own(column: &str) -> bool {
    ["name", "path", "group", "split", "label"].contains(&column)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(of: &[&[(&str, i64)]]) -> Rows {
        let mut rows = Rows::new("row", 1);
        for row in of {
            let cells = row
                .iter()
                .map(|(name, value)| (rows.column(name).unwrap(), Json::Number((*value).into())));
            let cells = cells.collect();
            rows.push(cells).unwrap();
        }
        rows
    }

    #[test]
    fn joined_rows_have_the_columns_of_both() {
        let mut main = rows(&[&[("id", 1), ("a", 5)], &[("id", 2)], &[("a", 6)]]);
        let other = rows(&[&[("of", 2), ("id", 7), ("b", 8)], &[("of", 1), ("b", 9)]]);
        main.join(&other, "other", ["of", "id"], false).unwrap();
        let maps: Vec<Value> = (0..3).map(|row| Value::Object(main.map(row))).collect();
        assert_eq!(maps[0], json!({"id": 1, "a": 5, "of": 1, "b": 9}));
        assert_eq!(maps[1], json!({"id": 2, "of": 2, "other.id": 7, "b": 8}));
        assert_eq!(maps[2], json!({"a": 6}));
        let mut some = rows(&[&[("id", 1)], &[("id", 3)], &[("id", 4)], &[("a", 6)]]);
        let missing = some.join(&other, "other", ["of", "id"], false).unwrap();
        assert_eq!(missing, Some((2, "3".to_owned())));
        let mut none = rows(&[&[("id", 5)], &[("id", 6)]]);
        let error = none.join(&other, "other", ["of", "id"], false).unwrap_err().to_string();
        assert!(error.contains("of is such as \"1\", id such as \"5\""), "{error}");
        let twice = rows(&[&[("of", 2)], &[("of", 2)]]);
        let error = main.join(&twice, "other", ["of", "id"], false).unwrap_err().to_string();
        assert!(error.contains("other: the table names 2 twice: row 1 and row 2"), "{error}");
        assert!(main.join(&other, "other", ["nothing", "id"], false).is_err());
        assert!(main.join(&other, "other", ["of", "nothing"], false).is_err());
        // The first join has added `other.id`.
        let error = main.join(&other, "other", ["of", "id"], false).unwrap_err().to_string();
        assert!(error.contains("2 columns would be called `other.id`"), "{error}");
    }

    #[test]
    fn a_row_has_each_column_once() {
        let mut rows = Rows::new("row", 1);
        let ids = ["a", "b", ""].map(|name| rows.column(name).unwrap());
        let cell = |column: usize, value: Json| (ids[column], value);
        let number = || Json::Number(1.into());
        rows.push(vec![cell(0, number()), cell(1, Json::Null)]).unwrap();
        rows.push(vec![cell(1, number()), cell(0, number())]).unwrap();
        rows.push(vec![cell(2, Json::Null), cell(2, number()), cell(2, Json::Null)]).unwrap();
        for (row, name) in [
            (vec![cell(1, number()), cell(0, number()), cell(1, Json::Null)], "`b`"),
            (vec![cell(2, number()), cell(2, number())], "``"),
        ] {
            let error = rows.push(row).unwrap_err().to_string();
            assert!(error.contains(&format!("2 columns are called {name}")), "{error}");
        }
    }
}
