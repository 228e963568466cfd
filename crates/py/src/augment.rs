//! Augments the user's own arrays.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_augment::{
    self as augment, Augmented, Device, ImageBands, Images, Library as _, Mask, Mixed, Parameters,
    SampleKey,
};
use hsipack_format::{Error, Result};
use hsipack_store::process::OfProcess;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::{Array, taken};
use crate::boxes;
use crate::errors::OrRaise;
use crate::task::Worker;
use crate::torch::{Library, Tensor};

/// A list of augmentations to apply to batches.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Pipeline {
    pipeline: Arc<augment::Pipeline>,
    /// Processes batches on the CPU; the first such batch starts it.
    worker: Mutex<Option<OfProcess<Worker>>>,
}

/// Wavelengths, widths if they are known, and validity of the bands that resampled images have.
pub type ResampledBands = (Vec<f64>, Option<Vec<f64>>, Option<Vec<bool>>);

/// Image, masks, and for each mixing augmentation the partners and shares.
type AugmentedParts = (Array, Vec<Array>, Vec<(Vec<usize>, Vec<f64>)>);

#[pymethods]
impl Pipeline {
    #[new]
    fn new(py: Python<'_>, json: &str) -> PyResult<Self> {
        let pipeline = Arc::new(augment::Pipeline::from_json(json).or_raise(py)?);
        Ok(Self { pipeline, worker: Mutex::new(None) })
    }

    fn to_json(&self) -> String {
        self.pipeline.to_json()
    }

    /// Draws parameters for a batch and applies them, in host memory with this many threads. Also
    /// returns the parameters as JSON. Results have their own memory. With `through="torch"`, torch
    /// computes in host memory as well.
    #[pyo3(signature = (image, masks, epoch, samples, threads, through=None))]
    #[allow(clippy::too_many_arguments)] // Python names them
    fn augment(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        masks: Vec<Named<'_>>,
        epoch: u64,
        samples: Vec<(usize, u64)>,
        threads: usize,
        through: Option<&str>,
    ) -> PyResult<(AugmentedParts, String)> {
        let images = images(image, masks)?;
        let keys: Vec<SampleKey> =
            samples.into_iter().map(|(sample, repeat)| SampleKey { sample, repeat }).collect();
        let pipeline = self.pipeline.clone();
        let work = move |library: &Library, images: Images<Tensor>| {
            library.augment(&pipeline, images, epoch, &keys)
        };
        let (augmented, parameters) = self.applied(py, images, work, threads, through)?;
        Ok((parts(augmented), parameters.to_json()))
    }

    /// Applies parameters that were drawn before.
    #[pyo3(signature = (image, masks, parameters, threads, through=None))]
    fn replay(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyAny>,
        masks: Vec<Named<'_>>,
        parameters: &str,
        threads: usize,
        through: Option<&str>,
    ) -> PyResult<AugmentedParts> {
        let images = images(image, masks)?;
        let parameters = Parameters::from_json(parameters).or_raise(py)?;
        let pipeline = self.pipeline.clone();
        let work = move |library: &Library, images: Images<Tensor>| {
            library.apply(&pipeline, images, &parameters).map(|augmented| (augmented, ()))
        };
        Ok(parts(self.applied(py, images, work, threads, through)?.0))
    }

    /// Refuses augmentations that move no boxes.
    fn check_boxes(&self, py: Python<'_>) -> PyResult<()> {
        self.pipeline.check_boxes().or_raise(py)
    }

    /// The bands of each image after augmentation with these parameters, if augmentations draw
    /// bands.
    fn bands(&self, py: Python<'_>, parameters: &str) -> PyResult<Option<Vec<Vec<usize>>>> {
        if !self.pipeline.draws_bands() {
            return Ok(None);
        }
        let parameters = Parameters::from_json(parameters).or_raise(py)?;
        parameters.bands(&self.pipeline).or_raise(py)
    }

    /// Whether spectra are resampled, which needs the bands of images.
    fn resamples_bands(&self) -> bool {
        self.pipeline.resamples_bands()
    }

    /// The same augmentations for images with these bands.
    #[pyo3(signature = (wavelengths, fwhm=None, valid=None))]
    fn with_bands(
        &self,
        py: Python<'_>,
        wavelengths: Vec<f64>,
        fwhm: Option<Vec<f64>>,
        valid: Option<Vec<bool>>,
    ) -> PyResult<Self> {
        let bands = ImageBands { wavelengths, fwhm, valid };
        let pipeline = augment::Pipeline::clone(&self.pipeline).with_bands(&bands).or_raise(py)?;
        Ok(Self { pipeline: Arc::new(pipeline), worker: Mutex::new(None) })
    }

    /// The bands that images have once they are resampled, before bands of them are drawn.
    fn resampled_bands(&self, py: Python<'_>) -> PyResult<Option<ResampledBands>> {
        Ok(self.pipeline.resampled_bands().or_raise(py)?.map(parts_of_bands))
    }

    /// Moves the boxes of each sample by parameters that were drawn before. Each sample's are left,
    /// top, right and bottom of each box (float64); the results have the visible share, too.
    fn move_boxes<'py>(
        &self,
        py: Python<'py>,
        parameters: &str,
        samples: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let parameters = Parameters::from_json(parameters).or_raise(py)?;
        let mut moved = boxes::taken(&samples).or_raise(py)?;
        parameters.move_boxes(&self.pipeline, &mut moved).or_raise(py)?;
        Ok(boxes::edges(py, &moved))
    }
}

impl Pipeline {
    /// Runs `work` on the device of the images; also returns its second result.
    fn applied<T: Send + 'static>(
        &self,
        py: Python<'_>,
        images: Images<Tensor>,
        work: impl FnOnce(&Library, Images<Tensor>) -> Result<(Augmented<Tensor>, T)> + Send + 'static,
        threads: usize,
        through: Option<&str>,
    ) -> PyResult<(Augmented<Tensor>, T)> {
        let library = Library::new(threads, false);
        let library = match through {
            None => library,
            Some("torch") => library.by_torch(),
            Some(other) => {
                let error = Error::conflict(format!("there is no back end {other:?}"));
                return Err(error.with_remedy("give \"torch\"")).or_raise(py);
            }
        };
        let here = through.is_some() || images.image.device().or_raise(py)? != Device::Cpu;
        let work = move || {
            let before = memory_of(&images)?;
            let (augmented, returned) = work(&library, images)?;
            Ok((apart_from(&before, augmented)?, returned))
        };
        // On a device, work in the caller's thread, because its stream is used.
        if here { work().or_raise(py) } else { self.patiently(py, work) }
    }

    /// Runs `work` in a thread while the caller's thread checks for signals.
    fn patiently<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let task = {
            let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
            if worker.as_ref().is_none_or(|worker| worker.get().is_none()) {
                *worker = Some(OfProcess::new(Worker::start(py)?));
            }
            let worker = worker.as_ref().and_then(OfProcess::get);
            worker.expect("started above").run(work)
        };
        task.wait(py)?.or_raise(py)
    }
}

/// Addresses of the memory of images and masks.
fn memory_of(images: &Images<Tensor>) -> Result<Vec<Range<usize>>> {
    let labels = images.masks.iter().map(|mask| &mask.labels);
    labels.chain([&images.image]).map(Tensor::memory).collect()
}

/// Gives results their own memory, so that writing to an output never changes an input.
fn apart_from(before: &[Range<usize>], augmented: Augmented<Tensor>) -> Result<Augmented<Tensor>> {
    augmented.of(|new| {
        let start = new.memory()?.start;
        match before.iter().any(|old| old.contains(&start)) {
            true => new.apart(),
            false => Ok(new),
        }
    })
}

/// A mask, target or further image: its name, the array, and whether it is a further image.
type Named<'py> = (String, Bound<'py, PyAny>, bool);

fn images(image: &Bound<'_, PyAny>, masks: Vec<Named<'_>>) -> PyResult<Images<Tensor>> {
    let further = masks.iter().filter(|(_, _, is_image)| *is_image);
    let further = further.map(|(name, ..)| name.clone()).collect();
    let mask = |(name, labels, _): Named<'_>| Ok(Mask { name, labels: taken(&labels)? });
    let masks = masks.into_iter().map(mask).collect::<PyResult<_>>()?;
    Ok(Images::new(taken(image)?, masks).with_further(further))
}

/// The bands of resampled images in the form for Python.
pub fn parts_of_bands(bands: ImageBands) -> ResampledBands {
    (bands.wavelengths, bands.fwhm, bands.valid)
}

fn parts(augmented: Augmented<Tensor>) -> AugmentedParts {
    let masks = augmented.masks.into_iter().map(|mask| Array::new(mask.labels)).collect();
    (Array::new(augmented.image), masks, pairs(augmented.mixed))
}

/// Partners and shares of mixed samples in the form for Python.
pub fn pairs(mixed: Vec<Mixed>) -> Vec<(Vec<usize>, Vec<f64>)> {
    mixed.into_iter().map(|mix| (mix.partners, mix.shares)).collect()
}
