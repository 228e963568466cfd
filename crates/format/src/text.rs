//! Makes text from files safe to show to people.
//!
//! Names of files, samples and masks may contain anything. A terminal would execute control characters in them: clear
//! the screen, move the cursor, answer for the user. Characters that change the direction of writing make a name look
//! like another one.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::Path;

/// Whether a character controls how text is displayed: a control character (C0, DEL, C1), a line or paragraph
/// separator, or a character that changes the direction of writing.
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

/// JSON text with every control character in its strings written like `\u001b`. JSON itself escapes only those below
/// the space character.
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
