//! A condition and its parts.

use serde_json::Value;

use crate::Error;

/// A condition that a sample fulfils or not. The module's documentation describes the syntax.
///
/// ```
/// use hsipack_format::samples::Condition;
///
/// assert!(Condition::parse("label == 'urban' and not cloud > 10").is_ok());
/// let error = Condition::parse("label == 'urban' and (cloud < 10").unwrap_err();
/// assert_eq!(error.what(), "label == 'urban' and (cloud < 10: at the end: ')' is missing");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    pub(super) text: String,
    pub(super) root: Node,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Or(Vec<Node>),
    And(Vec<Node>),
    Not(Box<Node>),
    /// A column that has to be true.
    Is(Operand),
    Compare(Operand, Comparison, Operand),
    /// Whether the operand is one of these.
    In(Operand, Vec<Operand>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Operand {
    pub what: What,
    /// Position in the text, in characters from 0.
    pub at: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    Column(String),
    Value(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Node {
    pub(super) fn each_operand<'a>(&'a self, each: &mut impl FnMut(&'a Operand)) {
        match self {
            Self::Or(nodes) | Self::And(nodes) => {
                for node in nodes {
                    node.each_operand(each);
                }
            }
            Self::Not(node) => node.each_operand(each),
            Self::Is(operand) => each(operand),
            Self::Compare(left, _, right) => {
                each(left);
                each(right);
            }
            Self::In(operand, list) => {
                each(operand);
                list.iter().for_each(each);
            }
        }
    }
}

/// The error for a position in a condition.
pub(super) fn problem(text: &str, at: usize, what: &str) -> Error {
    let position = match text.chars().count() {
        end if at >= end => "at the end".to_owned(),
        _ => format!("at character {}", at + 1),
    };
    Error::conflict(format!("{text}: {position}: {what}"))
}
