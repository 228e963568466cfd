//! Options and commands as they are typed in a shell.

use hsipack_format::remedy::{Setting, Surface, Value, joined};
use hsipack_format::{Command, Opt};

/// The command line, while one of the commands runs.
#[derive(Debug)]
pub struct Shell {
    all: clap::Command,
    running: String,
}

impl Shell {
    /// The shell of the program `all`, whose command `running` was typed.
    pub fn new(all: clap::Command, running: &str) -> Self {
        Self { all, running: running.to_owned() }
    }

    /// The option as `command` spells it, or `None` if the command does not have it.
    fn option_of(&self, command: &str, option: Opt) -> Option<String> {
        if means_else(command, option) {
            return None;
        }
        let command = self.all.find_subcommand(command)?;
        flags(option).into_iter().find_map(|flag| {
            let argument =
                command.get_arguments().find(|argument| argument.get_long() == Some(&flag))?;
            // It is better known by its letter.
            Some(match argument.get_short() {
                Some('o') => "-o".to_owned(),
                _ => format!("--{flag}"),
            })
        })
    }

    /// The option of the running command; otherwise the name of the first command that has it, and
    /// its option.
    fn found(&self, option: Opt) -> (Option<&str>, String) {
        if let Some(flag) = self.option_of(&self.running, option) {
            return (None, flag);
        }
        let commands = self.all.get_subcommands().map(clap::Command::get_name);
        let mut found = commands.filter_map(|name| Some((name, self.option_of(name, option)?)));
        let (name, flag) = found.next().expect("every option is one of some command");
        (Some(name), flag)
    }
}

impl Surface for Shell {
    fn option(&self, setting: &Setting) -> String {
        let (command, flag) = self.found(setting.option);
        let typed = with_value(&flag, setting);
        match command {
            Some(command) => format!("`hsipack {command} {typed}`"),
            None => typed,
        }
    }

    fn together(&self, settings: &[Setting]) -> String {
        let found: Vec<_> = settings.iter().map(|setting| self.found(setting.option)).collect();
        // If all options are from one other command, write them on one command line.
        if let Some((Some(command), _)) = found.first()
            && found.iter().all(|(other, _)| other == &Some(*command))
        {
            let typed =
                found.iter().zip(settings).map(|((_, flag), setting)| with_value(flag, setting));
            return format!("`hsipack {command} {}`", typed.collect::<Vec<_>>().join(" "));
        }
        joined(self, settings, " ")
    }

    fn command(&self, command: Command, setting: Option<&Setting>) -> String {
        let name = command.name();
        match (setting, command) {
            (Some(setting), _) => {
                let flag = self.option_of(name, setting.option);
                let flag = flag.unwrap_or_else(|| self.found(setting.option).1);
                format!("`hsipack {name} {}`", with_value(&flag, setting))
            }
            (None, Command::Validate | Command::Repair) => format!("`hsipack {name} DATASET`"),
            (None, Command::Work | Command::Commit) => format!("`hsipack {name} PLAN`"),
            (None, _) => format!("`hsipack {name}`"),
        }
    }
}

/// Whether the command has an option of that name with another meaning.
fn means_else(command: &str, option: Opt) -> bool {
    match option {
        // Here --mask names packed masks; `Opt::Mask` is the paths of masks to pack.
        Opt::Mask => {
            matches!(command, "read" | "preview" | "export" | "diagnose" | "spectra")
        }
        Opt::Masks => command == "convert",
        _ => false,
    }
}

/// The flags of an option, without dashes: its name with hyphens, except for these few. If commands
/// use different flags, the flag of commands that read comes first.
fn flags(option: Opt) -> Vec<String> {
    let names: &[&str] = match option {
        Opt::Masks => &["mask"],
        Opt::Crop => &["windows"],
        Opt::GridPad => &["pad"],
        Opt::Threads => &["threads", "workers"],
        _ => &[option.name()],
    };
    names.iter().map(|name| name.replace('_', "-")).collect()
}

fn with_value(flag: &str, setting: &Setting) -> String {
    let Some(value) = &setting.value else { return flag.to_owned() };
    match value {
        Value::Names(names) => {
            let each: Vec<String> =
                names.iter().map(|name| format!("{flag} {}", quoted(name))).collect();
            each.join(" ")
        }
        Value::Word(word) if setting.option == Opt::Order => {
            format!("{flag} {}", word.replace('_', "-"))
        }
        Value::Size([rows, columns]) if setting.option == Opt::Crop => {
            format!("{flag} random {rows}x{columns}")
        }
        Value::Bytes(bytes) if bytes % 1_000_000 == 0 => format!("{flag} {}MB", bytes / 1_000_000),
        value => format!("{flag} {}", quoted(&value.to_string())),
    }
}

/// Adds quotes where a shell would interpret the word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use hsipack_format::remedy;

    use super::*;

    fn shell(running: &str) -> Shell {
        Shell::new(crate::Cli::command(), running)
    }

    #[test]
    fn some_command_has_every_option_as_a_flag_or_with_a_value() {
        let all = crate::Cli::command();
        for option in Opt::ALL.iter().copied() {
            let mut found = 0;
            for command in all.get_subcommands() {
                let Some(flag) = shell("info").option_of(command.get_name(), option) else {
                    continue;
                };
                let spelled = |argument: &&clap::Arg| {
                    argument.get_long().is_some_and(|long| flag == format!("--{long}"))
                        || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
                };
                let argument = command.get_arguments().find(spelled).unwrap();
                let is_flag = matches!(argument.get_action(), clap::ArgAction::SetTrue);
                assert_eq!(is_flag, option.is_flag(), "{} {flag}", command.get_name());
                found += 1;
            }
            assert!(found > 0, "no command has {option:?}");
        }
    }

    #[test]
    fn every_command_is_one() {
        for command in Command::ALL {
            let spelled = shell("read").command(command, None);
            assert!(spelled.starts_with(&format!("`hsipack {}", command.name())), "{spelled}");
            assert!(crate::Cli::command().find_subcommand(command.name()).is_some(), "{spelled}");
        }
    }

    #[test]
    fn options_of_other_commands_are_named_with_theirs() {
        let labels = remedy!["use it as labels, with ", Opt::Mask];
        assert_eq!(labels.render(&shell("convert")), "use it as labels, with --mask");
        let elsewhere = "use it as labels, with `hsipack convert --mask`";
        assert_eq!(labels.render(&shell("info")), elsewhere);
        assert_eq!(labels.render(&shell("read")), elsewhere);
        let sample = remedy!["choose another ", Opt::Sample];
        let elsewhere = "choose another `hsipack preview --sample`";
        assert_eq!(sample.render(&shell("tune")), elsewhere);
        let fewer = remedy!["ask for fewer ", Opt::Threads];
        assert_eq!(fewer.render(&shell("read")), "ask for fewer --threads");
        assert_eq!(fewer.render(&shell("bench")), "ask for fewer --workers");
        assert_eq!(fewer.render(&shell("convert")), "ask for fewer --threads");
        let output = remedy!["choose another ", Opt::Output, ", or pass ", Opt::Force];
        assert_eq!(output.render(&shell("export")), "choose another -o, or pass --force");
    }

    #[test]
    fn values_are_spelled_for_a_shell() {
        let typed = |setting| shell("convert").option(&setting);
        assert_eq!(typed(Opt::Scale.to("auto")), "--scale auto");
        assert_eq!(typed(Opt::Mask.to("{stem}'s.png")), r"--mask '{stem}'\''s.png'");
        assert_eq!(typed(Opt::Chunk.to([64, 32])), "--chunk 64x32");
        let both = [Opt::White.to("auto"), Opt::Dark.to("auto")];
        assert_eq!(shell("convert").together(&both), "--white auto --dark auto");
        let read = |setting| shell("read").option(&setting);
        assert_eq!(read(Opt::CacheSize.to(Value::Bytes(51_000_000))), "--cache-size 51MB");
        assert_eq!(read(Opt::CacheSize.to(Value::Bytes(512))), "--cache-size 512");
        assert_eq!(read(Opt::Order.to("groups_spread")), "--order groups-spread");
        let names = Value::Names(vec!["a".into(), "b".into()]);
        assert_eq!(read(Opt::Masks.to(names)), "--mask a --mask b");
        let append = Command::Convert.with(Opt::Append).render(&shell("read"));
        assert_eq!(append, "`hsipack convert --append`");
    }

    /// The string literals of a source file before its tests, without comments.
    fn literals(source: &str) -> Vec<String> {
        let tests =
            ["#[cfg(test)]", "#[cfg(all(test,"].into_iter().filter_map(|at| source.find(at));
        let source = &source[..tests.min().unwrap_or(source.len())];
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        let mut literals = Vec::new();
        let mut remaining = code.as_str();
        while let Some(start) = remaining.find('"') {
            let quoted_mark =
                remaining[..start].ends_with('\'') && remaining[start + 1..].starts_with('\'');
            remaining = &remaining[start + 1..];
            if quoted_mark {
                continue;
            }
            let mut escaped = false;
            let end = remaining.find(|c: char| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = end.unwrap_or(remaining.len());
            literals.push(remaining[..end].to_owned());
            remaining = remaining.get(end + 1..).unwrap_or_default();
        }
        literals
    }

    /// Whether the literal is a sentence that spells an option for a shell.
    fn speaks_shell(literal: &str) -> bool {
        // Variables in style sheets start with --, too.
        let literal = literal.replace("var(--", "var(");
        let words: Vec<&str> = literal.split([' ', '\n', '`', '(']).collect();
        let option = |word: &&&str| {
            let name = word.strip_prefix("--").unwrap_or_default();
            **word == "-o" || name.starts_with(|c: char| c.is_ascii_lowercase())
        };
        words.len() > 1 && words.iter().filter(option).count() > 0
    }

    fn sources(folder: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => sources(&path, into),
                false => into.push(path),
            }
        }
    }

    #[test]
    fn the_libraries_spell_no_option_for_a_shell() {
        let sentence = |text: &str| literals(text).iter().any(|literal| speaks_shell(literal));
        assert!(sentence(r#"let c = '"'; error.with_remedy("pass --scale auto")"#));
        assert!(sentence(r#"with_remedy("choose \"another\" -o")"#));
        assert!(!sentence(r#"// "pass --scale auto""#) && !sentence(r#"args(["--measure"])"#));
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for library in ["format", "store", "augment", "torch", "pack", "read", "measure", "view"] {
            sources(&crates.join(library).join("src"), &mut files);
        }
        assert!(files.len() > 100, "{} files", files.len());
        let mut found = Vec::new();
        for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let shell = literals(&text).into_iter().filter(|literal| speaks_shell(literal));
            found.extend(shell.map(|literal| format!("{}: {literal:?}", file.display())));
        }
        assert!(found.is_empty(), "name these with `Opt`:\n{}", found.join("\n"));
    }
}
