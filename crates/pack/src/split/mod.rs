//! Divides the labelled pixels of packed samples among splits: training, validation and test within the scenes.
//!
//! Each split becomes a mask of the dataset. The mask has the class ids of the split's pixels, and 0 elsewhere. A
//! loader that reads patches around the labelled pixels of this mask reads the patches of the split.
//!
//! | file | part |
//! |---|---|
//! | `decide/` | which pixel belongs to which split; pure |
//! | `splitter.rs` | reads the masks of the dataset and applies the decision |
//! | `report.rs` | the result, class by class |

pub mod decide;
mod report;
mod splitter;

use std::path::PathBuf;
use std::time::Instant;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::Dataset;
use serde_json::json;

pub use self::decide::{By, Share, Shares};
pub use self::report::{ClassReport, Report, SeenReport, SplitReport};
use self::splitter::Splitter;
use crate::add_mask::{Adding, NewMask, check_names};
use crate::progress::Progress;

/// What to split, and how.
#[derive(Clone, Debug)]
pub struct SplitOptions {
    /// The dataset.
    pub dataset: PathBuf,
    /// The mask of class ids whose pixels are divided.
    pub mask: String,
    /// What must not be divided: nothing, blocks or regions.
    pub by: By,
    /// The splits and their shares; the first one is for training.
    pub shares: Shares,
    /// If set, the number of pixels of each class that the first split gets, instead of its share.
    pub per_class: Option<u64>,
    /// Class ids of pixels that count as unlabelled, in addition to 0.
    pub ignore: Vec<u16>,
    /// The distance between training pixels and those of other splits.
    pub buffer: Buffer,
    /// Rows and columns of the patches that training will read.
    pub patch: [u32; 2],
    /// The seed of the random choices.
    pub seed: u64,
    /// The prefix of the masks' names; the mask's own name if `None`.
    pub name: Option<String>,
    /// Whether to replace masks of these names that were added before.
    pub force: bool,
    /// Whether to report only what the result would be.
    pub dry_run: bool,
    /// The command as typed. The masks record it.
    pub command: String,
}

/// How far training pixels must be from pixels of other splits. Training pixels that are nearer belong to no split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffer {
    /// They may touch.
    #[default]
    None,
    /// So far that no patch around a training pixel shares a pixel with a patch of another split, even if patches are
    /// mirrored at edges.
    Auto,
    /// No pixel of another split is within this many rows and columns.
    Pixels(u32),
}

impl Buffer {
    /// Rows and columns within which there must be no pixel of another split; `None` if they may touch.
    pub fn distance(self, patch: [u32; 2]) -> Option<[u32; 2]> {
        match self {
            Self::None | Self::Pixels(0) => None,
            Self::Pixels(pixels) => Some([pixels; 2]),
            // Patches of n rows share pixels if they are up to n - 1 rows apart. For even n, the distance is n: at an
            // edge, mirroring also reads one row outside the patch.
            Self::Auto => Some(patch.map(|side| side / 2 * 2)).filter(|both| *both != [0, 0]),
        }
    }
}

impl std::str::FromStr for Buffer {
    type Err = Error;

    /// Parses `auto` or a number of pixels.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(0) => Ok(Self::None),
            Ok(pixels) => Ok(Self::Pixels(pixels)),
            Err(_) => Err(Error::conflict(format!("{text:?} is not a buffer"))
                .with_remedy("give a number of pixels, or auto")),
        }
    }
}

/// The patch size of most published results on scenes.
pub const PATCH: [u32; 2] = [9, 9];
/// Rows and columns of a block.
pub const BLOCK: usize = 32;

impl SplitOptions {
    /// Names of the masks, in the order of the splits.
    pub fn masks(&self) -> Vec<String> {
        let first = self.name.as_deref().unwrap_or(&self.mask);
        self.shares.names().map(|split| format!("{first}_{split}")).collect()
    }

    fn check(&self) -> Result<()> {
        self.shares.check(self.per_class)?;
        if self.masks().contains(&self.mask) {
            return Err(Error::conflict(format!(
                "mask {} would be replaced by one of its own splits",
                self.mask
            ))
            .with_remedy("choose another beginning for the names of the new masks"));
        }
        let refuse = |what: &str, option: Opt| {
            Err(Error::conflict(what).with_remedy(remedy!["give at least 1 for ", option]))
        };
        match self {
            Self { by: By::Blocks(0), .. } => refuse("blocks have no pixels", Opt::Block),
            Self { per_class: Some(0), .. } => refuse("each class gets 0 pixels", Opt::PerClass),
            Self { patch: [0, _] | [_, 0], .. } => refuse("patches have no pixels", Opt::Patch),
            _ => Ok(()),
        }
    }

    /// The options that decide the splits, as the masks record them.
    fn recipe(&self) -> serde_json::Value {
        let block = match self.by {
            By::Blocks(side) => Some(side),
            _ => None,
        };
        json!({
            "split": {
                "mask": self.mask,
                "by": self.by.name(),
                "block": block,
                "shares": self.shares.to_string(),
                "per_class": self.per_class,
                "ignore": self.ignore,
                "buffer": self.buffer.distance(self.patch),
                "seed": self.seed,
            }
        })
    }
}

/// Divides the labelled pixels of a mask among splits, and adds a mask for each split to the dataset.
///
/// # Errors
/// If options contradict each other, the dataset has no such mask of class ids, no pixel is labelled, names are taken,
/// the buffer leaves nothing to train on, or a file cannot be read or written. The dataset is then unchanged.
pub fn split(options: &SplitOptions, progress: &Progress) -> Result<Report> {
    let start = Instant::now();
    options.check()?;
    let names = options.masks();
    if options.dry_run {
        let dataset = Dataset::open(&options.dataset)?;
        let replaced = check_names(&dataset, &names, options.force)?;
        let mut splitter = Splitter::decide(&dataset, options, progress)?;
        splitter.go_through()?;
        let report = splitter.report(start)?;
        return Ok(Report { replaced, dry_run: true, ..report });
    }
    let adding = Adding::begin(&options.dataset, names, options.force)?;
    let mut splitter = Splitter::decide(adding.dataset(), options, progress)?;
    let masks: Vec<NewMask> = options
        .masks()
        .into_iter()
        .map(|name| NewMask { name, class_names: splitter.class_names(), recipe: options.recipe() })
        .collect();
    let bytes = adding.write(&masks, &options.command, &mut splitter, progress)?;
    let mut report = splitter.report(start)?;
    for (split, bytes) in report.splits.iter_mut().zip(bytes) {
        split.stored_bytes = bytes;
    }
    report.replaced = adding.replaced().to_vec();
    adding.commit()?;
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}
