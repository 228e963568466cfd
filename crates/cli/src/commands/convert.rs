//! `hsipack convert`.
//!
//! | file | part |
//! |---|---|
//! | `convert.rs` | arguments, how they become options, and the closing report |
//! | `option_file.rs` | the text of a file of options |
//! | `config.rs` | options from a file (`--config`) |
//! | `layout.rs` | how the files of a dataset are arranged (`--layout`) |

mod config;
pub mod layout;
mod option_file;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use hsipack_format::{Error, Result};
use hsipack_pack::convert::parts::{self, Planned};
use hsipack_pack::convert::plan::{Plan, PlannedSample};
use hsipack_pack::convert::{self, ConvertOptions, Report};

use self::layout::Layout;
use self::option_file::OptionFile;
use crate::task::Task;
use crate::{output, typed};

/// Pack cubes into a new dataset, or add them to an existing one.
///
/// Inputs are ENVI, NumPy, MATLAB, HDF5/NetCDF-4/HDF-EOS, TIFF, Zarr, Tivita, HTC and HSD files,
/// folders and archives (.zip, .tar, .tar.gz, .tgz) of such files, or a CSV with a `path` column.
/// Name a variable inside a container as file::variable, and a file in an archive as
/// archive.zip/folder/file.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES, override_usage = USAGE)]
pub struct Args {
    // Orders in the help: after --output, which is 4; and after --append, which is 6.
    /// Read options from a TOML file, such as `hsipack tune --apply` writes. Keys are option names
    /// without the dashes, as in codec = "zstd", and inputs, a list. The command line overrides the
    /// file
    #[arg(long, value_name = "FILE", display_order = 5)]
    config: Option<PathBuf>,

    /// How the files of a dataset are arranged: a name that `hsipack layouts` lists, or a TOML
    /// file. INPUT is then the folder of the dataset. Options of --config and on the command line
    /// override the layout
    #[arg(long, value_name = "NAME|FILE", display_order = 5)]
    layout: Option<String>,

    /// Show what would be packed and the estimated size, and write nothing
    #[arg(long, conflicts_with = "resume", display_order = 7)]
    dry_run: bool,

    /// Only write a plan to FILE (a path or URL), for several processes or machines. Then run
    /// `hsipack work FILE --part I/N` anywhere, and `hsipack commit FILE` at the end
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run", display_order = 8)]
    plan: Option<PathBuf>,

    /// Print the report as one JSON object on stdout
    #[arg(long, display_order = 9)]
    json: bool,

    #[command(flatten)]
    options: ConvertOptions,
}

/// A file may give both instead.
const USAGE: &str = "hsipack convert [OPTIONS] --output <OUT> <INPUT>...";

const EXAMPLES: &str = "\
Examples:
  hsipack convert scans/ -o scans.hsipack
  hsipack convert 'flight/*.hdr' -o flight.hsipack --mask '{dir}/{stem}_labels.png' --table cubes.csv
  hsipack convert scene.h5::/reflectance/cube -o scene.hsipack --chunk 64x64 --drop-bad-bands
  hsipack convert raw/ -o raw.hsipack --white auto --dark auto --scale auto
  hsipack convert scans/ -o scans.hsipack --config tuned.toml --keep-bits auto
  hsipack convert complete_ms_data/ -o cave.hsipack --layout cave";

/// Runs the command.
///
/// # Errors
/// The errors of the conversion.
pub fn run(args: Args, mut command: clap::Command) -> Result<ExitCode> {
    let args = with_files(args, &command)?;
    if let Some(message) = missing(&args.options) {
        let convert = command.find_subcommand_mut("convert").expect("the command is convert");
        return Ok(output::clap(&convert.error(ErrorKind::MissingRequiredArgument, message)));
    }
    let command = typed::command_line(&["--resume"], &["--plan"]);
    let options = ConvertOptions { command, ..args.options };
    if args.dry_run {
        let estimate = convert::dry_run(&options)?;
        output::report(&estimate, args.json, print_estimate);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &args.plan {
        let task = Task::start("planned");
        let planned = parts::plan(&options, file, &task.progress, &|plan| begin(&task, plan));
        task.finish();
        output::report(&planned?, args.json, print_planned);
        return Ok(ExitCode::SUCCESS);
    }
    let task = Task::start("packed");
    let report = convert::convert(&options, &task.progress, &|plan| begin(&task, plan));
    task.finish();
    let report = report?;
    output::report(&report, args.json, print);
    Ok(ExitCode::SUCCESS)
}

/// The arguments, with what `--layout` and `--config` add.
fn with_files(args: Args, command: &clap::Command) -> Result<Args> {
    let mut config = args.config.as_deref().map(OptionFile::read).transpose()?;
    let of_config = config.as_mut().map(OptionFile::take_inputs).transpose()?;
    let mut inputs = match &args.options.inputs[..] {
        [] => of_config.unwrap_or_default(),
        typed => typed.to_vec(),
    };
    let mut files = Vec::new();
    if let Some(name) = &args.layout {
        let layout = Layout::open(name)?;
        let [root] = &inputs[..] else {
            return Err(Error::conflict(format!(
                "a layout takes one folder, but {} inputs were given",
                inputs.len()
            ))
            .with_remedy("give the folder that holds the dataset"));
        };
        if !layout.note.is_empty() {
            note!("layout {name}: {}", layout.note);
        }
        let below = layout.inputs(root);
        files.push(layout.options(layout::shown_path(name), root));
        inputs = below;
    }
    files.extend(config);
    let mut merged = if files.is_empty() { args } else { config::merge(&files, command)? };
    merged.options.inputs = inputs;
    Ok(merged)
}

/// The message if neither the command line nor a file gives the input or the output.
fn missing(options: &ConvertOptions) -> Option<&'static str> {
    if options.inputs.is_empty() {
        return Some(
            "no input was given: name files, folders, globs or a CSV list, or write inputs = [\"scans/\"] in the file of --config",
        );
    }
    options.output.as_os_str().is_empty().then_some(
        "no output was given: name it with --output, or write output = \"scans.hsipack\" in the file of --config",
    )
}

/// Reports what the plan found, and how much there is to do.
fn begin(task: &Task, plan: &Plan) {
    task.set_total(plan.samples.iter().map(PlannedSample::value_bytes).sum());
    tell(task, "left out", &plan.skipped);
    tell(task, "note", &plan.notes);
}

/// Lines of one kind to print; the rest is only counted.
const SHOWN: usize = 20;

fn tell(task: &Task, what: &str, lines: &[String]) {
    task.bar.suspend(|| {
        for line in lines.iter().take(SHOWN) {
            note!("{what}: {line}");
        }
        if lines.len() > SHOWN {
            note!("{what}: and {} more (see --json)", lines.len() - SHOWN);
        }
    });
}

fn print_planned(planned: &Planned) {
    if planned.already_complete {
        say!("{} is complete; there was nothing left to do", planned.output);
        return;
    }
    let plan = planned.plan.display();
    say!(
        "{plan}: {} in {} for {}",
        output::count(planned.cubes, "cube"),
        output::count(planned.shards, "shard"),
        planned.output
    );
    say!(
        "  next: hsipack work {plan} --part 1/N … N/N, wherever that can be read (N up to {}); then hsipack commit {plan}",
        planned.shards
    );
}

/// Prints the report of a conversion.
pub fn print(report: &Report) {
    if report.already_complete {
        report.notes.iter().for_each(|note| say!("{note}"));
        return;
    }
    say!("{}: {} in {:.1} s", report.output, output::count(report.cubes, "cube"), report.seconds);
    for stack in report.stacks.iter().take(SHOWN) {
        let range = stack.wavelengths.map_or_else(
            || "without wavelengths".to_owned(),
            |[least, greatest]| {
                format!("{} to {} nm", output::number(least), output::number(greatest))
            },
        );
        let masks = match &stack.masks[..] {
            [] => String::new(),
            masks => format!(", masks: {}", masks.join(", ")),
        };
        let cubes = output::count(stack.cubes, "cube");
        let targets = match &stack.targets[..] {
            [] => String::new(),
            targets => format!(", targets: {}", targets.join(", ")),
        };
        let images = match &stack.images[..] {
            [] => String::new(),
            images => format!(", images: {}", images.join(", ")),
        };
        say!("  {}: {cubes}, {range}{masks}{targets}{images}", stack.name);
    }
    if report.stacks.len() > SHOWN {
        say!("  and {} more shapes (see --json)", report.stacks.len() - SHOWN);
    }
    let columns = [("labels", &report.columns.labels), ("splits", &report.columns.splits)];
    for (what, counts) in columns.into_iter().filter(|(_, counts)| !counts.is_empty()) {
        say!("  {what}: {}", values(counts, report.cubes));
    }
    if !report.columns.boxes.is_empty() {
        say!("  boxes: {}", values(&report.columns.boxes, 0));
    }
    say!(
        "  {} of files -> {} packed -> {} stored (ratio {:.2})",
        output::bytes(report.source_bytes),
        output::bytes(report.packed_bytes),
        output::bytes(report.stored_bytes),
        report.ratio
    );
    if report.dtype.contains("int") {
        say!("  {} as in the inputs, bit for bit", report.dtype);
    }
    if let Some(bits) = report.keep_bits {
        say!("  {bits} mantissa bits kept");
    }
    if let Some(worst) = &report.worst {
        let location = |band: usize, nm: Option<f64>, file: &str| {
            let nm = nm.map(|nm| format!(" ({} nm)", output::number(nm))).unwrap_or_default();
            format!("in band {band}{nm} of {file}")
        };
        say!(
            "  worst {}error: {:.2e} relative, {}",
            if report.keep_bits.is_some() { "" } else { "fp16 " },
            worst.relative,
            location(worst.band, worst.wavelength, &worst.file)
        );
        say!(
            "    and {:.2e} absolute (physical values), {}",
            worst.absolute,
            location(worst.absolute_band, worst.absolute_wavelength, &worst.absolute_file)
        );
    }
    if let Some(note) = &report.vanished {
        say!("  {note}");
    }
    if report.nan + report.inf > 0 {
        say!("  {} NaN and {} infinite values", report.nan, report.inf);
    }
    for bad in &report.bad_bands {
        let remedy = match (bad.marked.is_empty(), bad.empty.is_empty()) {
            (false, true) => "--drop-bad-bands",
            (true, _) => "--bands",
            (false, false) => "--drop-bad-bands or --bands",
        };
        say!("  {} (leave them out with {remedy})", bad.text());
    }
    if !report.skipped.is_empty() {
        say!("  {} left out (listed above)", output::count(report.skipped.len(), "input"));
    }
}

/// Values and how many cubes have each: `train 8, test 4, none 1`.
fn values(counts: &BTreeMap<String, usize>, cubes: usize) -> String {
    let mut listed: Vec<String> =
        counts.iter().take(SHOWN).map(|(value, count)| format!("{value} {count}")).collect();
    if counts.len() > SHOWN {
        listed.push(format!("and {} more", counts.len() - SHOWN));
    }
    let without = cubes.saturating_sub(counts.values().sum());
    if without > 0 {
        listed.push(format!("none {without}"));
    }
    listed.join(", ")
}

fn print_estimate(estimate: &convert::Estimate) {
    say!("{} would get {}", estimate.output, output::count(estimate.cubes, "cube"));
    for stack in &estimate.stacks {
        say!(
            "  {}: {}, {} wavelengths, chunks of {}x{} pixels{}, {}{}",
            stack.name,
            output::count(stack.cubes, "cube"),
            if stack.wavelengths { "with" } else { "without" },
            stack.chunk[0],
            stack.chunk[1],
            stack.band_group.map(|bands| format!(" x {bands} bands")).unwrap_or_default(),
            output::count(stack.shards, "shard"),
            if stack.scale == 1.0 { String::new() } else { format!(", scale {}", stack.scale) },
        );
        for mask in &stack.masks {
            say!("    mask {mask}");
        }
        for target in &stack.targets {
            say!("    target {target}");
        }
        for image in &stack.images {
            say!("    image {image}");
        }
    }
    say!(
        "  {} of files -> {} packed -> about {} stored (ratio {:.2}, from {} compressed as samples)",
        output::bytes(estimate.source_bytes),
        output::bytes(estimate.packed_bytes),
        output::bytes(estimate.stored_bytes),
        estimate.ratio,
        output::bytes(estimate.sampled_bytes),
    );
    if let Some(bits) = estimate.keep_bits {
        say!("  {bits} mantissa bits would be kept");
    }
    for pair in &estimate.references {
        let named = [("white", &pair.white), ("dark", &pair.dark)];
        let named = named.into_iter().filter_map(|(kind, file)| Some((kind, file.as_ref()?)));
        let named: Vec<String> = named.map(|(kind, file)| format!("{kind} {file}")).collect();
        say!("  {}: {}", pair.cube, named.join(", "));
    }
    for note in &estimate.notes {
        say!("  note: {note}");
    }
    for skipped in &estimate.skipped {
        say!("  left out: {skipped}");
    }
}
