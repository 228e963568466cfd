//! Augmentations of the user's own tensors.

use std::sync::{Arc, Mutex, PoisonError};

use hsipack_read::augment::{self, Augmented, Images, Mask, Mixed, Parameters, SampleKey};
use hsipack_read::{Error, OfProcess, Result};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tch::Device;

use crate::array::{Array, tensor_of};
use crate::errors::OrRaise;
use crate::task::Worker;

/// A list of augmentations, to be applied to batches.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Pipeline {
    pipeline: Arc<augment::Pipeline>,
    /// Works on the CPU's batches; started by the first one.
    worker: Mutex<Option<OfProcess<Worker>>>,
}

/// Image, masks, who was mixed with whom (partners and shares, for each mixing augmentation).
type Given = (Array, Vec<Array>, Vec<(Vec<usize>, Vec<f64>)>);

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

    /// Draws for a batch and applies it; gives what was drawn, too, as JSON.
    fn augment(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyCapsule>,
        masks: Vec<(String, Bound<'_, PyCapsule>)>,
        epoch: u64,
        samples: Vec<(usize, u64)>,
        overwrite: bool,
    ) -> PyResult<(Given, String)> {
        let images = images(image, masks, overwrite)?;
        let keys: Vec<SampleKey> =
            samples.into_iter().map(|(sample, repeat)| SampleKey { sample, repeat }).collect();
        let pipeline = self.pipeline.clone();
        let work = move |images| pipeline.augment(images, epoch, &keys);
        let (augmented, parameters) = self.run(py, images, work)?;
        let parameters = serde_json::to_string(&parameters).expect("plain data");
        Ok((given(augmented), parameters))
    }

    /// Applies what was drawn before.
    fn replay(
        &self,
        py: Python<'_>,
        image: &Bound<'_, PyCapsule>,
        masks: Vec<(String, Bound<'_, PyCapsule>)>,
        parameters: &str,
        overwrite: bool,
    ) -> PyResult<Given> {
        let images = images(image, masks, overwrite)?;
        let parameters: Parameters = serde_json::from_str(parameters)
            .map_err(|error| {
                Error::malformed(format!("these are no parameters: {error}"))
                    .with_remedy("give what an augmentation drew")
            })
            .or_raise(py)?;
        let pipeline = self.pipeline.clone();
        Ok(given(self.run(py, images, move |images| pipeline.apply(images, &parameters))?))
    }
}

impl Pipeline {
    /// Works on the CPU in a thread while the caller's looks for signals; on a device in the caller's, whose stream it is.
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        images: Images,
        work: impl FnOnce(Images) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if images.image.device() != Device::Cpu {
            return py.detach(|| work(images)).or_raise(py);
        }
        let task = {
            let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
            if worker.as_ref().is_none_or(|worker| worker.get().is_none()) {
                *worker = Some(OfProcess::new(Worker::start(py)?));
            }
            let worker = worker.as_ref().and_then(OfProcess::get);
            worker.expect("started above").run(move || work(images))
        };
        task.wait(py)?.or_raise(py)
    }
}

fn images(
    image: &Bound<'_, PyCapsule>,
    masks: Vec<(String, Bound<'_, PyCapsule>)>,
    overwrite: bool,
) -> PyResult<Images> {
    let mask = |(name, labels): (String, Bound<'_, PyCapsule>)| {
        Ok(Mask { name, labels: tensor_of(&labels)? })
    };
    let masks = masks.into_iter().map(mask).collect::<PyResult<_>>()?;
    Ok(Images { image: tensor_of(image)?, masks, overwrite })
}

fn given(augmented: Augmented) -> Given {
    let masks = augmented.masks.into_iter().map(|mask| Array::new(mask.labels)).collect();
    (Array::new(augmented.image), masks, pairs(augmented.mixed))
}

/// Who was mixed with whom, as Python gets it.
pub fn pairs(mixed: Vec<Mixed>) -> Vec<(Vec<usize>, Vec<f64>)> {
    mixed.into_iter().map(|one| (one.partners, one.shares)).collect()
}
