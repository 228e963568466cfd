//! Divides the labelled pixels of packed samples among splits: training, validation and test within
//! the scenes.
//!
//! Each split becomes a mask of the dataset. The mask has the class ids of the split's pixels, and
//! 0 elsewhere. A loader that reads patches around the labelled pixels of this mask reads the
//! patches of the split.
//!
//! | file | part |
//! |---|---|
//! | `decide/` | which pixel belongs to which split; pure |
//! | `ground.rs` | which cubes show the same ground |
//! | `splitter.rs` | reads the masks of the dataset and applies the decision |
//! | `report.rs` | the result, class by class |
//! | `samples.rs` | divides whole samples |

pub mod decide;
mod ground;
mod report;
mod samples;
mod splitter;

use std::path::PathBuf;
use std::time::Instant;

#[cfg(feature = "clap")]
use hsipack_format::arguments::pixels;
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::Dataset;
use serde::{Deserialize, Deserializer};
use serde_json::json;

pub use self::decide::{By, Share, Shares};
pub use self::report::{ClassReport, Report, SeenReport, SplitReport};
pub use self::samples::{LabelReport, SampleReport, SampleSplit, split_samples};
use self::splitter::Splitter;
use crate::add_mask::{Adding, NewMask, Replace, check_names};
use crate::convert::words;
use crate::progress::Progress;

/// A division of samples or of labelled pixels. As in `convert/options/mod.rs`, an option is a
/// field, here and nowhere else.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct SplitOptions {
    /// A packed dataset
    pub dataset: PathBuf,
    /// Mask whose pixels are divided: class ids, and 0 for unlabelled pixels. Not for --by samples
    /// and groups
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAME", default_value = "", hide_default_value = true)
    )]
    pub mask: String,
    /// Unit that stays together: pixels (nothing: each is drawn at random), blocks (squares of
    /// --block pixels) or regions (pixels of one class that touch, also at corners); or whole
    /// samples, or all samples of a group (groups)
    ///
    /// Samples and groups get the column split, with the shares in samples of every label. The
    /// others divide the pixels of a mask.
    ///
    /// Blocks and regions are taken in random order, the rarest class first. Each goes to the split
    /// that lacks most of the class. Then single blocks or regions move, as long as that brings the
    /// shares of all classes closer to the requested ones; a class that is missing in a split
    /// counts most.
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = arguments::by()))]
    pub by: By,
    /// Name of each split, and its share of the pixels of every class
    ///
    /// One split may get the rest, as in train=0.1,test=rest. The first split is for training.
    /// Pixels beyond all shares are in no split.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME=SHARE,…"))]
    pub shares: Shares,
    /// Number of pixels of each class in the first split, instead of its share; all pixels if a
    /// class has fewer. Blocks and regions come as close to it as they can
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..)))]
    pub per_class: Option<u64>,
    /// Rows and columns of a block [default: 32]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(1..)))]
    pub block: Option<u32>,
    /// Treat these classes as unlabelled, too, such as 255 or 7,9-12
    // With its path, the type is one value for clap: a list.
    #[cfg_attr(feature = "clap", arg(long, value_name = "LIST", value_parser = arguments::ids, default_value = "", hide_default_value = true))]
    pub ignore: std::vec::Vec<u16>,
    /// Remove pixels from the first split that have a pixel of another split within N rows and
    /// columns [default: none]
    ///
    /// Removed pixels are in no split. auto removes a pixel if its patch (--patch) and the patch of
    /// a pixel of another split share a pixel.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "auto|N", default_value = "0", hide_default_value = true)
    )]
    pub buffer: Buffer,
    /// Size in pixels of the patches that training will read. The report says how many pixels of
    /// the other splits they see
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWSxCOLUMNS", value_parser = pixels, default_value = "9x9"))]
    pub patch: [u32; 2],
    /// Seed of everything that is drawn; the same seed gives the same splits
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 0))]
    pub seed: u64,
    /// Beginning of the names of the new masks [default: the name of the mask]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub name: Option<String>,
    /// Overwrite the output if it exists: masks of the same names that were added before, or the
    /// splits of samples [default: these are an error]
    #[cfg_attr(feature = "clap", arg(long))]
    pub force: bool,
    /// Show what would be divided how, and write nothing
    #[cfg_attr(feature = "clap", arg(long))]
    pub dry_run: bool,
    /// The command as typed. The masks record it.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub command: String,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self {
            dataset: PathBuf::new(),
            mask: String::new(),
            by: By::Pixels,
            shares: Shares::default(),
            per_class: None,
            block: None,
            ignore: Vec::new(),
            buffer: Buffer::None,
            patch: PATCH,
            seed: 0,
            name: None,
            force: false,
            dry_run: false,
            command: String::new(),
        }
    }
}

/// Options as they are typed on a command line, where the types of fields do not say it.
#[cfg(feature = "clap")]
mod arguments {
    use clap::builder::{PossibleValuesParser, TypedValueParser};
    use hsipack_format::arguments::numbers;

    use super::By;

    pub fn by() -> impl TypedValueParser<Value = By> {
        let units = [By::Pixels, By::Blocks(super::BLOCK), By::Regions, By::Samples, By::Groups];
        PossibleValuesParser::new(units.map(By::name)).try_map(|name| name.parse::<By>())
    }

    /// Class ids and ranges of class ids. Masks have no ids above 65535.
    pub fn ids(text: &str) -> Result<Vec<u16>, String> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let ids = numbers(text, "class id or range of class ids")?;
        Ok(ids.into_iter().filter_map(|id| u16::try_from(id).ok()).collect())
    }
}

/// How far training pixels must be from pixels of other splits. Training pixels that are nearer
/// belong to no split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffer {
    /// They may touch.
    #[default]
    None,
    /// So far that no patch around a training pixel shares a pixel with a patch of another split,
    /// even if patches are mirrored at edges.
    Auto,
    /// No pixel of another split is within this many rows and columns.
    Pixels(u32),
}

impl Buffer {
    /// Rows and columns within which there must be no pixel of another split; `None` if they may
    /// touch.
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

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        words(from, "a number of pixels, or auto")
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

    /// Units that must not be divided: none, blocks or regions.
    pub fn units(&self) -> By {
        match (self.by, self.block) {
            (By::Blocks(_), Some(side)) => By::Blocks(side as usize),
            (by, _) => by,
        }
    }

    fn check(&self) -> Result<()> {
        if self.mask.is_empty() {
            let what = format!("the split is by {}, but no mask is named", self.by.name());
            return Err(Error::conflict(what).with_remedy(remedy![
                "name the mask with ",
                Opt::Mask,
                ", or divide whole samples with ",
                Opt::By.to("samples")
            ]));
        }
        if self.block.is_some() && !matches!(self.by, By::Blocks(_)) {
            let what = format!("a block size is given, but the split is by {}", self.by.name());
            return Err(Error::conflict(what).with_remedy(remedy![
                "leave out ",
                Opt::Block,
                ", or pass ",
                Opt::By.to("blocks")
            ]));
        }
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
            _ if self.units() == By::Blocks(0) => refuse("blocks have no pixels", Opt::Block),
            Self { per_class: Some(0), .. } => refuse("each class gets 0 pixels", Opt::PerClass),
            Self { patch: [0, _] | [_, 0], .. } => refuse("patches have no pixels", Opt::Patch),
            _ => Ok(()),
        }
    }

    /// The options that decide the splits, as the masks record them.
    fn recipe(&self) -> serde_json::Value {
        let block = match self.units() {
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

/// Divides the labelled pixels of a mask among splits, and adds a mask for each split to the
/// dataset.
///
/// # Errors
/// If options contradict each other, the dataset has no such mask of class ids, no pixel is
/// labelled, names are taken, the buffer leaves nothing to train on, or a file cannot be read or
/// written. The dataset is then unchanged.
pub fn split(options: &SplitOptions, progress: &Progress) -> Result<Report> {
    let start = Instant::now();
    debug_assert!(!options.by.is_of_samples(), "see `split_samples`");
    options.check()?;
    let names = options.masks();
    let replace = if options.force { Replace::Added } else { Replace::Never };
    if options.dry_run {
        let dataset = Dataset::open(&options.dataset)?;
        let replaced = check_names(&dataset, &names, replace)?;
        let mut splitter = Splitter::decide(&dataset, options, progress)?;
        splitter.go_through()?;
        let report = splitter.report(start)?;
        return Ok(Report { replaced, dry_run: true, ..report });
    }
    let adding = Adding::begin(&options.dataset, names, replace)?;
    let mut splitter = Splitter::decide(adding.dataset(), options, progress)?;
    let masks: Vec<NewMask> = options
        .masks()
        .into_iter()
        .map(|name| NewMask {
            name,
            class_names: splitter.class_names(),
            class_colors: splitter.class_colors(),
            recipe: options.recipe(),
        })
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
