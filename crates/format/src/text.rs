//! Text from files: decodes it, and makes it safe to show to people.
//!
//! Names of files, samples and masks may contain anything. A terminal would execute control
//! characters in them: clear the screen, move the cursor, answer for the user. Characters that
//! change the direction of writing make a name look like another one.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

use crate::{Error, Result};

/// Decodes text that people write: UTF-8, or UTF-16 with a byte order mark. Such a mark at the
/// start is left out.
///
/// # Errors
/// If it is neither. The error names the line.
pub fn decode(bytes: Vec<u8>) -> Result<String> {
    let utf16 = |unit: fn([u8; 2]) -> u16| {
        let (units, odd) = bytes[2..].as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|bytes| unit(*bytes)).collect();
        let text = odd.is_empty().then(|| String::from_utf16(&units).ok()).flatten();
        text.ok_or_else(|| {
            Error::malformed("the text begins as UTF-16, but is damaged").with_remedy(AS_UTF8)
        })
    };
    match bytes.as_slice() {
        [0xFF, 0xFE, ..] => return utf16(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => return utf16(u16::from_be_bytes),
        _ => {}
    }
    let mut text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        Error::malformed(format!("line {line}: the text is not UTF-8")).with_remedy(AS_UTF8)
    })?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// The character between the cells of a table, and its lines: of commas, semicolons and tabs, the
/// one that the first line has most often. Spreadsheets may state it in a line `sep=;` before the
/// header; that line is empty in the returned lines, so that lines keep their numbers.
pub fn separator(table: &str) -> (u8, &str) {
    let stated = table.strip_prefix("sep=").and_then(|stated| stated.split_at_checked(1));
    if let Some((separator @ ("," | ";" | "\t"), remaining)) = stated
        && remaining.trim_start_matches('\r').starts_with('\n')
    {
        return (separator.as_bytes()[0], remaining);
    }
    let header = table.lines().next().unwrap_or_default();
    let count = |separator: &u8| header.bytes().filter(|byte| byte == separator).count();
    let separator = [b'\t', b';', b','].into_iter().max_by_key(count);
    (separator.unwrap_or(b','), table)
}

const AS_UTF8: &str = "save it as UTF-8; Excel calls it \"CSV UTF-8\"";

/// Whether a character controls how text is displayed: a control character (C0, DEL, C1), a line or
/// paragraph separator, or a character that changes the direction of writing.
pub fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// `text` with every control character, including newlines, written like `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_control, |out, character| {
        let _ = write!(out, "{}", character.escape_unicode());
    })
}

/// Like [`printable`], for text of several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |character| character != '\n' && is_control(character),
        |out, character| {
            let _ = write!(out, "{}", character.escape_unicode());
        },
    )
}

/// A path as text that is safe to show.
pub fn path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// JSON text with every control character in its strings written like `\u001b`. JSON itself escapes
/// only those below the space character.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(
        json,
        |character| character != '\n' && is_control(character),
        |out, character| {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        },
    )
}

fn escaped(
    text: &str,
    is_bad: impl Fn(char) -> bool,
    write: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_bad(character) {
            write(&mut out, character);
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_counted_or_stated() {
        for (table, separator, remaining) in [
            ("a,b\n1;2;3", b',', "a,b\n1;2;3"),
            ("a;b,c;d\n", b';', "a;b,c;d\n"),
            ("a\tb", b'\t', "a\tb"),
            ("a\nb", b',', "a\nb"),
            ("", b',', ""),
            ("sep=;\r\na;b\r\n", b';', "\r\na;b\r\n"),
            ("sep=,\na,b", b',', "\na,b"),
            ("sep=;a,b,c\n", b',', "sep=;a,b,c\n"),
            ("sep=é\n", b',', "sep=é\n"),
        ] {
            assert_eq!(super::separator(table), (separator, remaining), "{table:?}");
        }
    }

    #[test]
    fn text_is_utf8_or_marked_utf16() {
        let text = "name,ort\r\na,Köln 🌱\n";
        let of_units = |mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
            mark.into_iter().chain(text.encode_utf16().flat_map(bytes)).collect::<Vec<u8>>()
        };
        let (little, big) =
            (of_units([0xFF, 0xFE], u16::to_le_bytes), of_units([0xFE, 0xFF], u16::to_be_bytes));
        let marked = format!("\u{feff}{text}").into_bytes();
        for bytes in [text.as_bytes().to_vec(), marked, little.clone(), big] {
            assert_eq!(decode(bytes).unwrap(), text);
        }
        for (bytes, what) in [
            (b"name,ort\na,K\xF6ln\n".to_vec(), "line 2: the text is not UTF-8"),
            (little[..little.len() - 1].to_vec(), "begins as UTF-16"),
            (vec![0xFF, 0xFE, 0, 0xD8], "begins as UTF-16"),
        ] {
            let error = decode(bytes).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("CSV UTF-8"), "{error}");
        }
        assert_eq!(decode(Vec::new()).unwrap(), "");
    }

    #[test]
    fn orders_to_the_terminal_become_text() {
        assert_eq!(printable("\u{1b}[2Ja\nb\u{7f}\u{9b}c"), "\\u{1b}[2Ja\\u{a}b\\u{7f}\\u{9b}c");
        assert_eq!(printable("\u{202e}gpj.exe"), "\\u{202e}gpj.exe");
        assert_eq!(printable_lines("a\nb\r"), "a\nb\\u{d}");
        assert_eq!(path(Path::new("a\u{7}")), "a\\u{7}");
    }

    #[test]
    fn names_of_all_languages_stay() {
        for text in ["", "Gewebe_ä", "組織", "ткань", "نسيج", "a b.hdr", "👩‍🔬"]
        {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn json_stays_json() {
        let value = serde_json::json!({ "name\u{9b}": "\u{202e}\u{7f}\u{1b}\n\"" });
        let text = serde_json::to_string(&value).unwrap();
        let shown = printable_json(&text);
        assert!(!shown.contains(is_control), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&printable_json(&pretty)).unwrap(),
            value
        );
    }
}
