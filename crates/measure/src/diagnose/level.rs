//! How much of the pipeline is real.

use serde::{Deserialize, Serialize};

/// How much of the pipeline is real; each level has all that the ones before it have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One batch is kept on the device, augmented: only the training step is real.
    Step,
    /// One batch is kept on the device, and augmented anew for every step.
    Augment,
    /// One batch is kept on the host, and copied for every step.
    Copy,
    /// Decoded samples are kept on the host, and collated into batches (into the ring).
    Collate,
    /// Stored samples are kept on the host: they are decoded for every batch.
    Decode,
    /// Files are read, and are in the system's cache.
    Read,
    /// All of loading that cannot be told apart from outside, with files in the system's cache: of a loader that is
    /// not hsipack's.
    Load,
    /// Files are read from the disk.
    Cold,
}

hsipack_format::option_names!(Level, "level", {
    Step => "step",
    Augment => "augment",
    Copy => "copy",
    Collate => "collate",
    Decode => "decode",
    Read => "read",
    Load => "load",
    Cold => "cold",
});

impl Level {
    /// What is kept instead of being made anew.
    pub fn kept(self) -> &'static str {
        match self {
            Level::Step => "one batch on the device, ready",
            Level::Augment => "one batch on the device",
            Level::Copy => "one batch on the host",
            Level::Collate => "decoded samples",
            Level::Decode => "stored samples",
            Level::Read | Level::Load => "nothing, files cached by the system",
            Level::Cold => "nothing, files on the disk",
        }
    }

    /// What a drop from the level before accuses.
    pub fn adds(self) -> &'static str {
        match self {
            Level::Step => "the training step",
            Level::Augment => "augmentation",
            Level::Copy => "the copy to the device",
            Level::Collate => "collating into batches",
            Level::Decode => "decoding",
            Level::Read => "reading files",
            Level::Load => "loading samples",
            Level::Cold => "the disk",
        }
    }
}
