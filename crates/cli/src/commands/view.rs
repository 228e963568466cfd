//! `hsipack view`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hsipack_format::{Error, Result};
use hsipack_pack::convert::MaskOption;
use hsipack_pack::progress::Progress;
use hsipack_read::augment::Pipeline;
use hsipack_view::{End, Options, Subject, Training, View};
use serde::Serialize;

use crate::{output, task};

/// Look at a dataset, or at cubes in files, in a browser.
///
/// Starts a server that only this machine can reach, prints its address, and opens it in the
/// browser. The address contains a token; requests without it are refused. Nothing is written. The
/// server ends when you press Ctrl-C, or three minutes after the page was closed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A packed dataset (a folder, or its URL); a cube in any input format (file, or file::variable
    /// inside a container); or a folder, a glob in quotes or an archive of cubes
    path: String,

    /// Port of this machine to listen on; 0 takes any free port
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,

    /// Print the address, but do not open a browser
    #[arg(long)]
    no_browser: bool,

    /// Keep the server running after the page is closed, until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// Mask file to show, such as predictions (repeatable)
    ///
    /// PATTERN is a path as in `convert --mask`, with {dir}, {stem}, {name} and {path} of the cube,
    /// or of the source of a sample. NAME=product shows the quality layers of a sensor's product.
    #[arg(long, value_name = "NAME=PATTERN")]
    mask_file: Vec<MaskOption>,

    /// Also look for sources in this folder, to show what packing did to their values. They are
    /// always looked for where they were, and beside the dataset
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,

    /// Augmentations in a JSON file: start with the page of training, which shows batches before
    /// and after them
    ///
    /// FILE holds a JSON list such as [{"op": "hflip", "p": 0.5}], or the output of `to_json()` of
    /// Python's augmentations. Choose the batches on the page.
    #[arg(long, value_name = "FILE")]
    augment: Option<PathBuf>,

    /// Order of the axes of an array, such as byx [default: what the file says, otherwise yxb]
    ///
    /// Name the axes in the index order of the file's own tool (NumPy, MATLAB, h5py): y, x and b
    /// (row, column, band) once each, and 1 for axes of length 1 to drop, as in 11yxb.
    #[arg(long, value_name = "ORDER")]
    axes: Option<String>,

    /// Print the report as one JSON object on stdout, once the server is running: url, samples
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack view tissue.hsipack
  hsipack view scan.hdr
  hsipack view flights/ --keep
  hsipack view tissue.hsipack --mask-file 'predicted=predictions/{name}.npy'
  hsipack view tissue.hsipack --augment pipeline.json
  hsipack view s3://bucket/tissue.hsipack --no-browser

On another machine, forward the port and open the printed address here:
  ssh -L 8000:127.0.0.1:8000 HOST hsipack view tissue.hsipack --no-browser --port 8000";

#[derive(Serialize)]
struct Started<'a> {
    url: &'a str,
    samples: usize,
}

/// Runs the command, until the server has ended.
///
/// # Errors
/// If the path holds nothing to view, or the port is taken.
pub fn run(args: Args) -> Result<ExitCode> {
    let subject = Subject::open(&args.path, args.axes.as_deref())?
        .with_masks(&args.mask_file)?
        .with_source_root(args.source_root);
    let subject = match &args.augment {
        Some(file) => with_augmentations(subject, file)?,
        None => subject,
    };
    let samples = subject.len();
    let linger = (!args.keep).then_some(Options::IDLE_TIMEOUT);
    let view = View::start(subject, &Options { port: args.port, linger })?;
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    output::report(&Started { url: view.url(), samples }, args.json, |started| {
        say!("{}", started.url)
    });
    if !args.no_browser
        && let Err(error) = open::that_detached(view.url())
    {
        note!("hsipack: no browser could be started ({error}): open the address yourself");
    }
    while !view.is_ended() {
        if progress.stop.load(Ordering::Relaxed) {
            view.stop();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    if view.wait()? == End::Closed {
        note!("the page was closed");
    }
    Ok(ExitCode::SUCCESS)
}

fn with_augmentations(subject: Subject, file: &Path) -> Result<Subject> {
    let json = std::fs::read_to_string(file)
        .map_err(|error| Error::io(file, "cannot read the augmentations", error))?;
    Pipeline::from_json(&json).map_err(|error| error.at(file))?;
    subject.with_training(Training { augment: Some(json), ..Training::default() })
}
