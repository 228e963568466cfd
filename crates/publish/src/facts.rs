//! Facts that are read from a dataset, for all files of its card.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use hsipack_format::metadata::Role;
use hsipack_format::{CubeShape, Error, Ratio, Result, checksums};
use hsipack_pack::info::DatasetReport;
use hsipack_read::ClassPixels;
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, Stack, bounded_read};
use serde_json::Value;

use crate::about::About;
use crate::footprints::Footprints;

/// The file that lists the checksums of a dataset's metadata files.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// Facts about a dataset.
pub(crate) struct Facts {
    /// Name of its folder.
    pub(crate) folder: String,
    /// The report of `hsipack info`.
    pub(crate) report: DatasetReport,
    /// Bands of each stack of the report.
    pub(crate) bands: Vec<Vec<Band>>,
    /// Targets and further images of each stack of the report.
    pub(crate) companions: Vec<Vec<Companion>>,
    /// Its masks.
    pub(crate) masks: Vec<MaskClasses>,
    /// Formats of the files that were packed.
    pub(crate) formats: BTreeSet<String>,
    /// Units of the values.
    pub(crate) units: BTreeSet<String>,
    /// Values of the column `sensor`.
    pub(crate) sensors: BTreeSet<String>,
    /// Columns of `samples.jsonl` whose values are single texts, numbers or truth values.
    pub(crate) columns: BTreeMap<String, ColumnType>,
    /// Files with a checksum: `SHA256SUMS`, and those that it lists.
    pub(crate) files: Vec<DataFile>,
    /// Where its cubes are.
    pub(crate) footprints: Footprints,
}

/// A band of an image, or a channel of a target.
pub(crate) struct Band {
    /// Its name, if the files had one.
    pub(crate) name: Option<String>,
    /// Its centre in nm.
    pub(crate) wavelength_nm: Option<f64>,
    /// Its width in nm.
    pub(crate) fwhm_nm: Option<f64>,
    /// Whether it is marked as bad.
    pub(crate) is_bad: bool,
}

/// A target or a further image of a stack.
pub(crate) struct Companion {
    /// Its name.
    pub(crate) name: String,
    /// Which of both it is.
    pub(crate) role: Role,
    /// Rows, columns and bands of one sample.
    pub(crate) shape: CubeShape,
    /// Its pixels for pixels of the cubes, along each axis.
    pub(crate) ratio: Ratio,
    /// Type of the values.
    pub(crate) dtype: &'static str,
    /// Unit of the values, if it is known.
    pub(crate) unit: Option<String>,
    /// Its bands or channels.
    pub(crate) bands: Vec<Band>,
}

impl Companion {
    fn of(array: &ChunkArray) -> Option<Self> {
        let meaning = array.meta().companion_meaning()?;
        let shape = array.shape();
        let names = meaning.band_names.as_deref().unwrap_or_default();
        let bands = (0..shape.bands).map(|band| Band {
            name: names.get(band).cloned(),
            ..Band::of(band, meaning.wavelength.as_deref(), meaning.fwhm.as_deref())
        });
        Some(Self {
            name: array.name().to_owned(),
            role: meaning.role,
            shape,
            ratio: meaning.ratio,
            dtype: array.meta().dtype.name(),
            bands: bands.collect(),
            unit: meaning.unit,
        })
    }
}

/// A mask, with all classes that have pixels or a name.
pub(crate) struct MaskClasses {
    /// Its name.
    pub(crate) name: String,
    /// Whether it has boolean layers, which may overlap, instead of classes.
    pub(crate) has_layers: bool,
    /// Pixels of all samples that have the mask.
    pub(crate) pixels: u64,
    /// Its classes or layers.
    pub(crate) classes: Vec<Class>,
}

/// A class of a mask, or a layer.
pub(crate) struct Class {
    /// Its pixels.
    pub(crate) pixels: ClassPixels,
    /// Its colour as `#rrggbb`.
    pub(crate) color: Option<String>,
}

/// A metadata file of a dataset.
pub(crate) struct DataFile {
    /// Path in the dataset.
    pub(crate) name: String,
    /// SHA-256 in hexadecimal digits.
    pub(crate) sha256: String,
    /// Size, if the dataset is on this machine.
    pub(crate) bytes: Option<u64>,
}

/// The type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Bool,
    Integer,
    Float,
    Text,
    /// Lists, objects, or values of several types.
    Mixed,
}

impl ColumnType {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_f64() => Self::Float,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::Text,
            Value::Array(_) | Value::Object(_) => Self::Mixed,
        })
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (kind, other) if kind == other => kind,
            (Self::Integer, Self::Float) | (Self::Float, Self::Integer) => Self::Float,
            _ => Self::Mixed,
        }
    }
}

impl Facts {
    /// Reads the facts: metadata, all lines of samples, and all pixels of masks.
    ///
    /// # Errors
    /// If the dataset cannot be opened or a mask cannot be read.
    pub(crate) fn of(path: &Path, about: &About, threads: usize) -> Result<Self> {
        let dataset = Dataset::open(path)?;
        let pinned = dataset.path();
        let report = DatasetReport::new(&dataset)?;
        let mut facts = Self {
            folder: folder_name(path)?,
            bands: dataset.stacks().iter().map(bands).collect(),
            companions: dataset.stacks().iter().map(companions).collect(),
            masks: masks(pinned, &report, threads)?,
            formats: BTreeSet::new(),
            units: BTreeSet::new(),
            sensors: BTreeSet::new(),
            columns: BTreeMap::new(),
            files: files(&dataset)?,
            footprints: Footprints::new(about),
            report,
        };
        for id in 0..dataset.samples().len() {
            let sample = dataset.samples().get(id)?;
            let label = sample.label.iter().map(|label| ("label", label));
            let columns = sample.columns.iter().map(|(name, value)| (name.as_str(), value));
            for (name, value) in columns.chain(label) {
                let Some(kind) = ColumnType::of(value) else { continue };
                match facts.columns.get_mut(name) {
                    Some(earlier) => *earlier = earlier.and(kind),
                    None => drop(facts.columns.insert(name.to_owned(), kind)),
                }
            }
            facts.footprints.add(&dataset, &sample);
            if let Some(Value::String(sensor)) = sample.columns.get("sensor") {
                facts.sensors.insert(sensor.clone());
            }
            facts.formats.insert(sample.source.format);
            facts.units.extend(sample.source.unit);
        }
        facts.columns.retain(|_, kind| *kind != ColumnType::Mixed);
        Ok(facts)
    }
}

impl Facts {
    /// The targets or further images of all stacks, each with the name of its stack.
    pub(crate) fn companions_of(&self, role: Role) -> impl Iterator<Item = (&str, &Companion)> {
        let stacks = self.report.stacks.iter().zip(&self.companions);
        let all =
            stacks.flat_map(|(stack, all)| all.iter().map(|array| (stack.name.as_str(), array)));
        all.filter(move |(_, array)| array.role == role)
    }
}

/// The name of a dataset's folder.
fn folder_name(path: &Path) -> Result<String> {
    let full = match path.file_name() {
        Some(_) => path.to_owned(),
        None => path.canonicalize().map_err(|error| Error::io(path, "cannot open", error))?,
    };
    let name = full.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.ok_or_else(|| {
        Error::unsupported("the name of the dataset's folder is not UTF-8")
            .at(path)
            .with_remedy("rename the folder: addresses and cards hold its name")
    })
}

impl Band {
    /// Band `band` of these wavelengths and widths.
    fn of(band: usize, wavelength: Option<&[f64]>, fwhm: Option<&[f64]>) -> Self {
        // Makers mark unused bands by a wavelength of 0.
        let of = |list: Option<&[f64]>| list.map(|list| list[band]).filter(|nm| *nm > 0.0);
        Self { name: None, wavelength_nm: of(wavelength), fwhm_nm: of(fwhm), is_bad: false }
    }
}

fn bands(stack: &Stack) -> Vec<Band> {
    let notes = stack.image.meta().band_notes();
    (0..stack.image.shape().bands)
        .map(|band| Band {
            name: notes.band_names.as_ref().map(|names| names[band].clone()),
            is_bad: notes.good_bands.as_ref().is_some_and(|good| !good[band]),
            ..Band::of(band, stack.wavelength.as_deref(), stack.fwhm.as_deref())
        })
        .collect()
}

fn companions(stack: &Stack) -> Vec<Companion> {
    stack.companions.iter().filter_map(Companion::of).collect()
}

/// All masks, by name, each with its classes in ascending order.
fn masks(path: &Path, report: &DatasetReport, threads: usize) -> Result<Vec<MaskClasses>> {
    let dataset = hsipack_read::Dataset::open(path)?;
    if dataset.fingerprint() != report.fingerprint {
        return Err(changed(path));
    }
    let names: BTreeSet<&str> = report
        .stacks
        .iter()
        .flat_map(|stack| &stack.masks)
        .map(|mask| mask.name.as_str())
        .collect();
    let of_mask = |name: &str| {
        let has_mask = |sample: &usize| {
            dataset.stacks()[dataset.samples().stack(*sample)].mask(name).is_some()
        };
        let samples: Vec<usize> = (0..dataset.len()).filter(has_mask).collect();
        let pixels = |sample: &usize| {
            dataset.stacks()[dataset.samples().stack(*sample)].image.shape().pixels() as u64
        };
        let mut counts: BTreeMap<u32, ClassPixels> = dataset
            .class_pixels(&samples, name, None, threads)?
            .into_iter()
            .map(|class| (class.id, class))
            .collect();
        let reports = || report.stacks.iter().flat_map(|stack| &stack.masks);
        let mut colors = BTreeMap::new();
        let mut has_layers = false;
        for mask in reports().filter(|mask| mask.name == name) {
            has_layers |= !mask.layers.is_empty();
            for (id, color) in (0u32..).zip(&mask.class_colors) {
                colors.entry(id).or_insert_with(|| color.clone());
            }
            // Classes without a pixel are classes, too.
            for (id, class) in (0u32..).zip(mask.class_names.iter().flatten()) {
                if !class.is_empty() {
                    let none = || ClassPixels {
                        id,
                        name: Some(class.clone()),
                        pixels: 0,
                        splits: BTreeMap::new(),
                    };
                    counts.entry(id).or_insert_with(none);
                }
            }
        }
        let class = |pixels: ClassPixels| Class {
            color: colors.get(&pixels.id).cloned().flatten(),
            pixels,
        };
        Ok(MaskClasses {
            name: name.to_owned(),
            has_layers,
            pixels: samples.iter().map(pixels).sum(),
            classes: counts.into_values().map(class).collect(),
        })
    };
    names.into_iter().map(of_mask).collect()
}

/// The metadata files of the dataset, as `SHA256SUMS` lists them, and that file itself.
fn files(dataset: &Dataset) -> Result<Vec<DataFile>> {
    let path = dataset.path();
    let text = bounded_read::read(&path.join(SUMS), bounded_read::SUMS)?;
    if checksums::sha256(&text) != dataset.fingerprint() {
        return Err(changed(path));
    }
    let sums = checksums::parse(&text).map_err(|error| error.at(path.join(SUMS)))?;
    let listed = std::iter::once((SUMS.to_owned(), dataset.fingerprint().to_owned())).chain(sums);
    let size = |name: &str| match is_url(path) {
        true => None,
        false => path.join(name).metadata().ok().map(|meta| meta.len()),
    };
    Ok(listed.map(|(name, sha256)| DataFile { bytes: size(&name), name, sha256 }).collect())
}

fn changed(path: &Path) -> Error {
    Error::conflict("the dataset changed while it was read")
        .at(path)
        .with_remedy("run the command again")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_column_has_one_type_or_is_mixed() {
        let kind =
            |values: &[Value]| values.iter().filter_map(ColumnType::of).reduce(ColumnType::and);
        assert_eq!(kind(&[json!(1), json!(null), json!(2)]), Some(ColumnType::Integer));
        assert_eq!(kind(&[json!(1), json!(2.5)]), Some(ColumnType::Float));
        assert_eq!(kind(&[json!("a"), json!(2.5)]), Some(ColumnType::Mixed));
        assert_eq!(kind(&[json!([1])]), Some(ColumnType::Mixed));
        assert_eq!(kind(&[json!(null)]), None);
    }
}
