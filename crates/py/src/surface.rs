//! Spells options and commands for Python.

use hsipack_format::remedy::{Setting, Surface, Value, joined};
use hsipack_format::{Command, Opt};
use pyo3::prelude::*;

/// Python, in which options are arguments of functions and classes.
#[derive(Debug)]
pub struct Python;

/// The place where an option is set.
enum Taker {
    /// An argument with this name.
    Argument(&'static str),
    /// A field of a crop, which is passed as `Loader(crop=…)`.
    Crop { of: &'static str, name: &'static str },
    /// A command that is not available in Python.
    Shell { command: &'static str },
}

/// An option is an argument with its name, except for these few.
fn taker(option: Opt) -> Taker {
    let crop = |of, name| Taker::Crop { of, name };
    let shell = |command| Taker::Shell { command };
    match option {
        Opt::Order => Taker::Argument("sampler"),
        Opt::Patch => Taker::Argument("crop"),
        Opt::Threads => Taker::Argument("num_threads"),
        Opt::SkipDamaged => Taker::Argument("on_damage"),
        Opt::CropsPerCube => crop("RandomCrop", "per_cube"),
        Opt::MinLabelled => crop("RandomCrop", "min_labelled"),
        Opt::GridStep => crop("GridCrop", "step"),
        Opt::GridPad => crop("GridCrop", "pad"),
        Opt::Pad | Opt::OnlyClasses | Opt::Ignore | Opt::PerClass => {
            crop("LabelledPatches", option.name())
        }
        Opt::Plan => shell("convert"),
        Opt::Sample | Opt::MaskFile => shell("preview"),
        Opt::RateLimit | Opt::Json => shell("read"),
        Opt::WorkDir | Opt::Cubes | Opt::Workers | Opt::Strategies => shell("bench"),
        Opt::Strategy
        | Opt::LoadTime
        | Opt::CopyTime
        | Opt::DecodeTime
        | Opt::StepTime
        | Opt::WhatIf => shell("simulate"),
        Opt::DiskRate => shell("tune"),
        _ => Taker::Argument(option.name()),
    }
}

impl Surface for Python {
    fn option(&self, setting: &Setting) -> String {
        match taker(setting.option) {
            Taker::Argument(name) => argument(name, setting),
            Taker::Crop { of, name } if setting.value.is_none() => format!("{name} of {of}"),
            Taker::Crop { of, name } => format!("{of}({})", argument(name, setting)),
            Taker::Shell { command } => {
                format!("`hsipack {command} --{}`", setting.option.name().replace('_', "-"))
            }
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
        (Opt::SkipDamaged, _) => format!("{name}=\"skip\""),
        (option, None) if option.is_flag() => format!("{name}=True"),
        (_, None) => name.to_owned(),
        // A word only so that it has an exponent.
        (Opt::Nodata, Some(number)) => format!("{name}={number}"),
        (_, Some(value)) => format!("{name}={}", literal(value)),
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
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            out.push('_');
        }
        out.push(digit);
    }
    out
}

/// Every option that errors name: the crop or the command that has it, if any; and how errors spell
/// its name alone, and with a value. After these, some options with values of other types.
#[pyfunction]
pub fn spelled_options() -> Vec<(String, String, String)> {
    let words = [Opt::Scale, Opt::Codec].map(|option| option.to("auto"));
    let others = [Opt::Chunk.to([32, 32]), Opt::CacheSize.to(Value::Bytes(51_000_000))];
    let masks = Opt::Masks.to(Value::Names(vec!["labels".to_owned()]));
    let bands = Opt::Bands.to(Value::Numbers(vec![0, 1]));
    let last = ["pad", "drop", "short"].map(|kind| Opt::Last.to(kind));
    let of_each_type = words.into_iter().chain(others).chain(last).chain([masks, bands]);
    let each = Opt::ALL.iter().map(|option| match option.is_flag() {
        true => (*option).into(),
        false => option.to(1u64),
    });
    let spelled = each.chain(of_each_type).map(|setting| {
        let of = match taker(setting.option) {
            Taker::Argument(_) => String::new(),
            Taker::Crop { of, .. } => of.to_owned(),
            Taker::Shell { command } => format!("hsipack {command}"),
        };
        (of, Python.option(&setting.option.into()), Python.option(&setting))
    });
    spelled.collect()
}
