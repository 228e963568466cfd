//! The syntax of an ENVI header: lines, keys and values, lists in braces. `header.rs` and
//! `bands.rs` interpret them.

use std::collections::BTreeMap;

use hsipack_format::{Error, Result};

pub(super) use crate::spectrum::spectrum_text::number;

/// The trimmed lines of a text, without blank lines and comments. Line endings of any system work.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(';'))
}

pub(super) fn is_first_line(line: &str) -> bool {
    line.strip_prefix("ENVI").is_some_and(|tail| tail.is_empty() || tail.starts_with([' ', '\t']))
}

/// Keys that determine the meaning of every byte. If one occurs twice, the values must agree.
const LAYOUT_KEYS: [&str; 8] = [
    "samples",
    "lines",
    "bands",
    "data type",
    "interleave",
    "byte order",
    "header offset",
    "file compression",
];

/// To find where a list without a closing brace ends, all lines after it are read.
const MAX_UNBALANCED: usize = 32;

/// The keys of a header, in lower case and with spaces between words, with all their values,
/// without braces.
pub(crate) struct Fields {
    values: BTreeMap<String, Vec<String>>,
    /// Keys whose lists have no closing brace.
    unclosed: Vec<String>,
}

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Fields> {
        let lines: Vec<&str> = lines(text).collect();
        let Some((_, mut remaining)) =
            lines.split_first().filter(|(first, _)| is_first_line(first))
        else {
            return Err(not_a_header(text));
        };
        let mut fields = Fields { values: BTreeMap::new(), unclosed: Vec::new() };
        let mut unbalanced = 0;
        while let Some((line, after)) = remaining.split_first() {
            remaining = after;
            let Some((key, value)) = line.split_once('=') else { continue };
            // Scripts write `wavelength_units`.
            let words = key.split(|letter: char| letter == '_' || letter.is_whitespace());
            let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
            let key = words.join(" ").to_lowercase();
            let Value { text, is_closed, is_balanced } = value_of(value.trim(), &mut remaining);
            unbalanced += usize::from(!is_balanced);
            if unbalanced > MAX_UNBALANCED {
                return Err(Error::malformed("the header has many lists without a closing brace")
                    .with_remedy("copy the header again, it may be damaged"));
            }
            if !is_closed {
                fields.unclosed.push(key.clone());
            }
            if !text.is_empty() {
                fields.values.entry(key).or_default().push(text);
            }
        }
        Ok(fields)
    }

    /// The keys with their last values.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().filter_map(|(key, values)| Some((key.as_str(), values.last()?.as_str())))
    }

    /// The value of `key`. If the key occurs more than once, the last value counts, as in other
    /// readers.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        Some(self.values.get(key)?.last()?.as_str())
    }

    /// The value of `key`, without a comment after it.
    pub(super) fn word(&self, key: &str) -> Option<&str> {
        let value = self.get(key)?.split(';').next()?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// The value of `key` as a whole number that is not negative.
    pub(super) fn whole(&self, key: &str) -> Result<Option<u64>> {
        let Some(word) = self.word(key) else { return Ok(None) };
        let whole = word.parse::<u64>().ok().or_else(|| {
            let value = number(word)?;
            let whole = value.fract() == 0.0 && (0.0..9e15).contains(&value);
            whole.then_some(value as u64)
        });
        match whole {
            Some(whole) => Ok(Some(whole)),
            None => Err(Error::malformed(format!("`{key}` is '{}', not a count", shorten(word)))
                .with_remedy(format!("correct `{key}` in the header"))),
        }
    }

    /// Notes about keys that occur more than once with different values, and about lists without an
    /// end. An error if the layout depends on a key that occurs more than once.
    pub(super) fn contradictions(&self) -> Result<Vec<String>> {
        let unclosed = |key: &String| {
            format!(
                "the list of `{}` has no closing brace; it is read up to the next key",
                shorten(key)
            )
        };
        let mut notes: Vec<String> = self.unclosed.iter().map(unclosed).collect();
        for (key, values) in &self.values {
            let differ = values.windows(2).any(|pair| !pair[0].eq_ignore_ascii_case(&pair[1]));
            if !differ {
                continue;
            }
            if LAYOUT_KEYS.contains(&key.as_str()) {
                let values: Vec<_> = values.iter().map(|value| shorten(value)).collect();
                return Err(Error::malformed(format!(
                    "the header contradicts itself: `{key}` is given as {}",
                    values.join(" and as ")
                ))
                .with_remedy(format!("keep the right `{key}` line")));
            }
            let (key, times) = (shorten(key), values.len());
            notes.push(format!("the header gives `{key}` {times} times; the last one is used"));
        }
        Ok(notes)
    }
}

/// A value.
struct Value {
    text: String,
    /// Whether a brace ends its list.
    is_closed: bool,
    /// Whether all braces in the list have an end.
    is_balanced: bool,
}

/// The value that starts with `first`. If it opens a brace or a bracket, the value continues to the
/// closing one. Takes the lines of the value from `remaining`.
fn value_of<'a>(first: &'a str, remaining: &mut &[&'a str]) -> Value {
    let opens = |line: &str| line.starts_with(['{', '[']);
    let first = match remaining.split_first() {
        Some((next, after)) if first.is_empty() && opens(next) => {
            *remaining = after;
            *next
        }
        _ => first,
    };
    if !opens(first) {
        return Value { text: continued(first, remaining), is_closed: true, is_balanced: true };
    }
    let (open, close) = if first.starts_with('{') { ('{', '}') } else { ('[', ']') };
    let lines = || std::iter::once(&first[1..]).chain(remaining.iter().copied());
    // Lists may contain lists.
    let mut depth = 1i64;
    let end = lines().position(|line| {
        depth += line.matches(open).count() as i64 - line.matches(close).count() as i64;
        depth <= 0
    });
    // Without an end, the list ends before the next key, or at the first brace before that.
    let (last, is_closed) = match end {
        Some(end) => (end, true),
        None => {
            let next = lines().skip(1).position(starts_with_key);
            let last = next.unwrap_or(remaining.len());
            match lines().take(last + 1).position(|line| line.contains(close)) {
                Some(end) => (end, true),
                None => (last, false),
            }
        }
    };
    let whole = lines().take(last + 1).collect::<Vec<_>>().join("\n");
    *remaining = &remaining[last..];
    let text = whole.rfind(close).filter(|_| is_closed).map_or(&whole[..], |end| &whole[..end]);
    Value { text: text.trim().to_owned(), is_closed, is_balanced: end.is_some() }
}

/// A list without braces continues on the next line if it ends with a comma.
fn continued<'a>(first: &'a str, remaining: &mut &[&'a str]) -> String {
    let mut text = first.to_owned();
    while text.ends_with(',')
        && let Some((next, after)) = remaining.split_first()
        && !next.contains('=')
    {
        *remaining = after;
        text.push('\n');
        text.push_str(next);
    }
    text
}

/// Whether a line is `key = value`, and not part of a list of numbers or names.
fn starts_with_key(line: &str) -> bool {
    let Some((key, _)) = line.split_once('=') else { return false };
    let is_key = |letter: char| letter.is_alphanumeric() || " _-()".contains(letter);
    key.starts_with(char::is_alphabetic) && key.chars().all(is_key)
}

fn not_a_header(text: &str) -> Error {
    // UTF-16 text, decoded as Latin-1, starts with its byte-order mark.
    if text.starts_with("\u{FF}\u{FE}") || text.starts_with("\u{FE}\u{FF}") {
        return Error::malformed("the header is UTF-16 text")
            .with_remedy("save it as plain text (UTF-8)");
    }
    let first = lines(text).next().unwrap_or_default();
    let what = if first.chars().any(char::is_control) || first.is_empty() {
        "not an ENVI header: it is not text that starts with the line ENVI".to_owned()
    } else {
        format!("not an ENVI header: its first line is '{}', not ENVI", shorten(first))
    };
    Error::malformed(what).with_remedy("give an ENVI header or its data file")
}

/// The items in a list of numbers. Writers differ in where they put commas.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| letter == ',' || letter.is_whitespace())
        .filter(|token| !token.is_empty())
}

/// A value from a file, short enough for a message.
pub(super) fn shorten(text: &str) -> String {
    const LONG: usize = 40;
    let mut short: String = text.chars().take(LONG).map(printable).collect();
    if text.chars().nth(LONG).is_some() {
        short.push('…');
    }
    short
}

fn printable(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}
