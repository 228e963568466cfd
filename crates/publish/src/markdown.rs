//! Text from files in Markdown and YAML.

use std::fmt::Write;

use hsipack_format::text;

/// Text that Markdown shows as it is, in one line.
pub(crate) fn escaped(words: &str) -> String {
    let mut all = String::with_capacity(words.len());
    for character in text::printable(words).chars() {
        match character {
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '&' => all.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '$' => {
                all.push('\\');
                all.push(character);
            }
            _ => all.push(character),
        }
    }
    all
}

/// A YAML string. Strings of JSON are strings of YAML.
pub(crate) fn yaml(words: &str) -> String {
    serde_json::to_string(words).expect("text is JSON")
}

/// A table: the cells are Markdown.
pub(crate) fn table(heads: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut all = line(&heads.iter().map(|head| (*head).to_owned()).collect::<Vec<_>>());
    all += &line(&vec!["---".to_owned(); heads.len()]);
    rows.into_iter().for_each(|row| all += &line(&row));
    all
}

/// A block of code, fenced by more backticks than it has in a row.
pub(crate) fn code(language: &str, text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let mut all = String::new();
    let _ = write!(all, "{fence}{language}\n{}\n{fence}\n", text.trim_end());
    all
}

/// A number in the shortest form that is exact to four digits.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value != 0.0 && !(1e-3..1e6).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let decimals = if magnitude >= 1000.0 {
        0
    } else if magnitude >= 100.0 {
        1
    } else {
        4
    };
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A count with spaces between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut all = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            all.push(' ');
        }
        all.push(digit);
    }
    all
}

/// Bytes with a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_cell() {
        assert_eq!(escaped("a|b<script>_x_\n"), "a\\|b&lt;script&gt;\\_x\\_\\\\u{a}");
        assert_eq!(yaml("a: \"b\"\n- c"), r#""a: \"b\"\n- c""#);
        assert_eq!(code("", "a```b"), "````\na```b\n````\n");
        assert_eq!(code("bibtex", "x\n"), "```bibtex\nx\n```\n");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.25, 399.123, 2500.4, 1e-5].map(number),
            ["0", "0.25", "399.1", "2500", "1.000e-5"]
        );
        assert_eq!([7, 1234, 1_234_567].map(count), ["7", "1 234", "1 234 567"]);
        assert_eq!([999, 1_500_000].map(bytes), ["999 bytes", "1.5 MB"]);
    }
}
