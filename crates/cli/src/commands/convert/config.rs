//! `--config FILE`: options of `convert` from a TOML file.
//!
//! A key is the long name of an option without its dashes. A value is what would be typed after the option, as a string
//! or a number. `true` sets an option that takes no value; a list sets an option several times. An option on the command
//! line replaces the same option of the file as a whole.

use std::ffi::OsString;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use hsipack_format::{Error, Result};
use toml::{Table, Value};

use super::Args;

/// Options that belong to one run, not into a file.
const NOT_HERE: [&str; 8] =
    ["output", "config", "resume", "append", "dry-run", "plan", "json", "help"];

/// The arguments of the command line, and those of the file that the command line does not give.
///
/// # Errors
/// If the file cannot be read, is not TOML, or has a key that is not an option or a wrong value.
pub fn merge(file: &Path, command: Command) -> Result<Args> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    merge_with(file, command, &typed)
}

fn merge_with(file: &Path, command: Command, typed: &[OsString]) -> Result<Args> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::io(file, "cannot read the options", error))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        Error::malformed(format!("line {line} is not TOML: {}", error.message()))
            .at(file)
            .with_remedy("write options as in codec = \"zstd\", one a line")
    })?;
    // The command line was parsed before, so only options from the file can be wrong.
    let parse = |words: Vec<OsString>| -> Result<ArgMatches> {
        let mut matches = command.clone().try_get_matches_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Error::conflict(first.trim_start_matches("error: ").to_owned())
                .at(file)
                .with_remedy("see `hsipack convert --help` for what the option takes")
        })?;
        let own = matches.remove_subcommand();
        Ok(own.expect("the command is convert").1)
    };
    let known = command.find_subcommand("convert").expect("the command is convert");
    let explicit = parse(typed.to_vec())?;
    let is_explicit = |name: &str| {
        let id = name.replace('-', "_");
        explicit.value_source(&id) == Some(ValueSource::CommandLine)
    };
    let mut words = Vec::new();
    for (key, value) in &table {
        let found = known.get_arguments().find(|arg| arg.get_long() == Some(key));
        let arg = found.filter(|_| !NOT_HERE.contains(&key.as_str())).ok_or_else(|| {
            Error::conflict(format!("{key} is not an option for configuration files"))
                .at(file)
                .with_remedy("remove the key, or see `hsipack convert --help` for the names")
        })?;
        let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue);
        let own = spelled(key, value, takes_value).map_err(|error| error.at(file))?;
        // If options exclude each other, one on the command line also overrides the other in the file.
        let rival = |other: &Arg| {
            let excludes =
                |one: &Arg, other: &Arg| known.get_arg_conflicts_with(one).contains(&other);
            (excludes(arg, other) || excludes(other, arg)) && is_explicit(other.get_id().as_str())
        };
        if !is_explicit(key) && !known.get_arguments().any(rival) {
            words.extend(own);
        }
    }
    // The options of the file come right after `convert`.
    let place = typed.iter().position(|word| word == "convert").map_or(typed.len(), |at| at + 1);
    let mut all = typed[..place].to_vec();
    all.extend(words.into_iter().map(OsString::from));
    all.extend_from_slice(&typed[place..]);
    Args::from_arg_matches(&parse(all)?)
        .map_err(|error| Error::conflict(error.to_string()).at(file))
}

/// An option as it would be typed.
fn spelled(key: &str, value: &Value, takes_value: bool) -> Result<Vec<String>> {
    let wrong = |takes: &str| {
        Err(Error::conflict(format!("{key} has the type {}, not {takes}", value.type_str()))
            .with_remedy(format!("give {key} {takes}")))
    };
    if !takes_value {
        return match value {
            Value::Boolean(true) => Ok(vec![format!("--{key}")]),
            Value::Boolean(false) => Ok(Vec::new()),
            _ => wrong("true or false"),
        };
    }
    match value {
        Value::String(text) => Ok(vec![format!("--{key}={text}")]),
        Value::Integer(number) => Ok(vec![format!("--{key}={number}")]),
        Value::Float(number) => Ok(vec![format!("--{key}={number}")]),
        Value::Array(list) if list.iter().all(|one| !one.is_array()) => {
            let each = list.iter().map(|one| spelled(key, one, true));
            Ok(each.collect::<Result<Vec<_>>>()?.concat())
        }
        _ => wrong("a string, a number or a list of them"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use hsipack_format::Compressor;
    use hsipack_pack::convert::{BandSelection, KeepBits};

    use super::*;

    fn merged(text: &str, words: &[&str]) -> Result<Args> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c.toml");
        std::fs::write(&file, text).unwrap();
        let typed: Vec<OsString> = ["hsipack", "convert", "in", "-o", "out"]
            .iter()
            .chain(words)
            .map(|word| OsString::from(*word))
            .collect();
        merge_with(&file, crate::Cli::command(), &typed)
    }

    #[test]
    fn the_file_gives_what_is_not_typed() {
        let text = "codec = \"zstd\"\nlevel = 3\nkeep-bits = 7\nscale = 0.5\nraw-values = true\nexclude = [\"a\", \"b\"]\n";
        let options = merged(text, &[]).unwrap().options;
        assert_eq!((options.layout.codec, options.layout.level), (Compressor::Zstd, 3));
        assert_eq!(options.values.keep_bits, KeepBits::Bits(7));
        assert!(options.values.raw_values && options.exclude == ["a", "b"]);
        let words = ["--level", "1", "--keep-bits=auto", "--exclude", "c"];
        let options = merged(text, &words).unwrap().options;
        assert_eq!((options.layout.codec, options.layout.level), (Compressor::Zstd, 1));
        assert_eq!(options.values.keep_bits, KeepBits::Auto);
        assert_eq!(options.exclude, ["c"]);
        let bands = |text, words| merged(text, words).unwrap().options.values.bands;
        let ranges = BandSelection::Wavelengths(vec![(400.0, 500.0)]);
        assert_eq!(bands("bands = \"0-3\"", &["--wavelengths", "400-500"]), ranges);
        let numbers = bands("wavelengths = \"400-500\"", &["--bands", "1"]);
        assert_eq!(numbers, BandSelection::Numbers(vec![1]));
        assert!(!merged("raw-values = false", &[]).unwrap().options.values.raw_values);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, reason) in [
            ("codek = 1", "codek is not an option"),
            ("output = \"x\"", "output is not an option"),
            ("level = 12", "12"),
            ("codec = true", "codec has the type boolean"),
            ("raw-values = 1", "raw-values has the type integer"),
            ("level", "line 1 is not TOML"),
            ("level = 1\n\n[layout]\nx = 1", "layout is not an option"),
            ("[table]\nx = 1", "table has the type table"),
        ] {
            let Err(error) = merged(text, &[]) else { panic!("{text} was taken") };
            assert!(error.what().contains(reason), "{text}: {error}");
            assert!(error.path().is_some() && error.remedy().is_some(), "{error}");
        }
    }
}
