//! Identity of the command that converts, and how two commands differ.

use std::path::Path;

use hsipack_format::remedy::{Part, Remedy, Setting, Value as Shown};
use hsipack_format::{Error, Opt, checksums, remedy};
use serde_json::{Map, Value, json};

use super::options::{ConvertOptions, MaskOption, ValueOptions};

/// Identifies a command: a hash of everything that decides its result, as typed.
pub(super) fn identity(options: &ConvertOptions) -> String {
    let mut text = json!({
        "inputs": options.inputs,
        "exclude": options.exclude,
        "skip_errors": options.skip_errors,
        "recipe": recipe(options, &options.values),
        "masks": options.mask,
        "mask_fill": options.mask_fill,
        "table": options.table,
        "path_columns": options.path_columns,
        "wavelength_tolerance": options.wavelength_tolerance,
    });
    // Options that came later count only if they are used, so that earlier commands keep their identity.
    let (values, defaults) = (json!(options.values), ConvertOptions::default().by_name());
    let later: Vec<_> = deciding(options)
        .into_iter()
        .filter(|(name, value)| {
            let first = IN_RECIPE.contains(&name.as_str()) || text.get(name).is_some();
            !first && values.get(name).is_none() && defaults[name] != *value
        })
        .collect();
    text.as_object_mut().expect("a structure").extend(later);
    checksums::sha256(text.to_string().as_bytes())
}

/// Options that a recipe contains under other names.
const IN_RECIPE: [&str; 6] = ["mask", "codec", "level", "filter", "chunk", "shard_size"];
/// Options that do not decide the result. Masks contain the classes and their colours.
const UNDECISIVE: [&str; 9] = [
    "output",
    "resume",
    "append",
    "remap_classes",
    "class_names",
    "mask_colors",
    "threads",
    "buffer_size",
    "command",
];

/// The options that decide the result, by name.
fn deciding(options: &ConvertOptions) -> Map<String, Value> {
    let mut deciding = options.by_name();
    deciding.retain(|name, _| !UNDECISIVE.contains(&name.as_str()));
    deciding
}

/// A command as the dataset records it.
pub(super) struct CommandRecord {
    /// Identifies the command.
    pub request: String,
    /// The command as typed.
    pub command: String,
    /// See [`recipe`].
    pub recipe: Value,
}

impl CommandRecord {
    /// The record of a command whose identity is `request`. `values` are its options of values,
    /// completed by the plan.
    pub fn new(request: String, options: &ConvertOptions, values: &ValueOptions) -> Self {
        Self { request, command: options.command.clone(), recipe: recipe(options, values) }
    }
}

/// Options with which `validate --source` and `repair` compute the values again.
fn recipe(options: &ConvertOptions, values: &ValueOptions) -> Value {
    let layout = &options.layout;
    let mut recipe = json!({
        "values": values.record(),
        "masks": options.mask,
        "mask_fill": options.mask_fill,
        "codec": {
            "compressor": layout.codec.name(),
            "level": layout.level,
            "shuffle": layout.filter.zarr_name(),
        },
        "chunk": layout.chunk,
        "shard_bytes": layout.shard_size,
    });
    if !options.target.is_empty() {
        recipe["targets"] = json!(options.target);
    }
    if !options.image.is_empty() {
        recipe["images"] = json!(options.image);
    }
    if let Some(fit) = options.fit {
        recipe["fit"] = json!(fit);
    }
    recipe
}

/// The key of the inputs in [`requested`]. All other keys, except that of the version, are names of
/// options.
const INPUTS: &str = "inputs";
const VERSION: &str = "version";

/// Everything that decides the result of a command, by names of options. An unfinished conversion
/// records it, so that [`differs`] can say what another command would have to change.
pub(super) fn requested(options: &ConvertOptions) -> Value {
    let mut request = deciding(options);
    // There may be very many inputs.
    let inputs = checksums::sha256(json!(options.inputs).to_string().as_bytes());
    request.insert(INPUTS.to_owned(), inputs.into());
    request.insert(VERSION.to_owned(), env!("CARGO_PKG_VERSION").into());
    let masks = |part: fn(&MaskOption) -> Value| {
        let parts = options.mask.iter().map(|mask| json!([mask.name, part(mask)]));
        Value::from_iter(parts.filter(|part| part[1] != json!([])))
    };
    for (option, value) in [
        (Opt::Mask, masks(|mask| json!([mask.layer, mask.pattern]))),
        (Opt::RemapClasses, masks(|mask| json!(mask.classes))),
        (Opt::ClassNames, masks(|mask| json!(mask.class_names))),
        (Opt::MaskColors, masks(|mask| json!(mask.colors))),
    ] {
        request.insert(option.name().to_owned(), value);
    }
    request.into()
}

/// The error that a command, which asks for `ours`, cannot resume what another command began, which
/// asked for `theirs` (see [`requested`]; older versions did not record it). `folder` is where the
/// other conversion was begun.
pub(super) fn differs(theirs: &Value, ours: &Value, folder: &Path) -> Error {
    let start_over = ", or delete the folder to start over";
    if let (Some(theirs), true) = (theirs[VERSION].as_str(), theirs[VERSION] != ours[VERSION]) {
        return Error::conflict(format!("hsipack {theirs} began the unfinished conversion here"))
            .at(folder)
            .with_remedy(format!("resume it with that version{start_over}"));
    }
    let error = Error::conflict("the unfinished conversion here has different inputs or options")
        .at(folder);
    let (Some(theirs), Some(ours)) = (theirs.as_object(), ours.as_object()) else {
        return error.with_remedy(remedy![
            "repeat the conversion that began it with ",
            Opt::Resume,
            start_over
        ]);
    };
    let changes = Changes::between(theirs, ours).clauses();
    if changes.is_empty() {
        let changed = "the cubes, masks or tables have changed since this conversion was begun";
        return Error::conflict(changed)
            .at(folder)
            .with_remedy(format!("restore them{start_over}"));
    }
    let mut parts: Vec<Part> = changes.into_iter().flatten().collect();
    parts.push(format!(", as in the command that began it{start_over}").into());
    error.with_remedy(Remedy::from_iter(parts))
}

/// Changes after which a command asks for the same as another one.
#[derive(Default)]
struct Changes {
    inputs: bool,
    leave_out: Vec<Setting>,
    pass: Vec<Setting>,
    /// Options whose values are too long to show.
    pass_the_same: Vec<Setting>,
}

impl Changes {
    fn between(theirs: &Map<String, Value>, ours: &Map<String, Value>) -> Self {
        let defaults = requested(&ConvertOptions::new(Vec::new(), ""));
        let mut changes =
            Self { inputs: theirs.get(INPUTS) != ours.get(INPUTS), ..Self::default() };
        for (name, ours) in
            ours.iter().filter(|(name, _)| ![INPUTS, VERSION].contains(&name.as_str()))
        {
            let Some(theirs) = theirs.get(name) else { continue };
            if theirs == ours {
                continue;
            }
            let default = *theirs == defaults[name];
            // Bands can be chosen in two ways.
            let chosen = if default { ours } else { theirs };
            let option = match chosen.get("wavelengths") {
                Some(_) => Opt::Wavelengths,
                None => Opt::named(name, theirs.is_boolean()),
            };
            if default {
                changes.leave_out.push(option.into());
            } else if *theirs == Value::Bool(true) {
                changes.pass.push(option.into());
            } else if let Some(value) = shown(option, theirs) {
                changes.pass.push(option.to(value));
            } else {
                changes.pass_the_same.push(option.into());
            }
        }
        changes
    }

    /// The changes in words, with commas between them.
    fn clauses(self) -> Vec<Vec<Part>> {
        let mut clauses: Vec<Vec<Part>> = Vec::new();
        if self.inputs {
            clauses.push(vec!["give the same inputs".into()]);
        }
        for (verb, settings) in [
            ("leave out ", self.leave_out),
            ("pass ", self.pass),
            ("pass the same ", self.pass_the_same),
        ] {
            let mut clause: Vec<Part> = Vec::new();
            let count = settings.len();
            for (index, setting) in settings.into_iter().enumerate() {
                let before = match index {
                    0 => verb,
                    _ if index + 1 == count => " and ",
                    _ => ", ",
                };
                clause.push(before.into());
                clause.push(setting.into());
            }
            clauses.extend((!clause.is_empty()).then_some(clause));
        }
        for clause in clauses.iter_mut().skip(1) {
            clause.insert(0, "; ".into());
        }
        clauses
    }
}

/// The value of an option as users write it; `None` if it is a list or a structure.
fn shown(option: Opt, value: &Value) -> Option<Shown> {
    match value {
        Value::String(word) => Some(word.clone().into()),
        Value::Number(number) => Some(match number.as_u64() {
            Some(bytes) if option == Opt::ShardSize => Shown::Bytes(bytes),
            Some(number) => number.into(),
            None => number.as_f64()?.into(),
        }),
        // A number where the option also has words: a scale factor, the value for missing values, bits to keep.
        Value::Object(object) => match object.values().next()?.as_f64()? {
            whole if whole.fract() == 0.0 && whole >= 0.0 => Some((whole as u64).into()),
            number => Some(number.into()),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::classes::ClassName;
    use crate::convert::options::{BandSelection, Fill, KeepBits, Scale};

    fn error(theirs: &Value, ours: &Value) -> String {
        differs(theirs, ours, Path::new("out.partial")).to_string()
    }

    fn asking(set: impl FnOnce(&mut ConvertOptions)) -> Value {
        let mut options = ConvertOptions::new(vec!["a".to_owned()], "out");
        set(&mut options);
        requested(&options)
    }

    fn named() -> MaskOption {
        let class_names = vec![ClassName { id: 1, name: "liver".to_owned() }];
        MaskOption { class_names, ..MaskOption::new("organs", "{stem}.png") }
    }

    #[test]
    fn the_option_to_change_is_named() {
        let plain = asking(|_| {});
        let theirs = asking(|options| {
            options.values.scale = Scale::Factor(4.0);
            options.values.bands = BandSelection::Numbers(vec![1, 2]);
            options.values.drop_bad_bands = true;
            options.layout.shard_size = 4_000_000;
        });
        let began = "out.partial: the unfinished conversion here has different inputs or options (";
        let end = ", as in the command that began it, or delete the folder to start over)";
        for (theirs, ours, changes) in [
            (
                &theirs,
                &plain,
                "pass scale=4, drop_bad_bands and shard_size=4000000; pass the same bands",
            ),
            (&plain, &theirs, "leave out scale, bands, drop_bad_bands and shard_size"),
            (&asking(|options| options.inputs.clear()), &plain, "give the same inputs"),
            (
                &asking(|options| options.values.scale = Scale::Factor(0.25)),
                &asking(|options| options.inputs.push("b".to_owned())),
                "give the same inputs; pass scale=0.25",
            ),
            (
                &plain,
                &asking(|options| {
                    options.values.bands = BandSelection::Wavelengths(vec![(400.0, 500.0)]);
                }),
                "leave out wavelengths",
            ),
            (
                &asking(|options| {
                    options.mask = vec![MaskOption::new("organs", "{stem}.png")];
                }),
                &plain,
                "pass the same mask",
            ),
            (
                &asking(|options| options.layout.filter = hsipack_format::Shuffle::Bit),
                &plain,
                "pass filter=bit",
            ),
            (
                &asking(|options| {
                    options.values.fill = Fill::Value(0.0);
                    options.values.keep_bits = KeepBits::Bits(8);
                }),
                &plain,
                "pass fill=0 and keep_bits=8",
            ),
            (
                &asking(|options| options.mask = vec![named()]),
                &asking(|options| options.mask = vec![MaskOption::new("organs", "{stem}.png")]),
                "pass the same class_names",
            ),
            (
                &asking(|options| options.mask = vec![MaskOption::new("organs", "{stem}.png")]),
                &asking(|options| options.mask = vec![named()]),
                "leave out class_names",
            ),
        ] {
            assert_eq!(error(theirs, ours), format!("{began}{changes}{end}"));
        }
    }

    #[test]
    fn versions_and_changed_files_are_told_apart() {
        let ours = asking(|_| {});
        let mut other = ours.clone();
        other[VERSION] = "0.0.7".into();
        assert_eq!(
            error(&other, &ours),
            "out.partial: hsipack 0.0.7 began the unfinished conversion here (resume it with that \
             version, or delete the folder to start over)"
        );
        let same = error(&ours, &ours);
        assert!(same.contains("the cubes, masks or tables have changed"), "{same}");
        // Versions before this one did not record what was asked for.
        let old = error(&Value::Null, &ours);
        assert!(old.contains("repeat the conversion that began it with resume"), "{old}");
    }
}
