//! Levels: how much of the pipeline is real.

use serde::{Deserialize, Serialize};

/// How much of the pipeline is real. Each level includes all levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One batch is kept on the device, already augmented: only the training step is real.
    Step,
    /// One batch is kept on the device, and augmented again for every step.
    Augment,
    /// For hsipack's loader on the CPU: one batch is kept as it was stored, and converted and
    /// normalised for every step.
    Prepare,
    /// One batch is kept on the host, and copied for every step. It is converted and normalised on
    /// the device.
    Copy,
    /// Decoded samples are kept on the host, and collated into batches (in the ring).
    Collate,
    /// Stored samples are kept on the host, and decoded for every batch.
    Decode,
    /// Files are read from the system's cache.
    Read,
    /// For a loader that is not hsipack's: the whole of loading, because its parts cannot be told
    /// apart from outside. Files are in the system's cache.
    Load,
    /// Files are read from the disk.
    Cold,
}

hsipack_format::option_names!(Level, "level", {
    Step => "step",
    Augment => "augment",
    Prepare => "prepare",
    Copy => "copy",
    Collate => "collate",
    Decode => "decode",
    Read => "read",
    Load => "load",
    Cold => "cold",
});

impl Level {
    /// The data that are kept instead of being made again.
    pub fn kept(self) -> &'static str {
        match self {
            Level::Step => "one batch on the device, ready",
            Level::Augment => "one batch on the device",
            Level::Prepare => "one batch of stored values",
            Level::Copy => "one batch on the host",
            Level::Collate => "decoded samples",
            Level::Decode => "stored samples",
            Level::Read | Level::Load => "nothing, files cached by the system",
            Level::Cold => "nothing, files on the disk",
        }
    }

    /// The part that this level adds: the culprit if the rate drops from the level before.
    pub fn adds(self) -> &'static str {
        match self {
            Level::Step => "the training step",
            Level::Augment => "augmentation",
            Level::Prepare => "converting, normalising",
            Level::Copy => "the copy to the device",
            Level::Collate => "collating into batches",
            Level::Decode => "decoding",
            Level::Read => "reading files",
            Level::Load => "loading samples",
            Level::Cold => "the disk",
        }
    }
}
