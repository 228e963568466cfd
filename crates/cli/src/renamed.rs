//! Options and commands that had other names: the error of an old name tells the new one.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands, an option that they had, and how to write it.
const OPTIONS: &[(&[&str], &str, &str)] = &[
    (&["convert"], "--ignore-value", "--nodata VALUE"),
    (&["convert"], "--shuffle", "--filter NAME"),
    (&["convert", "work"], "--memory", "--buffer-size BYTES"),
    (&["read", "diagnose"], "--classes", "--only-classes LIST"),
    (&["tune"], "--sample", "--sample-size BYTES"),
    (&["info"], "--classes", "--count-classes"),
    (&["read", "diagnose"], "--crop", "--windows random ROWSxCOLUMNS"),
    (&["read"], "--centre-crop", "--windows center ROWSxCOLUMNS"),
    (&["read"], "--center-crop", "--windows center ROWSxCOLUMNS"),
    (&["read"], "--grid", "--windows grid ROWSxCOLUMNS"),
    (&["read", "diagnose"], "--jobs", "--threads N"),
    (&["read", "diagnose"], "--workers", "--threads N"),
    (&["view"], "--mask", "--mask-file NAME=PATTERN"),
];

/// Commands that had another name, and how to write them.
const COMMANDS: &[(&str, &str)] = &[("cache", "hsipack local-cache DIR")];

/// Values of an option that are those of another option.
const VALUES: &[(&str, &[&str], &str)] = &[("--nodata <VALUE>", &["nan", "error"], "--fill")];

/// Options that became a command.
const TO_COMMANDS: &[(&str, &str, &str)] = &[("work", "--watch", "hsipack status PLAN")];

/// The error of `command`, with the new name in it if an old one was typed.
pub fn with_new_name(mut error: clap::Error, command: &str) -> clap::Error {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (typed, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let new = match error.kind() {
        ErrorKind::UnknownArgument => option(command, &typed),
        ErrorKind::InvalidSubcommand => {
            let typed = context(ContextKind::InvalidSubcommand);
            COMMANDS.iter().find(|(old, _)| *old == typed).map(|(_, new)| format!("write '{new}'"))
        }
        ErrorKind::ValueValidation => VALUES
            .iter()
            .find(|(option, values, _)| *option == typed && values.contains(&&*value))
            .map(|(_, _, new)| format!("write '{new} {value}' to say what missing values become")),
        _ => None,
    };
    if let Some(new) = new {
        error.remove(ContextKind::SuggestedArg);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![new.into()]));
    }
    error
}

fn option(command: &str, typed: &str) -> Option<String> {
    let renamed =
        OPTIONS.iter().find(|(commands, old, _)| commands.contains(&command) && *old == typed);
    let moved = TO_COMMANDS.iter().find(|(of, old, _)| *of == command && *old == typed);
    renamed
        .map(|(_, _, new)| *new)
        .or(moved.map(|(_, _, new)| *new))
        .map(|new| format!("write '{new}'"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn refused(words: &[&str]) -> String {
        let typed = ["hsipack"].iter().chain(words);
        let error = crate::Cli::command().try_get_matches_from(typed).unwrap_err();
        with_new_name(error, words[0]).to_string()
    }

    #[test]
    fn errors_of_old_names_tell_the_new_ones() {
        for (typed, new) in [
            (&["convert", "a", "-o", "b", "--ignore-value", "0"][..], "--nodata VALUE"),
            (&["convert", "a", "-o", "b", "--nodata", "nan"], "--fill nan"),
            (&["work", "plan.json", "--watch"], "hsipack status PLAN"),
            (&["cache", "folder"], "hsipack local-cache DIR"),
            (&["info", "a", "--classes"], "--count-classes"),
        ] {
            let text = refused(typed);
            assert!(text.contains(&format!("write '{new}")), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
        assert!(!refused(&["info", "a", "--colours"]).contains("write"));
        assert!(!refused(&["convert", "a", "-o", "b", "--nodata", "x"]).contains("--fill"));
    }

    #[test]
    fn new_names_exist_and_old_ones_do_not() {
        let program = crate::Cli::command();
        let has = |command: &str, flag: &str| {
            let command = program.find_subcommand(command).unwrap();
            command.get_arguments().any(|arg| arg.get_long() == flag.strip_prefix("--"))
        };
        for (commands, old, new) in OPTIONS {
            let new = new.split(' ').next().unwrap();
            for command in *commands {
                assert!(!has(command, old) && has(command, new), "{command} {old} {new}");
            }
        }
        for (old, new) in
            COMMANDS.iter().copied().chain(TO_COMMANDS.iter().map(|(_, old, new)| (*old, *new)))
        {
            let new = new.split(' ').nth(1).unwrap();
            assert!(
                program.find_subcommand(old).is_none() && program.find_subcommand(new).is_some()
            );
        }
    }
}
