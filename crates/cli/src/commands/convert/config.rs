//! `--config FILE`: options of `convert` from a TOML file.
//!
//! A key is the long name of an option without its dashes. A value is what would be typed after the
//! option, as a string or a number. `true` sets an option that takes no value; a list sets an
//! option several times. An option on the command line replaces the same option of the file as a
//! whole.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use hsipack_format::{Error, Result};
use toml::Value;

use super::Args;
use super::option_file::OptionFile;

/// Options that belong to one run, not into a file.
const NOT_HERE: [&str; 8] =
    ["config", "layout", "resume", "append", "dry-run", "plan", "json", "help"];

/// The arguments of the command line, and those of files that the command line does not give. A
/// file takes precedence over the files before it.
///
/// # Errors
/// If a file has a key that is not an option or a wrong value.
pub fn merge(files: &[OptionFile], command: &Command) -> Result<Args> {
    let typed: Vec<OsString> = std::env::args_os().collect();
    merge_with(files, command, &typed)
}

pub(super) fn merge_with(
    files: &[OptionFile],
    command: &Command,
    typed: &[OsString],
) -> Result<Args> {
    let parse = |words: Vec<OsString>| -> clap::error::Result<ArgMatches> {
        let mut matches = command.clone().try_get_matches_from(words)?;
        Ok(matches.remove_subcommand().expect("the command is convert").1)
    };
    // The options of files come right after `convert`.
    let after_command =
        typed.iter().position(|word| word == "convert").map_or(typed.len(), |at| at + 1);
    let with =
        |words: &[OsString]| [&typed[..after_command], words, &typed[after_command..]].concat();
    let mut matches = parse(typed.to_vec()).expect("the command line was parsed before");
    let explicit = matches.clone();
    let mut words = Vec::new();
    for (number, file) in files.iter().enumerate() {
        words.extend(words_of(file, &files[number + 1..], command, &explicit)?);
        // The command line was parsed before, so only options of the file can be wrong.
        matches = parse(with(&words)).map_err(|error| {
            let text = error.to_string();
            // An empty line separates tips and the usage from the error.
            let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
            let what = lines.collect::<Vec<_>>().join(" ");
            Error::conflict(what.trim_start_matches("error: ").to_owned())
                .at(&file.path)
                .with_remedy("see `hsipack convert --help` for what the option takes")
        })?;
    }
    Args::from_arg_matches(&matches).map_err(|error| Error::conflict(error.to_string()))
}

/// The options of a file as they would be typed, without those that the command line or a `later`
/// file gives.
fn words_of(
    file: &OptionFile,
    later: &[OptionFile],
    command: &Command,
    explicit: &ArgMatches,
) -> Result<Vec<OsString>> {
    let convert = command.find_subcommand("convert").expect("the command is convert");
    let is_explicit = |name: &str| {
        let id = name.replace('-', "_");
        explicit.value_source(&id) == Some(ValueSource::CommandLine)
            || later.iter().any(|file| file.options.contains_key(name))
    };
    let mut words = Vec::new();
    for (key, value) in &file.options {
        let arg = convert.get_arguments().find(|arg| arg.get_long() == Some(key));
        let arg = arg.filter(|_| !NOT_HERE.contains(&key.as_str())).ok_or_else(|| {
            Error::conflict(format!("{key} is not an option for configuration files"))
                .at(&file.path)
                .with_remedy("remove the key, or see `hsipack convert --help` for the names")
        })?;
        let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue);
        let spelled = spelled(key, value, takes_value).map_err(|error| error.at(&file.path))?;
        // If options exclude each other, one on the command line also overrides the other in the file.
        let is_rival = |other: &Arg| {
            let excludes =
                |first: &Arg, other: &Arg| convert.get_arg_conflicts_with(first).contains(&other);
            (excludes(arg, other) || excludes(other, arg))
                && other.get_long().is_some_and(is_explicit)
        };
        if !is_explicit(key) && !convert.get_arguments().any(is_rival) {
            words.extend(spelled.into_iter().map(OsString::from));
        }
    }
    Ok(words)
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
        Value::Array(list) if list.iter().all(|item| !item.is_array()) => {
            let each = list.iter().map(|item| spelled(key, item, true));
            Ok(each.collect::<Result<Vec<_>>>()?.concat())
        }
        _ => wrong("a string, a number or a list of them"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        merge_with(&[OptionFile::read(&file)?], &crate::Cli::command(), &typed)
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
    fn later_files_override_earlier_ones() {
        let file = |name: &str, text: &str| OptionFile::parse(Path::new(name), text).unwrap();
        let files = [
            file(
                "layout.toml",
                "codec = \"lz4\"\nlevel = 2\nbands = \"0-3\"\nexclude = [\"a\", \"b\"]",
            ),
            file("config.toml", "level = 5\nwavelengths = \"400-500\"\nexclude = \"c\""),
        ];
        let typed = ["hsipack", "convert", "in", "-o", "out"].map(OsString::from);
        let options = merge_with(&files, &crate::Cli::command(), &typed).unwrap().options;
        assert_eq!((options.layout.codec, options.layout.level), (Compressor::Lz4, 5));
        assert_eq!(options.values.bands, BandSelection::Wavelengths(vec![(400.0, 500.0)]));
        assert_eq!(options.exclude, ["c"]);
        let files = [file("layout.toml", "level = 12"), file("config.toml", "codec = \"lz4\"")];
        let Err(error) = merge_with(&files, &crate::Cli::command(), &typed) else {
            panic!("a level of 12 was accepted")
        };
        assert_eq!(error.path(), Some(Path::new("layout.toml")));
    }

    #[test]
    fn errors_of_configurations_name_the_key() {
        for (text, reason) in [
            ("codek = 1", "codek is not an option"),
            ("resume = true", "resume is not an option"),
            ("level = 12", "12"),
            ("mask-fill = 0", "required arguments were not provided: --mask"),
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
