//! `hsipack preview`.

mod augment;

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::preview::{self, PreviewOptions, Previewed};

use crate::output;

/// Draw a cube, or a packed dataset, as a PNG picture.
///
/// A cube is drawn in colour (from the bands nearest 640, 550 and 460 nm, otherwise in false
/// colour), with its mask on top, and with the mean spectra of the classes, or of all pixels. A
/// dataset is drawn as a contact sheet of up to 12 samples, with the spectra of the dataset. Values
/// are physical. Pixels that the mask calls cloud do not count for the brightness of the picture.
/// At most 1024 rows and columns of a cube are read, evenly spread.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: PreviewOptions,

    /// Augmentations in a JSON file: draw samples of a dataset, and beside them the same samples
    /// augmented, as in the first epochs
    ///
    /// FILE holds a JSON list such as [{"op": "hflip", "p": 0.5}], or an object with `ops`, `seed`,
    /// `fuse`.
    #[arg(long, value_name = "FILE", conflicts_with = "axes")]
    augment: Option<PathBuf>,

    /// Print the report as one JSON object on stdout: output, cubes, captions
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack preview scan.hdr -o scan.png --mask-file scan_labels.png
  hsipack preview pavia.mat::paviaU -o pavia.png
  hsipack preview tissue.hsipack -o sheet.png
  hsipack preview tissue.hsipack --sample 17 --mask organs -o 17.png
  hsipack preview tissue.hsipack --augment pipeline.json -o augmented.png";

/// Runs the command.
///
/// # Errors
/// The errors of [`preview::preview`].
pub fn run(args: Args) -> Result<ExitCode> {
    let json = args.json;
    let previewed = match &args.augment {
        Some(file) => augment::preview(&args.options, file)?,
        None => preview::preview(&args.options)?,
    };
    output::report(&previewed, json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(previewed: &Previewed) {
    say!("{}: {}", previewed.output.display(), output::count(previewed.cubes.len(), "cube"));
}
