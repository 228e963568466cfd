//! Augmentations against the installed Kornia, with the same parameters.
//!
//! Random cases are drawn here and done by both engines, in float32 and float16: loops over the
//! host's memory, and libtorch's operations, as on GPUs. `tests/kornia/replay.py` replays them in
//! Kornia in float64, which is the reference, and in float32. `--nocapture` shows the greatest
//! errors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use hsipack_augment::{
    Augmented, Frame, Images, Library, Parameters, Pipeline, SampleKey, TensorEngine, Tensors,
};
use hsipack_testing::skipped;
use hsipack_torch::{Libtorch, Operations};
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

type Mask = hsipack_augment::Mask<hsipack_torch::Tensor>;

/// The number of cases of every augmentation.
const CASES: u64 = 208;

/// Random choices of a test. They are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.bits() % bound as u64) as usize
    }

    pub fn from(&mut self, low: f64, high: f64) -> f64 {
        low + (self.bits() >> 11) as f64 / (1u64 << 53) as f64 * (high - low)
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn yes(&mut self) -> bool {
        self.below(2) == 1
    }
}

/// How close results must be to Kornia's.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Law {
    /// Values only move or are replaced, so all bits are equal.
    Exact,
    /// Interpolated.
    Warp,
    /// Computed from the value at the same place.
    Pointwise,
}

struct Case {
    group: String,
    /// The engines: all, except for noise that libtorch draws.
    variants: Vec<Variant>,
    name: String,
    law: Law,
    pipeline: Pipeline,
    parameters: Parameters,
    image: Tensor,
    rounded: Tensor,
    masks: Vec<Mask>,
}

/// The interpreter with Kornia: `$HSIPACK_PYTHON`, the workspace's `.venv`, or python3.
pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("HSIPACK_PYTHON") {
        return PathBuf::from(python);
    }
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    if venv.exists() { venv } else { PathBuf::from("python3") }
}

/// Whether Kornia is installed; prints a note if it is not. Does not import it, which would take
/// seconds.
pub fn kornia_is_there() -> bool {
    let program = "import sys, importlib.util as found\n\
                   names = 'kornia', 'torch', 'safetensors'\n\
                   sys.exit(not all(map(found.find_spec, names)))";
    let looked = Command::new(python()).args(["-c", program]).output();
    let is_installed = looked.as_ref().is_ok_and(|output| output.status.success());
    if !is_installed {
        skipped(format_args!(
            "no Kornia 0.9.0, torch and safetensors in {} (or name another in HSIPACK_PYTHON)",
            python().display()
        ));
    }
    is_installed
}

/// Runs one of the scripts that belong to these tests.
pub fn run_script(name: &str, arguments: &[&Path]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kornia").join(name);
    let output = Command::new(python()).arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn interpolation(dice: &mut Dice) -> &'static str {
    dice.one_of(&["bilinear", "bilinear", "bilinear", "nearest"])
}

fn padding(dice: &mut Dice) -> &'static str {
    dice.one_of(&["zeros", "border", "reflection"])
}

/// The options of one augmentation, as in its JSON.
fn options(name: &str, dice: &mut Dice, frame: Frame) -> Value {
    let Frame { rows, columns, bands } = frame;
    let p = dice.one_of(&[0.3, 0.7, 1.0]);
    let mut options = match name {
        "hflip" | "vflip" | "l1_normalize" | "l2_normalize" | "snv" | "transplant"
        | "cutmix_rect" | "mixup" => {
            json!({})
        }
        "rot90" => json!({"turns": [-3, 3], "kornia_law": dice.yes()}),
        "affine" => json!({
            "degrees": dice.from(0.0, 180.0),
            "translate": [dice.from(0.0, 0.4), dice.from(0.0, 0.4)],
            "scale": [0.6, 1.5],
            "scale_y": if dice.yes() { json!([0.7, 1.4]) } else { Value::Null },
            "shear": if dice.yes() { json!(20) } else { json!([0.0, 0.0]) },
            "shear_y": if dice.yes() { json!([-15.0, 10.0]) } else { Value::Null },
            "interpolation": interpolation(dice), "padding": padding(dice), "align_corners": dice.yes(),
        }),
        "rotate" => json!({
            "degrees": dice.from(0.0, 180.0),
            "interpolation": interpolation(dice), "padding": padding(dice), "align_corners": dice.yes(),
        }),
        "perspective" => json!({
            "distortion": dice.from(0.0, 0.6), "area_preserving": dice.yes(),
            "interpolation": interpolation(dice), "padding": padding(dice), "align_corners": dice.yes(),
        }),
        "elastic" => json!({
            "alpha": [dice.from(0.1, 1.5), dice.from(0.1, 1.5)],
            "sigma": [dice.from(1.0, 8.0), dice.from(1.0, 8.0)],
            "kernel": [dice.one_of(&[3, 7, 15]), dice.one_of(&[3, 5, 21])],
            "interpolation": interpolation(dice), "padding": padding(dice), "align_corners": dice.yes(),
        }),
        "random_crop" => {
            let padding = padding(dice);
            // Kornia mirrors at most as far as the size of the frame.
            let reach = |side: usize| if padding == "reflection" { side } else { 6 };
            let most = reach(rows.min(columns)).min(6) - 1;
            let pad: Vec<usize> =
                (0..4).map(|_| if dice.yes() { dice.below(most + 1) } else { 0 }).collect();
            let if_needed = dice.yes();
            let side = |dice: &mut Dice, side: usize| {
                let more = if if_needed { dice.below(reach(side).min(4)) } else { 0 };
                if dice.yes() { side + more } else { 1 + dice.below(side) }
            };
            json!({
                "size": [side(dice, rows), side(dice, columns)], "pad": pad, "pad_if_needed": if_needed,
                "padding": padding, "fill": if padding == "zeros" { dice.below(2) } else { 0 },
            })
        }
        "center_crop" => json!({"size": [1 + dice.below(rows), 1 + dice.below(columns)]}),
        "resized_crop" => json!({
            "size": [2 + dice.below(40), 2 + dice.below(40)],
            "scale": [dice.from(0.05, 0.5), 1.0], "ratio": [0.5, 2.0],
            "interpolation": interpolation(dice), "align_corners": dice.yes(),
        }),
        "resize" => json!({
            "size": [2 + dice.below(50), 2 + dice.below(50)],
            "interpolation": interpolation(dice), "align_corners": dice.yes(),
        }),
        "pad_to" => {
            let padding = padding(dice);
            let reach = |side: usize| if padding == "reflection" { side.min(9) } else { 9 };
            json!({
                "size": [rows + dice.below(reach(rows)), columns + dice.below(reach(columns))],
                "padding": padding, "fill": if padding == "zeros" { dice.below(2) } else { 0 },
            })
        }
        "erase" => json!({"scale": [0.02, 0.6], "value": dice.below(65) as f64 / 64.0}),
        "jigsaw" => json!({"grid": [dice.one_of(&[1, 2, 4]), dice.one_of(&[1, 2, 3])]}),
        "gain" => json!({"range": [0.5, 1.5]}),
        "offset" => json!({"range": [-0.4, 0.4]}),
        "gaussian_noise" => json!({"mean": dice.from(-0.1, 0.1), "std": dice.from(0.0, 0.3)}),
        "band_dropout" => {
            let count = 1 + dice.below(bands);
            json!({"bands": [count, count], "contiguous": dice.yes(), "fill": dice.below(65) as f64 / 64.0})
        }
        "gaussian_blur" => json!({
            "kernel": [dice.one_of(&[1, 3, 5]), dice.one_of(&[3, 5])], "sigma": [0.2, dice.from(0.3, 3.0)],
        }),
        "standardize" => {
            let (mut mean, mut std) = (json!(dice.from(-1.0, 1.0)), json!(dice.from(0.3, 2.0)));
            if dice.yes() {
                mean = (0..bands).map(|_| dice.from(-1.0, 1.0)).collect();
                std = (0..bands).map(|_| dice.from(0.3, 2.0)).collect();
            }
            json!({"mean": mean, "std": std})
        }
        other => panic!("{other}"),
    };
    if name == "affine" && options["padding"] == "zeros" && dice.yes() {
        options["fill"] = json!(dice.from(0.0, 1.0));
    }
    if name == "transplant" {
        options["excluded_labels"] = if dice.yes() { json!([0, 3]) } else { json!([]) };
    }
    let always = ["random_crop", "center_crop", "resized_crop", "resize", "pad_to"];
    if !always.contains(&name) {
        options["p"] = json!(p);
    }
    options["op"] = json!(name);
    options
}

const EXACT: [&str; 11] = [
    "hflip",
    "vflip",
    "rot90",
    "random_crop",
    "center_crop",
    "pad_to",
    "erase",
    "transplant",
    "cutmix_rect",
    "jigsaw",
    "band_dropout",
];
const WARPS: [&str; 6] = ["affine", "rotate", "perspective", "elastic", "resized_crop", "resize"];
const POINTWISE: [&str; 9] = [
    "mixup",
    "gain",
    "offset",
    "gaussian_noise",
    "gaussian_blur",
    "standardize",
    "l1_normalize",
    "l2_normalize",
    "snv",
];

/// The law of a group's results.
fn law_of(name: &str) -> Law {
    if EXACT.contains(&name) {
        Law::Exact
    } else if POINTWISE.contains(&name) {
        Law::Pointwise
    } else {
        assert!(WARPS.contains(&name) || ["chain", ELASTIC[1]].contains(&name));
        Law::Warp
    }
}

/// Augmentations that are also tested with frames of one, two or three rows or columns.
const TINY: [&str; 8] = [
    "random_crop",
    "center_crop",
    "pad_to",
    "affine",
    "rotate",
    "elastic",
    "resize",
    "resized_crop",
];

/// Rows, columns and bands: odd and even, square and not, few bands and many. All are small, to
/// allow many cases.
fn frame(name: &str, dice: &mut Dice) -> Frame {
    let bands = dice.one_of(&[1, 2, 3, 4, 7, 8, 9, 16, 31, 100, 224]);
    let most = if bands > 50 { 16 } else { 41 };
    let (mut rows, mut columns) = (5 + dice.below(most - 4), 5 + dice.below(most - 4));
    if TINY.contains(&name) {
        for side in [&mut rows, &mut columns] {
            if dice.below(4) == 0 {
                *side = 1 + dice.below(3);
            }
        }
    }
    match name {
        "rot90" => columns = rows,
        "jigsaw" => (rows, columns) = (4 * (1 + rows / 4), 6 * (1 + columns / 6)),
        _ => {}
    }
    // Spectra of few bands may be constant except for rounding.
    let bands = if name == "snv" { bands.max(4) } else { bands };
    Frame { rows, columns, bands }
}

fn random_image(frame: Frame, samples: i64, seed: u64) -> Tensor {
    tch::no_grad(|| {
        let mut dice = Dice::new(seed);
        let shape = [samples, frame.bands as i64, frame.rows as i64, frame.columns as i64];
        let values: Vec<f32> = (0..shape.iter().product::<i64>())
            .map(|_| (dice.bits() >> 40) as f32 / (1 << 24) as f32)
            .collect();
        Tensor::from_slice(&values).view(shape)
    })
}

/// A mask with patches of the labels 0 … 5 (0 and 1 for booleans).
fn random_mask(frame: Frame, samples: i64, kind: Kind, dice: &mut Dice) -> Tensor {
    let Frame { rows, columns, .. } = frame;
    let labels = if kind == Kind::Bool { 2 } else { 6 };
    let coarse: Vec<i64> = (0..samples * 49).map(|_| dice.below(labels) as i64).collect();
    let values: Vec<i64> = (0..samples as usize)
        .flat_map(|sample| {
            (0..rows).flat_map(move |row| (0..columns).map(move |column| (sample, row, column)))
        })
        .map(|(sample, row, column)| {
            coarse[sample * 49 + row * 7 / rows * 7 + column * 7 / columns]
        })
        .collect();
    Tensor::from_slice(&values).view([samples, rows as i64, columns as i64]).to_kind(kind)
}

/// The groups of the augmentation whose noise the host and kernels draw, and libtorch's operations.
const ELASTIC: [&str; 2] = ["elastic", "elastic_tensors"];
/// The augmentations that have kernels.
const KERNELS: [&str; 19] = [
    "affine",
    "band_dropout",
    "center_crop",
    "chain",
    "elastic",
    "gain",
    "gaussian_blur",
    "gaussian_noise",
    "hflip",
    "offset",
    "pad_to",
    "perspective",
    "random_crop",
    "resize",
    "resized_crop",
    "rot90",
    "rotate",
    "standardize",
    "vflip",
];

fn case(group: &str, number: u64) -> Case {
    let name = group.strip_suffix("_tensors").unwrap_or(group);
    let seed =
        name.bytes().fold(number, |seed, byte| seed.wrapping_mul(1_000_003) + u64::from(byte));
    let mut dice = Dice::new(seed);
    let chain = name == "chain";
    let frame = frame(name, &mut dice);
    let ops = if chain {
        // The published benchmark's chain.
        json!([
            {"op": "affine", "degrees": 45, "scale": [0.9, 1.1], "translate": [0.0625, 0.0625], "padding": "reflection"},
            {"op": "hflip"}, {"op": "vflip"}
        ])
    } else {
        json!([options(name, &mut dice, frame)])
    };
    let mask_fill = match name {
        "random_crop" | "pad_to" => ops[0]["fill"].clone(),
        _ => json!(0),
    };
    let seed = dice.bits() >> 12;
    let pipeline = json!({"ops": ops, "seed": seed, "mask_fill": mask_fill}).to_string();
    let pipeline = Pipeline::from_json(&pipeline).unwrap();
    let samples = 1 + dice.below(3) as i64;
    let keys: Vec<SampleKey> = (0..samples as usize)
        .map(|sample| SampleKey { sample: sample * 7 + number as usize, repeat: sample as u64 % 2 })
        .collect();
    let parameters = pipeline.draw(frame, number, &keys).unwrap();
    let image = random_image(frame, samples, seed);
    let rounded = image.to_kind(Kind::Half).to_kind(Kind::Float);
    let kinds = match name {
        // Labels are looked up in the first mask.
        "transplant" => [dice.one_of(&[Kind::Uint8, Kind::Int]), Kind::Bool],
        _ => [Kind::Uint8, dice.one_of(&[Kind::Int, Kind::Bool])],
    };
    let masks = (0..2)
        .map(|index: usize| Mask {
            name: format!("mask{index}"),
            labels: random_mask(frame, samples, kinds[index], &mut dice).into(),
        })
        .collect();
    let law = law_of(group);
    // Kernels, for augmentations that have them. Half of the cases are enough, because all cases test operations.
    let by_kernels = number.is_multiple_of(2) && KERNELS.contains(&group);
    let takes = |variant: &Variant| {
        let engine = !ELASTIC.contains(&group) || variant.draws() == (group == ELASTIC[1]);
        engine && (by_kernels || variant.by != By::Kernels)
    };
    Case {
        group: group.to_owned(),
        variants: VARIANTS.into_iter().filter(takes).collect(),
        name: format!("{number}"),
        law,
        pipeline,
        parameters,
        image,
        rounded,
        masks,
    }
}

/// Element type and engine of one run of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Variant {
    half: bool,
    by: By,
}

/// The engine: the host's loops, libtorch's operations, or kernels together with operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    Loops,
    Operations,
    Kernels,
}

impl Variant {
    fn tensors(self) -> bool {
        self.by != By::Loops
    }

    /// Whether libtorch draws the noise. Kernels draw the host's.
    fn draws(self) -> bool {
        self.by == By::Operations
    }
}

const VARIANTS: [Variant; 6] = [
    Variant { half: false, by: By::Loops },
    Variant { half: false, by: By::Operations },
    Variant { half: false, by: By::Kernels },
    Variant { half: true, by: By::Loops },
    Variant { half: true, by: By::Operations },
    Variant { half: true, by: By::Kernels },
];

fn masks_of(masks: &[Mask]) -> Vec<Mask> {
    let copied = |mask: &Mask| Mask { name: mask.name.clone(), labels: mask.labels.copy().into() };
    masks.iter().map(copied).collect()
}

/// Applies the draws with one of the engines, on the CPU.
fn apply(
    pipeline: &Pipeline,
    image: &Tensor,
    masks: Vec<Mask>,
    parameters: &Parameters,
    by: By,
) -> Augmented<hsipack_torch::Tensor> {
    let images = Images::new(image.shallow_clone().into(), masks);
    let operations = Operations::on(Device::Cpu);
    let done = match by {
        By::Loops => Libtorch::new(2).apply(pipeline, images, parameters),
        By::Operations => pipeline.apply(&TensorEngine(operations), &images, parameters),
        By::Kernels => {
            let operations = operations.with_launcher(Some(crate::kernels::launcher()));
            pipeline.apply(&TensorEngine(operations), &images, parameters)
        }
    };
    done.unwrap_or_else(|error| panic!("{}: {error}", pipeline.to_json()))
}

/// The numbers (2, rows, columns) that an elastic field is smoothed from.
fn elastic_noise(seed: u64, [rows, columns]: [usize; 2], tensors: bool) -> Tensor {
    if tensors {
        let operations = Operations::on(Device::Cpu);
        return operations.uniform(&[2, rows, columns], seed).unwrap().into();
    }
    let noise = hsipack_augment::host::elastic_noise(seed, [rows, columns]);
    Tensor::from_slice(&noise).view([2, rows as i64, columns as i64])
}

impl Case {
    fn done(&self, image: &Tensor, variant: Variant) -> (Tensor, Vec<Mask>) {
        let kind = if variant.half { Kind::Half } else { Kind::Float };
        // Half of the cases have the memory layout of the loader, the others that of Kornia.
        let image = image.to_kind(kind).copy();
        let image = if self.name.ends_with(['0', '2', '4', '6', '8']) {
            image
        } else {
            image.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2])
        };
        let before = image.copy();
        let masks = masks_of(&self.masks);
        let done = apply(&self.pipeline, &image, masks, &self.parameters, variant.by);
        assert!(image.equal(&before), "the input was written to: {}", self.description());
        assert_eq!(done.image.kind(), kind);
        (done.image.into(), done.masks)
    }

    fn description(&self) -> String {
        format!(
            "{} {}: {}, {:?}",
            self.group,
            self.name,
            json!(self.pipeline),
            self.parameters.frame
        )
    }

    /// The noise of the augmentation, as an argument for Kornia.
    fn noise(&self, variant: Variant) -> Option<Tensor> {
        match self.group.as_str() {
            "gaussian_noise" => Some(self.done(&self.image.zeros_like(), variant).0),
            "elastic" | "elastic_tensors" => {
                let Frame { rows, columns, .. } = self.parameters.frame;
                let drawn = serde_json::to_value(&self.parameters.steps[0].drawn).unwrap();
                let noise = drawn.as_array().unwrap().iter().map(|drawn| match &drawn["seed"] {
                    Value::Null => {
                        Tensor::zeros([2, rows as i64, columns as i64], (Kind::Float, Device::Cpu))
                    }
                    seed => elastic_noise(seed.as_u64().unwrap(), [rows, columns], variant.draws()),
                });
                Some(Tensor::stack(&noise.collect::<Vec<_>>(), 0))
            }
            _ => None,
        }
    }

    fn tensors(&self) -> Vec<(String, Tensor)> {
        let named =
            |name: &str, tensor: &Tensor| (format!("{}.{name}", self.name), tensor.contiguous());
        let mut tensors = vec![named("image", &self.image), named("rounded", &self.rounded)];
        for mask in &self.masks {
            tensors.push(named(&mask.name, &mask.labels.unsqueeze(1)));
        }
        tensors.extend(self.noise(self.variants[0]).map(|noise| named("noise0", &noise)));
        tensors
    }

    fn json(&self) -> Value {
        json!({
            "group": self.group, "name": self.name,
            "pipeline": serde_json::to_value(&self.pipeline).unwrap(),
            "parameters": serde_json::to_value(&self.parameters).unwrap(),
        })
    }
}

fn most(tensor: &Tensor) -> f64 {
    if tensor.numel() == 0 { 0.0 } else { f64::try_from(tensor.abs().max()).unwrap() }
}

/// The greatest errors of a group.
#[derive(Debug, Default)]
struct Errors {
    cases: usize,
    ours: BTreeMap<Variant, f64>,
    kornia: f64,
    between: f64,
    matrix: f64,
    labels: i64,
    near: i64,
    other_labels: i64,
    failures: Vec<String>,
}

impl Errors {
    fn fail(&mut self, case: &Case, what: &str) {
        self.failures.push(format!("{what} in {}", case.description()));
    }
}

/// The accepted difference from Kornia's results in float64, for each value.
fn tolerance(
    case: &Case,
    variant: Variant,
    wanted: &Tensor,
    results: &BTreeMap<String, Tensor>,
) -> Tensor {
    let x = most(&case.image);
    let f32_step = f64::from(f32::EPSILON);
    match case.law {
        Law::Exact => wanted.zeros_like(),
        // One unit in the last place of float16 (2^-10), and 1e-6 of float32 for data in [0, 1].
        Law::Pointwise if variant.half => wanted.abs() * 1e-3 + 1e-6,
        Law::Pointwise if case.group == "snv" => {
            // Dividing by the spectrum's deviation enlarges the rounding error of its mean by the same factor.
            let deviation = case.image.to_kind(Kind::Double).std_dim([1i64].as_slice(), true, true);
            wanted.abs() * 1e-6 + deviation.reciprocal() * (4.0 * f32_step) + 1e-6
        }
        Law::Pointwise => wanted.abs().clamp_min(1.0) * 1e-6,
        // float16 data with float32 positions and arithmetic, rounded once: slightly more than half a unit in the last
        // place. embedding_bag requires weights of the table's type, so they are also rounded to float16.
        Law::Warp => {
            let rounding = match (variant.half, variant.by) {
                (false, _) => 1e-5,
                (true, By::Loops) => 3e-4 * x,
                (true, By::Kernels) => 5e-4 * x,
                (true, By::Operations) => 1e-3 * x,
            };
            // The loops compute coordinates in float64, the tensor operations in float32. float32 coordinates are as
            // coarse as the greatest number in their computation. From one pixel to the next, the image changes by at
            // most its greatest value. At these sizes, this error is hardly ever greater than the others.
            match results.get("reach") {
                Some(reach) if variant.tensors() && !variant.half => {
                    let reach = reach.unsqueeze(1).expand_as(wanted);
                    (reach * (4.0 * f32_step * x)).clamp_min(rounding)
                }
                _ => wanted.zeros_like() + rounding,
            }
        }
    }
}

fn compare(case: &Case, results: &BTreeMap<String, Tensor>, errors: &mut Errors) {
    errors.cases += 1;
    let near = results.get("near").map(|near| near.to_kind(Kind::Bool));
    let nearest = case.pipeline.to_json().contains("\"nearest\"");
    let exempt = near.as_ref().filter(|_| nearest).map(|near| near.unsqueeze(1));
    errors.kornia =
        errors.kornia.max(most(&masked(&(&results["single"] - &results["out"]), exempt.as_ref())));
    for variant in case.variants.iter().copied() {
        let source = if variant.half { &case.rounded } else { &case.image };
        let mut wanted = if variant.half {
            results["rounded"].shallow_clone()
        } else {
            results["out"].shallow_clone()
        };
        let (image, masks) = case.done(source, variant);
        if case.group == "gaussian_noise" && variant.draws() {
            // libtorch draws different numbers.
            let noise = case.done(&case.image.zeros_like(), Variant { half: false, ..variant }).0;
            wanted = source.to_kind(Kind::Double) + noise.to_kind(Kind::Double);
        }
        if image.size() != wanted.size() {
            errors.fail(case, &format!("{variant:?}: {:?} for {:?}", image.size(), wanted.size()));
            continue;
        }
        let image = if case.law == Law::Exact {
            wanted = wanted.to_kind(image.kind()).to_kind(Kind::Double);
            image.to_kind(Kind::Double)
        } else {
            image.to_kind(Kind::Double)
        };
        let difference = masked(&(&image - &wanted), exempt.as_ref());
        let error = most(&difference);
        let greatest = errors.ours.entry(variant).or_default();
        *greatest = greatest.max(error);
        let tolerance = tolerance(case, variant, &wanted, results);
        if bool::try_from(difference.abs().gt_tensor(&tolerance).any()).unwrap() || error.is_nan() {
            let over = most(&(difference.abs() - &tolerance).clamp_min(0.0));
            errors.fail(
                case,
                &format!("{variant:?}: differs by {error:.2e}, {over:.1e} more than may be"),
            );
        }
        if !variant.half {
            let between =
                most(&masked(&(&image - results["single"].to_kind(Kind::Double)), exempt.as_ref()));
            if case.group != "gaussian_noise" || !variant.draws() {
                errors.between = errors.between.max(between);
            }
        }
        unmoved(case, variant, source, &image, errors);
        for (index, mask) in masks.iter().enumerate() {
            let theirs = results[&format!("mask{index}")].to_kind(mask.labels.kind());
            let ours = mask.labels.unsqueeze(1);
            if ours.size() != theirs.size() {
                errors.fail(
                    case,
                    &format!("{variant:?}: mask {:?} for {:?}", ours.size(), theirs.size()),
                );
                continue;
            }
            let other = ours.ne_tensor(&theirs);
            let count = |tensor: &Tensor| i64::try_from(tensor.sum(Kind::Int64)).unwrap();
            errors.labels += ours.numel() as i64;
            errors.other_labels += count(&other);
            let wrong = match &near {
                Some(near) => {
                    errors.near += count(near);
                    count(&other.logical_and(&near.unsqueeze(1).logical_not()))
                }
                None => count(&other),
            };
            if wrong > 0 {
                errors
                    .fail(case, &format!("{variant:?}: {wrong} labels of mask {index} are others"));
            }
        }
    }
    if let Some(theirs) = results.get("matrix") {
        let ours = case.parameters.matrices(&case.pipeline).unwrap();
        // Resizing maps a pixel of a single row or column to several pixels.
        let many = ["resize", "resized_crop"].contains(&case.group.as_str());
        if many && ours.iter().any(Option::is_none) {
            return;
        }
        let ours: Vec<Tensor> = ours
            .iter()
            .map(|matrix| Tensor::from_slice(matrix.unwrap().0.as_flattened()).view([3, 3]))
            .collect();
        let scale = theirs.abs().clamp_min(1.0);
        let error = most(&((Tensor::stack(&ours, 0) - theirs) / scale));
        errors.matrix = errors.matrix.max(error);
        if error.is_nan() || error > 1e-6 {
            errors.fail(case, &format!("matrices differ by {error:.1e}"));
        }
    }
}

/// The tensor with zeros at exempted places.
fn masked(tensor: &Tensor, exempt: Option<&Tensor>) -> Tensor {
    exempt.map_or_else(|| tensor.shallow_clone(), |exempt| tensor.masked_fill(exempt, 0.0))
}

/// Checks that samples without a draw keep their bits.
fn unmoved(case: &Case, variant: Variant, source: &Tensor, image: &Tensor, errors: &mut Errors) {
    if source.size() != image.size() {
        return;
    }
    for sample in 0..source.size()[0] {
        let nothing =
            case.parameters.steps.iter().all(|step| step.drawn[sample as usize].is_none());
        if nothing && !source.get(sample).to_kind(Kind::Double).equal(&image.get(sample)) {
            errors
                .fail(case, &format!("{variant:?}: sample {sample} drew nothing and was changed"));
        }
    }
}

type Group = (&'static str, Vec<Case>);

/// Processes each item with two threads, in any order.
fn by_two<T: Send, U: Send>(items: Vec<T>, done: impl Fn(T) -> U + Sync) -> Vec<U> {
    let queue = Mutex::new(items.into_iter());
    let all = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = queue.lock().unwrap().next();
            let Some(item) = next else { return };
            let item = done(item);
            all.lock().unwrap().push(item);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    all.into_inner().unwrap()
}

/// The cases of a group. Their tensors are written to the folder.
fn drawn_group(group: &'static str, folder: &Path) -> Group {
    let cases: Vec<Case> = (0..CASES).map(|number| case(group, number)).collect();
    let tensors: Vec<(String, Tensor)> = cases.iter().flat_map(Case::tensors).collect();
    Tensor::write_safetensors(&tensors, folder.join(format!("{group}.safetensors"))).unwrap();
    (group, cases)
}

fn errors_of(group: &str, cases: &[Case], folder: &Path) -> Errors {
    let results = Tensor::read_safetensors(folder.join(format!("{group}.out.safetensors")));
    let mut by_case: BTreeMap<String, BTreeMap<String, Tensor>> = BTreeMap::new();
    for (key, tensor) in results.unwrap() {
        let (case, name) = key.split_once('.').unwrap();
        by_case.entry(case.to_owned()).or_default().insert(name.to_owned(), tensor);
    }
    let mut errors = Errors::default();
    for case in cases {
        compare(case, &by_case[&case.name], &mut errors);
    }
    // Kornia's own float32 results are off by up to 1e-5, and by more near the horizon of a perspective.
    if law_of(group) == Law::Warp && group != "perspective" && errors.between > 2e-5 {
        errors.failures.push(format!("{:.1e} from Kornia in float32", errors.between));
    }
    errors
}

#[test]
fn augmentations_equal_kornias_with_the_same_parameters() {
    if !kornia_is_there() {
        return;
    }
    // We use two threads, beside which libtorch's own threads would wait for each other.
    tch::set_num_threads(1);
    let only = std::env::var("HSIPACK_KORNIA_ONLY").ok();
    let groups: Vec<&str> = EXACT
        .iter()
        .chain(&WARPS)
        .chain(&POINTWISE)
        .copied()
        .chain([ELASTIC[1], "chain"])
        .collect();
    let groups: Vec<&str> = groups
        .into_iter()
        .filter(|group| only.as_ref().is_none_or(|only| only.split(',').any(|o| o == *group)))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let groups = by_two(groups, |group| drawn_group(group, folder.path()));
    let all: Vec<Value> = groups.iter().flat_map(|(_, cases)| cases).map(Case::json).collect();
    std::fs::write(folder.path().join("cases.json"), serde_json::to_vec(&all).unwrap()).unwrap();
    run_script("replay.py", &[folder.path()]);

    let mut table = String::from(
        "greatest error against Kornia 0.9.0 in float64, data in [0, 1]\n\
         augmentation     cases  float32 host/libtorch/kernels  float16 host/libtorch/kernels   Kornia float32  ours-Kornia32  \
         matrices  labels that differ, of all (near a middle)\n",
    );
    let mut failures = Vec::new();
    let errors: BTreeMap<&str, Errors> =
        by_two(groups, |(group, cases)| (group, errors_of(group, &cases, folder.path())))
            .into_iter()
            .collect();
    for (group, errors) in errors {
        let [a, b, c, d, e, f] =
            VARIANTS.map(|variant| errors.ours.get(&variant).copied().unwrap_or_default());
        writeln!(
            table,
            "{group:16} {:5}   {a:8.1e} /{b:8.1e} /{c:8.1e}   {d:8.1e} /{e:8.1e} /{f:8.1e}   {:14.1e} {:14.1e} {:9.1e}  {} of {} ({})",
            errors.cases, errors.kornia, errors.between, errors.matrix, errors.other_labels, errors.labels, errors.near
        )
        .unwrap();
        if !errors.failures.is_empty() {
            failures.push(format!(
                "{group}: {} failures, e.g. {}",
                errors.failures.len(),
                errors.failures[..errors.failures.len().min(3)].join("\n    ")
            ));
        }
    }
    println!("{table}");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A chain with its draws.
fn drawn(ops: Value, more: Value, frame: Frame, samples: usize) -> (Pipeline, Parameters) {
    let mut json = json!({"ops": ops, "seed": 11});
    json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let pipeline = Pipeline::from_json(&json.to_string()).unwrap();
    let keys: Vec<SampleKey> = (0..samples).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let parameters = pipeline.draw(frame, 0, &keys).unwrap();
    (pipeline, parameters)
}

fn applied(pipeline: &Pipeline, parameters: &Parameters, image: &Tensor, by: By) -> Tensor {
    apply(pipeline, image, Vec::new(), parameters, by).image.into()
}

/// The matrix that normalises pixels to -1 … 1, as in libtorch's grids.
fn normalised(frame: Frame, align_corners: bool) -> Tensor {
    let axis = |size: usize| {
        let size = size as f64;
        if align_corners { [2.0 / (size - 1.0), -1.0] } else { [2.0 / size, 1.0 / size - 1.0] }
    };
    let ([a, b], [c, d]) = (axis(frame.columns), axis(frame.rows));
    Tensor::from_slice(&[a, 0.0, b, 0.0, c, d, 0.0, 0.0, 1.0]).view([3, 3])
}

/// One warp by affine matrices, in float64, as in Kornia with libtorch's own sampling. Kornia 0.8
/// always normalised as with `align_corners`.
fn warped(
    image: &Tensor,
    matrices: &Tensor,
    frame: Frame,
    padding: i64,
    align_corners: bool,
    normal: bool,
) -> Tensor {
    let normal = normalised(frame, normal);
    let theta = normal.matmul(matrices).matmul(&normal.inverse()).inverse().narrow(1, 0, 2);
    let shape = [matrices.size()[0], 1, frame.rows as i64, frame.columns as i64];
    let grid = Tensor::affine_grid_generator(&theta, shape, align_corners);
    image.to_kind(Kind::Double).grid_sampler(&grid, 0, padding, align_corners)
}

fn matrices(pipeline: &Pipeline, parameters: &Parameters) -> Tensor {
    let matrices = parameters.matrices(pipeline).unwrap();
    let matrices: Vec<Tensor> = matrices
        .iter()
        .map(|matrix| Tensor::from_slice(matrix.unwrap().0.as_flattened()).view([3, 3]))
        .collect();
    Tensor::stack(&matrices, 0)
}

#[test]
fn fused_warps_are_one_warp_by_the_product_of_their_matrices() {
    let frame = Frame { rows: 33, columns: 41, bands: 5 };
    let image = random_image(frame, 6, 3);
    for (padding, code) in [("zeros", 0), ("border", 1), ("reflection", 2)] {
        for align_corners in [false, true] {
            let more = json!({"padding": padding, "align_corners": align_corners, "p": 1.0});
            let warp = |options: Value| {
                let mut options = options;
                options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                options
            };
            let ops = json!([
                warp(json!({"op": "affine", "degrees": 45, "translate": [0.06, 0.06], "scale": [0.9, 1.1], "shear": 10})),
                {"op": "hflip"},
                warp(json!({"op": "rotate", "degrees": 60})),
                {"op": "vflip"},
            ]);
            let (pipeline, parameters) = drawn(ops, json!({}), frame, 6);
            let wanted = warped(
                &image,
                &matrices(&pipeline, &parameters),
                frame,
                code,
                align_corners,
                align_corners,
            );
            for by in [By::Loops, By::Operations, By::Kernels] {
                let fused = applied(&pipeline, &parameters, &image, by);
                let error = most(&(fused.to_kind(Kind::Double) - &wanted));
                // The bound for warps of this size: float32 positions are up to three frames outside.
                assert!(
                    error <= if by == By::Loops { 1e-5 } else { 5e-5 },
                    "{padding} {align_corners}: {error:.1e}"
                );
            }
        }
    }
}

/// A smooth scene at any place: waves of a few pixels' length.
fn scene(x: &Tensor, y: &Tensor) -> Tensor {
    let waves = [(0.9, 0.3, 0.0), (-0.5, 0.8, 1.0), (0.2, -1.1, 2.0), (1.2, 0.6, 0.5)];
    let bands: Vec<Tensor> =
        waves.iter().map(|(a, b, phase)| ((x * *a + y * *b + *phase).sin() + 1.0) * 0.5).collect();
    Tensor::stack(&bands, -3)
}

#[test]
fn one_warp_is_nearer_to_the_scene_than_two() {
    let frame = Frame { rows: 64, columns: 72, bands: 4 };
    let options = (Kind::Double, Device::Cpu);
    let x = Tensor::arange(72, options).view([1, 1, 72]).expand([6, 64, 72], true);
    let y = Tensor::arange(64, options).view([1, 64, 1]).expand([6, 64, 72], true);
    let image = scene(&x, &y).to_kind(Kind::Float);
    let ops = json!([
        {"op": "affine", "degrees": 20, "scale": [0.95, 1.05], "translate": [0.05, 0.05], "p": 1.0, "align_corners": true},
        {"op": "rotate", "degrees": 20, "p": 1.0},
    ]);
    let (fused, parameters) = drawn(ops.clone(), json!({"fuse": true}), frame, 6);
    let (sequential, _) = drawn(ops, json!({"fuse": false}), frame, 6);
    // The scene itself, at the source of every pixel of the result.
    let back = matrices(&fused, &parameters).inverse();
    let at = |row: i64| {
        let number = |column: i64| back.select(1, row).select(1, column).view([6, 1, 1]);
        &x * number(0) + &y * number(1) + number(2)
    };
    let wanted = scene(&at(0), &at(1));
    let error = |pipeline: &Pipeline| {
        let image = applied(pipeline, &parameters, &image, By::Loops).to_kind(Kind::Double);
        // Far from the edges, where neither way reads outside the frame.
        let middle = |tensor: &Tensor| tensor.narrow(2, 22, 20).narrow(3, 26, 20);
        f64::try_from((middle(&image) - middle(&wanted)).square().mean(Kind::Double))
            .unwrap()
            .sqrt()
    };
    let (fused, sequential) = (error(&fused), error(&sequential));
    println!("error against the scene: one warp {fused:.4}, two warps {sequential:.4}");
    assert!(fused < 0.75 * sequential, "{fused} and {sequential}");
}

#[test]
fn kornia_0_8_is_followed_where_it_is_asked_for() {
    let frame = Frame { rows: 33, columns: 41, bands: 3 };
    let image = random_image(frame, 5, 4);
    for (padding, code) in [("zeros", 0), ("border", 1), ("reflection", 2)] {
        for align_corners in [false, true] {
            let ops = json!([{
                "op": "affine", "degrees": 45, "translate": [0.2, 0.1], "scale": [0.8, 1.2], "shear": 10, "p": 1.0,
                "padding": padding, "align_corners": align_corners,
            }]);
            let (new, parameters) = drawn(ops.clone(), json!({"kornia": "0.9"}), frame, 5);
            let (old, _) = drawn(ops, json!({"kornia": "0.8"}), frame, 5);
            let matrices = matrices(&new, &parameters);
            let wanted = warped(&image, &matrices, frame, code, align_corners, true);
            let ours = applied(&old, &parameters, &image, By::Loops).to_kind(Kind::Double);
            let error = most(&(&ours - &wanted));
            assert!(error <= 1e-5, "{padding} {align_corners}: {error:.1e}");
            let other = most(
                &(applied(&new, &parameters, &image, By::Loops).to_kind(Kind::Double) - &wanted),
            );
            assert_eq!(
                other > 1e-3,
                !align_corners,
                "the two differ without align_corners only: {other:.1e}"
            );
            if align_corners && padding == "reflection" {
                // Kornia 0.8.2 mirrors these masks about the edges of pixels, but their images about centres. Here, masks
                // are mirrored like their images.
                continue;
            }
            // Kornia 0.8 always sampled masks without align_corners: floating-point labels follow the nearest pixel.
            let labels = (image.narrow(1, 0, 1) * 6.0).floor();
            let nearest = {
                let normal = normalised(frame, true);
                let theta =
                    normal.matmul(&matrices).matmul(&normal.inverse()).inverse().narrow(1, 0, 2);
                let grid = Tensor::affine_grid_generator(&theta, [5, 1, 33, 41], false);
                labels.to_kind(Kind::Double).grid_sampler(&grid, 1, code, false)
            };
            let mask = Mask {
                name: "labels".to_owned(),
                labels: labels.to_kind(Kind::Uint8).squeeze_dim(1).into(),
            };
            let mut done = apply(&old, &image, vec![mask], &parameters, By::Loops);
            let mask = done.masks.remove(0).labels.unsqueeze(1);
            let others =
                i64::try_from(mask.to_kind(Kind::Double).ne_tensor(&nearest).sum(Kind::Int64))
                    .unwrap();
            assert_eq!(others, 0, "{padding} {align_corners}");
        }
    }
}
