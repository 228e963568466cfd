//! `hsipack spectra`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::spectra::{self, Output, SpectraOptions, Table};
use serde::Serialize;

use crate::output;
use crate::task::Task;

/// Write a table of the spectra of the classes in every cube.
///
/// The table has one row per cube and region. It holds the cube's data from samples.jsonl (sample,
/// name, stack, split, group, label, source and the columns of your table), the region (its class
/// id and, if the mask names its classes, its name), its number of pixels, and for every band the
/// spectrum, the standard deviation and the number of pixels without a finite value, which are
/// skipped. Values are physical. In a mask of boolean layers, every layer is a region.
#[derive(clap::Args)]
#[command(after_long_help = FILES)]
pub struct Args {
    #[command(flatten)]
    options: SpectraOptions,

    /// File to write: .parquet or .csv
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Overwrite the output if it exists [default: an existing file is an error]
    #[arg(long)]
    force: bool,

    /// Print the report as one JSON object on stdout: file, mask, statistic, rows, samples (how
    /// many were read), regions (how many rows each class id has)
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
    let task = Task::start("read");
    let result = spectra::spectra(&args.options, &task.progress);
    task.finish();
    let table = result?;
    output.write(&table)?;
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
