//! The options that remedies name.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Lists the options once: variant, name, and an example value (none for a flag).
macro_rules! options {
    ($($(#[$doc:meta])* $option:ident $name:literal $(= $example:expr)?;)+) => {
        /// An option that a user can set. Each surface may spell it differently.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Opt {
            $($(#[$doc])* $option,)+
        }

        impl Opt {
            /// Every option.
            pub const ALL: &[Self] = &[$(Self::$option),+];

            /// The name of the option in the crates.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$option => $name,)+
                }
            }

            /// An example value; `None` if the option is a flag.
            pub fn example(self) -> Option<Value> {
                match self {
                    $(Self::$option => options!(@example $($example)?),)+
                }
            }
        }
    };
    (@example) => { None };
    (@example $example:expr) => { Some(Value::from($example)) };
}

options! {
    // Packing.
    /// Where a result is written.
    Output "output" = "out.hsipack";
    /// Add to a dataset.
    Append "append";
    /// Continue an unfinished conversion.
    Resume "resume";
    /// The plan file of a conversion in parts.
    Plan "plan" = "plan.json";
    /// Files to skip.
    Exclude "exclude" = "*_dark.hdr";
    /// Skip inputs that cannot be opened.
    SkipErrors "skip_errors";
    /// Where to find the masks to pack.
    Mask "mask" = "{dir}/{stem}.png";
    /// The class id of cubes without a mask.
    MaskFill "mask_fill" = 0u64;
    /// New ids for a mask's classes.
    NewClasses "new_classes" = "tumour=3";
    /// Names of a mask's classes.
    ClassNames "class_names" = "1=tumour";
    /// The table with labels, groups and splits.
    Table "table" = "labels.csv";
    /// The regular expression that extracts columns from paths.
    PathColumns "path_columns" = "(?P<day>day[0-9])";
    /// The order of an array's axes.
    Axes "axes" = "yxb";
    /// The type of stored values.
    Dtype "dtype" = "float32";
    /// The number that values are divided by.
    Scale "scale" = "auto";
    /// The value that replaces missing values.
    Nodata "nodata" = "nan";
    /// The number that marks missing values.
    IgnoreValue "ignore_value" = 0u64;
    /// Pack the stored numbers, without applying the sources' scale.
    RawValues "raw_values";
    /// Mantissa bits to keep.
    KeepBits "keep_bits" = "auto";
    /// Bands to keep.
    Bands "bands" = Value::Numbers(vec![0, 1, 2]);
    /// Wavelengths to keep, in nm.
    Wavelengths "wavelengths" = "450-900";
    /// Normalisation of spectra.
    Normalize "normalize" = "snv";
    /// Skip bands that the file marks as bad.
    DropBadBands "drop_bad_bands";
    /// The white reference.
    White "white" = "auto";
    /// The dark reference.
    Dark "dark" = "auto";
    /// The reflectance of the white reference.
    WhiteReflectance "white_reflectance" = 0.95;
    /// How far wavelengths may differ.
    WavelengthTolerance "wavelength_tolerance" = 1u64;
    /// The compressor.
    Codec "codec" = "lz4hc";
    /// The effort of the compressor.
    Level "level" = 4u64;
    /// How bytes or bits are ordered before compression.
    Shuffle "shuffle" = "byte";
    /// Rows and columns of a chunk.
    Chunk "chunk" = [32, 32];
    /// Size of a shard before compression.
    ShardSize "shard_size" = Value::Bytes(64 << 20);
    /// Where relative source paths start.
    SourceRoot "source_root" = "scans";
    /// A sample of a dataset.
    Sample "sample" = 0u64;
    /// Overwrite files.
    Force "force";
    /// Print JSON.
    Json "json";

    // Splitting.
    /// The units that are not divided: pixels, blocks or regions.
    By "by" = "blocks";
    /// Rows and columns of a block.
    Block "block" = 32u64;
    /// Pixels between training and the other splits.
    Buffer "buffer" = "auto";

    // Reading.
    /// Samples, or crops, in a batch.
    BatchSize "batch_size" = 8u64;
    /// Only samples of this split.
    Split "split" = "train";
    /// The order of samples.
    Order "order" = "groups_spread";
    /// An earlier fingerprint of the dataset, to open it as it was.
    AsOf "as_of" = "4c02a1e8";
    /// The seed of order and crops.
    Seed "seed" = 7u64;
    /// Samples of an epoch.
    EpochLength "epoch_length" = 100u64;
    /// What to do with a last batch that is not full.
    Last "last" = "pad";
    /// The number of this process.
    Rank "rank" = 0u64;
    /// How many processes train together.
    WorldSize "world_size" = 2u64;
    /// Size of random crops in pixels.
    Crop "crop" = [64, 64];
    /// Random crops of each cube in an epoch.
    CropsPerCube "crops_per_cube" = 4u64;
    /// The share of labelled pixels in a crop.
    MinLabelled "min_labelled" = 0.5;
    /// Distance in pixels from one crop of a grid to the next.
    GridStep "grid_step" = [32, 32];
    /// What fills crops of a grid beyond the edge of a smaller cube.
    GridPad "grid_pad" = "reflect";
    /// Size in pixels of windows around labelled pixels.
    Patch "patch" = [9, 9];
    /// What fills windows beyond the edge of their cube.
    Pad "pad" = "reflect";
    /// Class ids of labelled pixels.
    Classes "classes" = Value::Numbers(vec![1, 2]);
    /// Class ids of pixels that count as unlabelled.
    Ignore "ignore" = Value::Numbers(vec![0, 255]);
    /// Labelled pixels of each class.
    PerClass "per_class" = 100u64;
    /// Masks to read.
    Masks "masks" = Value::Names(vec!["labels".into()]);
    /// Decoding threads.
    Threads "threads" = 4u64;
    /// Batches in the ring.
    Slots "slots" = 4u64;
    /// How chunks are kept in memory.
    Cache "cache" = "compressed";
    /// Size of the cache in bytes.
    CacheSize "cache_size" = Value::Bytes(51_000_000);
    /// The amount of data, in bytes, whose windows are shuffled together.
    ShuffleWindow "shuffle_window" = Value::Bytes(2_000_000_000);
    /// The folder of the local cache for datasets on servers.
    LocalCache "local_cache" = "/scratch/hsipack";
    /// Size of the local cache in bytes.
    LocalCacheSize "local_cache_size" = Value::Bytes(500_000_000_000);
    /// How files are read.
    Store "store" = "pread";
    /// The maximum rate of reading.
    RateLimit "rate_limit" = "500MB/s";
    /// Skip samples with damaged chunks.
    SkipDamaged "skip_damaged";
    /// The device that batches are delivered to.
    Device "device" = "cpu";

    // Measuring.
    /// The folder for files of a measurement.
    WorkDir "work_dir" = "scratch";
    /// The number of cubes to measure.
    Cubes "cubes" = 8u64;
    /// The number of loading processes.
    Workers "workers" = 4u64;
    /// Which strategies are measured.
    Strategies "strategies" = "ring";
    /// Which measured strategy is simulated.
    Strategy "strategy" = "ring";
    /// The time it takes to load a batch.
    LoadTime "load_time" = "20ms";
    /// The assumed rate of the disk.
    DiskRate "disk_rate" = "500MB/s";
    /// How often each measurement is repeated.
    Rounds "rounds" = 5u64;
}

impl Opt {
    /// The option with a value.
    pub fn to(self, value: impl Into<Value>) -> Setting {
        Setting { option: self, value: Some(value.into()) }
    }
}

/// An option, with or without a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Which option.
    pub option: Opt,
    /// Its value, if any.
    pub value: Option<Value>,
}

impl From<Opt> for Setting {
    fn from(option: Opt) -> Self {
        Self { option, value: None }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&super::current().option(self))
    }
}

impl fmt::Display for Opt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Setting::from(*self).fmt(f)
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// A name, a path or a pattern.
    Word(Cow<'static, str>),
    /// A whole number.
    Number(u64),
    /// A fraction from 0 to 1.
    Share(f64),
    /// A list of numbers.
    Numbers(Vec<u64>),
    /// A list of names.
    Names(Vec<String>),
    /// Rows and columns.
    Size([u64; 2]),
    /// An amount of data in bytes.
    Bytes(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Number(number) | Self::Bytes(number) => number.fmt(f),
            Self::Share(share) => share.fmt(f),
            Self::Numbers(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&numbers.join(","))
            }
            Self::Names(names) => f.write_str(&names.join(",")),
            Self::Size([rows, columns]) => write!(f, "{rows}x{columns}"),
        }
    }
}

impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        Self::Word(word.into())
    }
}

impl From<String> for Value {
    fn from(word: String) -> Self {
        Self::Word(word.into())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<f64> for Value {
    fn from(share: f64) -> Self {
        Self::Share(share)
    }
}

impl From<[u64; 2]> for Value {
    fn from(size: [u64; 2]) -> Self {
        Self::Size(size)
    }
}
