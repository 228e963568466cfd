//! Whether a sample fulfils a condition.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde_json::Value;

use super::node::{Comparison, Condition, Node, Operand, What, problem};
use crate::Result;
use crate::samples::Samples;

/// Evaluation of a condition for one sample, with the values that were needed so far.
struct Evaluation<'a> {
    text: &'a str,
    samples: &'a Samples,
    id: usize,
    values: HashMap<&'a str, Value>,
}

impl Condition {
    /// Whether sample `id` fulfils the condition. All columns in the condition exist.
    pub(super) fn is_fulfilled(&self, samples: &Samples, id: usize) -> Result<bool> {
        let mut evaluation = Evaluation { text: &self.text, samples, id, values: HashMap::new() };
        for (name, _) in self.columns() {
            evaluation.values.insert(name, value(samples, id, name)?);
        }
        evaluation.holds(&self.root)
    }
}

impl Evaluation<'_> {
    fn holds(&self, node: &Node) -> Result<bool> {
        match node {
            Node::Or(nodes) => {
                for node in nodes {
                    if self.holds(node)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Node::And(nodes) => {
                for node in nodes {
                    if !self.holds(node)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Node::Not(node) => Ok(!self.holds(node)?),
            Node::Is(operand) => Ok(*self.value(operand) == Value::Bool(true)),
            Node::In(operand, list) => {
                let needle = self.value(operand);
                Ok(list.iter().any(|other| are_equal(needle, self.value(other))))
            }
            Node::Compare(left, Comparison::Equal, right) => {
                Ok(are_equal(self.value(left), self.value(right)))
            }
            Node::Compare(left, Comparison::Unequal, right) => {
                Ok(!are_equal(self.value(left), self.value(right)))
            }
            Node::Compare(left, comparison, right) => self.compare(left, *comparison, right),
        }
    }

    fn value<'a>(&'a self, operand: &'a Operand) -> &'a Value {
        match &operand.what {
            What::Value(value) => value,
            What::Column(name) => self.values.get(name.as_str()).unwrap_or(&Value::Null),
        }
    }

    fn compare(&self, left: &Operand, comparison: Comparison, right: &Operand) -> Result<bool> {
        let (a, b) = (self.value(left), self.value(right));
        let order = match (a, b) {
            (Value::Null, _) | (_, Value::Null) => return Ok(false),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
            _ => {
                let name = self.samples.name(self.id);
                let what = format!("sample '{name}': {a} and {b} cannot be compared");
                let error = problem(self.text, left.at, &what);
                return Err(error
                    .with_remedy("compare numbers with numbers, and texts with texts in quotes"));
            }
        };
        Ok(order.is_some_and(|order| match comparison {
            Comparison::Less => order == Ordering::Less,
            Comparison::LessOrEqual => order != Ordering::Greater,
            Comparison::Greater => order == Ordering::Greater,
            _ => order != Ordering::Less,
        }))
    }
}

/// Compares numbers by value: 1 equals 1.0.
fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// The value of a column for a sample; null if it has none.
///
/// # Errors
/// If its line cannot be read.
pub(super) fn value(samples: &Samples, id: usize, column: &str) -> Result<Value> {
    let text = |text: Option<&String>| text.map_or(Value::Null, |text| text.as_str().into());
    Ok(match column {
        "id" => id.into(),
        "name" => samples.name(id).into(),
        "index" => samples.index(id).into(),
        "split" => text(samples.splits().get(id)),
        "group" => text(samples.groups().get(id)),
        "label" => samples.labels().get(id).cloned().unwrap_or_default(),
        "stack" => samples.stack_name(id).into(),
        "nan" => samples.get(id)?.nan.into(),
        "inf" => samples.get(id)?.inf.into(),
        column => samples.get(id)?.columns.remove(column).unwrap_or_default(),
    })
}
