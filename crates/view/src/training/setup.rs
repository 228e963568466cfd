//! The options of the loader: those that the viewer was started with, unless the page says
//! otherwise.

use std::fmt::Display;
use std::str::FromStr;

use hsipack_augment::Pipeline;
use hsipack_format::{Error, Result};
use hsipack_read::plan::{Crop, Patches};
use hsipack_read::{
    Dataset, Device, DeviceOptions, ElementType, Integers, LoaderOptions, Normalization,
};
use serde_json::{Value, json};

use crate::query::Query;

/// A loader of training whose batches are shown.
#[derive(Clone, Debug)]
pub struct Training {
    /// The data to read, and their order.
    pub loader: LoaderOptions,
    /// How images are made. They are made on the CPU, even if another device is given.
    pub images: DeviceOptions,
    /// The augmentations, as JSON (see [`Pipeline::from_json`]). If they name no seed, the loader's
    /// seed is used.
    pub augment: Option<String>,
}

/// The default number of items in a batch.
const BATCH: usize = 8;

impl Default for Training {
    fn default() -> Self {
        let loader = LoaderOptions::new(BATCH);
        Self { loader, images: DeviceOptions::new(Device::Cpu), augment: None }
    }
}

impl Training {
    /// The augmentations.
    ///
    /// # Errors
    /// If the JSON is not a list of augmentations.
    pub(crate) fn pipeline(&self) -> Result<Option<Pipeline>> {
        self.augment.as_deref().map(|json| pipeline(json, self.loader.plan.seed)).transpose()
    }
}

/// The requested options.
#[derive(Debug)]
pub struct Setup {
    pub loader: LoaderOptions,
    pub images: DeviceOptions,
    pub pipeline: Option<Pipeline>,
    /// The augmentations as JSON, as the user wrote them.
    augment: Option<String>,
    /// Whether images are stored as integers, which become floats.
    has_integers: bool,
}

/// The names of the options that the page can set.
const NAMES: [&str; 13] = [
    "batch_size",
    "crop",
    "rows",
    "columns",
    "per_cube",
    "mask",
    "order",
    "seed",
    "split",
    "normalize",
    "physical",
    "augment",
    "augment_seed",
];

/// Limits of what the page can request: items of a batch, rows and columns of a crop, and bytes of
/// augmentations. Encoded in an address, augmentations may be three times as long, and servers
/// accept no address of more than 64 KiB.
const MAX_ITEMS: usize = 1 << 16;
const MAX_PIXELS: usize = 1 << 20;
const MAX_AUGMENT: usize = 16 << 10;

impl Setup {
    /// The options in `query`, as a short text. Equal texts mean equal setups.
    pub fn key(query: &Query) -> String {
        let named = NAMES.iter().filter_map(|name| Some((name, query.get(name)?)));
        named.map(|(name, value)| format!("{name}={value:?};")).collect()
    }

    /// The options in `query`; `base` has the options that the viewer was started with.
    ///
    /// # Errors
    /// If a value is not valid.
    pub fn of(base: &Training, query: &Query) -> Result<Self> {
        let Training { mut loader, mut images, augment } = base.clone();
        let plan = &mut loader.plan;
        plan.batch_size = query.number("batch_size", plan.batch_size, MAX_ITEMS)?;
        plan.seed = parsed(query, "seed")?.unwrap_or(plan.seed);
        plan.order = parsed(query, "order")?.unwrap_or(plan.order);
        if let Some(split) = query.get("split") {
            loader.splits = if split.is_empty() { Vec::new() } else { vec![split.to_owned()] };
            // A list of single samples may have been given; it does not apply to another split.
            loader.samples = None;
        }
        if let Some(kind) = query.get("crop") {
            crop(&mut loader, kind, query)?;
        }
        images.normalization = parsed(query, "normalize")?.unwrap_or(images.normalization);
        if let Some(text) = query.get("physical") {
            images.physical = text == "1";
            loader.integers = match images.physical {
                true => Integers::default(),
                false => Integers::Stored,
            };
            if images.physical && !images.image.is_float() {
                images.image = ElementType::F16;
            }
        }
        // Only the page waits for batches, so there is nothing to record.
        loader.trace = None;
        let augment = match query.get("augment") {
            None => augment,
            Some(text) if text.trim().is_empty() => None,
            Some(text) if text.len() > MAX_AUGMENT => {
                let what = format!("the augmentations have {} bytes", text.len());
                return Err(Error::conflict(what)
                    .with_remedy(format!("on the page, give at most {MAX_AUGMENT} bytes of JSON; pass longer ones when you start the viewer")));
            }
            Some(text) => Some(text.to_owned()),
        };
        let seed = loader.plan.seed;
        let mut pipeline = augment.as_deref().map(|json| pipeline(json, seed)).transpose()?;
        if let (Some(pipeline), Some(seed)) = (&mut pipeline, parsed(query, "augment_seed")?) {
            pipeline.seed = seed;
        }
        Ok(Self { loader, images, pipeline, augment, has_integers: false })
    }

    /// Chooses a type that holds the images: float32 for values that do not fit float16, and for
    /// stored integers.
    pub fn hold_values(&mut self, dataset: &Dataset) {
        let form = self.images.integers(self.loader.integers);
        let converted = dataset.clone().with_integers(form);
        self.has_integers = (0..dataset.stacks().len()).any(|stack| converted.converts(stack));
        self.images = self.images.clone().widened(dataset, self.loader.integers);
    }

    /// Whether values are physical.
    fn is_physical(&self) -> bool {
        match self.has_integers {
            true => matches!(self.loader.integers, Integers::Physical(_)),
            false => self.images.physical,
        }
    }

    /// The options for the form of the page; `null` if the form cannot express a value.
    pub fn json(&self) -> Value {
        let LoaderOptions { plan, splits, samples, .. } = &self.loader;
        let split = match (samples, &splits[..]) {
            (None, []) => Some(""),
            (None, [split]) => Some(split.as_str()),
            _ => None,
        };
        let normalize = self.images.normalization.to_string();
        let is_word = normalize.parse::<Normalization>().is_ok();
        let mut setup = json!({
            "batch_size": plan.batch_size,
            "order": plan.order.to_string(),
            "seed": plan.seed.to_string(),
            "split": split,
            "normalize": is_word.then_some(normalize),
            "physical": self.is_physical(),
            "dtype": self.images.image.to_string(),
            "augment": self.augment,
            "augment_seed": self.pipeline.as_ref().map(|pipeline| pipeline.seed.to_string()),
            "mask": Value::Null, "per_cube": 1,
        });
        let (kind, size) = match (&plan.crop, &self.loader.patches) {
            _ if self.loader.regions.is_some() => ("given", None),
            (_, Some((mask, patches))) => {
                setup["mask"] = json!(mask);
                ("patches", Some([patches.rows, patches.columns]))
            }
            (Crop::Whole, None) => ("whole", None),
            (Crop::Centre { rows, columns }, None) => ("centre", Some([*rows, *columns])),
            (Crop::Random { rows, columns, per_sample, .. }, None) => {
                setup["per_cube"] = json!(per_sample);
                ("random", Some([*rows, *columns]))
            }
            (Crop::Grid { rows, columns, .. }, None) => ("grid", Some([*rows, *columns])),
            (Crop::Windows(_), None) => ("given", None),
        };
        setup["crop"] = json!(kind);
        setup["size"] = json!(size);
        setup
    }
}

/// Makes the loader crop as the page says. Options that the page does not set stay as they were.
fn crop(loader: &mut LoaderOptions, kind: &str, query: &Query) -> Result<()> {
    let length = |name: &str| Ok(query.number(name, 64, MAX_PIXELS)? as u32);
    let [rows, columns] = [length("rows")?, length("columns")?];
    let before = loader.patches.take();
    if kind == "given" {
        loader.patches = before;
        return Ok(());
    }
    loader.regions = None;
    let old = std::mem::replace(&mut loader.plan.crop, Crop::Whole);
    loader.plan.crop = match kind {
        "whole" => Crop::Whole,
        "centre" => Crop::Centre { rows, columns },
        "random" => {
            let per_sample = query.number("per_cube", 1, MAX_ITEMS)? as u32;
            let min_labelled = match old {
                Crop::Random { min_labelled, .. } => min_labelled,
                _ => 0.0,
            };
            Crop::Random { rows, columns, per_sample, min_labelled }
        }
        "grid" => match old {
            Crop::Grid { rows: old_rows, columns: too, .. }
                if [old_rows, too] == [rows, columns] =>
            {
                old
            }
            Crop::Grid { pad, .. } => {
                Crop::Grid { rows, columns, row_step: rows, column_step: columns, pad }
            }
            _ => Crop::Grid { rows, columns, row_step: rows, column_step: columns, pad: None },
        },
        "patches" => {
            let mask = query.get("mask").unwrap_or_default().to_owned();
            let old_patches =
                before.filter(|(old_mask, _)| *old_mask == mask).map(|(_, patches)| patches);
            let patches = old_patches.unwrap_or_else(|| Patches::new(rows, columns));
            loader.patches = Some((mask, Patches { rows, columns, ..patches }));
            Crop::Whole
        }
        _ => return Err(Error::conflict(format!("there is no crop {kind:?}"))),
    };
    Ok(())
}

fn parsed<T: FromStr<Err: Display>>(query: &Query, name: &str) -> Result<Option<T>> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| Error::conflict(format!("{name}={text}: {error}")))
}

/// The augmentations that `json` lists. If it names no seed, they use `seed`.
fn pipeline(json: &str, seed: u64) -> Result<Pipeline> {
    let mut pipeline = Pipeline::from_json(json)?;
    let value: Value = serde_json::from_str(json).unwrap_or_default();
    if value.get("seed").is_none_or(Value::is_null) {
        pipeline.seed = seed;
    }
    Ok(pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(base: &Training, query: &str) -> Setup {
        Setup::of(base, &Query::parse(query)).unwrap()
    }

    #[test]
    fn a_pipeline_without_a_seed_draws_as_the_loader() {
        for (json, seed) in [
            (r#"{"seed": null, "ops": []}"#, 5),
            (r#"{"ops": []}"#, 5),
            (r#"{"seed": 3, "ops": []}"#, 3),
        ] {
            assert_eq!(pipeline(json, 5).unwrap().seed, seed, "{json}");
        }
    }

    #[test]
    fn the_page_changes_what_it_names_and_nothing_else() {
        let mut base = Training::default();
        base.loader.plan.crop =
            Crop::Random { rows: 4, columns: 5, per_sample: 2, min_labelled: 0.5 };
        base.loader.splits = vec!["train".into()];
        assert_eq!(setup(&base, "").loader.plan, base.loader.plan);
        let random = setup(&base, "crop=random&rows=6&columns=7&per_cube=3&seed=9&split=").loader;
        assert_eq!(
            random.plan.crop,
            Crop::Random { rows: 6, columns: 7, per_sample: 3, min_labelled: 0.5 }
        );
        assert_eq!((random.plan.seed, random.splits.len()), (9, 0));
        let patches = setup(&base, "crop=patches&rows=3&columns=3&mask=a").loader;
        assert_eq!(patches.patches, Some(("a".to_owned(), Patches::new(3, 3))));
        assert_eq!(patches.plan.crop, Crop::Whole);
        for wrong in ["seed=x", "order=fast", "crop=round", "batch_size=-1", "normalize=z"] {
            assert!(Setup::of(&base, &Query::parse(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn augmentations_have_the_seed_that_is_named_last() {
        let seed = |augment: &str, query: &str| {
            let base = Training { augment: Some(augment.to_owned()), ..Training::default() };
            setup(&base, query).pipeline.unwrap().seed
        };
        let (list, pipeline) = (r#"[{"op": "hflip"}]"#, r#"{"ops": [{"op": "hflip"}], "seed": 3}"#);
        assert_eq!((seed(list, ""), seed(list, "seed=5"), seed(pipeline, "seed=5")), (0, 5, 3));
        assert_eq!(seed(pipeline, "seed=5&augment_seed=7"), 7);
        let none = Training { augment: Some(pipeline.to_owned()), ..Training::default() };
        assert!(setup(&none, "augment=").pipeline.is_none());
    }

    #[test]
    fn reported_setup_equals_the_request() {
        let patches =
            setup(&Training::default(), "crop=patches&rows=3&columns=5&mask=a&normalize=snv");
        let patches_json = patches.json();
        assert_eq!(
            (&patches_json["crop"], &patches_json["size"], &patches_json["mask"]),
            (&json!("patches"), &json!([3, 5]), &json!("a"))
        );
        assert_eq!(
            (&patches_json["normalize"], &patches_json["order"]),
            (&json!("snv"), &json!("shuffled"))
        );
        let mut base = Training::default();
        base.loader.samples = Some(vec![1, 2]);
        base.images.normalization =
            Normalization::StandardizeBy { mean: vec![0.0], std: vec![1.0] };
        let seeded = setup(&base, "seed=4").json();
        assert_eq!((&seeded["split"], &seeded["normalize"]), (&Value::Null, &Value::Null));
        let other = setup(&base, "split=val");
        assert_eq!((&other.json()["split"], &other.loader.samples), (&json!("val"), &None));
        let key = |query: &str| Setup::key(&Query::parse(query));
        assert_eq!(key("seed=1&epoch=3&rows=2"), key("rows=2&seed=1&batch=9"));
        assert_ne!(key("seed=1"), key("seed=2"));
    }
}
