//! Several tables that describe the same samples.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use serde_json::{Map, Value};

use super::options::TableOptions;
use super::rows::Rows;
use super::{File, Joined, Table};
use crate::convert::Assignment;
use crate::pattern::{Pattern, text_of};

/// The pattern of a table whose key is not given.
const NAME: &str = "{name}";

/// Tables in the order in which samples are looked up in them. No two have the same column, except
/// those that identify samples.
#[derive(Debug, Default)]
pub struct Tables {
    members: Vec<Member>,
    /// Notes about rows that no other table's row is joined to.
    pub notes: Vec<String>,
}

/// One of several tables.
#[derive(Debug)]
pub struct Member {
    /// The table, as the user gives it; empty for a table of a program.
    pub file: PathBuf,
    /// Rows by the text that identifies a sample.
    pub table: Table,
    pattern: String,
}

impl Tables {
    /// Reads tables, and adds the rows that `options` joins to them.
    ///
    /// # Errors
    /// If a file is not a table, lacks the column that identifies samples, or has a text in it
    /// twice; if two tables have the same column, or a join does not belong to exactly one of them.
    pub fn read(files: &[PathBuf], options: &TableOptions) -> Result<Self> {
        options.check(files.len())?;
        let opened: Vec<File> = files.iter().map(|file| File::open(file)).collect::<Result<_>>()?;
        let mut rows = Vec::with_capacity(files.len());
        for (number, file) in opened.iter().enumerate() {
            rows.push(file.rows(options.key_column(number))?);
        }
        let mut notes = Vec::new();
        for join in &options.table_join {
            let (owner, joined) = owner(join, &opened, &rows, options)?;
            let identifier = options.key_column(owner);
            notes.extend(opened[owner].join(&mut rows[owner], join, &joined, identifier)?);
        }
        let mut members = Vec::with_capacity(files.len());
        for (number, (file, mut rows)) in opened.iter().zip(rows).enumerate() {
            if options.key_column(number) != "name" && rows.id("table.name").is_none() {
                // Samples have names of their own.
                rows.rename("name", "table.name");
            }
            let table = Table::new(rows, options.key_column(number));
            members.push(Member {
                file: files[number].clone(),
                table: table.map_err(|error| error.at(&file.path))?,
                pattern: options.key(number).map_or(NAME, |key| &key.value).to_owned(),
            });
        }
        let tables = Self { members, notes };
        tables.check_columns()?;
        Ok(tables)
    }

    /// The table in a text of JSON.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of_json(text: &[u8], options: &TableOptions) -> Result<Self> {
        options.check(1)?;
        let table = Table::of_json(text, options.key_column(0))?;
        let pattern = options.key(0).map_or(NAME, |key| &key.value).to_owned();
        Ok(Self {
            members: vec![Member { file: PathBuf::new(), table, pattern }],
            notes: Vec::new(),
        })
    }

    /// Whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Number of tables.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// The tables, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// One of the tables.
    pub fn get_mut(&mut self, number: usize) -> &mut Member {
        &mut self.members[number]
    }

    /// Adds the `row` of table `number` to the cells that earlier tables have for a sample.
    ///
    /// # Errors
    /// If an earlier table has another value in a column that identifies samples.
    pub fn merge(
        &self,
        number: usize,
        row: Map<String, Value>,
        cells: &mut Map<String, Value>,
    ) -> Result<()> {
        for (column, value) in row {
            match cells.get(&column) {
                None => {
                    cells.insert(column, value);
                }
                Some(earlier) if is_same(earlier, &value) => {}
                Some(earlier) => {
                    let has = |member: &&Member| member.table.columns().any(|name| name == column);
                    let first = self.members.iter().find(has);
                    let first = first.map(|member| member.file.display().to_string());
                    return Err(Error::conflict(format!(
                        "two tables disagree on the column {column:?}: {} has {earlier}, {} has {value}",
                        first.unwrap_or_default(),
                        self.members[number].file.display(),
                    ))
                    .with_remedy("correct one of them, or rename the column in it"));
                }
            }
        }
        Ok(())
    }

    /// Refuses tables with a column in common that does not identify samples in any of them.
    fn check_columns(&self) -> Result<()> {
        let mut owners: HashMap<&str, &Member> = HashMap::new();
        for member in &self.members {
            // Samples get their names elsewhere.
            for column in member.table.columns().filter(|column| *column != "name") {
                let Some(first) = owners.insert(column, member) else { continue };
                if [first, member].iter().all(|member| member.table.key() != column) {
                    return Err(Error::conflict(format!(
                        "the column {column:?} is in two tables: {} and {}",
                        first.file.display(),
                        member.file.display()
                    ))
                    .with_remedy("rename it in one of them, or leave it out"));
                }
            }
        }
        Ok(())
    }
}

/// Whether two cells have the same value. Formats of tables differ in their types of whole numbers.
fn is_same(a: &Value, b: &Value) -> bool {
    let are_equal_numbers = || a.as_f64().is_some_and(|number| b.as_f64() == Some(number));
    text_of(a) == text_of(b) || are_equal_numbers()
}

/// The number of the table that a join adds rows to, and these rows.
fn owner(
    join: &Assignment,
    files: &[File],
    rows: &[Rows],
    options: &TableOptions,
) -> Result<(usize, Joined)> {
    let found = |number: usize| files[number].joined(join, options.key_column(number));
    if let [file] = files {
        let joined = found(0)?;
        return Ok((0, joined.ok_or_else(|| no_table(join).at(&file.path))?));
    }
    let mut fitting = Vec::new();
    for number in (0..files.len()).filter(|number| rows[*number].id(&join.value).is_some()) {
        fitting.extend(found(number)?.map(|joined| (number, joined)));
    }
    let shown = |files: Vec<&Path>| {
        files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
    };
    let what = match fitting.len() {
        0 => {
            let all = shown(files.iter().map(|file| &*file.path).collect());
            format!("{join} belongs to none of the tables {all}")
        }
        1 => return Ok(fitting.swap_remove(0)),
        _ => {
            let several = fitting.iter().map(|(number, _)| &*files[*number].path);
            format!("{join} may belong to each of the tables {}", shown(several.collect()))
        }
    };
    Err(Error::conflict(format!("{} {what}", Opt::TableJoin)).with_remedy(remedy![
        format!(
            "one table needs the column `{}` and the other table beside it; or give the other table with a further ",
            join.value
        ),
        Opt::Table,
        " and ",
        Opt::TableKey.to(format!("COLUMN={{{}}}", join.value))
    ]))
}

/// The error for a join of which no table is found.
fn no_table(join: &Assignment) -> Error {
    Error::conflict(format!("{join}: there is no table before the last dot")).with_remedy(remedy![
        "give ",
        Opt::TableJoin.to("OTHER.COLUMN=COLUMN"),
        ", where OTHER is a key of the JSON file, or another file"
    ])
}

impl Member {
    /// The pattern of the text that identifies a sample in the table.
    pub fn pattern(&self) -> Pattern<'_> {
        Pattern(&self.pattern)
    }

    /// Whether samples are identified by their names.
    pub fn is_by_name(&self) -> bool {
        self.pattern == NAME
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Tables in files of these names, and the options.
    fn read(files: &[(&str, &str)], keys: &[&str], joins: &[&str]) -> Result<Tables> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("more.csv"), "id,age\n1,30\n2,40\noak,50\n").unwrap();
        let mut paths = Vec::new();
        for (name, text) in files {
            let path = folder.path().join(name.split("::").next().unwrap());
            std::fs::write(path, text).unwrap();
            paths.push(folder.path().join(name));
        }
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let options = TableOptions {
            table_key: parse(keys),
            table_join: parse(joins),
            ..TableOptions::default()
        };
        Tables::read(&paths, &options)
    }

    fn merged(tables: &mut Tables, texts: &[&str]) -> Result<Value> {
        let mut cells = Map::new();
        for (number, text) in texts.iter().enumerate() {
            if let Some(row) = tables.get_mut(number).table.row(text) {
                tables.merge(number, row, &mut cells)?;
            }
        }
        Ok(Value::Object(cells))
    }

    const CSV: (&str, &str) = ("a.csv", "name,id,label\nx,1,oak\ny,2,ash\n");
    const JSON: (&str, &str) = (
        "b.json",
        r#"{"people": [{"id": 1.0, "sex": "f"}, {"id": 2.0, "sex": "m"}], "sites": [{"of": 2, "place": "A"}]}"#,
    );

    #[test]
    fn later_tables_add_their_columns() {
        let json = ("b.json::people", JSON.1);
        let mut tables =
            read(&[CSV, json], &["name={name}", "id={id}"], &["sites.of=id", "more.csv.id=label"])
                .unwrap();
        let row = merged(&mut tables, &["y", "2"]).unwrap();
        assert_eq!(row, json!({"id": 2, "label": "ash", "sex": "m", "of": 2, "place": "A"}));
        assert_eq!(merged(&mut tables, &["y", "9"]).unwrap(), json!({"id": 2, "label": "ash"}));
    }

    #[test]
    fn columns_of_two_tables_are_refused_with_both_files() {
        let other = ("c.tsv", "name\tlabel\nx\tfir\n");
        let error = read(&[CSV, other], &[], &[]).unwrap_err().to_string();
        assert!(error.contains("a.csv and ") && error.contains("c.tsv"), "{error}");
        // The same cube has another id in each.
        let other = ("c.csv", "name,id\nx,7\n");
        let mut tables = read(&[other, CSV], &["id={stem}", "name={name}"], &[]).unwrap();
        let error = merged(&mut tables, &["7", "x"]).unwrap_err().to_string();
        assert!(error.contains("c.csv has 7, ") && error.contains("a.csv has 1"), "{error}");
        assert!(merged(&mut tables, &["8", "x"]).is_ok());
    }

    #[test]
    fn one_key_is_that_of_all_tables_and_others_are_counted() {
        let other = ("c.csv", "name,age\nx,30\n");
        assert_eq!(read(&[CSV, other], &["name={stem}"], &[]).unwrap().len(), 2);
        let error = read(&[CSV, other, JSON], &["name={stem}", "a=b"], &[]).unwrap_err();
        assert!(error.to_string().contains("2 keys for 3 tables"), "{error}");
        assert!(read(&[CSV], &["name={stem}", "a=b"], &[]).is_err());
    }

    #[test]
    fn joins_belong_to_one_table() {
        let other = ("c.csv", "name,id,age\nx,1,3\n");
        for (tables, join, reason) in [
            (&[CSV, ("c.csv", "name,no\nx,1\n")][..], "nothing.of=id", "belongs to none"),
            (&[CSV, ("c.csv", "name,no\nx,1\n")], "more.csv.id=nothing", "belongs to none"),
            (&[CSV, other], "more.csv.id=id", "may belong to each"),
        ] {
            let error = read(tables, &[], &[join]).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("a.csv and "), "{error}");
        }
    }
}
