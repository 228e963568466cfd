//! `hsipack export`.

use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::export::{self, ExportOptions, Exported};

use crate::output;

/// Export a sample of a dataset to a file for other tools.
///
/// The extension of FILE decides the format: .npy (bit for bit, rows x columns x bands), .hdr or
/// .img (ENVI header and data), .tif (the bands of a pixel side by side), .zarr (a folder that
/// xarray opens, with wavelengths and coordinates). Values and their type are exported as stored,
/// but ENVI and TIFF get float32 for float16, which holds it exactly. A scale factor is written as
/// ENVI's `reflectance scale factor` (its reciprocal), GDAL's SCALE or CF's scale_factor. A .npy
/// file cannot hold it, so you have to apply it yourself.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: ExportOptions,

    /// Print the report as one JSON object on stdout: files, sample, name, shape, dtype,
    /// scale_factor and add_offset (from values in the file to physical ones), notes
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack export tissue.hsipack --sample 0 -o first.hdr
  hsipack export tissue.hsipack --sample P021/scan3 -o scan3.npy
  hsipack export tissue.hsipack --sample 0 --mask organs -o organs.png";

/// Runs the command.
///
/// # Errors
/// The errors of [`export::export`].
pub fn run(args: Args) -> Result<ExitCode> {
    let exported = export::export(&args.options)?;
    output::report(&exported, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(exported: &Exported) {
    let files: Vec<String> = exported.files.iter().map(|file| file.display().to_string()).collect();
    let [rows, columns, bands] = exported.shape;
    say!(
        "{}: sample {} ({}), {rows}x{columns}x{bands} {}",
        files.join(" and "),
        exported.sample,
        exported.name,
        exported.dtype
    );
    exported.notes.iter().for_each(|note| say!("  note: {note}"));
}
