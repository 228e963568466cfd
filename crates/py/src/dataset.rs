//! An open dataset: samples, stacks, random access.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hsipack_augment::prepare::{ImageConversion, LabelConversion, Normalized};
use hsipack_augment::{self as augment, ElementType, Engine, Host};
use hsipack_format::CubeShape;
use hsipack_format::metadata::Role;
use hsipack_format::samples::{Condition, RESERVED_KEYS};
use hsipack_measure::machine;
use hsipack_read::plan::Window;
use hsipack_read::store::StoreKind;
use hsipack_read::{
    BandStatistics, Boxes, FloatType, Integers, NewIds, OfProcess, OpenOptions, Result, Verify,
};
use hsipack_store::local_cache::LocalCache;
use hsipack_store::remote::set_options;
use hsipack_store::threads;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::array::Array;
use crate::boxes;
use crate::columns::Columns;
use crate::dlpack::first;
use crate::errors::OrRaise;
use crate::exit::detached;
use crate::options;
use crate::task::patiently;
use crate::torch::host;

/// A dataset of this process. In a forked child, it is opened again.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Dataset {
    path: PathBuf,
    verify: Verify,
    store: StoreKind,
    local_cache: Option<LocalCache>,
    fingerprint: String,
    open: Mutex<OfProcess<hsipack_read::Dataset>>,
    boxes: OnceLock<Option<Arc<Boxes>>>,
}

/// The ranges of rows and columns to read, each as the first index and the one after the last;
/// `None` for the whole axis.
type Part = (Option<(usize, usize)>, Option<(usize, usize)>);

/// Image of a sample, then its masks, targets and further images.
type Read = (augment::Array, Vec<augment::Array>);

/// Options for reading samples. `hsipack.Dataset` makes the dictionary.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Reading {
    #[serde(skip)]
    part: Part,
    bands: Option<Vec<usize>>,
    masks: Vec<String>,
    targets: Vec<String>,
    images: Vec<String>,
    /// Element type of images; as stored if `None`.
    dtype: Option<String>,
    physical: bool,
    /// Replaces NaN in images.
    nan: Option<f64>,
    /// Whether masks of boolean layers are unpacked.
    layers: bool,
    /// Whether class ids wider than 8 bits are returned in signed types, which torch computes with.
    signed: bool,
}

impl Dataset {
    /// The dataset, opened in this process.
    pub fn get(&self, py: Python<'_>) -> PyResult<hsipack_read::Dataset> {
        // Python code may have installed another handler since the last call.
        hsipack_store::mapping::guard();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dataset) = open.get() {
            return Ok(dataset.clone());
        }
        // Use the samples that the parent process has, even if others were appended since.
        let as_of = Some(self.fingerprint.clone());
        let local_cache = self.local_cache.clone();
        let opened = open_at(self.path.clone(), self.verify, self.store, local_cache, as_of);
        let dataset = opened.or_raise(py)?;
        *open = OfProcess::new(dataset.clone());
        Ok(dataset)
    }

    /// The boxes of its samples, which are read once.
    pub fn boxes_of(&self, py: Python<'_>) -> PyResult<Option<Arc<Boxes>>> {
        if let Some(boxes) = self.boxes.get() {
            return Ok(boxes.clone());
        }
        let dataset = self.get(py)?;
        let boxes = detached(py, move || Boxes::read(&dataset)).or_raise(py)?.map(Arc::new);
        Ok(self.boxes.get_or_init(|| boxes).clone())
    }
}

/// Sets `options` in this process for the bucket or host of the URL `path`.
#[pyfunction]
pub fn set_storage_options(
    py: Python<'_>,
    path: PathBuf,
    options: Vec<(String, String)>,
) -> PyResult<()> {
    set_options(&path, options).or_raise(py)
}

fn open_at(
    path: PathBuf,
    verify: Verify,
    store: StoreKind,
    local_cache: Option<LocalCache>,
    as_of: Option<String>,
) -> Result<hsipack_read::Dataset> {
    let store = Some(store.store_for(&path)?);
    hsipack_read::Dataset::open_with(path, OpenOptions { store, verify, as_of, local_cache })
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (path, verify, store, as_of=None, storage_options=None, local_cache=None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        verify: &str,
        store: &str,
        as_of: Option<String>,
        storage_options: Option<Vec<(String, String)>>,
        local_cache: Option<(PathBuf, Option<u64>)>,
    ) -> PyResult<Self> {
        let local_cache = local_cache.map(|(folder, bytes)| LocalCache { folder, bytes });
        let verify = verify.parse::<Verify>().or_raise(py)?;
        let store = store.parse::<StoreKind>().or_raise(py)?;
        if let Some(options) = storage_options {
            set_options(&path, options).or_raise(py)?;
        }
        let cache = local_cache.clone();
        let dataset =
            patiently(py, move || open_at(path, verify, store, cache, as_of))?.or_raise(py)?;
        Ok(Self {
            path: dataset.path().to_owned(),
            verify,
            store,
            local_cache,
            fingerprint: dataset.fingerprint().to_owned(),
            open: Mutex::new(OfProcess::new(dataset)),
            boxes: OnceLock::new(),
        })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.len())
    }

    /// Its path or URL as text; for a dataset on the Hugging Face Hub, with its commit.
    #[getter]
    fn url(&self) -> String {
        self.path.display().to_string()
    }

    #[getter]
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Whether this is the dataset as it was before cubes or masks were added.
    fn is_past(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.get(py)?.is_past())
    }

    /// Requests for shards and bytes received from its server so far, and use of the local cache;
    /// `None` for files on this machine.
    fn network_json(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let dataset = self.get(py)?;
        let Some(traffic) = dataset.traffic() else { return Ok(None) };
        let cache = dataset.local_cache();
        let used = detached(py, || {
            cache.map(|cache| {
                cache.flush();
                cache.used()
            })
        });
        let report = json!({
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "local_cache": used,
        });
        Ok(Some(report.to_string()))
    }

    /// The records of these samples, as one JSON list.
    fn samples_json(&self, py: Python<'_>, ids: Vec<usize>) -> PyResult<String> {
        let dataset = self.get(py)?;
        let line = |id: &usize| {
            dataset.stack_of(*id)?;
            dataset.samples().line(*id)
        };
        let lines = ids.iter().map(line);
        let lines = lines.collect::<Result<Vec<_>>>().or_raise(py)?;
        let list = [b"[".as_slice(), &lines.join(b",".as_slice()), b"]"].concat();
        Ok(String::from_utf8(list).expect("JSON that was read is UTF-8"))
    }

    /// Name, class (-1 if it has none) and stack number of each of these samples.
    fn about(&self, py: Python<'_>, ids: Vec<usize>) -> PyResult<Vec<(String, i64, usize)>> {
        let dataset = self.get(py)?;
        let about = |id: &usize| {
            let class = dataset.labels().class_of(*id).map_or(-1, i64::from);
            let stack = dataset.stack_of(*id)?;
            Ok((dataset.samples().name(*id).to_owned(), class, stack))
        };
        ids.iter().map(about).collect::<Result<_>>().or_raise(py)
    }

    /// Numbers of the stacks that hold these samples, ascending.
    fn stacks_of(&self, py: Python<'_>, ids: Vec<usize>) -> PyResult<Vec<usize>> {
        let dataset = self.get(py)?;
        let stacks = ids.iter().map(|id| dataset.stack_of(*id)).collect::<Result<BTreeSet<_>>>();
        Ok(stacks.or_raise(py)?.into_iter().collect())
    }

    /// Those of the samples `ids` (all if `None`) that are in one of these splits, in their order.
    #[pyo3(signature = (ids, names))]
    fn in_splits(
        &self,
        py: Python<'_>,
        ids: Option<Vec<usize>>,
        names: Vec<String>,
    ) -> PyResult<Vec<usize>> {
        let dataset = self.get(py)?;
        let ids = ids.unwrap_or_else(|| (0..dataset.len()).collect());
        dataset.in_splits(ids, &names).or_raise(py)
    }

    /// Those of the samples `ids` (all if `None`) that match a condition, in their order.
    #[pyo3(signature = (ids, condition))]
    fn matching(
        &self,
        py: Python<'_>,
        ids: Option<Vec<usize>>,
        condition: &str,
    ) -> PyResult<Vec<usize>> {
        let dataset = self.get(py)?;
        let ids = ids.unwrap_or_else(|| (0..dataset.len()).collect());
        let condition = Condition::parse(condition).or_raise(py)?;
        let chosen = detached(py, || dataset.samples().matching(ids, &condition));
        chosen.map_err(|error| error.at(dataset.path())).or_raise(py)
    }

    /// Pixels per class of a mask in the samples `ids` (all if `None`): id, name and count.
    #[pyo3(signature = (ids, mask, new, threads))]
    fn class_pixels(
        &self,
        py: Python<'_>,
        ids: Option<Vec<usize>>,
        mask: String,
        new: Option<&Bound<'_, PyDict>>,
        threads: Option<usize>,
    ) -> PyResult<Vec<(u32, Option<String>, u64)>> {
        let dataset = self.get(py)?;
        let ids = ids.unwrap_or_else(|| (0..dataset.len()).collect());
        let new: Option<NewIds> = new.map(options::read).transpose()?;
        let threads = threads.unwrap_or_else(hsipack_store::threads::cores);
        let count = move || dataset.class_pixels(&ids, &mask, new.as_ref(), threads);
        let counted = patiently(py, count)?.or_raise(py)?;
        Ok(counted.into_iter().map(|class| (class.id, class.name, class.pixels)).collect())
    }

    /// The new id of every id that a mask can hold, for each of these stacks: uint16 in the byte
    /// order of this machine.
    fn new_ids<'py>(
        &self,
        py: Python<'py>,
        stacks: Vec<usize>,
        new: &Bound<'_, PyDict>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let tables = self.get(py)?.new_ids(&stacks, &options::read(new)?).or_raise(py)?;
        Ok(tables.iter().map(|ids| PyBytes::new(py, bytemuck::cast_slice(ids))).collect())
    }

    /// Names of all columns that any sample has, sorted.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let dataset = self.get(py)?;
        let samples = dataset.samples();
        let mut names = BTreeSet::from(RESERVED_KEYS);
        names.extend(samples.columns().iter().map(String::as_str));
        let optional = [
            ("split", samples.splits().different().is_empty()),
            ("group", samples.groups().different().is_empty()),
            ("label", samples.labels().different().is_empty()),
        ];
        names.extend(optional.into_iter().filter(|(_, nobody)| !*nobody).map(|(name, _)| name));
        if !samples.have_geo() {
            names.remove("geo");
        }
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    /// Columns of the samples `ids` (all if `None`): one list per column, in one list; null for
    /// missing values.
    fn columns_json(
        &self,
        py: Python<'_>,
        ids: Option<Vec<usize>>,
        names: Vec<String>,
    ) -> PyResult<String> {
        let dataset = self.get(py)?;
        let read = || -> Result<String> {
            let ids = ids.unwrap_or_else(|| (0..dataset.len()).collect());
            ids.iter().try_for_each(|id| dataset.stack_of(*id).map(drop))?;
            Columns::read(dataset.samples(), &ids, &names)
        };
        detached(py, read).or_raise(py)
    }

    /// The classes of the boxes of all samples, if they have boxes.
    fn box_classes<'py>(&self, py: Python<'py>) -> PyResult<Option<boxes::Classes<'py>>> {
        Ok(self.boxes_of(py)?.map(|table| boxes::classes(py, &table)))
    }

    /// The boxes in a part of samples, if samples have boxes.
    fn boxes<'py>(
        &self,
        py: Python<'py>,
        samples: Vec<usize>,
        part: Part,
        min_visible: f64,
    ) -> PyResult<Option<boxes::BoxArrays<'py>>> {
        let Some(table) = self.boxes_of(py)? else { return Ok(None) };
        let dataset = self.get(py)?;
        let cut = |sample: &usize| {
            let shape = dataset.stacks()[dataset.stack_of(*sample)?].image.shape();
            let (rows, columns) = pixels_of(part, shape);
            // Axes of cubes have less than 2^31 pixels.
            let window = Window {
                row: rows.start as i32,
                column: columns.start as i32,
                rows: rows.len() as u32,
                columns: columns.len() as u32,
            };
            Ok(table.cut(*sample, window, min_visible))
        };
        let items = samples.iter().map(cut).collect::<Result<Vec<_>>>().or_raise(py)?;
        Ok(Some(boxes::of_items(py, &items)))
    }

    /// Names of splits and groups, and labels of the classes.
    fn labels_json(&self, py: Python<'_>) -> PyResult<String> {
        let dataset = self.get(py)?;
        let labels = dataset.labels();
        let labels = json!({
            "splits": labels.splits(),
            "groups": labels.groups(),
            "classes": labels.classes().iter().map(|class| &class.label).collect::<Vec<_>>(),
        });
        Ok(labels.to_string())
    }

    /// Shapes, types, wavelengths, statistics, masks, targets and further images of the stacks.
    fn stacks_json(&self, py: Python<'_>) -> PyResult<String> {
        let dataset = self.get(py)?;
        let stacks: Vec<Value> =
            (0..dataset.stacks().len()).map(|stack| describe(&dataset, stack)).collect();
        Ok(Value::from(stacks).to_string())
    }

    /// Bytes of its files, and bytes of all decoded chunks.
    fn sizes(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let dataset = self.get(py)?;
        Ok((machine::dataset_bytes(&dataset), dataset.decoded_bytes()))
    }

    /// Images (bands, rows, columns), masks (rows, columns) or (layers, rows, columns), targets
    /// (rows, columns) or (channels, rows, columns), and further images (bands, rows, columns) of
    /// samples. Up to `threads` threads read one sample each.
    fn read(
        &self,
        py: Python<'_>,
        samples: Vec<usize>,
        part: Part,
        reading: &Bound<'_, PyDict>,
        threads: usize,
    ) -> PyResult<Vec<(Array, Vec<Array>)>> {
        let dataset = self.get(py)?;
        let reading = Reading { part, ..options::read(reading)? };
        let read = move || reading.all(&dataset, &samples, threads);
        let all = patiently(py, read)?.or_raise(py)?;
        let arrays = |(image, others): Read| {
            (Array::new(image), others.into_iter().map(Array::new).collect())
        };
        Ok(all.into_iter().map(arrays).collect())
    }
}

/// The rows and columns of a part of a cube.
fn pixels_of((rows, columns): Part, shape: CubeShape) -> (Range<usize>, Range<usize>) {
    let range = |part: Option<(usize, usize)>, axis: usize| -> Range<usize> {
        part.map_or(0..axis, |(start, end)| start..end)
    };
    (range(rows, shape.rows), range(columns, shape.columns))
}

fn describe(dataset: &hsipack_read::Dataset, number: usize) -> Value {
    let dataset = &dataset.clone().with_integers(Integers::Stored);
    let stack = &dataset.stacks()[number];
    let shape = stack.image.shape();
    let figures = |stats: BandStatistics| {
        json!({
            "min": stats.min, "max": stats.max, "mean": stats.mean,
            "std": stats.std, "nan": stats.nan, "count": stats.count,
        })
    };
    let stats = dataset.statistics(number).map(figures);
    let splits = dataset.split_statistics(number).into_iter();
    let split_stats: serde_json::Map<String, Value> =
        splits.map(|(split, stats)| (split, figures(stats))).collect();
    let mask = |mask: &hsipack_store::dataset::ChunkArray| {
        json!({
            "name": mask.name(), "dtype": mask.meta().dtype.name(),
            "layers": dataset.mask_layers(number, mask.name()),
            "class_names": mask.meta().mask_meaning().class_names,
        })
    };
    let target = |target: &hsipack_store::dataset::ChunkArray| {
        let meaning = target.meta().companion_meaning();
        let (channel_names, unit) =
            meaning.map(|meaning| (meaning.band_names, meaning.unit)).unwrap_or_default();
        json!({
            "name": target.name(), "dtype": target.meta().dtype.name(),
            "channels": target.has_bands().then(|| target.shape().bands),
            "channel_names": channel_names, "unit": unit,
        })
    };
    let further = |image: &hsipack_store::dataset::ChunkArray| {
        let (shape, ratio) = (image.shape(), image.ratio());
        let meaning = image.meta().companion_meaning();
        let (names, unit, wavelength, fwhm) = meaning
            .map(|meaning| (meaning.band_names, meaning.unit, meaning.wavelength, meaning.fwhm))
            .unwrap_or_default();
        json!({
            "name": image.name(), "dtype": image.meta().dtype.name(),
            "shape": [shape.rows, shape.columns, shape.bands],
            "ratio": [ratio.finer(), ratio.coarser()],
            "band_names": names, "unit": unit, "wavelengths": wavelength, "fwhm": fwhm,
        })
    };
    json!({
        "name": stack.name,
        "samples": stack.image.len(),
        "shape": [shape.rows, shape.columns, shape.bands],
        "dtype": stack.image.meta().dtype.name(),
        "wavelengths": stack.wavelength,
        "fwhm": stack.fwhm,
        "scale_factor": dataset.scale_factor(number),
        "add_offset": dataset.add_offset(number),
        "unit": stack.image.meta().unit(),
        "fill_value": stack.image.meta().missing(),
        "stats": stats,
        "split_stats": split_stats,
        "good_bands": dataset.good_bands(number),
        "masks": stack.masks.iter().map(mask).collect::<Vec<_>>(),
        "targets": stack.companions_of(Role::Target).map(target).collect::<Vec<_>>(),
        "images": stack.companions_of(Role::Image).map(further).collect::<Vec<_>>(),
    })
}

impl Reading {
    fn all(
        &self,
        dataset: &hsipack_read::Dataset,
        samples: &[usize],
        most: usize,
    ) -> Result<Vec<Read>> {
        let most = most.max(1);
        let readers = most.min(samples.len().max(1));
        // If there are several samples, they share the threads; a single sample uses all of them.
        let host = host(if readers == 1 { most } else { 1 });
        let read = |(): &mut (), sample: &usize| self.one(dataset, *sample, &host);
        threads::in_turn(readers, "read", samples.iter(), || (), read)
    }

    fn one(&self, dataset: &hsipack_read::Dataset, sample: usize, host: &Host) -> Result<Read> {
        let number = dataset.stack_of(sample)?;
        let dataset = &dataset.clone().with_integers(self.integers());
        let shape = dataset.stacks()[number].image.shape();
        let (rows, columns) = pixels_of(self.part, shape);
        let stored =
            dataset.load_image(sample, rows.clone(), columns.clone(), self.bands.as_deref())?;
        let [scale, offset] = [dataset.scale_factor(number), dataset.add_offset(number)];
        let image = self.image(host, &stored, [scale, offset])?;
        let masks = self.masks.iter().map(|name| {
            let stored = dataset.load_mask(sample, name, rows.clone(), columns.clone())?;
            self.labels(host, &stored, dataset.mask_layers(number, name).len())
        });
        let targets = self.targets.iter().map(|name| {
            let stored = dataset.load_target(sample, name, rows.clone(), columns.clone())?;
            match stored.shape().len() {
                2 => Ok(stored),
                _ => Ok(stored.permuted(&[2, 0, 1])),
            }
        });
        let images = self.images.iter().map(|name| {
            let stored = dataset.load_further(sample, name, rows.clone(), columns.clone())?;
            Ok(stored.permuted(&[2, 0, 1]))
        });
        Ok((image, masks.chain(targets).chain(images).collect::<Result<_>>()?))
    }

    /// The form of images that are stored as integers.
    fn integers(&self) -> Integers {
        match (self.physical, self.dtype.as_deref()) {
            // Computed below, in double precision.
            (true, Some("float64")) => Integers::Numbers(FloatType::F32),
            (true, Some("float16")) => Integers::Physical(FloatType::F16),
            (true, _) => Integers::Physical(FloatType::F32),
            (false, None) => Integers::Stored,
            (false, Some(_)) => Integers::Numbers(FloatType::F32),
        }
    }

    fn image(
        &self,
        host: &Host,
        stored: &augment::Array,
        factor_and_offset: [f64; 2],
    ) -> Result<augment::Array> {
        let element = self.dtype.as_deref().map_or(Ok(stored.element()), str::parse)?;
        let mut stored = one_sample(stored, &[])?;
        let (nan, normalized) = (self.nan, Normalized::Not);
        let mut recipe = ImageConversion { physical: Vec::new(), normalized, nan: None, element };
        if self.physical && factor_and_offset != [1.0, 0.0] {
            if element == ElementType::F64 && stored.element() != element {
                // Double-precision physical values are computed in double precision.
                stored = host.image(&stored, &recipe)?.permuted(&[0, 2, 3, 1]);
            }
            recipe.physical = vec![factor_and_offset];
        }
        // Integers have no NaN.
        recipe.nan = nan.filter(|_| stored.element().is_float());
        first(&host.image(&stored, &recipe)?)
    }

    fn labels(
        &self,
        host: &Host,
        stored: &augment::Array,
        layers: usize,
    ) -> Result<augment::Array> {
        let element = match stored.element() {
            ElementType::U16 if self.signed => ElementType::I32,
            ElementType::U32 | ElementType::U64 if self.signed => ElementType::I64,
            other => other,
        };
        let layers = if self.layers { layers } else { 0 };
        let recipe = LabelConversion { stored: stored.element(), layers, element };
        first(&host.labels(&one_sample(stored, &[1])?, &recipe)?)
    }
}

/// The array as a batch of one sample, with additional axes at the end.
fn one_sample(array: &augment::Array, trailing: &[usize]) -> Result<augment::Array> {
    array.reshaped(&[&[1], array.shape(), trailing].concat())
}
