//! What is done on the host's memory by loops of our own, where they beat tensor operations: each pass reads and
//! writes every value once, computes in float32 and rounds once.

mod element;
mod rows;
mod spectra;
mod warp;

use std::cell::Cell;
use std::marker::PhantomData;

use tch::{Device, Kind, Tensor};

use super::geometry::Job;
use crate::Result;
use crate::torch::{bytes_of, bytes_of_mut, each_piece, run, written};
pub(super) use rows::{Around, blur, mix, noise};
pub(super) use spectra::{Bands, bands, normalize};

thread_local! {
    /// Whether this thread leaves everything to tensor operations.
    static AVOIDED: Cell<bool> = const { Cell::new(false) };
}

/// Has `work` done without the loops, as on other devices.
pub(super) fn avoided<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            AVOIDED.set(self.0);
        }
    }
    let _before = Before(AVOIDED.replace(true));
    work()
}

fn on_host(tensor: &Tensor) -> bool {
    tensor.device() == Device::Cpu && !AVOIDED.get()
}

/// Whether arrays like this one are in the host's memory, of a type that the loops take.
pub(super) fn takes_image(image: &Tensor) -> bool {
    on_host(image) && matches!(image.kind(), Kind::Half | Kind::Float)
}

/// Whether a job can be done here.
pub(super) fn takes(job: &Job<'_>) -> bool {
    on_host(job.from) && (job.nearest() || takes_image(job.from))
}

/// What a job makes of its array.
pub(super) fn moved(job: &Job<'_>) -> Result<Tensor> {
    let size = job.from.size();
    let shape = [size[0], job.to[0] as i64, job.to[1] as i64, size[3]];
    let fields: Vec<Option<&[f32]>> = job
        .fields
        .iter()
        .map(|field| field.as_ref().map(|field| bytemuck::cast_slice(bytes_of(field))))
        .collect();
    let plan = warp::Plan::new(job, &fields);
    let kind = job.from.kind();
    let from = bytes_of(job.from);
    written(&shape, kind, |into| {
        match kind {
            Kind::Half if !job.nearest() => {
                let (from, into) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(into));
                warp::moved::<half::f16>(plan, from, into, job.fill);
            }
            Kind::Float if !job.nearest() => {
                let (from, into) = (bytemuck::cast_slice(from), bytemuck::cast_slice_mut(into));
                warp::moved::<f32>(plan, from, into, job.fill);
            }
            _ => {
                let fill = run(|| {
                    let one = Tensor::f_full([1], job.fill, (kind, Device::Cpu))?;
                    Ok(bytes_of(&one).to_vec())
                })?;
                warp::moved_whole(plan, from, into, &fill);
            }
        }
        Ok(())
    })
}

/// One sample of an image, whose memory nobody else looks at as long as the sample is borrowed.
pub(super) struct Place<'a> {
    sample: Tensor,
    _image: PhantomData<&'a mut Tensor>,
}

impl<'a> Place<'a> {
    /// # Errors
    /// If there is no such sample.
    ///
    /// # Safety
    /// Nobody else may read or write the image's memory as long as the place lives, through whatever tensor.
    pub(super) unsafe fn of(image: &'a mut Tensor, sample: usize) -> Result<Self> {
        Ok(Self { sample: run(|| image.f_get(sample as i64))?, _image: PhantomData })
    }

    fn size(&self) -> Vec<i64> {
        self.sample.size()
    }

    fn kind(&self) -> Kind {
        self.sample.kind()
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: whoever made the place promised that nobody else looks at its memory, and it is borrowed.
        unsafe { bytes_of_mut(&mut self.sample) }
    }
}
