//! Options as errors, remedies and notes name them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An option that a user can set. Its name is that of its field in the options of a library crate;
/// each surface spells the name by its own rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opt {
    name: &'static str,
    is_flag: bool,
}

/// Lists the options that errors name: constant and name, with `flag` before those that are true or
/// false.
macro_rules! options {
    ($($option:ident $name:literal $($flag:ident)?,)+) => {
        // They are written like the variants of an enum.
        #[allow(non_upper_case_globals)]
        impl Opt {
            $(
                #[doc = concat!("The option `", $name, "`.")]
                pub const $option: Self = Self { name: $name, is_flag: options!(@ $($flag)?) };
            )+

            /// Every option of this list.
            pub const ALL: &[Self] = &[$(Self::$option),+];
        }
    };
    (@ flag) => { true };
    (@) => { false };
}

options! {
    // Packing.
    Output "output", Append "append" flag, Resume "resume" flag, Plan "plan", Exclude "exclude",
    SkipErrors "skip_errors" flag, Mask "mask", MaskFile "mask_file", MaskFill "mask_fill", RemapClasses "remap_classes", ClassNames "class_names",
    Target "target", Image "image", Fit "fit", MaskColors "mask_colors", MaskResample "mask_resample", AllTouched "all_touched" flag, Boxes "boxes",
    Header "header", BandCenters "band_centers", BandsFrom "bands_from", Mosaic "mosaic", Table "table",
    TableKey "table_key", TableJoin "table_join", Unlisted "unlisted", LabelColumn "label_column", Name "name", Column "column",
    Prefix "prefix" flag, PathColumns "path_columns", Axes "axes", Dtype "dtype", Scale "scale", Fill "fill",
    Nodata "nodata", RawValues "raw_values" flag, KeepBits "keep_bits", Bands "bands",
    Wavelengths "wavelengths", Normalize "normalize", Resample "resample", DropBadBands "drop_bad_bands" flag, White "white", Dark "dark",
    WhiteReflectance "white_reflectance", WavelengthTolerance "wavelength_tolerance", Codec "codec", Level "level",
    Filter "filter", Chunk "chunk", BandGroup "band_group", BlockSize "block_size", ShardSize "shard_size", SourceRoot "source_root", Sample "sample",
    Force "force" flag, Json "json" flag,
    // Splitting.
    By "by", Block "block", Buffer "buffer",
    // Reading.
    BatchSize "batch_size", Split "split", Order "order", AsOf "as_of", Seed "seed", EpochLength "epoch_length",
    Last "last", Rank "rank", WorldSize "world_size", Crop "crop", CropsPerCube "crops_per_cube",
    MinLabelled "min_labelled", GridStep "grid_step", GridPad "grid_pad", Patch "patch", Pad "pad", OnlyClasses "only_classes",
    Ignore "ignore", PerClass "per_class", Masks "masks", Threads "threads", Slots "slots", Cache "cache",
    CacheSize "cache_size", ShuffleWindow "shuffle_window", LocalCache "local_cache", LocalCacheSize "local_cache_size",
    Store "store", RateLimit "rate_limit", SkipDamaged "skip_damaged" flag, Device "device", Decode "decode",
    DeviceCache "device_cache", DeviceCacheSize "device_cache_size",
    // Measuring.
    WorkDir "work_dir", Cubes "cubes", Workers "workers", Strategies "strategies", Strategy "strategy",
    LoadTime "load_time", CopyTime "copy_time", DecodeTime "decode_time", StepTime "step_time", WhatIf "what_if", DiskRate "disk_rate", Rounds "rounds",
}

impl Opt {
    /// The option with this name. If it is not listed here, the name is kept until the process
    /// ends.
    pub fn named(name: &str, is_flag: bool) -> Self {
        let listed = Self::ALL.iter().find(|option| option.name == name);
        listed.copied().unwrap_or_else(|| Self { name: name.to_owned().leak(), is_flag })
    }

    /// The name of its field.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether it is true or false.
    pub const fn is_flag(self) -> bool {
        self.is_flag
    }
}

impl Serialize for Opt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (self.name, self.is_flag).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Opt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (name, is_flag) = <(String, bool)>::deserialize(from)?;
        Ok(Self::named(&name, is_flag))
    }
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
