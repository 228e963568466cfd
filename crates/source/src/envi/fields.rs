//! The syntax of an ENVI header: lines, keys and values, lists in braces. `header.rs` and
//! `bands.rs` interpret them.

use std::collections::BTreeMap;
use std::iter::Peekable;

use hsipack_format::{Error, Result};

/// Decodes header text as UTF-8, or as Latin-1 if it is not valid UTF-8 (because of a `µ`, or a
/// name in `description`).
pub(crate) fn decode(bytes: &[u8]) -> String {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

/// The trimmed lines of a text, without blank lines and comments. Line endings of any system work.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with(';'))
}

pub(super) fn is_first_line(line: &str) -> bool {
    line.strip_prefix("ENVI").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
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

/// The keys of a header, in lower case, with all their values, without braces.
pub(crate) struct Fields(BTreeMap<String, Vec<String>>);

impl Fields {
    pub(crate) fn parse(text: &str) -> Result<Fields> {
        let mut lines = lines(text).peekable();
        if !lines.next().is_some_and(is_first_line) {
            return Err(not_a_header(text));
        }
        let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
        while let Some(line) = lines.next() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let key = key.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            let value = value_of(&key, value.trim(), &mut lines)?;
            if !value.is_empty() {
                fields.entry(key).or_default().push(value);
            }
        }
        Ok(Fields(fields))
    }

    /// The value of `key`. If the key occurs more than once, the last value counts, as in other
    /// readers.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        Some(self.0.get(key)?.last()?.as_str())
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

    /// Notes about keys that occur more than once with different values. An error if the layout
    /// depends on such a key.
    pub(super) fn duplicates(&self) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (key, values) in &self.0 {
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

/// The value that starts with `first`. If it opens a brace, the value continues to the closing
/// brace.
fn value_of<'a>(
    key: &str,
    first: &'a str,
    lines: &mut Peekable<impl Iterator<Item = &'a str>>,
) -> Result<String> {
    let opens_below = first.is_empty().then(|| lines.next_if(|line| line.starts_with('{')));
    let first = opens_below.flatten().unwrap_or(first);
    let Some(mut line) = first.strip_prefix('{') else { return Ok(first.to_owned()) };
    let mut value = String::new();
    loop {
        if let Some(end) = line.rfind('}') {
            value.push_str(&line[..end]);
            return Ok(value.trim().to_owned());
        }
        value.push_str(line);
        value.push('\n');
        line = lines.next().ok_or_else(|| {
            Error::malformed(format!("the list of `{}` has no closing brace", shorten(key)))
                .with_remedy("copy the header again, it may be cut short, or add the brace")
        })?;
    }
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

/// Parses a number, also as IDL and Fortran write it (`1.5d+02`).
pub(super) fn number(text: &str) -> Option<f64> {
    let text = text.trim().trim_matches('"');
    text.parse().ok().or_else(|| text.replace(['d', 'D'], "e").parse().ok())
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
