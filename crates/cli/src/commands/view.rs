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

use crate::{output, parse, task};

/// Look at a dataset, or at cubes in files, in a browser: pictures, spectra, masks.
///
/// Starts a server that only this machine reaches, prints its address, and opens it in the browser. The address has a
/// token: whoever does not know it is refused. Nothing is written. The server ends with Ctrl-C, or three minutes after the
/// page was closed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A packed dataset (a folder, or its URL); a cube in any input format (file, or file::variable inside a
    /// container); a folder, a glob in quotes or an archive of cubes
    path: String,

    /// The port of this machine to listen on; 0 is any that is free
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,

    /// Print the address, but open no browser
    #[arg(long)]
    no_browser: bool,

    /// Go on when the page was closed, until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// Show these masks, too, such as predictions: as of `convert`, with {dir}, {stem}, {name} and {path} of the cube, or of
    /// the source of a sample; NAME=product is the quality layers of a sensor's product
    #[arg(long, value_name = "NAME=PATTERN", value_parser = parse::mask)]
    mask: Vec<MaskOption>,

    /// Where to look for the sources of samples, to show what packing did to their values
    /// [default: where they were, and beside the dataset]
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,

    /// Begin with what training is given: batches of the dataset before and after these augmentations, a JSON list
    /// such as [{"op": "hflip", "p": 0.5}], or what `to_json()` of Python's augmentations writes. The page says which batches
    #[arg(long, value_name = "FILE")]
    augment: Option<PathBuf>,

    /// Order of the axes of an array in its own tool's index order: y, x and b each once, such as byx, and 1 for axes of length 1
    /// to leave out, such as 11yxb
    /// [default: what the file says, else yxb]
    #[arg(long, value_name = "ORDER")]
    axes: Option<String>,

    /// Print one JSON object on stdout when the server is there: url, samples
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack view tissue.hsipack
  hsipack view scan.hdr
  hsipack view flights/ --keep
  hsipack view tissue.hsipack --mask 'predicted=predictions/{name}.npy'
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
/// If the path is nothing to look at, or the port is taken.
pub fn run(args: Args) -> Result<ExitCode> {
    let subject = Subject::open(&args.path, args.axes.as_deref())?
        .with_masks(&args.mask)?
        .with_source_root(args.source_root);
    let subject = match &args.augment {
        Some(file) => with_augmentations(subject, file)?,
        None => subject,
    };
    let samples = subject.len();
    let linger = (!args.keep).then_some(Options::LINGER);
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
