//! Augmentations with the host's loops and with libtorch's operations, compared with Kornia and
//! with each other; batches of `hsipack-read` as tensors.

mod batches;
#[path = "../../../augment/tests/integration/contract/mod.rs"]
mod contract;
mod engines;
mod gpu;
#[path = "../../../read/tests/integration/images.rs"]
mod images;
mod kernels;
mod kornia;
mod kornia_draws;
mod readme;
#[path = "../../../read/tests/support/mod.rs"]
mod support;

mod libtorch {
    use hsipack_augment::{Array, Images, Library, Parameters, Pipeline, TensorEngine};
    use hsipack_format::Result;
    use hsipack_torch::{Libtorch, Operations};

    /// Applies a pipeline on the CPU, as on a GPU.
    pub fn apply(
        pipeline: &Pipeline,
        images: &Images<Array>,
        parameters: &Parameters,
        threads: usize,
    ) -> Result<hsipack_augment::Augmented<Array>> {
        let libtorch = Libtorch::new(threads);
        let images = images.clone().of(|array| libtorch.tensor(array))?;
        let engine = TensorEngine(Operations::on(tch::Device::Cpu));
        pipeline.apply(&engine, &images, parameters)?.of(|tensor| libtorch.array(&tensor))
    }

    crate::contract! { apply }
}
