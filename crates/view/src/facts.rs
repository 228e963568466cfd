//! Information about one cube.

use std::path::PathBuf;

use hsipack_format::metadata::{CompanionMeaning, Role};
use hsipack_format::samples::boxes::{self, BOX_LABELS, BOXES, label_text};
use hsipack_format::{CubeShape, Geo, Result, Sample};
use hsipack_pack::preview::{self, Meaning, Sampling};
use hsipack_pack::spectra::Spectrum;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::mirror;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cube::masks::Mask;
use crate::quality::Mark;
use crate::subject::{Opened, Origin, Subject};

/// The information about a cube.
#[derive(Debug, Serialize)]
pub struct Facts {
    id: usize,
    name: String,
    shape: [usize; 3],
    format: String,
    dtype: &'static str,
    unit: Option<String>,
    wavelength: Option<Vec<f64>>,
    fwhm: Option<Vec<f64>>,
    good_bands: Option<Vec<bool>>,
    band_names: Option<Vec<String>>,
    geo: Option<Geo>,
    presets: Vec<Preset>,
    masks: Vec<Listed>,
    arrays: Vec<Companion>,
    boxes: Vec<BoundingBox>,
    fields: Vec<[String; 2]>,
    notes: Vec<String>,
    marks: Vec<Mark>,
    previous: Option<usize>,
    next: Option<usize>,
}

/// Bands to show as red, green and blue.
#[derive(Debug, Serialize)]
pub struct Preset {
    name: &'static str,
    bands: [usize; 3],
    caption: String,
}

impl Preset {
    /// The preset as previews define it.
    pub fn of(preview::Preset { name, bands, caption }: preview::Preset) -> Self {
        Self { name, bands, caption }
    }
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    layers: bool,
    classes: Vec<Class>,
}

/// A target or a further image beside the cube.
#[derive(Debug, Serialize)]
struct Companion {
    shape: [usize; 3],
    dtype: &'static str,
    /// Bands to show as red, green and blue; none for a target, whose values are shown in the
    /// colours of a scale.
    presets: Vec<Preset>,
    name: String,
    /// Its pixels for pixels of the cube, along each axis: 2, or 0.25.
    factor: f64,
    #[serde(flatten)]
    meaning: CompanionMeaning,
}

/// The preset of three bands of unknown wavelengths, which are usually those of a photograph.
fn photograph() -> preview::Preset {
    preview::Preset { name: "RGB", bands: [0, 1, 2], caption: "bands 0, 1, 2".to_owned() }
}

impl Companion {
    fn of(array: &ChunkArray) -> Option<Self> {
        let meaning = array.meta().companion_meaning()?;
        let CubeShape { rows, columns, bands } = array.shape();
        let presets = match (meaning.role, &meaning.wavelength, bands) {
            (Role::Target, ..) => Vec::new(),
            (Role::Image, None, 3) => vec![photograph()],
            (Role::Image, wavelength, _) => preview::presets(bands, wavelength.as_deref(), None),
        };
        Some(Self {
            shape: [rows, columns, bands],
            dtype: array.meta().dtype.name(),
            presets: presets.into_iter().map(Preset::of).collect(),
            name: array.name().to_owned(),
            factor: array.ratio().factor(),
            meaning,
        })
    }
}

/// A bounding box of an object.
#[derive(Debug, Serialize)]
struct BoundingBox {
    /// `[x_min, y_min, x_max, y_max]`, by the edges of pixels.
    corners: [f64; 4],
    label: String,
    /// The colour of its class in a mask; empty if no mask has the class.
    colour: String,
    /// A number of its class, for the colour that the page gives it.
    class: u16,
}

impl BoundingBox {
    /// The boxes of a sample.
    fn of(sample: &Sample, masks: &[Listed]) -> Vec<Self> {
        let labels = sample.columns.get(BOX_LABELS).and_then(Value::as_array);
        let labels = labels.map(Vec::as_slice).unwrap_or_default();
        let edges = sample.columns.get(BOXES).and_then(boxes::edges).unwrap_or_default();
        let boxes = edges.into_iter().enumerate().map(|(index, corners)| {
            let label = labels.get(index).map(label_text).unwrap_or_default();
            let classes = masks.iter().filter(|mask| !mask.layers).flat_map(|mask| &mask.classes);
            // The labels of classes are `3` or `3 liver`.
            let is_it = |class: &&Class| {
                let name = class.label.split_once(' ').map(|(_, name)| name);
                class.id > 0 && (name == Some(&label) || class.id.to_string() == label)
            };
            let colour = classes.into_iter().find(is_it).map(|class| class.colour.clone());
            let sum =
                || label.bytes().fold(0u16, |sum, byte| sum.wrapping_mul(31) ^ u16::from(byte));
            let class = label.parse().unwrap_or_else(|_| sum() % COLOURS + 1);
            Self { corners, label, colour: colour.unwrap_or_default(), class }
        });
        boxes.take(MAX_BOXES).collect()
    }
}

/// How many colours names of classes are given.
const COLOURS: u16 = 40;
/// Maximum number of boxes to draw.
const MAX_BOXES: usize = 5000;

/// A class of a mask, or a layer.
#[derive(Clone, Debug, Serialize)]
pub struct Class {
    /// Its id, or the bit of the layer.
    pub id: u16,
    /// `3 liver`.
    pub label: String,
    /// `#0072b2`.
    pub colour: String,
}

impl Facts {
    /// The facts about a cube of `subject`; `marks` are what is conspicuous about it.
    ///
    /// # Errors
    /// If a mask of the dataset cannot be read. A mask in files that cannot be read is skipped, and
    /// a note says so.
    pub fn of(opened: &Opened, marks: Vec<Mark>, subject: &Subject) -> Result<Self> {
        let Opened { id, cube, origin, .. } = opened;
        let count = subject.len();
        let shape = cube.shape;
        let presets =
            preview::presets(shape.bands, cube.wavelength.as_deref(), cube.good_bands.as_deref());
        let mut facts = Self {
            id: *id,
            name: String::new(),
            shape: [shape.rows, shape.columns, shape.bands],
            format: cube.format.clone(),
            dtype: "",
            unit: None,
            wavelength: cube.wavelength.clone(),
            fwhm: None,
            good_bands: cube.good_bands.clone(),
            band_names: None,
            geo: None,
            presets: presets.into_iter().map(Preset::of).collect(),
            masks: Vec::new(),
            arrays: Vec::new(),
            boxes: Vec::new(),
            fields: Vec::new(),
            notes: Vec::new(),
            marks,
            previous: id.checked_sub(1),
            next: Some(id + 1).filter(|next| *next < count),
        };
        match origin {
            Origin::Sample { sample, stack } => {
                facts.name.clone_from(&sample.name);
                facts.unit.clone_from(&sample.source.unit);
                facts.geo.clone_from(&sample.geo);
                facts.fields = fields(sample);
                if let Some(stack) = stack {
                    facts.dtype = stack.image.meta().dtype.name();
                    facts.fwhm.clone_from(&stack.fwhm);
                    facts.band_names = stack.image.meta().band_notes().band_names;
                    let masks = stack.masks.iter().map(|array| {
                        Listed::of(&Mask::Packed { array, index: sample.index }, shape)
                    });
                    facts.masks = masks.collect::<Result<_>>()?;
                    facts.arrays = stack.companions.iter().filter_map(Companion::of).collect();
                }
                facts.boxes = BoundingBox::of(sample, &facts.masks);
            }
            Origin::File { input, source } => {
                let info = source.info();
                facts.name = input.default_name();
                facts.dtype = info.dtype.name();
                facts.unit.clone_from(&info.unit);
                facts.fwhm.clone_from(&info.fwhm);
                facts.band_names.clone_from(&info.band_names);
                facts.geo.clone_from(&info.geo);
                let with_urls = |text: &str| mirror::with_urls(text);
                facts.notes = info.notes.iter().map(|note| with_urls(note)).collect();
                let file =
                    |file: &PathBuf| ["file".to_owned(), with_urls(&file.display().to_string())];
                facts.fields = info.files.iter().take(FILES).map(file).collect();
                if info.is_scaled() {
                    let what =
                        "stored numbers are scaled to physical values with the scale of the file";
                    facts.notes.push(what.to_owned());
                }
            }
        }
        for group in subject.masks() {
            let listed = Mask::of_files(opened, group).and_then(|mask| Listed::of(&mask, shape));
            match listed {
                Ok(mask) => facts.masks.push(mask),
                Err(error) => {
                    facts.notes.push(format!("mask {} is not shown: {error}", group.name))
                }
            }
        }
        Ok(facts)
    }
}

/// Maximum number of files to list for a cube.
const FILES: usize = 20;

/// All that is known of a sample, as names and texts.
fn fields(sample: &Sample) -> Vec<[String; 2]> {
    let fixed = [
        ("split", sample.split.clone()),
        ("group", sample.group.clone()),
        ("label", sample.label.as_ref().map(label_text)),
    ];
    let mut fields: Vec<[String; 2]> = Vec::new();
    for (name, value) in fixed {
        fields.extend(value.map(|value| [name.to_owned(), value]));
    }
    // Boxes are drawn.
    let has_boxes = sample.columns.get(BOXES).and_then(boxes::edges).is_some();
    let is_drawn = |name: &str| has_boxes && [BOXES, BOX_LABELS].contains(&name);
    let columns = sample.columns.iter().filter(|(name, _)| !is_drawn(name));
    fields.extend(columns.map(|(name, value)| [name.clone(), label_text(value)]));
    if let Some([least, greatest]) = sample.range {
        fields.push(["stored values".to_owned(), format!("{least} to {greatest}")]);
    }
    fields.push(["source".to_owned(), sample.source.path.clone()]);
    fields.push(["source's format".to_owned(), sample.source.format.clone()]);
    fields
}

impl Listed {
    fn of(mask: &Mask, shape: CubeShape) -> Result<Self> {
        let meaning = mask.meaning();
        let ids = match &meaning {
            Meaning::Ids { names: Some(names), .. } | Meaning::Layers { names } => {
                (0..names.len()).collect()
            }
            // If nothing names the classes, list those that occur in this sample.
            Meaning::Ids { names: None, .. } => present(mask, shape)?,
        };
        let class = |id: usize| class(&meaning, u16::try_from(id).unwrap_or(u16::MAX));
        Ok(Self {
            name: mask.name().to_owned(),
            layers: matches!(meaning, Meaning::Layers { .. }),
            classes: ids.into_iter().take(CLASSES).map(class).collect(),
        })
    }
}

/// Maximum number of classes to list for a mask.
const CLASSES: usize = 1000;

/// The labels that occur in a sample, among at most `SIDE` rows and columns.
fn present(mask: &Mask, shape: CubeShape) -> Result<Vec<usize>> {
    const SIDE: usize = 1024;
    let shown = Sampling::new(shape.rows, shape.columns, SIDE);
    let mut present = vec![false; usize::from(u16::MAX) + 1];
    // Class ids fit u16.
    for label in mask.read(&shown, shape.columns)? {
        present[label as usize] = true;
    }
    Ok((0..present.len()).filter(|id| present[*id]).collect())
}

/// The name and the colour of class or layer `id` of a mask.
pub fn class(meaning: &Meaning, id: u16) -> Class {
    let [red, green, blue] = meaning.colour(id);
    let colour = format!("#{red:02x}{green:02x}{blue:02x}");
    Class { id, label: meaning.label(id), colour }
}

/// The number of pixels, and the mean and the standard deviation of the spectra of a class.
pub fn curve_of_class(spectrum: &Spectrum) -> Map<String, Value> {
    let curve = spectrum.curve();
    let all = [
        ("pixels", json!(spectrum.pixels())),
        ("mean", json!(curve.mean)),
        ("std", json!(curve.std)),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The same for a window. A single pixel has no standard deviation.
pub fn curve(spectrum: &Spectrum) -> Map<String, Value> {
    let mut all = curve_of_class(spectrum);
    if spectrum.pixels() == 1 {
        all.insert("std".to_owned(), Value::Null);
    }
    all
}
