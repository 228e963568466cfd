//! The `hsipack` command: a table of commands, each in a file of its own.

// The doc comments of arguments are help texts for terminals: `<group>` in them is not HTML, and an address is not a link.
#![allow(rustdoc::invalid_html_tags, rustdoc::bare_urls)]

#[macro_use]
mod output;

mod allocator;
mod commands;
mod failure;
mod files;
mod help;
mod measurer;
mod parse;
mod patches;
mod renamed;
mod surface;
mod task;
mod typed;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Pack hyperspectral cubes for training, and check what was packed.
///
/// A packed dataset is a Zarr v3 store of chunked, blosc-compressed float16 shards. zarr-python,
/// xarray and TensorStore can open it, too.
#[derive(Parser)]
#[command(name = "hsipack", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 success; 1 an error, or a damaged dataset; 2 wrong usage, or a dataset that could not be checked; 130 stopped by Ctrl-C."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Convert(Box<commands::convert::Args>),
    Layouts(commands::layouts::Args),
    Work(commands::work::Args),
    Status(commands::status::Args),
    Commit(commands::commit::Args),
    Validate(commands::validate::Args),
    Repair(commands::repair::Args),
    Add(commands::add::Args),
    Split(Box<commands::split::Args>),
    Table(Box<commands::table::Args>),
    Merge(commands::merge::Args),
    Info(commands::info::Args),
    Preview(commands::preview::Args),
    View(commands::view::Args),
    Export(commands::export::Args),
    Spectra(Box<commands::spectra::Args>),
    Card(commands::card::Args),
    Read(Box<commands::read::Args>),
    Bench(Box<commands::bench::Args>),
    Diagnose(Box<commands::diagnose::Args>),
    Simulate(Box<commands::simulate::Args>),
    Tune(Box<commands::tune::Args>),
    LocalCache(commands::local_cache::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
}

fn main() -> ExitCode {
    end_with_the_pipe();
    allocator::share_what_is_short();
    if let Err(message) = hsipack_format::processor::check() {
        note!("hsipack: {message}");
        return ExitCode::from(2);
    }
    let parsed =
        help::grouped(help::shortened(Cli::command())).try_get_matches().and_then(|matches| {
            let running = matches.subcommand_name().unwrap_or_default();
            hsipack_format::remedy::speak(surface::Shell::new(Cli::command(), running));
            Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut Cli::command()))
        });
    let command = match parsed {
        Ok(cli) => cli.command,
        Err(error) => {
            let command = std::env::args_os().nth(1).unwrap_or_default();
            let command = command.to_string_lossy();
            return output::clap(&renamed::with_new_name(error, &command));
        }
    };
    if !matches!(command, Command::Validate(_)) {
        allocator::end_with_error();
    }
    let result = match command {
        Command::Convert(args) => commands::convert::run(*args, Cli::command()),
        Command::Layouts(args) => commands::layouts::run(&args),
        Command::Work(args) => commands::work::run(args),
        Command::Status(args) => commands::status::run(args),
        Command::Commit(args) => commands::commit::run(args),
        Command::Validate(args) => commands::validate::run(args),
        Command::Repair(args) => commands::repair::run(args),
        Command::Add(args) => commands::add::run(args),
        Command::Split(args) => commands::split::run(*args),
        Command::Table(args) => commands::table::run(*args),
        Command::Merge(args) => commands::merge::run(args),
        Command::Info(args) => commands::info::run(args),
        Command::Preview(args) => commands::preview::run(args),
        Command::View(args) => commands::view::run(args),
        Command::Export(args) => commands::export::run(args),
        Command::Spectra(args) => commands::spectra::run(*args),
        Command::Card(args) => commands::card::run(args),
        Command::Read(args) => commands::read::run(*args),
        Command::Bench(args) => commands::bench::run(*args),
        Command::Diagnose(args) => commands::diagnose::run(*args),
        Command::Simulate(args) => commands::simulate::run(*args),
        Command::Tune(args) => commands::tune::run(*args),
        Command::LocalCache(args) => commands::local_cache::run(args),
        Command::Completions(args) => commands::completions::run(args, &mut Cli::command()),
        Command::Man(args) => commands::man::run(args, Cli::command()),
    };
    output::finish(result.unwrap_or_else(failure::report))
}

/// Ends quietly, as other commands do, if output is piped into a command like `head` that stops
/// reading early. By default Rust ignores the signal, and printing would panic.
fn end_with_the_pipe() {
    #[cfg(unix)]
    // SAFETY: sets the default action of a signal, before any thread was started.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}
