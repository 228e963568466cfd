//! Conditions on samples: `label == 'urban' and cloud < 10`.
//!
//! ```text
//! condition  = all ("or" all)*
//! all        = one ("and" one)*
//! one        = "not" one | "(" condition ")" | operand [comparison]
//! comparison = ("==" | "!=" | "<" | "<=" | ">" | ">=") operand | ["not"] "in" ("(" | "[") operand ("," operand)* (")" | "]")
//! operand    = column | 'text' | "text" | number | true | false | null
//! column     = letters, digits and _, or anything between two `
//! ```
//!
//! Columns are those of `samples.jsonl`. `true`, `false` and `null` may also be written `True`,
//! `False` and `None`. If a sample has no value in a column, the value is null: it equals only
//! null, and is neither less nor greater than anything. Values of different types are not equal;
//! comparing them with `<` or `>` is an error. A column alone is true if its value is `true`.
//! Numbers are compared by value.
//!
//! | file | job |
//! |---|---|
//! | `words.rs` | splits text into words, each with its position |
//! | `node.rs` | a condition: its parts, and the error that names a position |
//! | `parse.rs` | parses words into a condition |
//! | `evaluate.rs` | tests whether a sample fulfils it |

mod evaluate;
mod node;
mod parse;
mod words;

use super::Samples;
use crate::{Error, Result};
pub use node::Condition;
use node::{What, problem};

/// Columns that every list of samples has.
const BUILT_IN_COLUMNS: [&str; 9] =
    ["id", "name", "stack", "index", "split", "group", "label", "nan", "inf"];

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// If it is not a valid condition; the error names the position in the text.
    pub fn parse(text: &str) -> Result<Self> {
        let root = parse::condition(text)?;
        Ok(Self { text: text.to_owned(), root })
    }

    /// Names of the columns in the condition, in the order in which they first occur.
    fn columns(&self) -> Vec<(&str, usize)> {
        let mut all = Vec::new();
        self.root.each_operand(&mut |operand| {
            if let What::Column(name) = &operand.what
                && !all.iter().any(|(listed, _)| listed == name)
            {
                all.push((name.as_str(), operand.at));
            }
        });
        all
    }
}

impl Samples {
    /// The samples among `ids` that fulfil the condition, in the order of `ids`.
    ///
    /// # Errors
    /// If the condition names a column that does not exist, or compares a text with a number by `<`
    /// or `>`; if no sample fulfils it; if a line that is needed cannot be read.
    ///
    /// # Panics
    /// If one of the ids does not exist.
    pub fn matching(&self, ids: Vec<usize>, condition: &Condition) -> Result<Vec<usize>> {
        let first = ids.first().copied();
        let chosen = self.fulfilling(ids, condition)?;
        if !chosen.is_empty() {
            return Ok(chosen);
        }
        let error = Error::conflict(format!("no sample fulfils {}", condition.text));
        let used = condition.columns();
        Err(match first {
            Some(id) if !used.is_empty() => {
                let value = |(name, _): &(&str, usize)| {
                    Ok(format!("{name} {}", evaluate::value(self, id, name)?))
                };
                let values = used.iter().map(value).collect::<Result<Vec<String>>>()?;
                error.with_remedy(format!("sample '{}' has {}", self.name(id), values.join(", ")))
            }
            _ => error.with_remedy("choose others"),
        })
    }

    /// Like [`matching`](Self::matching), but it is not an error if no sample fulfils the
    /// condition.
    ///
    /// # Errors
    /// The other errors of [`matching`](Self::matching).
    ///
    /// # Panics
    /// If one of the ids does not exist.
    pub fn fulfilling(&self, ids: Vec<usize>, condition: &Condition) -> Result<Vec<usize>> {
        let used = condition.columns();
        let exists = |name: &str| {
            BUILT_IN_COLUMNS.contains(&name) || self.columns().iter().any(|column| column == name)
        };
        if let Some((name, at)) = used.iter().find(|(name, _)| !exists(name)) {
            let all: Vec<&str> = BUILT_IN_COLUMNS
                .into_iter()
                .chain(self.columns().iter().map(String::as_str))
                .collect();
            return Err(problem(&condition.text, *at, &format!("there is no column '{name}'"))
                .with_remedy(format!("the columns are {}; put text in quotes", all.join(", "))));
        }
        let mut chosen = Vec::new();
        for id in ids {
            if condition.is_fulfilled(self, id)? {
                chosen.push(id);
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests;
