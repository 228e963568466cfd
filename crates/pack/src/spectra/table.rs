//! The rows of all cubes, with columns that describe the samples.

use hsipack_format::metadata::MaskMeaning;
use hsipack_format::{Result, Sample};
use hsipack_store::Dataset;
use serde_json::Value;

use super::columns::{Column, Values};
use super::options::{SpectraOptions, Statistic};

/// The spectrum of one region of one cube.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Id of the sample.
    pub sample: usize,
    /// Its stack, as an index into the dataset's stacks.
    pub stack: usize,
    /// Class id, or number of the layer.
    pub region: u16,
    /// Number of pixels of the region.
    pub pixels: u64,
    /// Mean or median of the finite values of each band, in physical units; NaN if no value is
    /// finite.
    pub spectrum: Vec<f64>,
    /// Standard deviation of the finite values, dividing by their number; NaN if no value is
    /// finite.
    pub std: Vec<f64>,
    /// For each band, the number of pixels without a finite value.
    pub missing: Vec<u64>,
}

/// Spectra of regions, by sample and region.
#[derive(Clone, Debug)]
pub struct Table {
    /// The statistic that made the spectra.
    pub statistic: Statistic,
    /// The mask.
    pub mask: String,
    /// Number of samples that were read, including those without a region.
    pub samples: usize,
    /// The spectra.
    pub rows: Vec<Row>,
    /// Columns that describe each row's sample and region: `sample`, `name`, `stack`, `split`,
    /// `group`, `label`, `source`, `region`, `class`, `pixels`, then the columns of the user's
    /// table. If the name of a column is taken, it becomes `table_NAME`.
    pub columns: Vec<Column>,
    /// Band centres in nm of each of the dataset's stacks, if known.
    pub wavelengths: Vec<Option<Vec<f64>>>,
}

/// Names that the file format uses for its own columns. Columns of the user's table cannot have
/// them.
const TAKEN: [&str; 14] = [
    "sample",
    "name",
    "stack",
    "split",
    "group",
    "label",
    "source",
    "region",
    "class",
    "pixels",
    "spectrum",
    "std",
    "missing",
    "wavelength",
];

impl Table {
    pub(super) fn new(
        dataset: &Dataset,
        options: &SpectraOptions,
        samples: usize,
        rows: Vec<Row>,
    ) -> Result<Self> {
        let columns = columns(dataset, &options.mask, &rows)?;
        let wavelengths = dataset.stacks().iter().map(|stack| stack.wavelength.clone()).collect();
        let (statistic, mask) = (options.statistic, options.mask.clone());
        Ok(Self { statistic, mask, samples, rows, columns, wavelengths })
    }
}

/// Columns that describe the rows' samples and regions.
fn columns(dataset: &Dataset, mask: &str, rows: &[Row]) -> Result<Vec<Column>> {
    let samples = of_samples(rows, |id| dataset.samples().get(id));
    let samples = samples.into_iter().collect::<Result<Vec<Sample>>>()?;
    // The rows of a sample are consecutive.
    let mut position = 0;
    let place_of: Vec<usize> = (0..rows.len())
        .map(|row| {
            position += usize::from(row > 0 && rows[row].sample != rows[row - 1].sample);
            position
        })
        .collect();
    let of_sample = |read: &dyn Fn(&Sample) -> Value| {
        Values::of_json(place_of.iter().map(|position| read(&samples[*position])).collect())
    };
    let optional = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
    let whole = |read: &dyn Fn(&Row) -> u64| {
        Values::Whole(rows.iter().map(|row| i64::try_from(read(row)).ok()).collect())
    };
    let meanings: Vec<MaskMeaning> = dataset
        .stacks()
        .iter()
        .map(|stack| stack.mask(mask).map(|mask| mask.meta().mask_meaning()).unwrap_or_default())
        .collect();
    let class = |row: &Row| class_name(&meanings[row.stack], row.region);
    let mut columns: Vec<(String, Values)> = [
        ("sample", whole(&|row| row.sample as u64)),
        ("name", of_sample(&|sample| sample.name.as_str().into())),
        ("stack", of_sample(&|sample| sample.stack.as_str().into())),
        ("split", of_sample(&|sample| optional(&sample.split))),
        ("group", of_sample(&|sample| optional(&sample.group))),
        ("label", of_sample(&|sample| sample.label.clone().unwrap_or_default())),
        ("source", of_sample(&|sample| sample.source.path.as_str().into())),
        ("region", whole(&|row| row.region.into())),
        ("class", Values::Text(rows.iter().map(class).collect())),
        ("pixels", whole(&|row| row.pixels)),
    ]
    .map(|(name, values)| (name.to_owned(), values))
    .into();
    for key in dataset.samples().columns() {
        let value = |sample: &Sample| sample.columns.get(key).cloned().unwrap_or_default();
        let values = of_sample(&value);
        let mut name = key.clone();
        while TAKEN.contains(&name.as_str()) || columns.iter().any(|(taken, _)| *taken == name) {
            name.insert_str(0, "table_");
        }
        columns.push((name, values));
    }
    Ok(columns.into_iter().map(|(name, values)| Column { name, values }).collect())
}

/// The result of `read` for each sample that has rows, in their order.
fn of_samples<T>(rows: &[Row], read: impl Fn(usize) -> T) -> Vec<T> {
    rows.chunk_by(|a, b| a.sample == b.sample).map(|rows| read(rows[0].sample)).collect()
}

/// The name of a class or a layer, if it has one.
fn class_name(meaning: &MaskMeaning, region: u16) -> Option<String> {
    let names = match meaning.layers.is_empty() {
        true => meaning.class_names.as_deref()?,
        false => &meaning.layers,
    };
    names.get(usize::from(region)).filter(|name| !name.is_empty()).cloned()
}
