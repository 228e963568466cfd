//! The name, the columns and the fields of each input, before its cube is opened.

use std::collections::BTreeSet;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::mirror;
use regex::Regex;
use serde_json::{Map, Value};

use crate::convert::options::ConvertOptions;
use crate::input::Input;
use crate::pattern::{self, Pattern};
use crate::table::{Table, check_columns};

/// Columns from everything that describes cubes: lists of inputs, paths and tables.
pub(super) struct Columns<'a> {
    options: &'a ConvertOptions,
    path_columns: Option<Regex>,
    table: Option<Table>,
    /// Names of all fields besides those that follow from the path.
    known: BTreeSet<String>,
    /// Fields that patterns use.
    used: BTreeSet<String>,
    /// Whether the name follows from columns that are known before the table is looked up.
    is_name_before_table: bool,
}

impl<'a> Columns<'a> {
    /// Reads the tables, and checks that the patterns of all options have only fields that exist.
    ///
    /// # Errors
    /// If a table cannot be read, an expression is invalid, or a pattern has an unknown field.
    pub fn new(options: &'a ConvertOptions, inputs: &[Input]) -> Result<Self> {
        let path_columns = options.path_columns.as_deref().map(|expression| {
            Regex::new(expression).map_err(|error| {
                Error::conflict(format!(
                    "{} is not a regular expression: {error}",
                    Opt::PathColumns
                ))
                .with_remedy("for example (?P<group>P\\d+)/(?P<day>\\d+)_")
            })
        });
        let path_columns = path_columns.transpose()?;
        let key = options.table_key.as_ref().map_or("name", |key| &key.name);
        let table = options.table.as_deref().map(|file| Table::read(file, key)).transpose()?;
        let mut before_table: BTreeSet<String> = BTreeSet::new();
        for input in inputs {
            let columns = input.columns.keys().chain(input.fields.keys());
            for column in columns {
                if !before_table.contains(column) {
                    before_table.insert(column.clone());
                }
            }
        }
        let groups = path_columns.iter().flat_map(|regex| regex.capture_names().flatten());
        before_table.extend(groups.map(str::to_owned));
        let mut known = before_table.clone();
        known.extend(table.iter().flat_map(Table::columns).map(str::to_owned));
        for pattern in options.patterns() {
            pattern.check(&known)?;
        }
        if let Some(key) = &options.table_key {
            Pattern(&key.value).check(&before_table)?;
        }
        let is_name_before_table =
            options.name.as_deref().is_none_or(|name| Pattern(name).check(&before_table).is_ok());
        let used = options.patterns().flat_map(Pattern::fields).map(str::to_owned).collect();
        Ok(Self { options, path_columns, table, known, used, is_name_before_table })
    }

    /// Completes the columns of an input, which then include its name, and its fields.
    ///
    /// # Errors
    /// If its path does not match the expression for columns, the table has no row for it, or its name has no value.
    pub fn complete(&mut self, mut input: Input) -> Result<Input> {
        self.add_groups(&mut input)?;
        let default_name = match input.columns.get("name").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => input.default_name(),
        };
        self.set_name(&mut input, default_name);
        if self.is_name_before_table {
            self.name(&mut input)?;
        }
        if let Some(row) = self.row(&input)? {
            let name = input.columns.shift_remove("name");
            input.columns.extend(row);
            input.columns.extend(name.map(|name| ("name".to_owned(), name)));
            self.add_fields(&mut input);
        }
        if !self.is_name_before_table {
            self.name(&mut input)?;
        }
        let mut own = input.columns.clone();
        own.remove("name");
        check_columns(&own)?;
        // Only fields that are used are recorded.
        let used = &self.used;
        input.fields.retain(|field, _| used.contains(field));
        if used.contains("relative") {
            let relative = input.relative();
            input.fields.insert("relative".to_owned(), Some(relative));
        }
        Ok(input)
    }

    /// Notes for the user about what did not match any input.
    pub fn notes(&self) -> Vec<String> {
        let Some(table) = &self.table else { return Vec::new() };
        let unused = table.remaining();
        let shown = unused[..unused.len().min(3)].join(", ");
        let note = match unused.len() {
            0 => return Vec::new(),
            1 => format!("one row of the table matches no input: {shown}"),
            2 | 3 => format!("{} rows of the table match no input: {shown}", unused.len()),
            more => format!("{more} rows of the table match no input: {shown}, …"),
        };
        vec![note]
    }

    /// Adds the named groups of the expression for paths.
    fn add_groups(&self, input: &mut Input) -> Result<()> {
        if let Some(expression) = &self.path_columns {
            let path = mirror::url_of(&input.file).unwrap_or_else(|| input.file.clone());
            let path = path.to_string_lossy();
            let found = expression.captures(&path).ok_or_else(|| {
                Error::conflict("the path does not match the expression for columns")
                    .at(&input.file)
                    .with_remedy(remedy!["correct ", Opt::PathColumns])
            })?;
            for group in expression.capture_names().flatten() {
                if let Some(part) = found.name(group) {
                    input.columns.insert(group.to_owned(), Value::from(part.as_str()));
                }
            }
        }
        self.add_fields(input);
        Ok(())
    }

    /// Makes fields of those columns that patterns use.
    fn add_fields(&self, input: &mut Input) {
        let columns = self.used.iter().filter(|field| {
            !pattern::is_of_path(field) || *field == "group" || *field == "variable"
        });
        for field in columns.filter(|field| self.known.contains(*field)) {
            if let Some(value) = input.columns.get(field) {
                input.fields.insert(field.clone(), pattern::text_of(value));
            } else if !pattern::is_of_path(field) {
                // Another input has the column.
                input.fields.entry(field.clone()).or_insert(None);
            }
        }
    }

    fn set_name(&self, input: &mut Input, name: String) {
        if self.used.contains("name") {
            input.fields.insert("name".to_owned(), Some(name.clone()));
        }
        input.columns.insert("name".to_owned(), Value::from(name));
    }

    /// Gives the input the name that `--name` makes, if it is used.
    fn name(&self, input: &mut Input) -> Result<()> {
        let Some(pattern) = &self.options.name else { return Ok(()) };
        let name = Pattern(pattern).of(input)?.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            Error::conflict(format!("a field of the name {pattern:?} has no value for this cube"))
                .at(&input.file)
                .with_remedy(remedy!["correct ", Opt::Name])
        })?;
        self.set_name(input, name);
        Ok(())
    }

    /// The row of the table for an input.
    fn row(&mut self, input: &Input) -> Result<Option<Map<String, Value>>> {
        let Some(table) = &mut self.table else { return Ok(None) };
        let pattern = self.options.table_key.as_ref().map_or("{name}", |key| &key.value);
        let name = input.columns.get("name").and_then(Value::as_str).unwrap_or_default();
        let key = match pattern {
            "{name}" => Some(name.to_owned()),
            pattern => Pattern(pattern).of(input)?,
        };
        let row = key.as_deref().and_then(|key| table.take(key));
        row.map(Some).ok_or_else(|| {
            let key = key.unwrap_or_default();
            let error = match &self.options.table_key {
                None => Error::conflict(format!("the table has no row named {key}")),
                Some(of) => Error::conflict(format!("the table has no row with {} {key}", of.name)),
            };
            error.at(&input.file).with_remedy("add the row, or correct its name")
        })
    }
}
