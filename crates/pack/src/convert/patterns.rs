//! The fields that path patterns of masks and references may have.

use hsipack_format::{Error, Result};

/// The fields and their meanings.
const FIELDS: [(&str, &str); 4] = [
    ("{dir}", "the cube's folder"),
    ("{stem}", "its file name without the ending"),
    ("{name}", "the sample's name"),
    ("{path}", "its whole path"),
];

/// Refuses patterns with an unknown field. `what` says what the pattern is for.
///
/// # Errors
/// If there is an unknown field. The error lists the known fields.
pub fn check_fields(what: &str, pattern: &str) -> Result<()> {
    let mut rest = pattern;
    while let Some((_, behind)) = rest.split_once('{') {
        let Some((field, after)) = behind.split_once('}') else { break };
        let field = format!("{{{field}}}");
        if !FIELDS.iter().any(|(known, _)| *known == field) {
            let known = FIELDS.map(|(known, meaning)| format!("{known} ({meaning})"));
            return Err(Error::conflict(format!(
                "the {what}'s path {pattern:?} has an unknown field {field}"
            ))
            .with_remedy(format!("use {}", known.join(", "))));
        }
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;

    use super::*;

    #[test]
    fn unknown_fields_are_refused_and_the_known_ones_listed() {
        for pattern in ["{foo}.png", "{dir}/{Stem}.png", "{}.png", "{dir}/{stem.png}"] {
            let error = check_fields("mask", pattern).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            let text = error.to_string();
            let known = ["{dir}", "{stem}", "{name}", "{path}"];
            assert!(known.iter().all(|field| text.contains(field)), "{text}");
        }
        for pattern in ["{dir}/{stem}_{name}.png", "{path}::gt", "a{b.png", "plain.png"] {
            check_fields("mask", pattern).unwrap();
        }
    }
}
