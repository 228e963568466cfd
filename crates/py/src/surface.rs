//! Spells options and commands for Python.

use hsipack_format::remedy::{Setting, Surface, Value, joined};
use hsipack_format::{Command, Opt};
use pyo3::prelude::*;

/// Python, in which options are arguments of functions and classes.
#[derive(Debug)]
pub struct Python;

/// The place where an option is set.
enum Taker {
    /// An argument of `hsipack.NAME`.
    Argument { of: &'static str, name: &'static str },
    /// A field of a crop, which is passed as `Loader(crop=…)`.
    Crop { of: &'static str, name: &'static str },
    /// A command that is not available in Python.
    Shell { command: &'static str, flag: &'static str },
}

fn taker(option: Opt) -> Taker {
    let of = |of, name| Taker::Argument { of, name };
    let crop = |of, name| Taker::Crop { of, name };
    let shell = |command, flag| Taker::Shell { command, flag };
    match option {
        Opt::Output => of("convert", "output"),
        Opt::Append => of("convert", "append"),
        Opt::Resume => of("convert", "resume"),
        Opt::Plan => shell("convert", "--plan"),
        Opt::Exclude => of("convert", "exclude"),
        Opt::Mask => of("convert", "mask"),
        Opt::MaskFill => of("convert", "mask_fill"),
        Opt::NewClasses => of("convert", "classes"),
        Opt::ClassNames => of("convert", "class_names"),
        Opt::Table => of("convert", "table"),
        Opt::PathColumns => of("convert", "path_columns"),
        Opt::Axes => of("convert", "axes"),
        Opt::Dtype => of("convert", "dtype"),
        Opt::Scale => of("convert", "scale"),
        Opt::Nodata => of("convert", "nodata"),
        Opt::RawValues => of("convert", "raw_values"),
        Opt::KeepBits => of("convert", "keep_bits"),
        Opt::Bands => of("convert", "bands"),
        Opt::Wavelengths => of("convert", "wavelengths"),
        Opt::Normalize => of("convert", "normalize"),
        Opt::DropBadBands => of("convert", "drop_bad_bands"),
        Opt::White => of("convert", "white"),
        Opt::Dark => of("convert", "dark"),
        Opt::WavelengthTolerance => of("convert", "wavelength_tolerance"),
        Opt::Codec => of("convert", "codec"),
        Opt::IgnoreValue => of("convert", "ignore_value"),
        Opt::WhiteReflectance => of("convert", "white_reflectance"),
        Opt::Level => of("convert", "level"),
        Opt::Shuffle => of("convert", "shuffle"),
        Opt::ShardSize => of("convert", "shard_size"),
        Opt::SkipErrors => of("convert", "skip_errors"),
        Opt::Chunk => of("convert", "chunk"),
        Opt::SourceRoot => of("validate", "source_root"),
        Opt::Force => of("split", "force"),
        Opt::By => of("split", "by"),
        Opt::Block => of("split", "block"),
        Opt::Buffer => of("split", "buffer"),
        Opt::BatchSize => of("Loader", "batch_size"),
        Opt::Split => of("Loader", "split"),
        Opt::Order => of("Loader", "sampler"),
        Opt::Seed => of("Loader", "seed"),
        Opt::EpochLength => of("Loader", "epoch_length"),
        // See `last` below.
        Opt::Last => of("Loader", "pad_last"),
        Opt::Rank => of("Loader", "rank"),
        Opt::WorldSize => of("Loader", "world_size"),
        Opt::Crop => of("Loader", "crop"),
        Opt::CropsPerCube => crop("RandomCrop", "per_cube"),
        Opt::MinLabelled => crop("RandomCrop", "min_labelled"),
        Opt::GridStep => crop("GridCrop", "step"),
        Opt::GridPad => crop("GridCrop", "pad"),
        Opt::Patch => of("Loader", "crop"),
        Opt::Pad => crop("LabelledPatches", "pad"),
        Opt::Classes => crop("LabelledPatches", "classes"),
        Opt::Ignore => crop("LabelledPatches", "ignore"),
        Opt::PerClass => crop("LabelledPatches", "per_class"),
        Opt::Masks => of("Loader", "masks"),
        Opt::Threads => of("Loader", "num_threads"),
        Opt::Slots => of("Loader", "slots"),
        Opt::Cache => of("Loader", "cache"),
        Opt::CacheSize => of("Loader", "cache_size"),
        Opt::ShuffleWindow => of("Loader", "shuffle_window"),
        Opt::AsOf => of("Dataset", "as_of"),
        Opt::LocalCache => of("Dataset", "local_cache"),
        Opt::LocalCacheSize => of("Dataset", "local_cache_size"),
        Opt::Store => of("Dataset", "store"),
        Opt::SkipDamaged => of("Loader", "on_damage"),
        Opt::Device => of("Loader", "device"),
        Opt::Rounds => of("diagnose", "rounds"),
        Opt::Sample => shell("preview", "--sample"),
        Opt::RateLimit => shell("read", "--rate-limit"),
        Opt::Json => shell("read", "--json"),
        Opt::WorkDir => shell("bench", "--work-dir"),
        Opt::Cubes => shell("bench", "--cubes"),
        Opt::Workers => shell("bench", "--workers"),
        Opt::Strategies => shell("bench", "--strategies"),
        Opt::Strategy => shell("simulate", "--strategy"),
        Opt::LoadTime => shell("simulate", "--load-time"),
        Opt::DiskRate => shell("tune", "--disk-rate"),
    }
}

impl Surface for Python {
    fn option(&self, setting: &Setting) -> String {
        match taker(setting.option) {
            Taker::Argument { name, .. } => argument(name, setting),
            Taker::Crop { of, name } if setting.value.is_none() => format!("{name} of {of}"),
            Taker::Crop { of, name } => format!("{of}({})", argument(name, setting)),
            Taker::Shell { command, flag } => format!("`hsipack {command} {flag}`"),
        }
    }

    fn together(&self, settings: &[Setting]) -> String {
        joined(self, settings, ", ")
    }

    fn command(&self, command: Command, setting: Option<&Setting>) -> String {
        let typed = setting.map(|setting| self.option(setting)).unwrap_or_default();
        match (command, setting.map(|setting| taker(setting.option))) {
            // Python has no such function, and sets crops in another place.
            (Command::Tune, _) => match setting
                .and_then(|setting| Some((setting.option, setting.value.as_ref()?)))
            {
                Some((Opt::Patch, size)) => format!("the command `hsipack tune --patch {size}`"),
                _ if setting.is_some() => format!("the command {typed}"),
                _ => "the command `hsipack tune`".to_owned(),
            },
            (_, Some(Taker::Shell { .. })) => format!("the command {typed}"),
            (Command::Convert, None) => "hsipack.convert".to_owned(),
            (Command::Convert, Some(_)) if typed.contains('=') => {
                format!("hsipack.convert({typed})")
            }
            (Command::Convert, Some(_)) => format!("hsipack.convert({typed}=…)"),
            (Command::Split, _) => "hsipack.split".to_owned(),
            (Command::Validate, _) => "hsipack.validate(path)".to_owned(),
            (Command::Repair, _) => "the command `hsipack repair DATASET`".to_owned(),
            (Command::Work | Command::Commit, _) => {
                format!("the command `hsipack {} PLAN`", command.name())
            }
            (command, _) => format!("the command `hsipack {}`", command.name()),
        }
    }
}

/// `name=value`, or only the name.
fn argument(name: &str, setting: &Setting) -> String {
    match (setting.option, &setting.value) {
        (Opt::Last, value) => last(value.as_ref()).to_owned(),
        (Opt::SkipDamaged, _) => format!("{name}=\"skip\""),
        (option, None) if option.example().is_none() => format!("{name}=True"),
        (_, None) => name.to_owned(),
        (_, Some(value)) => format!("{name}={}", literal(value)),
    }
}

/// One option in a shell, but two arguments in Python.
fn last(value: Option<&Value>) -> &'static str {
    match value {
        Some(Value::Word(word)) if word == "pad" => "pad_last=True",
        Some(Value::Word(word)) if word == "drop" => "drop_last=True",
        Some(_) => "drop_last=False",
        None => "drop_last or pad_last",
    }
}

fn literal(value: &Value) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match value {
        Value::Word(word) => format!("{word:?}"),
        Value::Names(names) => list(names.iter().map(|name| format!("{name:?}")).collect()),
        Value::Numbers(numbers) => list(numbers.iter().map(u64::to_string).collect()),
        Value::Size([rows, columns]) => format!("({rows}, {columns})"),
        Value::Bytes(bytes) => grouped(*bytes),
        Value::Number(_) | Value::Share(_) => value.to_string(),
    }
}

/// Formats as `51_000_000`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// Every option as errors spell it, with the function or class of the package (or `hsipack COMMAND`) that has it: first
/// the name alone, then with a value.
#[pyfunction]
pub fn spelled_options() -> Vec<(String, String, String)> {
    let spelled = Opt::ALL.iter().map(|option| {
        let of = match taker(*option) {
            Taker::Argument { of, .. } | Taker::Crop { of, .. } => of.to_owned(),
            Taker::Shell { command, .. } => format!("hsipack {command}"),
        };
        let with = option.example().map_or((*option).into(), |value| option.to(value));
        (of, Python.option(&(*option).into()), Python.option(&with))
    });
    spelled.collect()
}
