//! `hsipack spectra`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_format::samples::Condition;
use hsipack_pack::spectra::{self, Output, SpectraOptions, Statistic, Table};
use serde::Serialize;

use crate::task::Task;
use crate::{output, parse};

/// Write a table of the spectra of the classes in every cube.
///
/// The table has one row per cube and region. It holds the cube's data from samples.jsonl (sample, name, stack, split,
/// group, label, source and the columns of your table), the region (its class id and, if the mask names its classes, its
/// name), its number of pixels, and for every band the spectrum, the standard deviation and the number of pixels without
/// a finite value, which are skipped. Values are physical. In a mask of boolean layers, every layer is a region.
#[derive(clap::Args)]
#[command(after_long_help = FILES)]
pub struct Args {
    /// A packed dataset: a folder, or its URL
    dataset: PathBuf,

    /// Mask whose classes, or layers, are the regions
    #[arg(long, value_name = "NAME")]
    mask: String,

    /// Statistic of each band over the pixels of a region: mean or median
    ///
    /// The median is exact, and keeps the values of the region in a cube in memory, 8 bytes each. If they take more than
    /// 256 MiB, the bands are done in parts, one after the other.
    #[arg(long, value_name = "WHAT", value_parser = parse::one_of(&Statistic::ALL), default_value_t = Statistic::Mean)]
    statistic: Statistic,

    /// File to write: .parquet or .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Read only cubes of these splits, such as train or train,val (repeatable) [default: all cubes]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    split: Vec<String>,

    /// Read only cubes that meet a condition on the columns of samples.jsonl, such as "label == 'urban' and cloud < 10"
    /// [default: all cubes]
    ///
    /// A condition may have ==, !=, <, <=, >, >=, in ('a', 'b'), and, or, not, and brackets.
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse::condition)]
    condition: Option<Condition>,

    /// Skip regions with fewer pixels
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_pixels: u64,

    /// Treat these classes as unlabelled, or layers by number, such as 255 or 4,7-9 [default: none except class 0]
    #[arg(long, value_name = "LIST", value_parser = parse::classes)]
    ignore: Option<parse::ClassList>,

    /// Treat class 0 as a region, too [default: its pixels are unlabelled]
    #[arg(long)]
    background: bool,

    /// Overwrite the output if it exists [default: an existing file is an error]
    #[arg(long)]
    force: bool,

    /// Number of threads; each has a cube of its own [default: one per core]
    #[arg(short = 'j', long, alias = "jobs", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Print the report as one JSON object on stdout: file, mask, statistic, rows, samples (how many were read),
    /// regions (how many rows each class id has)
    #[arg(long)]
    json: bool,
}

const FILES: &str = "\
In .parquet, bands are lists: wavelength (nm, null if unknown), spectrum, std, missing. In pandas,
np.stack(table.spectrum) is an array (rows, bands), and table.explode([\"wavelength\", \"spectrum\", \"std\"])
has a row per band. In .csv, bands are columns: LABEL, std_LABEL and missing_LABEL, where LABEL is
the wavelength in nm (450.5), or band_0, band_1, … if wavelengths are unknown or occur twice.

Examples:
  hsipack spectra tissue.hsipack --mask organs -o organs.parquet
  hsipack spectra tissue.hsipack --mask organs --statistic median --split train,val --min-pixels 50 -o organs.csv";

/// Report of the files that were written.
#[derive(Serialize)]
struct Written {
    file: PathBuf,
    mask: String,
    statistic: &'static str,
    rows: usize,
    samples: usize,
    regions: BTreeMap<u16, usize>,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`spectra::spectra`], and an error if the file cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    // Check the output before any cube is read.
    let output = Output::new(&args.output, args.force)?;
    let defaults = SpectraOptions::new(args.dataset, args.mask);
    let options = SpectraOptions {
        statistic: args.statistic,
        splits: args.split,
        condition: args.condition,
        min_pixels: args.min_pixels,
        ignore: args.ignore.map_or(Vec::new(), |list| list.0),
        background: args.background,
        threads: args.threads.map_or(defaults.threads, usize::from),
        ..defaults
    };
    let task = Task::start("read");
    let result = spectra::spectra(&options, &task.progress);
    task.finish();
    let table = result?;
    table.write(&output)?;
    output::report(&written(&table, output.path()), args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn written(table: &Table, file: &Path) -> Written {
    let mut regions = BTreeMap::new();
    table.rows.iter().for_each(|row| *regions.entry(row.region).or_default() += 1);
    Written {
        file: file.to_owned(),
        mask: table.mask.clone(),
        statistic: table.statistic.name(),
        rows: table.rows.len(),
        samples: table.samples,
        regions,
    }
}

fn print(written: &Written) {
    say!(
        "{}: {} of {} spectra, mask {}: {} in {}",
        written.file.display(),
        output::count(written.rows, "row"),
        written.statistic,
        written.mask,
        output::count(written.regions.len(), "region"),
        output::count(written.samples, "cube"),
    );
    if written.rows == 0 {
        say!("  note: no cube has a pixel of a region");
    }
}
