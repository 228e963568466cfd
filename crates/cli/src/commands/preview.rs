//! `hsipack preview`.

mod augment;

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::preview::{self, PreviewOptions, Previewed};

use crate::output;

/// Draw a cube, or a packed dataset, as a PNG picture.
///
/// A cube is drawn in colour (from the bands nearest 640, 550 and 460 nm, otherwise in false colour), with
/// its mask on top, and with the mean spectra of the classes, or of all pixels. A dataset is drawn as a
/// contact sheet of up to 12 samples, with the spectra of the dataset. Values are physical. Pixels that the
/// mask calls cloud do not count for the brightness of the picture. At most 1024 rows and columns of a cube
/// are read, evenly spread.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A cube, file::variable, an archive of one cube, or a packed dataset (a folder, or its URL)
    path: String,

    /// Picture to write (.png); an earlier preview of that name is replaced
    #[arg(short, long, value_name = "PNG")]
    output: PathBuf,

    /// Sample of a dataset to draw: its id, counted from 0, or its name
    /// [default: a contact sheet of up to 12 samples]
    #[arg(long, value_name = "N|NAME")]
    sample: Option<String>,

    /// Mask of the dataset to draw [default: the first mask of a sample; none on contact sheets]
    #[arg(long, value_name = "NAME")]
    mask: Option<String>,

    /// Mask of a cube to draw: a file, or file::variable (PNG, NumPy, MATLAB, ENVI, TIFF, HDF5) [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "mask")]
    mask_file: Option<String>,

    /// Augmentations in a JSON file: draw samples of a dataset, and beside them the same samples augmented, as in the first epochs
    ///
    /// FILE holds a JSON list such as [{"op": "hflip", "p": 0.5}], or an object with `ops`, `seed`, `fuse`.
    #[arg(long, value_name = "FILE", conflicts_with = "axes")]
    augment: Option<PathBuf>,

    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b (row, column, band) once
    /// each, and 1 for axes of length 1 to drop, as in 11yxb.
    #[arg(long, value_name = "ORDER")]
    axes: Option<String>,

    /// Overwrite the output if it exists and is not an earlier preview [default: such a file is an error]
    #[arg(long)]
    force: bool,

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
        mask_file: args.mask_file,
        axes: args.axes,
        force: args.force,
    })
}

fn print(previewed: &Previewed) {
    say!("{}: {}", previewed.output.display(), output::count(previewed.cubes.len(), "cube"));
}
