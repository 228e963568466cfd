//! Converts the settings of a loader from Python's values.

use std::sync::Arc;

use hsipack_augment::{Device, Pipeline};
use hsipack_read::plan::{Crop, Patches, Regions, Share, Windows};
use hsipack_read::{
    CacheKind, Class, DeviceOptions, Error, LoaderOptions, MemoryOptions, NewIds, Normalization,
    Result,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyString;

use crate::errors::{OrRaise, wrong_type};
use crate::torch::Library;

/// A dictionary of loader settings; `hsipack.Loader` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    batch_size: usize,
    order: String,
    seed: u64,
    crop: Option<CropSettings>,
    last: String,
    epoch_length: Option<usize>,
    rank: usize,
    world_size: usize,
    samples: Option<Vec<usize>>,
    weights: Option<Vec<f64>>,
    masks: Option<Vec<String>>,
    new_ids: Vec<NewIdsSettings>,
    bands: Option<Vec<usize>>,
    threads: Option<usize>,
    slots: usize,
    locked: bool,
    on_damage: String,
    cache: Option<String>,
    cache_bytes: u64,
    shuffle_window: String,
    device: Option<usize>,
    dtype: String,
    mask_dtype: Option<String>,
    layers: bool,
    physical: bool,
    nan: Option<f64>,
    normalize: Option<String>,
    /// The user's mean and standard deviation, instead of a name.
    standardize_by: Option<(Vec<f64>, Vec<f64>)>,
    copy: bool,
    pipeline: Option<String>,
    trace: bool,
    repeat: bool,
    emulated_bus: Option<f64>,
    /// Whether tensors on a device are passed to torch.
    torch: bool,
    /// Threads that compute in host memory.
    computing_threads: usize,
}

/// Which windows of the cubes to read.
#[derive(FromPyObject)]
enum CropSettings {
    Regions(RegionSettings),
    Labelled(LabelledSettings),
    Windows(WindowSettings),
    Plain(PlainSettings),
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct RegionSettings {
    regions: String,
    size: (u32, u32),
    labels: Option<String>,
    ignore: Vec<u32>,
    min_pixels: usize,
    pad: String,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct LabelledSettings {
    mask: String,
    size: (u32, u32),
    classes: Option<Vec<u32>>,
    ignore: Vec<u32>,
    per_class: Option<usize>,
    pad: String,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct WindowSettings {
    /// Sample, row and column of each window, 8 bytes per number.
    windows: PyBackedBytes,
    size: (u32, u32),
    pad: String,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PlainSettings {
    kind: String,
    rows: u32,
    columns: u32,
    per_cube: u32,
    min_labelled: f64,
    row_step: u32,
    column_step: u32,
    pad: Option<String>,
}

impl Settings {
    /// Options of the decoding loader.
    pub fn loader(&self) -> Result<LoaderOptions> {
        let mut options = LoaderOptions::new(self.batch_size);
        let plan = &mut options.plan;
        plan.seed = self.seed;
        plan.order = self.order.parse()?;
        match &self.crop {
            None => {}
            Some(CropSettings::Labelled(labelled)) => {
                options.patches = Some((labelled.mask.clone(), labelled.patches()?));
            }
            Some(CropSettings::Regions(regions)) => {
                options.regions = Some((regions.regions.clone(), regions.regions()?));
            }
            Some(CropSettings::Windows(windows)) => plan.crop = windows.crop()?,
            Some(CropSettings::Plain(plain)) => plan.crop = plain.crop()?,
        }
        plan.last = self.last.parse()?;
        plan.epoch_length = self.epoch_length;
        options.share = Share { rank: self.rank, world_size: self.world_size };
        options.samples = self.samples.clone();
        options.weights = self.weights.clone();
        options.masks = self.masks.clone();
        options.new_ids = self.new_ids.iter().map(new_ids).collect();
        options.bands = self.bands.clone();
        options.threads = self.threads.unwrap_or(options.threads);
        options.slots = self.slots;
        options.memory = MemoryOptions { plain: !self.locked, ..MemoryOptions::default() };
        options.on_damage = self.on_damage.parse()?;
        options.cache = self.cache.as_deref().map_or(Ok(CacheKind::None), str::parse)?;
        options.cache_bytes = self.cache_bytes;
        options.shuffle_window = self.shuffle_window.parse()?;
        options.trace = self.trace.then(Arc::default);
        Ok(options)
    }

    /// Options of the device and its tensors.
    pub fn device(&self) -> Result<DeviceOptions> {
        let mut options = DeviceOptions::new(self.device.map_or(Device::Cpu, Device::Cuda));
        options.image = self.dtype.parse()?;
        options.masks = self.mask_dtype.as_deref().map(str::parse).transpose()?;
        options.layers = self.layers;
        options.physical = self.physical;
        options.nan = self.nan;
        options.repeat = self.repeat;
        options.emulated_bus = self.emulated_bus;
        options.normalization = self.normalization()?;
        options.copy = self.copy;
        Ok(options)
    }

    fn normalization(&self) -> Result<Normalization> {
        if let Some((mean, std)) = &self.standardize_by {
            return Ok(Normalization::StandardizeBy { mean: mean.clone(), std: std.clone() });
        }
        self.normalize.as_deref().map_or(Ok(Normalization::None), str::parse)
    }

    /// The library that computes.
    pub fn library(&self) -> Library {
        Library::new(self.computing_threads, self.torch)
    }

    /// The augmentations.
    pub fn pipeline(&self) -> Result<Option<Pipeline>> {
        self.pipeline.as_deref().map(Pipeline::from_json).transpose()
    }
}

/// A mask, its classes with their new ids, and the id for all other classes.
pub type NewIdsSettings = (String, Vec<(ClassSetting, u32)>, Option<u32>);

/// A class of a mask.
#[derive(FromPyObject)]
pub enum ClassSetting {
    Id(u32),
    Name(String),
}

/// New class ids for a mask.
pub fn new_ids((mask, classes, ignore): &NewIdsSettings) -> NewIds {
    let class = |(class, new): &(ClassSetting, u32)| match class {
        ClassSetting::Id(id) => (Class::Id(*id), *new),
        ClassSetting::Name(name) => (Class::Name(name.clone()), *new),
    };
    NewIds { mask: mask.clone(), classes: classes.iter().map(class).collect(), ignore: *ignore }
}

impl RegionSettings {
    fn regions(&self) -> Result<Regions> {
        let (rows, columns) = self.size;
        Ok(Regions {
            pad: self.pad.parse()?,
            ignore: self.ignore.clone(),
            min_pixels: self.min_pixels,
            labels: self.labels.clone(),
            ..Regions::new(rows, columns)
        })
    }
}

impl LabelledSettings {
    fn patches(&self) -> Result<Patches> {
        Ok(Patches {
            pad: self.pad.parse()?,
            classes: self.classes.clone(),
            ignore: self.ignore.clone(),
            per_class: self.per_class,
            ..Patches::new(self.size.0, self.size.1)
        })
    }
}

impl WindowSettings {
    fn crop(&self) -> Result<Crop> {
        let numbers = self.windows.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
        let numbers: Vec<i64> = numbers.collect();
        // Python has checked that the numbers fit.
        let window =
            |&[sample, row, column]: &[i64; 3]| (sample as usize, row as i32, column as i32);
        let windows: Vec<_> = numbers.as_chunks().0.iter().map(window).collect();
        Ok(Crop::Windows(Windows::listed(self.size, self.pad.parse()?, &windows)?.into()))
    }
}

impl PlainSettings {
    fn crop(&self) -> Result<Crop> {
        let Self { rows, columns, row_step, column_step, .. } = *self;
        match self.kind.as_str() {
            "center" => Ok(Crop::Centre { rows, columns }),
            "random" => {
                let (per_sample, min_labelled) = (self.per_cube, self.min_labelled);
                Ok(Crop::Random { rows, columns, per_sample, min_labelled })
            }
            "grid" => {
                let pad = self.pad.as_deref().map(str::parse).transpose()?;
                Ok(Crop::Grid { rows, columns, row_step, column_step, pad })
            }
            other => Err(Error::bug(format!("there is no crop {other:?}"))),
        }
    }
}

/// Reads settings that Python made and checked. If a value still has the wrong type, this raises our own kind of error
/// instead of Python's.
pub fn read<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    settings: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    settings.extract().or_else(|error: PyErr| {
        let py = settings.py();
        let what = error.value(py).to_string();
        // For "failed to extract field Settings.slots", whose cause says why.
        let name = what.rsplit('.').next().unwrap_or(&what).to_owned();
        let why = error.cause(py).map_or(what, |cause| cause.value(py).to_string());
        let value = settings.get_item(PyString::new(py, &name));
        let value = value
            .and_then(|value| value.repr())
            .map_or_else(|_| "…".into(), |text| text.to_string());
        let what = format!("{name}={value}: {why}");
        match error.cause(py).is_some_and(|cause| cause.is_instance_of::<PyTypeError>(py)) {
            true => Err(wrong_type(py, &what)),
            false => Err(Error::conflict(what)).or_raise(py),
        }
    })
}
