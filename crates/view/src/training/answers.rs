//! Questions about what training is given, and their answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hsipack_augment::{Array, Drawn, Frame, Images, Step};
use hsipack_format::{Error, Result};
use hsipack_pack::preview::{self, Meaning, Sampling};
use hsipack_read::plan::Item;
use hsipack_read::{Dataset, OpenOptions};
use hsipack_store::Stack;
use serde_json::{Value, json};

use super::batches::{Batch, Batches, WindowPosition};
use super::images::{ImageCache, ItemImages, Key};
use super::setup::{Setup, Training};
use super::values::Values;
use crate::answer::{Answer, bytes};
use crate::cube::deadline::Deadline;
use crate::cube::{bands, grid};
use crate::facts;
use crate::query::Query;
use crate::subject::Subject;

/// The default and the maximum number of items in a list.
const LISTED: (usize, usize) = (64, 512);
/// Maximum number of windows of a sample in an answer.
const PLACES: usize = 4096;

/// Answers questions about training with a dataset.
#[derive(Debug)]
pub struct Answers {
    base: Training,
    state: Mutex<State>,
}

/// State between questions.
#[derive(Debug, Default)]
struct State {
    dataset: Option<Dataset>,
    /// The loader that was requested last.
    batches: Option<(String, Arc<Batches>)>,
    /// The batch that was requested last.
    batch: Option<(Key, Arc<Batch>)>,
    latest: ImageCache,
}

impl Answers {
    /// Answers about a loader. `base` is the setup with which the viewer was started.
    pub fn new(base: Training) -> Self {
        Self { base, state: Mutex::default() }
    }

    /// The answer to `question` about the loader and batch in `query`.
    ///
    /// # Errors
    /// If the subject is not a dataset, the options contradict each other or the dataset, or the
    /// dataset is damaged.
    pub fn answer(&self, subject: &Subject, question: &[&str], query: &Query) -> Result<Answer> {
        let mut state = self.state();
        let key = Setup::key(query);
        let batches = state.batches(&self.base, subject, &key, query)?;
        let epoch = query.number("epoch", 0, usize::MAX)? as u64;
        if let ["places"] = question {
            // This goes through a whole epoch, so let other questions run meanwhile.
            drop(state);
            let sample = query.number("sample", 0, subject.len().max(1) - 1)?;
            return places(&batches, epoch, sample);
        }
        if question.is_empty() {
            return setup(&batches, epoch);
        }
        let number = query.number("batch", 0, usize::MAX)?;
        let key = (key, epoch, number);
        let batch = state.batch(&key, &batches)?;
        if let ["batch"] = question {
            return listed(subject, &batches, &batch, query);
        }
        let position = query.number("place", 0, batch.items.len() - 1)?;
        // Other questions wait until the item is made, because most are about the same item.
        let images = state.latest.of(&key, &batches, &batch, position)?;
        drop(state);
        let shown = Shown { images: &images, position: position - images.first, query };
        match question {
            ["planes"] => shown.planes(),
            ["mask"] => shown.mask(),
            ["spectrum"] => shown.spectrum(),
            _ => Ok(Answer::missing()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn batches(
        &mut self,
        base: &Training,
        subject: &Subject,
        key: &str,
        query: &Query,
    ) -> Result<Arc<Batches>> {
        if let Some((last_key, batches)) = &self.batches
            && last_key == key
        {
            return Ok(Arc::clone(batches));
        }
        let setup = Setup::of(base, query)?;
        let dataset = self.dataset(subject)?;
        let batches = Arc::new(Batches::new(&dataset, setup)?);
        self.batches = Some((key.to_owned(), Arc::clone(&batches)));
        Ok(batches)
    }

    /// The dataset as a loader reads it. It is opened when it is first needed.
    fn dataset(&mut self, subject: &Subject) -> Result<Dataset> {
        if let Some(dataset) = &self.dataset {
            return Ok(dataset.clone());
        }
        let packed = subject.dataset().ok_or_else(|| {
            Error::conflict("these cubes are not packed: loaders read only packed datasets")
                .with_remedy("pack them to see what training is given")
        })?;
        // Leave out samples that were appended since: the viewer does not list them either.
        let as_of = Some(packed.fingerprint().to_owned());
        let options = OpenOptions { as_of, ..OpenOptions::default() };
        let dataset = Dataset::open_with(packed.path(), options)?;
        Ok(self.dataset.insert(dataset).clone())
    }

    fn batch(&mut self, key: &Key, batches: &Batches) -> Result<Arc<Batch>> {
        if let Some((last_key, batch)) = &self.batch
            && last_key == key
        {
            return Ok(Arc::clone(batch));
        }
        let batch = Arc::new(batches.batch(key.1, key.2)?);
        self.batch = Some((key.clone(), Arc::clone(&batch)));
        Ok(batch)
    }
}

/// The options of the loader, and how many batches it delivers.
fn setup(batches: &Batches, epoch: u64) -> Result<Answer> {
    let cache = batches.replay.cache();
    let window = cache.shuffle_window.as_ref();
    Ok(Answer::json(&json!({
        "setup": batches.setup.json(),
        "batches": batches.len(epoch)?,
        "items": batches.replay.plan().items(),
        "samples": batches.replay.plan().samples().len(),
        "masks": batches.replay.masks(),
        "blocks": window.map(|window| [window.blocks, window.of_blocks]),
        "ops": batches.setup.pipeline.as_ref().map(|pipeline| &pipeline.ops),
    })))
}

/// The places of the windows of a sample in an epoch.
fn places(batches: &Batches, epoch: u64, sample: usize) -> Result<Answer> {
    let deadline = Deadline::with_remedy("use fewer windows per cube, or one split");
    let mut found = batches.places(epoch, sample, PLACES + 1, deadline)?;
    let more = found.len() > PLACES;
    found.truncate(PLACES);
    let to_json = |WindowPosition { batch, position, item }: &WindowPosition| json!({ "batch": batch, "place": position, "window": window(item), "repeat": item.repeat });
    let places: Vec<Value> = found.iter().map(to_json).collect();
    Ok(Answer::json(&json!({ "places": places, "more": more })))
}

fn window(item: &Item) -> [i64; 4] {
    let of = item.window;
    [of.row.into(), of.column.into(), of.rows.into(), of.columns.into()]
}

fn shape(Frame { rows, columns, bands }: Frame) -> [usize; 3] {
    [rows, columns, bands]
}

/// Information about a batch and its items.
fn listed(subject: &Subject, batches: &Batches, batch: &Batch, query: &Query) -> Result<Answer> {
    let first = query.number("first", 0, usize::MAX)?;
    let limit = query.number("limit", LISTED.0, LISTED.1)?;
    let stack = batch.items.first().and_then(|item| stack(subject, item));
    let mut answer = json!({
        "total": batch.items.len(),
        "before": shape(batch.before), "after": shape(batch.after),
        "own_stretch": batches.normalises(),
    });
    if let Some(stack) = stack {
        let chosen = batches.setup.loader.bands.as_deref();
        let good = stack.image.meta().band_notes().good_bands;
        answer["good_bands"] = json!(good.as_deref().map(|all| of_bands(all, chosen)));
        answer["bands"] = json!(chosen);
        answer["presets"] = json!(presets(stack, good.as_deref(), chosen));
        let wavelength = stack.wavelength.as_deref().map(|all| of_bands(all, chosen));
        answer["wavelength"] = json!(wavelength);
        let masks = batches.replay.masks().iter();
        answer["masks"] = masks.map(|name| mask(batches, stack, name)).collect();
    }
    let places = (first..batch.items.len()).take(limit);
    let items = places.map(|position| item(subject, batches, batch, position));
    answer["items"] = items.collect::<Result<Value>>()?;
    Ok(Answer::json(&answer))
}

/// Choices of bands to show as red, green and blue: their places among the bands that are read, and
/// their numbers in the caption.
fn presets(stack: &Stack, good: Option<&[bool]>, chosen: Option<&[usize]>) -> Vec<facts::Preset> {
    let bands = stack.image.shape().bands;
    let is_read = |band: &usize| chosen.is_none_or(|chosen| chosen.contains(band));
    let is_good = |band: usize| good.is_none_or(|good| good[band]);
    let any = (0..bands).filter(is_read).any(is_good);
    // Use bad bands only if no good band is read.
    let usable: Vec<bool> =
        (0..bands).map(|band| is_read(&band) && (is_good(band) || !any)).collect();
    let mut presets = preview::presets(bands, stack.wavelength.as_deref(), Some(&usable));
    if let Some(chosen) = chosen {
        let index_of = |band| chosen.iter().position(|number| *number == band).unwrap_or(0);
        presets.iter_mut().for_each(|preset| preset.bands = preset.bands.map(index_of));
    }
    presets.into_iter().map(facts::Preset::of).collect()
}

/// The entries of `all` for the bands that are read.
fn of_bands<T: Copy>(all: &[T], chosen: Option<&[usize]>) -> Vec<T> {
    match chosen {
        Some(bands) => bands.iter().map(|band| all[*band]).collect(),
        None => all.to_vec(),
    }
}

fn stack<'a>(subject: &'a Subject, item: &Item) -> Option<&'a Stack> {
    let dataset = subject.dataset()?;
    dataset.stacks().get(dataset.samples().stack(item.sample))
}

/// The meaning of the labels of a mask.
fn meaning(batches: &Batches, stack: &Stack, name: &str) -> Meaning {
    let layers = batches.replay.layers(name);
    let renamed = batches.setup.loader.new_ids.iter().any(|new| new.mask == name);
    match stack.mask(name) {
        _ if !layers.is_empty() => Meaning::Layers { names: layers.to_vec() },
        Some(mask) if !renamed => mask.meta().mask_meaning().into(),
        _ => Meaning::Ids { names: None, colours: Vec::new() },
    }
}

fn mask(batches: &Batches, stack: &Stack, name: &str) -> Value {
    let meaning = meaning(batches, stack, name);
    let (names, layers) = match &meaning {
        Meaning::Layers { names } => (names.len(), true),
        Meaning::Ids { names, .. } => (names.as_ref().map_or(0, Vec::len), false),
    };
    let classes = (0..names.min(usize::from(u16::MAX)) as u16).map(|id| facts::class(&meaning, id));
    let classes: Vec<facts::Class> = classes.collect();
    json!({ "name": name, "layers": layers, "classes": classes })
}

fn item(subject: &Subject, batches: &Batches, batch: &Batch, position: usize) -> Result<Value> {
    let item = &batch.items[position];
    let sample = subject.dataset().map(|dataset| dataset.samples().get(item.sample)).transpose()?;
    let of_mask = item.label.map(|id| {
        let patches = batches.setup.loader.patches.as_ref();
        let regions = batches.setup.loader.regions.as_ref();
        let mask = patches
            .map(|(mask, _)| mask.as_str())
            .or(regions.and_then(|(mask, regions)| regions.labels.as_deref().or(Some(mask))));
        match stack(subject, item).zip(mask) {
            Some((stack, mask)) => {
                let id = u16::try_from(id).unwrap_or(u16::MAX);
                meaning(batches, stack, mask).label(id)
            }
            None => id.to_string(),
        }
    });
    let label = sample.as_ref().and_then(|sample| sample.label.as_ref());
    let label_text =
        label.map(|label| label.as_str().map_or_else(|| label.to_string(), str::to_owned));
    let steps = batch.drawn.iter().flat_map(|drawn| &drawn.steps);
    Ok(json!({
        "sample": item.sample, "repeat": item.repeat, "window": window(item),
        "name": sample.map(|sample| sample.name), "label": of_mask.or(label_text),
        "padding": item.padding,
        "steps": steps.map(|step| told(step, position)).collect::<Vec<Value>>(),
    }))
}

/// An augmentation, and what was drawn for an item; nothing if it is not applied.
fn told(Step { op, drawn }: &Step, position: usize) -> Value {
    let donor = match &drawn[position] {
        Some(
            Drawn::MixUp { donor, .. }
            | Drawn::CutMix { donor, .. }
            | Drawn::Transplant { donor, .. },
        ) => Some(donor),
        _ => None,
    };
    json!({ "op": op, "drawn": drawn[position], "donor": donor })
}

/// The pixels of an item.
struct Shown<'a> {
    images: &'a ItemImages,
    /// Position among the images.
    position: usize,
    query: &'a Query,
}

impl Shown<'_> {
    /// The images before or after augmentations.
    fn images(&self) -> Result<&Images<Array>> {
        match self.query.get("what").unwrap_or("augmented") {
            "read" => Ok(&self.images.read),
            "augmented" => Ok(&self.images.augmented),
            other => Err(Error::conflict(format!("what={other} is not read or augmented"))),
        }
    }

    fn image(&self) -> Result<Values> {
        Values::of(&self.images()?.image, self.position)
    }

    fn sampling(&self, [rows, columns, _]: [usize; 3]) -> Result<Sampling> {
        Ok(Sampling::new(rows, columns, grid::side(self.query)?))
    }

    fn planes(&self) -> Result<Answer> {
        let values = self.image()?;
        let wanted = self.query.bands(values.shape[2], bands::MAX_BANDS)?;
        let shown = self.sampling(values.shape)?;
        let planes = values.planes(&shown, &wanted)?;
        let lengths = [wanted.len(), shown.rows.len(), shown.columns.len()];
        Ok(Answer::numbers(lengths, bytes(&planes, f32::to_le_bytes)))
    }

    fn mask(&self) -> Result<Answer> {
        let name = self.query.get("name").unwrap_or_default();
        let mask = self
            .images()?
            .masks
            .iter()
            .find(|mask| mask.name == name)
            .ok_or_else(|| Error::conflict(format!("the batch has no mask '{name}'")))?;
        let values = Values::of(&mask.labels, self.position)?;
        let shown = self.sampling(values.shape)?;
        let lengths = [shown.rows.len(), shown.columns.len()];
        Ok(Answer::mask(lengths, &values.labels(&shown)?, values.layered))
    }

    fn spectrum(&self) -> Result<Answer> {
        let values = self.image()?;
        let [rows, columns, _] = values.shape;
        let pixel = match (self.query.get("row"), self.query.get("column")) {
            (None, None) => None,
            _ => Some([
                self.query.number("row", 0, rows - 1)?,
                self.query.number("column", 0, columns - 1)?,
            ]),
        };
        Ok(Answer::json(&facts::curve(&values.spectrum(pixel)?)))
    }
}
