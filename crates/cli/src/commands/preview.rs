//! `hsipack preview`.

mod augment;

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::preview::{self, PreviewOptions, Previewed};

use crate::output;

/// Draw a cube, or a packed dataset, as a PNG picture.
///
/// A cube: in colour (from the bands nearest 640, 550 and 460 nm, else in false colour), with its mask
/// laid over, and the mean spectra of the classes, or of all pixels. A dataset: a contact sheet of up
/// to 12 samples and the spectra of the dataset. Values are physical; at most 1024 rows and columns of
/// a cube are looked at, evenly spread.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A cube, file::variable, an archive of one cube, or a packed dataset (a folder, or its URL)
    path: String,

    /// The picture to write (.png); an earlier preview of that name is replaced
    #[arg(short, long, value_name = "PNG")]
    output: PathBuf,

    /// Draw this sample of a dataset: its id, counted from 0, or its name
    /// [default: a contact sheet of up to 12 samples]
    #[arg(long, value_name = "N|NAME")]
    sample: Option<String>,

    /// The mask: its name in a dataset; for a cube a file, or file::variable (PNG, NumPy, MATLAB, ENVI,
    /// TIFF, HDF5) [default: a sample's first mask; none on contact sheets and for cubes]
    #[arg(long, value_name = "NAME|FILE")]
    mask: Option<String>,

    /// Draw samples of a dataset beside what these augmentations make of them in the first epochs: a JSON list
    /// such as [{"op": "hflip", "p": 0.5}], or an object with `ops`, `seed`, `fuse`
    #[arg(long, value_name = "FILE", conflicts_with = "axes")]
    augment: Option<PathBuf>,

    /// Order of the axes of an array in its own tool's index order: y, x and b each once, such as byx, and 1 for axes of length 1
    /// to leave out, such as 11yxb
    /// [default: what the file says, else yxb]
    #[arg(long, value_name = "ORDER")]
    axes: Option<String>,

    /// Overwrite PNG even if it is not an earlier preview [default: such a file is an error]
    #[arg(long)]
    force: bool,

    /// Print what was drawn as one JSON object on stdout: output, cubes, captions
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack preview scan.hdr -o scan.png --mask scan_labels.png
  hsipack preview pavia.mat::paviaU -o pavia.png
  hsipack preview tissue.hsipack -o sheet.png
  hsipack preview tissue.hsipack --sample 17 --mask organs -o 17.png
  hsipack preview tissue.hsipack --augment pipeline.json -o augmented.png";

/// Runs the command.
///
/// # Errors
/// As [`preview::preview`].
pub fn run(args: Args) -> Result<ExitCode> {
    let json = args.json;
    let previewed = match &args.augment {
        Some(file) => augment::preview(&args, file)?,
        None => plain(args)?,
    };
    output::report(&previewed, json, print);
    Ok(ExitCode::SUCCESS)
}

fn plain(args: Args) -> Result<Previewed> {
    preview::preview(&PreviewOptions {
        path: args.path,
        output: args.output,
        sample: args.sample,
        mask: args.mask,
        axes: args.axes,
        force: args.force,
    })
}

fn print(previewed: &Previewed) {
    say!("{}: {}", previewed.output.display(), output::count(previewed.cubes.len(), "cube"));
}
