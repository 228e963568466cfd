//! Which address is which question, and the answers.

use std::sync::Arc;

use hsipack_format::{Error, Ratio, Result};
use hsipack_pack::deviation::{self, Deviation};
use hsipack_pack::preview::{Meaning, Sampling};
use hsipack_pack::spectra::Spectrum;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::mirror;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::about;
use crate::answer::{Answer, bytes};
use crate::cube::cache::{CachedCube, CubeCache};
use crate::cube::deadline::Deadline;
use crate::cube::masks::Mask;
use crate::cube::{angles, bands, confusion, grid, spectra, thumbnail};
use crate::facts::{self, Facts};
use crate::listing::Listing;
use crate::page;
use crate::quality::{Class, QualityLog};
use crate::query::{Query, Window};
use crate::subject::{Opened, Origin, Subject, What};
use crate::training;

/// The default and the maximum number of samples in a list.
const LISTED: (usize, usize) = (60, 500);
/// Maximum number of classes in an answer about classes.
const CLASSES: usize = 64;

/// Answers questions about one subject.
#[derive(Debug)]
pub struct Routes {
    subject: Subject,
    held: CubeCache,
    listing: Listing,
    quality: QualityLog,
    training: training::Answers,
}

/// Answers that need no reading: files of the page, and the sign that the server is running.
pub fn at_once(path: &str) -> Option<Answer> {
    match path {
        "api/ping" => Some(Answer::json(&json!({}))),
        _ if path.starts_with("api/") => None,
        _ => Some(page::file(path).unwrap_or_else(Answer::missing)),
    }
}

impl Routes {
    /// Answers about `subject`.
    pub fn new(subject: Subject) -> Self {
        Self {
            training: training::Answers::new(subject.training().clone()),
            subject,
            held: CubeCache::default(),
            listing: Listing::default(),
            quality: QualityLog::default(),
        }
    }

    /// The answer to the question at `path`, with `query` after the `?`.
    pub fn answer(&self, path: &str, query: &str) -> Answer {
        let query = Query::parse(query);
        let decoded: Vec<_> =
            path.split('/').map(|part| percent_decode_str(part).decode_utf8()).collect();
        let parts: Option<Vec<&str>> = decoded.iter().map(|part| part.as_deref().ok()).collect();
        let Some(parts) = parts else { return Answer::missing() };
        let answer = match parts.as_slice() {
            ["api", "about"] => Ok(Answer::json(&about::of(&self.subject))),
            ["api", "samples"] => self.samples(&query),
            ["api", "thumbnail", id] => self.of(id, |cube| self.thumbnail(cube, &query)),
            ["api", "cube", id] => self.of(id, |cube| self.facts(cube)),
            ["api", "cube", id, "planes"] => {
                self.of_array(id, &query, |cube| self.planes(cube, &query))
            }
            ["api", "cube", id, "spectrum"] => {
                self.of_array(id, &query, |cube| self.spectrum(cube, &query))
            }
            ["api", "cube", id, "angles"] => {
                self.of_array(id, &query, |cube| self.angles(cube, &query))
            }
            ["api", "cube", id, "mask", name] => {
                self.of_array(id, &query, |cube| self.mask(cube, name, &query))
            }
            ["api", "cube", id, "classes", name] => self.of(id, |cube| self.classes(cube, name)),
            ["api", "cube", id, "confusion"] => self.of(id, |cube| self.confusion(cube, &query)),
            ["api", "cube", id, "precision"] => self.of(id, |cube| self.precision(cube)),
            ["api", "cube", id, "deviation"] => self.of(id, |cube| self.deviation(cube, &query)),
            ["api", "training", question @ ..] => {
                self.training.answer(&self.subject, question, &query)
            }
            _ => return Answer::missing(),
        };
        answer.unwrap_or_else(Answer::from)
    }

    /// Calls `answer` with the cube of number `id`.
    fn of(&self, id: &str, answer: impl FnOnce(&Opened) -> Result<Answer>) -> Result<Answer> {
        self.opened(id, None, answer)
    }

    /// Calls `answer` with the cube of number `id`, or with its target or further image that
    /// `array` in the query names.
    fn of_array(
        &self,
        id: &str,
        query: &Query,
        answer: impl FnOnce(&Opened) -> Result<Answer>,
    ) -> Result<Answer> {
        self.opened(id, query.get("array"), answer)
    }

    fn opened(
        &self,
        id: &str,
        array: Option<&str>,
        answer: impl FnOnce(&Opened) -> Result<Answer>,
    ) -> Result<Answer> {
        let Ok(id) = id.parse() else { return Ok(Answer::missing()) };
        // A file of an archive is read from a temporary place that the user does not know.
        let answer = self.subject.with(id, array, answer).map_err(mirror::error_with_urls);
        if id >= self.subject.len() {
            return Ok(Answer { status: 404, ..answer.unwrap_or_else(Answer::from) });
        }
        if let Err(error) = &answer {
            self.quality.fail(id, error);
        }
        answer
    }

    fn samples(&self, query: &Query) -> Result<Answer> {
        let limit = query.number("limit", LISTED.0, LISTED.1)?;
        let offset = query.number("offset", 0, usize::MAX)?;
        let ids = self.listing.of(&self.subject, query)?;
        let part = ids.iter().skip(offset).take(limit);
        let listed = part.map(|id| self.listed(*id)).collect::<Result<Vec<Value>>>()?;
        Ok(Answer::json(&json!({ "total": ids.len(), "samples": listed })))
    }

    fn listed(&self, id: usize) -> Result<Value> {
        let class = self.class(id);
        match self.subject.what() {
            What::Dataset(dataset) => {
                let sample = dataset.samples().get(id)?;
                let stack = dataset.stack(&sample.stack);
                let shape = stack.map(|stack| stack.image.shape());
                Ok(json!({
                    "id": id, "name": sample.name, "split": sample.split, "group": sample.group,
                    "label": sample.label,
                    "shape": shape.map(|shape| [shape.rows, shape.columns, shape.bands]),
                    "marks": self.quality.of(id, class, Some(&sample)),
                }))
            }
            // The shape is not known before the cube is opened.
            What::Cubes(cubes) => Ok(json!({
                "id": id, "name": cubes.inputs[id].default_name(), "split": null, "group": null,
                "label": null, "shape": null, "marks": self.quality.of(id, class, None),
            })),
        }
    }

    /// The class with which the spectrum of a sample is compared.
    fn class(&self, id: usize) -> Class {
        match self.subject.samples() {
            Some(samples) => (samples.stack(id), samples.labels().number(id)),
            None => (0, None),
        }
    }

    fn thumbnail(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let side = query.number("side", thumbnail::USUAL, thumbnail::MAX_SIDE)?.max(1);
        let held = self.held.if_held(&opened.key());
        let glance = thumbnail::glance(&opened.cube, held.as_deref(), side, Deadline::new())?;
        if let (Some((spectrum, clipped)), Some(_)) = (glance.spectrum, self.subject.dataset()) {
            self.quality.note(opened.id, self.class(opened.id), spectrum, clipped);
        }
        Ok(Answer::png(glance.png))
    }

    fn facts(&self, opened: &Opened) -> Result<Answer> {
        let sample = match &opened.origin {
            Origin::Sample { sample, .. } => Some(*sample),
            Origin::File { .. } => None,
        };
        let marks = self.quality.of(opened.id, self.class(opened.id), sample);
        Ok(Answer::json(&Facts::of(opened, marks, &self.subject)?))
    }

    /// The decoded cube, or nothing if it is cheaper to read only the wanted bands.
    fn held(&self, opened: &Opened, deadline: Deadline) -> Result<Option<Arc<CachedCube>>> {
        if opened.cube.has_cheap_bands() {
            return Ok(None);
        }
        self.held.hold(opened.key(), &opened.cube, deadline).map(Some)
    }

    fn planes(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let (cube, deadline) = (&opened.cube, Deadline::new());
        let wanted = query.bands(cube.shape.bands, bands::MAX_BANDS)?;
        let shown = grid::shown(cube, &query.window(cube.shape)?, grid::side(query)?);
        let held = self.held(opened, deadline)?;
        let values = bands::read(cube, held.as_deref(), &shown, &wanted, deadline)?;
        let shape = [wanted.len(), shown.rows.len(), shown.columns.len()];
        Ok(Answer::numbers(shape, bytes(&values, f32::to_le_bytes)))
    }

    fn spectrum(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let window = query.window(opened.cube.shape)?;
        // Reading a few pixels is faster than decoding a cube.
        let held = self.held.if_held(&opened.key());
        let spectrum = spectra::of_window(&opened.cube, held.as_deref(), &window, Deadline::new())?;
        Ok(Answer::json(&facts::curve(&spectrum)))
    }

    fn angles(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let (cube, deadline) = (&opened.cube, Deadline::new());
        let held = self.held.hold(opened.key(), cube, deadline)?;
        let window = query.window(cube.shape)?;
        let reference = spectra::of_window(cube, Some(&*held), &window, deadline)?;
        let shown = match held.is_whole {
            true => grid::shown(cube, &Window::whole(cube.shape), grid::side(query)?),
            false => held.sampling.clone(),
        };
        let usable = cube.good_bands.clone().unwrap_or_else(|| vec![true; cube.shape.bands]);
        let values = angles::to(&held, &shown, &reference.curve().mean, &usable);
        let shape = [shown.rows.len(), shown.columns.len()];
        Ok(Answer::numbers(shape, bytes(&values, f32::to_le_bytes)))
    }

    fn classes(&self, opened: &Opened, name: &str) -> Result<Answer> {
        let mask = Mask::open(opened, self.subject.masks(), name)?;
        let held = self.held.hold(opened.key(), &opened.cube, Deadline::new())?;
        let values = mask.read(&held.sampling, opened.cube.shape.columns)?;
        let meaning = mask.meaning();
        let layers = matches!(meaning, Meaning::Layers { .. });
        let found = spectra::of_classes(&held, &values, layers, opened.cube.shape.bands);
        let mut most: Vec<(&u16, &Spectrum)> = found.iter().collect();
        most.sort_by_key(|(id, spectrum)| (std::cmp::Reverse(spectrum.pixels()), **id));
        most.truncate(CLASSES);
        most.sort_by_key(|(id, _)| **id);
        let class = |(id, spectrum): (&u16, &Spectrum)| class_curve(&meaning, *id, spectrum);
        let classes: Vec<Value> = most.into_iter().map(class).collect();
        Ok(Answer::json(&json!({ "classes": classes, "thinned": !held.is_whole })))
    }

    fn mask(&self, opened: &Opened, name: &str, query: &Query) -> Result<Answer> {
        let mask = Mask::open(opened, self.subject.masks(), name)?;
        let window = query.window(opened.cube.shape)?;
        let shown = grid::shown(&opened.cube, &window, grid::side(query)?);
        let ratio = opened.companion.map_or(Ratio::EQUAL, ChunkArray::ratio);
        let values = mask.read_under(&shown, ratio, opened.image)?;
        let layers = matches!(mask.meaning(), Meaning::Layers { .. });
        Ok(Answer::mask([shown.rows.len(), shown.columns.len()], &values, layers))
    }

    fn confusion(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let shape = opened.cube.shape;
        let shown = Sampling::new(shape.rows, shape.columns, usize::MAX);
        let labels = |which: &str| {
            let name = query.get(which).unwrap_or_default();
            let mask = Mask::open(opened, self.subject.masks(), name)?;
            let meaning = mask.meaning();
            if matches!(meaning, Meaning::Layers { .. }) {
                let what = format!("mask {name} has boolean layers and no classes");
                return Err(Error::conflict(what));
            }
            Ok((mask.read(&shown, shape.columns)?, meaning))
        };
        let ((truth, meaning), (prediction, other)) = (labels("truth")?, labels("prediction")?);
        let counts = confusion::count(&truth, &prediction);
        let mut ids: Vec<u16> = counts.keys().flat_map(|(a, b)| [*a, *b]).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > CLASSES {
            return Err(Error::conflict(format!("the masks have {} classes", ids.len()))
                .with_remedy(format!("compare masks of at most {CLASSES} classes")));
        }
        let named =
            if matches!(meaning, Meaning::Ids { names: None, .. }) { other } else { meaning };
        let classes: Vec<facts::Class> = ids.iter().map(|id| facts::class(&named, *id)).collect();
        let row = |truth: &u16| -> Vec<u64> {
            let count = |prediction: &u16| counts.get(&(*truth, *prediction)).copied().unwrap_or(0);
            ids.iter().map(count).collect()
        };
        let rows: Vec<Vec<u64>> = ids.iter().map(row).collect();
        Ok(Answer::json(&json!({ "classes": classes, "counts": rows })))
    }

    fn deviations(&self, opened: &Opened, of: deviation::Quantity) -> Result<Deviation> {
        let deadline = Deadline::new();
        match (&opened.origin, self.subject.dataset()) {
            (Origin::Sample { sample, .. }, Some(dataset)) => {
                let root = self.subject.source_root();
                deviation::of_sample(dataset, sample, root, of, &|| deadline.check())
            }
            _ => Err(Error::conflict("the cube is not packed: it has no source to compare with")),
        }
    }

    fn precision(&self, opened: &Opened) -> Result<Answer> {
        let mut answer = json!(self.deviations(opened, deviation::Quantity::Spectrum)?);
        if let Origin::Sample { stack: Some(stack), .. } = &opened.origin {
            answer["dtype"] = json!(stack.image.meta().dtype.name());
            answer["keep_bits"] = json!(stack.image.meta().band_notes().keep_bits);
        }
        Ok(Answer::json(&answer))
    }

    fn deviation(&self, opened: &Opened, query: &Query) -> Result<Answer> {
        let shape = opened.cube.shape;
        let shown = grid::shown(&opened.cube, &query.window(shape)?, grid::side(query)?);
        let of = match query.get("band") {
            None => deviation::Quantity::Spectrum,
            Some(_) => deviation::Quantity::Band(query.number("band", 0, shape.bands - 1)?),
        };
        let map = self.deviations(opened, of)?.map;
        let places = shown
            .rows
            .iter()
            .flat_map(|row| shown.columns.iter().map(move |column| row * shape.columns + column));
        let values: Vec<f32> = places.map(|pixel| map[pixel]).collect();
        let lengths = [shown.rows.len(), shown.columns.len()];
        Ok(Answer::numbers(lengths, bytes(&values, f32::to_le_bytes)))
    }
}

fn class_curve(meaning: &Meaning, id: u16, spectrum: &Spectrum) -> Value {
    let facts::Class { id, label, colour } = facts::class(meaning, id);
    let mut all = facts::curve_of_class(spectrum);
    all.extend([
        ("id".to_owned(), json!(id)),
        ("label".to_owned(), json!(label)),
        ("colour".to_owned(), json!(colour)),
    ]);
    Value::Object(all)
}
