//! How helps are arranged: commands in groups, and in `-h` of commands with many options the ten
//! that people use most. `--help` lists all.

use clap::Command;

/// Headings of the commands, and the commands below them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Pack", &["convert", "layouts", "merge", "add", "split", "table", "work", "status", "commit"]),
    ("Look", &["info", "preview", "view", "spectra", "export", "card"]),
    ("Measure", &["read", "bench", "diagnose", "simulate", "tune"]),
    ("Maintain", &["validate", "repair", "local-cache", "completions", "man", "help"]),
];

/// The program, whose help lists its commands in groups.
pub fn grouped(program: Command) -> Command {
    let about = |name: &str| match name {
        "help" => "Print this message, or the help of a command".to_owned(),
        _ => {
            let command = program.find_subcommand(name).expect("a command");
            command.get_about().expect("every command has one").to_string()
        }
    };
    let lines = |(heading, names): &(&str, &[&str])| {
        let lines = names.iter().map(|name| format!("  {name:<13}{}\n", about(name)));
        format!("{heading}:\n{}\n", lines.collect::<String>())
    };
    let groups: String = GROUPS.iter().map(lines).collect();
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

/// The options that `-h` shows of each of these commands, by their names.
const SHOWN: [(&str, [&str; 10]); 4] = [
    (
        "convert",
        [
            "output", "layout", "append", "resume", "dry-run", "exclude", "axes", "table", "split",
            "mask",
        ],
    ),
    (
        "read",
        [
            "batch-size",
            "epochs",
            "step-time",
            "split",
            "windows",
            "patch",
            "threads",
            "cache",
            "local-cache",
            "json",
        ],
    ),
    (
        "bench",
        [
            "cubes",
            "shape",
            "strategies",
            "rate-limit",
            "batch-size",
            "workers",
            "step-time",
            "device",
            "json",
            "html",
        ],
    ),
    (
        "diagnose",
        [
            "step-time",
            "network",
            "batch-size",
            "augment",
            "windows",
            "patch",
            "device",
            "threads",
            "cold",
            "verify",
        ],
    ),
];

/// The program, whose commands have short helps.
pub fn shortened(program: Command) -> Command {
    SHOWN.into_iter().fold(program, |program, (name, shown)| {
        program.mut_subcommand(name, |command| {
            let note = "Options that are used less often: see --help";
            command.after_help(note).mut_args(|arg| {
                let is_shown = arg.get_long().is_none_or(|long| shown.contains(&long));
                arg.hide_short_help(!is_shown)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_fits_on_a_line() {
        let program = crate::Cli::command();
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.to_vec()).collect();
        listed.sort_unstable();
        let mut names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
        names.push("help");
        names.sort_unstable();
        assert_eq!(listed, names);
        let help = grouped(program).render_help().to_string();
        let lines = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let long: Vec<_> = lines.filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{long:?}");
        assert!(help.contains("\nMeasure:\n  read         Measure the loader"), "{help}");
    }

    #[test]
    fn short_helps_name_options_that_exist() {
        let program = crate::Cli::command();
        for (name, shown) in SHOWN {
            let command = program.find_subcommand(name).unwrap();
            for option in shown {
                let exists = command.get_arguments().any(|arg| arg.get_long() == Some(option));
                assert!(exists, "{name} --{option}");
            }
        }
    }

    #[test]
    fn short_helps_are_short_and_long_ones_complete() {
        let mut program = shortened(crate::Cli::command());
        program.build();
        for (name, _) in SHOWN {
            let command = program.find_subcommand_mut(name).unwrap();
            let options = || command.get_arguments().filter(|arg| arg.get_long().is_some());
            // With --help and --version.
            assert_eq!(options().filter(|arg| !arg.is_hide_short_help_set()).count(), 12, "{name}");
            assert!(options().count() > 20, "{name}");
            assert!(command.render_long_help().to_string().contains("Examples:"));
            assert!(command.render_help().to_string().contains("see --help"));
        }
    }
}
