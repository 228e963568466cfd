//! Splits text into words, each with its position.

use serde_json::{Number, Value};

use super::node::problem;
use crate::Result;

/// A word of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    /// A column's name.
    Column(String),
    /// A text, a number, true, false or null.
    Value(Value),
    /// `and`, `or`, `not`, `in`, a comparison, a bracket or a comma.
    Sign(&'static str),
}

/// Words that cannot be column names.
const KEYWORDS: [&str; 4] = ["and", "or", "not", "in"];
/// A longer sign comes before the shorter sign it begins with.
const SIGNS: [&str; 11] = ["==", "!=", "<=", ">=", "<", ">", "(", ")", "[", "]", ","];

/// All words, each with the position of its first character, from 0.
pub(super) fn words(text: &str) -> Result<Vec<(usize, Word)>> {
    let characters: Vec<char> = text.chars().collect();
    let mut words = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        let remaining = &characters[at..];
        let (word, len) = match remaining[0] {
            space if space.is_whitespace() => {
                at += 1;
                continue;
            }
            quote @ ('\'' | '"' | '`') => quoted(text, at, remaining, quote)?,
            first if first.is_ascii_digit() || "+-.".contains(first) => {
                number(text, at, remaining)?
            }
            first if first.is_alphabetic() || first == '_' => name(remaining),
            _ => sign(text, at, remaining)?,
        };
        words.push((at, word));
        at += len;
    }
    Ok(words)
}

/// A text in quotes, or a column name in backquotes. `\` escapes a quote or another `\`.
fn quoted(text: &str, at: usize, remaining: &[char], quote: char) -> Result<(Word, usize)> {
    let (mut inside, mut offset) = (String::new(), 1);
    loop {
        match (remaining.get(offset), remaining.get(offset + 1)) {
            (None, _) => return Err(problem(text, at, &format!("{quote} is not closed"))),
            (Some(character), _) if *character == quote => break,
            (Some('\\'), Some(next)) if *next == quote || *next == '\\' => {
                inside.push(*next);
                offset += 2;
            }
            (Some(character), _) => {
                inside.push(*character);
                offset += 1;
            }
        }
    }
    let word = if quote == '`' { Word::Column(inside) } else { Word::Value(inside.into()) };
    Ok((word, offset + 1))
}

fn number(text: &str, at: usize, remaining: &[char]) -> Result<(Word, usize)> {
    let mut len = 1;
    while let Some(next) = remaining.get(len) {
        let after_exponent = matches!(remaining[len - 1], 'e' | 'E') && matches!(next, '+' | '-');
        if !(next.is_ascii_alphanumeric() || ".".contains(*next) || after_exponent) {
            break;
        }
        len += 1;
    }
    let digits: String = remaining[..len].iter().collect();
    let plain = digits.strip_prefix('+').unwrap_or(&digits);
    let whole = plain.parse::<i64>().ok().map(Number::from);
    let number = whole.or_else(|| plain.parse::<f64>().ok().and_then(Number::from_f64));
    match number {
        Some(number) => Ok((Word::Value(Value::Number(number)), len)),
        None => Err(problem(text, at, &format!("'{digits}' is not a number"))),
    }
}

fn name(remaining: &[char]) -> (Word, usize) {
    let is_of_name = |character: &&char| character.is_alphanumeric() || **character == '_';
    let name: String = remaining.iter().take_while(is_of_name).collect();
    let len = name.chars().count();
    let word = match name.as_str() {
        "true" | "True" => Word::Value(true.into()),
        "false" | "False" => Word::Value(false.into()),
        "null" | "None" => Word::Value(Value::Null),
        word => match KEYWORDS.into_iter().find(|keyword| *keyword == word) {
            Some(keyword) => Word::Sign(keyword),
            None => Word::Column(name),
        },
    };
    (word, len)
}

fn sign(text: &str, at: usize, remaining: &[char]) -> Result<(Word, usize)> {
    let begins =
        |sign: &&str| sign.chars().zip(remaining).filter(|(a, b)| a == *b).count() == sign.len();
    match SIGNS.into_iter().find(|sign| begins(sign)) {
        Some(sign) => Ok((Word::Sign(sign), sign.len())),
        None => {
            let what = match remaining[0] {
                '=' => "'=' does not compare values; write '=='".to_owned(),
                '&' | '|' | '!' | '~' => {
                    format!("write 'and', 'or' or 'not' for '{}'", remaining[0])
                }
                other => format!("'{other}' is not allowed here"),
            };
            Err(problem(text, at, &what))
        }
    }
}
