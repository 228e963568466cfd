//! `-h` of commands with many options: the ten that people use most. `--help` lists all.

use clap::Command;

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
            "crop",
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
            "crop",
            "patch",
            "device",
            "threads",
            "cold",
            "verify",
        ],
    ),
];

/// The program with short helps.
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
