//! Turns errors into messages and exit codes.

use std::process::ExitCode;

use hsipack_format::{Error, ErrorKind, text};

/// Exit code of a command that the user stopped.
const STOPPED: u8 = 130;

/// Prints an error and returns its exit code.
pub fn report(error: Error) -> ExitCode {
    note!("hsipack: {}", message(&error));
    ExitCode::from(if error.kind() == ErrorKind::Interrupted { STOPPED } else { 1 })
}

/// The error on one line; if the user has to choose, the choices, one per line.
fn message(error: &Error) -> String {
    if error.choices().is_empty() {
        return error.to_string();
    }
    let path = error.path().map_or(String::new(), |path| format!("{}: ", text::path(path)));
    let lines = error.choices().iter().map(|choice| format!("\n  {}", text::printable(choice)));
    let lines: String = lines.collect();
    let remedy = error.remedy().map_or(String::new(), |remedy| format!("\n({remedy})"));
    format!("{path}{}:{lines}{remedy}", error.what())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_stand_one_a_line() {
        let error = Error::ambiguous("the file holds several cubes")
            .with_choices(vec!["a.h5::/x (1x2x3)".into(), "a.h5::/y (4x5x6)".into()])
            .at("d/a.h5")
            .with_remedy("name one");
        assert_eq!(
            message(&error),
            "d/a.h5: the file holds several cubes:\n  a.h5::/x (1x2x3)\n  a.h5::/y (4x5x6)\n(name one)"
        );
    }
}
