//! The name, the columns and the fields of each input, before its cube is opened.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::samples::boxes::{BOX_LABELS, BOXES};
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::Acquisition;
use hsipack_store::mirror;
use regex::Regex;
use serde_json::{Map, Value};

use super::{lists, pictures};
use crate::convert::file_columns::FileColumns;
use crate::convert::options::{ConvertOptions, Unlisted};
use crate::input::Input;
use crate::pattern::{self, Pattern};
use crate::table::{self, Member, NameList, Tables};

/// An input, and the error if its columns could not be completed.
pub(super) type Completed = (Input, Option<Error>);

/// Columns from everything that describes cubes: lists of inputs, paths, tables and lists of
/// splits.
pub(super) struct Columns<'a> {
    options: &'a ConvertOptions,
    path_columns: Option<Regex>,
    tables: Tables,
    lists: Vec<NameList>,
    files: FileColumns<'a>,
    /// Names of all fields besides those that follow from the path.
    field_names: BTreeSet<String>,
    /// Fields that patterns use.
    used: BTreeSet<String>,
    /// How many tables are looked up before the name of a sample follows from its columns; `None`
    /// if it also needs the last one, or columns of files.
    tables_before_name: Option<usize>,
    /// For each table, the first text that was looked up in it and not found.
    not_found: Vec<Option<String>>,
    skipped: usize,
    /// Notes about columns that are given twice, and rows of tables that cannot be joined.
    notes: Vec<String>,
}

impl<'a> Columns<'a> {
    /// Reads the tables and lists, and checks that the patterns of all options have only fields
    /// that exist.
    ///
    /// # Errors
    /// If a table or list cannot be read, an expression is invalid, or a pattern has an unknown
    /// field.
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
        let tables = Tables::read(&options.table, &options.joins)?;
        let lists = table::read_lists(&options.joins.split)?;
        let mut before_table: BTreeSet<String> = BTreeSet::new();
        for input in inputs {
            for column in input.columns.keys().chain(input.fields.keys()) {
                if !before_table.contains(column) {
                    before_table.insert(column.clone());
                }
            }
        }
        let files = FileColumns::new(&options.column);
        let mut notes = tables.notes.clone();
        notes.extend(replaced(inputs, path_columns.as_ref(), &tables));
        let groups = path_columns.iter().flat_map(|regex| regex.capture_names().flatten());
        before_table.extend(groups.map(str::to_owned));
        let mut columns = before_table;
        let is_named_by = |columns: &BTreeSet<String>| {
            options.name.as_deref().is_none_or(|name| Pattern(name).check(columns).is_ok())
        };
        let mut tables_before_name = is_named_by(&columns).then_some(0);
        for (number, member) in tables.iter().enumerate() {
            member.pattern().check(&columns)?;
            if tables_before_name.is_none() && is_named_by(&columns) {
                tables_before_name = Some(number);
            }
            columns.extend(member.table.columns().map(str::to_owned));
        }
        columns.extend(lists.iter().map(|list| list.column.clone()));
        if let Some(name) = files.names().find(|name| columns.contains(*name)) {
            return Err(Error::conflict(format!(
                "the column {name:?} is given twice: by {} and by a table, list or path",
                Opt::Column
            ))
            .with_remedy("rename one of them"));
        }
        columns.extend(files.names().map(str::to_owned));
        if options.boxes.is_some()
            && let Some(name) = [BOXES, BOX_LABELS].into_iter().find(|name| columns.contains(*name))
        {
            return Err(Error::conflict(format!(
                "the column {name:?} is given twice: by {} and by a table, list, file or path",
                Opt::Boxes
            ))
            .with_remedy("rename the other one"));
        }
        for pattern in options.patterns() {
            pattern.check(&columns)?;
        }
        let used = options.patterns().flat_map(Pattern::fields).map(str::to_owned).collect();
        check_label_column(options.joins.label_column.as_deref(), &columns)?;
        Ok(Self {
            options,
            path_columns,
            not_found: vec![None; tables.len()],
            tables,
            lists,
            files,
            field_names: columns,
            used,
            tables_before_name,
            skipped: 0,
            notes,
        })
    }

    /// Completes the columns of the inputs, which then include their names, and their fields.
    /// Inputs that tables and lists leave out are removed, and those that `select` removes, which
    /// also gets the inputs that have an error. `skip` takes inputs that cannot be packed.
    ///
    /// # Errors
    /// If `skip` fails; if tables and lists do not fit the inputs.
    pub fn complete(
        &mut self,
        inputs: Vec<Input>,
        select: &mut dyn FnMut(Vec<Completed>) -> Vec<Completed>,
        skip: &mut dyn FnMut(&Input, Error) -> Result<()>,
    ) -> Result<(Vec<Input>, Vec<String>)> {
        let mut completed = Vec::with_capacity(inputs.len());
        for input in inputs {
            match self.complete_one(input.clone()) {
                Ok(complete) => completed.extend(complete.map(|mut input| {
                    self.add_fields(&mut input);
                    (input, None)
                })),
                Err(error) => completed.push((input, Some(error))),
            }
        }
        let mut complete = Vec::with_capacity(completed.len());
        for (input, error) in select(completed) {
            match error {
                None => complete.push(input),
                Some(error) => skip(&input, error)?,
            }
        }
        self.check_found()?;
        let listed = lists::assign(&self.lists, &mut complete)?;
        if !self.lists.is_empty() {
            complete = self.listed(complete, &listed.is_listed, skip)?;
        }
        let has_pictures = self.options.label_patterns().any(pictures::may_be_of_several);
        for input in &mut complete {
            self.add_fields(input);
            // Only fields that are used are recorded.
            input.fields.retain(|field, _| self.used.contains(field));
            if self.used.contains("relative") || has_pictures {
                let relative = input.relative();
                input.fields.insert("relative".to_owned(), Some(relative));
            }
        }
        self.files.convert(&mut complete);
        let mut notes = self.notes();
        notes.extend(listed.notes);
        Ok((complete, notes))
    }

    /// An input with its name and the columns of its path and its row; `None` if it is left out.
    fn complete_one(&mut self, mut input: Input) -> Result<Option<Input>> {
        self.add_groups(&mut input)?;
        let default_name = match input.columns.get("name").and_then(Value::as_str) {
            Some(name) => name.to_owned(),
            None => input.default_name(),
        };
        self.set_name(&mut input, default_name);
        if self.tables_before_name == Some(0) {
            self.name(&mut input)?;
        }
        if !self.add_table_columns(&mut input)? {
            self.skipped += 1;
            return Ok(None);
        }
        if !self.add_file_columns(&mut input)? {
            self.skipped += 1;
            return Ok(None);
        }
        if self.tables_before_name.is_none() {
            self.name(&mut input)?;
        }
        Ok(Some(input))
    }

    /// Adds the columns of all tables. Returns whether the input is kept.
    fn add_table_columns(&mut self, input: &mut Input) -> Result<bool> {
        let mut cells = Map::new();
        for number in 0..self.tables.len() {
            if number > 0 && self.tables_before_name == Some(number) {
                self.name(input)?;
            }
            let Some(row) = self.row(number, input)? else {
                if self.options.unlisted == Some(Unlisted::Skip) {
                    return Ok(false);
                }
                continue;
            };
            let merged = self.tables.merge(number, row, &mut cells);
            merged.map_err(|error| error.at(&input.file))?;
            let name = input.columns.shift_remove("name");
            let added = cells.iter().map(|(column, value)| (column.clone(), value.clone()));
            input.columns.extend(added);
            input.columns.extend(name.map(|name| ("name".to_owned(), name)));
            self.add_fields(input);
        }
        Ok(true)
    }

    /// Adds the columns that files give. Returns whether the input is kept.
    fn add_file_columns(&mut self, input: &mut Input) -> Result<bool> {
        if self.files.names().next().is_none() {
            return Ok(true);
        }
        let missing = self.options.unlisted.unwrap_or(Unlisted::Error);
        let Some(columns) = self.files.read(input, missing)? else { return Ok(false) };
        input.columns.extend(columns);
        self.add_fields(input);
        Ok(true)
    }

    /// The inputs without those that are in no list and therefore left out.
    fn listed(
        &mut self,
        inputs: Vec<Input>,
        is_listed: &[bool],
        skip: &mut dyn FnMut(&Input, Error) -> Result<()>,
    ) -> Result<Vec<Input>> {
        let mut kept = Vec::with_capacity(inputs.len());
        for (input, is_listed) in inputs.into_iter().zip(is_listed) {
            match self.options.unlisted.unwrap_or(Unlisted::Keep) {
                _ if *is_listed => kept.push(input),
                Unlisted::Keep => kept.push(input),
                Unlisted::Skip => self.skipped += 1,
                Unlisted::Error => {
                    let name = name_of(&input);
                    let error = Error::conflict(format!("no list of {} has {name}", Opt::Split))
                        .at(&input.file)
                        .with_remedy(remedy![
                            "add it to a list, or pass ",
                            Opt::Unlisted.to("keep"),
                            " or ",
                            Opt::Unlisted.to("skip")
                        ]);
                    skip(&input, error)?;
                }
            }
        }
        Ok(kept)
    }

    /// Refuses a table of which no row was found.
    fn check_found(&self) -> Result<()> {
        for (member, text) in self.tables.iter().zip(&self.not_found) {
            let Some(text) = text.as_ref().filter(|_| !member.table.is_used()) else { continue };
            let key = member.table.key();
            let first = member.table.remaining().first().copied().unwrap_or_default().to_owned();
            let error = Error::conflict(format!(
                "no row of the table belongs to an input: the column {key} has values such as {first:?}, but the inputs have such as {text:?}"
            ));
            return Err(error.at(&member.file).with_remedy(remedy![
                "say what the column has for each cube, such as ",
                Opt::TableKey.to(format!("{key}={{stem}}"))
            ]));
        }
        Ok(())
    }

    /// Notes for the user about what did not match any input, and what was left out.
    fn notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        let has_files = self.files.names().next().is_some();
        let places = if has_files { "table, list or file" } else { "table or list" };
        match self.skipped {
            0 => {}
            1 => notes.push(format!("one input is left out: no {places} has it")),
            count => notes.push(format!("{count} inputs are left out: no {places} has them")),
        }
        for member in self.tables.iter() {
            let unused = member.table.remaining();
            let shown = unused[..unused.len().min(3)].join(", ");
            let table = match self.tables.len() {
                1 => "the table".to_owned(),
                _ => format!("the table {}", member.file.display()),
            };
            match unused.len() {
                0 => {}
                1 => notes.push(format!("one row of {table} matches no input: {shown}")),
                2 | 3 => {
                    notes.push(format!("{} rows of {table} match no input: {shown}", unused.len()));
                }
                more => notes.push(format!("{more} rows of {table} match no input: {shown}, …")),
            }
        }
        notes
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
        for field in columns.filter(|field| self.field_names.contains(*field)) {
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

    /// The row of a table for an input; `None` if it has none, and needs none.
    fn row(&mut self, number: usize, input: &Input) -> Result<Option<Map<String, Value>>> {
        let is_only = self.tables.len() == 1;
        let member = self.tables.get_mut(number);
        let text = match member.is_by_name() {
            true => Some(name_of(input).to_owned()),
            false => member.pattern().of(input)?,
        };
        let row = text.as_deref().and_then(|text| member.table.row(text));
        if row.is_some() || self.options.unlisted.is_some_and(|rule| rule != Unlisted::Error) {
            if row.is_none() {
                self.not_found[number].get_or_insert(text.unwrap_or_default());
            }
            return Ok(row);
        }
        let text = text.unwrap_or_default();
        let table = match is_only {
            true => "the table".to_owned(),
            false => format!("the table {}", member.file.display()),
        };
        let what = match member.is_by_name() {
            true => format!("{table} has no row named {text}"),
            false => format!("{table} has no row with {} {text}", member.table.key()),
        };
        Err(Error::conflict(what).at(&input.file).with_remedy(remedy![
            "add the row, or correct its name; or pass ",
            Opt::Unlisted.to("keep"),
            " or ",
            Opt::Unlisted.to("skip")
        ]))
    }
}

/// Notes about columns that replace those of a list of inputs or of paths.
fn replaced(inputs: &[Input], groups: Option<&Regex>, tables: &Tables) -> Vec<String> {
    let of_inputs = inputs.iter().flat_map(|input| input.columns.keys());
    let mut givers: BTreeMap<&str, String> =
        of_inputs.map(|column| (column.as_str(), "a list of inputs".to_owned())).collect();
    let groups = groups.into_iter().flat_map(|regex| regex.capture_names().flatten());
    let groups = groups.map(|group| (group, Opt::PathColumns.to_string()));
    let of_tables = tables.iter().flat_map(|Member { file, table, .. }| {
        let columns = table.columns().filter(|column| *column != table.key());
        columns.map(move |column| (column, file.display().to_string()))
    });
    let mut notes = Vec::new();
    for (column, giver) in groups.chain(of_tables).filter(|(column, _)| *column != "name") {
        if let Some(earlier) = givers.insert(column, giver.clone()) {
            notes
                .push(format!("the column {column:?} of {earlier} is replaced by that of {giver}"));
        }
    }
    notes
}

fn name_of(input: &Input) -> &str {
    input.columns.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Refuses a column for labels that does not exist.
fn check_label_column(label: Option<&str>, columns: &BTreeSet<String>) -> Result<()> {
    let Some(label) = label else { return Ok(()) };
    if columns.contains(label) {
        return Ok(());
    }
    let names: Vec<&str> = columns.iter().take(20).map(String::as_str).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(Error::conflict(format!("there is no column {label:?} for labels"))
        .with_remedy(format!("give one of the columns that there are: {names}")))
}

/// Adds with what and when a cube was measured, unless a table or the path says it.
pub(super) fn acquired(columns: &mut Map<String, Value>, acquisition: Option<Acquisition>) {
    let Some(Acquisition { sensor, time }) = acquisition else { return };
    columns.entry("sensor").or_insert_with(|| Value::from(sensor));
    if let Some(time) = time {
        columns.entry("time").or_insert_with(|| Value::from(time));
    }
}

/// Makes a label of the column for labels, and renames columns that have the name of a field that
/// hsipack writes itself: `id` becomes `table.id`.
///
/// # Errors
/// If a program gave such a column.
pub(super) fn finish(
    columns: &mut Map<String, Value>,
    label: Option<&str>,
    is_array: bool,
) -> Result<()> {
    if is_array {
        let mut unnamed = columns.clone();
        unnamed.remove("name");
        table::check_columns(&unnamed)?;
    }
    if let Some(column) = label.filter(|column| *column != "label") {
        if let Some(label) = columns.shift_remove("label") {
            columns.insert("table.label".to_owned(), label);
        }
        if let Some(label) = columns.get(column).filter(|label| !label.is_null()).cloned() {
            columns.insert("label".to_owned(), label);
        }
    }
    let reserved: Vec<String> = columns
        .keys()
        .filter(|name| *name != "name" && table::is_reserved(name))
        .cloned()
        .collect();
    for name in reserved {
        if let Some(value) = columns.shift_remove(&name) {
            columns.insert(format!("table.{name}"), value);
        }
    }
    Ok(())
}
