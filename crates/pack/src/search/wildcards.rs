//! The texts that the stars of a glob matched: values of the fields `{1}`, `{2}`, …

use std::path::Path;

use hsipack_store::remote::is_of_web_server;
use regex::Regex;

use crate::input::Fields;

/// The place of the first character that makes a path a glob. In URLs of web servers, `?` begins a
/// query.
pub(super) fn first_wildcard(path: &str) -> Option<usize> {
    match is_of_web_server(Path::new(path)) {
        true => path.find(['*', '[']),
        false => path.find(['*', '?', '[']),
    }
}

/// The wildcards of a glob: `*` matches within a part of a path, and `**` any number of parts.
pub struct Wildcards(Option<Regex>);

impl Wildcards {
    /// Those of `glob`.
    pub fn of(glob: &str) -> Self {
        Self(Regex::new(&expression(glob)).ok())
    }

    /// Adds what they match in `text` to the fields, numbered after the numbers that are there.
    pub fn add(&self, text: &str, fields: &mut Fields) {
        let first = 1 + fields.keys().filter(|field| field.parse::<usize>().is_ok()).count();
        let found = self.0.as_ref().and_then(|expression| expression.captures(text));
        for (number, part) in found.iter().flat_map(|found| found.iter().skip(1)).enumerate() {
            let text = part.map_or("", |part| part.as_str());
            fields.insert((first + number).to_string(), Some(text.to_owned()));
        }
    }
}

/// The regular expression for a glob, with a group for each star. It may begin anywhere after a
/// slash, because paths that a glob finds are not always written as in the glob.
fn expression(glob: &str) -> String {
    let mut expression = String::from("(?:^|/)");
    let mut remaining = glob.trim_start_matches("./").trim_start_matches('/');
    while let Some(next) = remaining.chars().next() {
        let (part, len) = match next {
            '*' if remaining.starts_with("**/") => ("(?:(.*)/)?".to_owned(), 3),
            '*' if remaining.starts_with("**") => ("(.*)".to_owned(), 2),
            '*' => ("([^/]*)".to_owned(), 1),
            '?' => ("[^/]".to_owned(), 1),
            '[' if class(remaining).is_some() => class(remaining).unwrap_or_default(),
            other => (regex::escape(&other.to_string()), other.len_utf8()),
        };
        expression.push_str(&part);
        remaining = &remaining[len..];
    }
    expression.push('$');
    expression
}

/// The class of characters at the start of a glob, such as `[!0-9]`, as an expression, and its
/// length.
fn class(glob: &str) -> Option<(String, usize)> {
    // A bracket right after the opening one, or after `!`, belongs to the class.
    let begin = if glob.starts_with("[!") { 2 } else { 1 };
    let first = glob[begin..].chars().next()?.len_utf8();
    let end = begin + first + glob[begin + first..].find(']')?;
    let content = glob[begin..end].replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]");
    let negated = if begin == 2 { "^" } else { "" };
    Some((format!("[{negated}{content}]"), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(glob: &str, text: &str) -> Vec<String> {
        let mut fields = Fields::new();
        Wildcards::of(glob).add(text, &mut fields);
        fields.into_values().flatten().collect()
    }

    #[test]
    fn queries_of_web_servers_are_no_wildcards() {
        for (path, first) in [
            ("https://h/a.hdr?download=1", None),
            ("HTTP://h/*.hdr?download=1", Some(9)),
            ("http://h/[ab].hdr", Some(9)),
            ("s3://b/a?.hdr", Some(8)),
            ("a?.hdr", Some(1)),
            ("https/a?.hdr", Some(7)),
            ("a.hdr", None),
        ] {
            assert_eq!(first_wildcard(path), first, "{path}");
        }
    }

    #[test]
    fn each_star_gives_a_text() {
        for (glob, text, wanted) in [
            ("data/hyko2_*.h5", "data/hyko2_train.h5", &["train"][..]),
            ("/d/*/day?_*.npy", "/d/p1/day3_a.b.npy", &["p1", "a.b"]),
            ("./*.npy", "x.npy", &["x"]),
            ("a/**/c_*.npy", "a/b/b/c_1.npy", &["b/b", "1"]),
            ("a/**/c_*.npy", "a/c_1.npy", &["", "1"]),
            ("[a-c]*[!0-9].(npy)", "bxyz.(npy)", &["xy"]),
            ("[[x]*.npy", "[a.npy", &["a"]),
            ("a.npy", "a.npy", &[]),
            ("*.npy", "other.mat", &[]),
        ] {
            assert_eq!(matched(glob, text), wanted, "{glob}");
        }
    }

    #[test]
    fn numbers_go_on_after_those_of_the_file() {
        let mut fields = Fields::new();
        Wildcards::of("hyko2_*.h5").add("hyko2_train.h5", &mut fields);
        Wildcards::of("*/image").add("scene 1/image", &mut fields);
        assert_eq!(fields["1"].as_deref(), Some("train"));
        assert_eq!(fields["2"].as_deref(), Some("scene 1"));
    }
}
